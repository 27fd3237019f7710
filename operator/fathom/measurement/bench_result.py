"""What `fathom bench` found, as it stays in ConfigMap `<name>-bench`. Pure."""

from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from fathom.health import NOT_MEASURED

RESULT_KEY: Final = "result.json"
COLUMNS: Final = (
    *("Data", "Input", "Concurrency", "Depth", "tok/s", "Per user", "Acceptance"),
    *("× depth 0", "× true off"),
)
"""Columns of a table of a bench: the first is text, the others are numbers."""


class _Found(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class AcceptanceLength(_Found):
    """Tokens per verification step."""

    mean: float
    low: float
    """Low end of its interval of 95 %."""
    high: float
    drafts: int
    """That it was counted by."""


class BenchRow(_Found):
    """One run."""

    data: str
    concurrency: int
    """Requests in flight."""
    depth: int | None
    """null: an engine without speculation."""
    requests: int
    """That were answered."""
    failed: int
    """That were not."""
    input_tokens: int
    """Tokens of a prompt, on average."""
    tokens_per_second: float
    """Rate of all requests together."""
    tokens_per_second_per_user: float | None
    """Rate of one request once its first token is there; null: none had a second one."""
    first_token_seconds: float
    """Until the first token, on average."""
    acceptance: AcceptanceLength | None
    """null: nothing was drafted."""
    over_depth_0: float | None
    """Tokens per second, over those of depth 0 with the same data and concurrency; null: not
    measured."""
    over_true_off: float | None
    """The same over an engine without speculation; null: not measured."""


class DepthBench(_Found):
    """One bench."""

    name: str
    """Name of the SpeculativeDeployment."""
    image: str
    """Image of the engine."""
    at: str
    """When it ended."""
    rows: tuple[BenchRow, ...]
    not_measured: tuple[str, ...] = ()
    """What came to nothing, a sentence each."""

    def to_json(self) -> str:
        return self.model_dump_json(by_alias=True)

    @classmethod
    def from_json(cls, text: str) -> "DepthBench | None":
        """None: it is none."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def table(self) -> tuple[tuple[str, ...], ...]:
        """A row of `COLUMNS` for each run, grouped by what is compared."""
        order = list(dict.fromkeys(row.data for row in self.rows))
        return tuple(map(_cells, sorted(self.rows, key=lambda row: _place(row, order))))


def _place(row: BenchRow, order: list[str]) -> tuple[int, int, int]:
    return order.index(row.data), row.concurrency, -1 if row.depth is None else row.depth


def _cells(row: BenchRow) -> tuple[str, ...]:
    per_user = row.tokens_per_second_per_user
    return (
        row.data,
        str(row.input_tokens),
        str(row.concurrency),
        "off" if row.depth is None else str(row.depth),
        f"{row.tokens_per_second:,.1f}",
        NOT_MEASURED if per_user is None else f"{per_user:,.1f}",
        _acceptance(row.acceptance),
        _ratio(row.over_depth_0),
        _ratio(row.over_true_off),
    )


def _acceptance(length: AcceptanceLength | None) -> str:
    if length is None:
        return NOT_MEASURED
    return f"{length.mean:.3f} ±{(length.high - length.low) / 2:.3f}"


def _ratio(ratio: float | None) -> str:
    return NOT_MEASURED if ratio is None else f"{ratio:.2f}×"
