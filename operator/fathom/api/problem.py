from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a manifest, in words a user can act on."""

    field: str
    """Path of the field as the user writes it, such as `spec.speculation.tokens`."""
    message: str
    """A sentence: what is wrong and what to do."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"
