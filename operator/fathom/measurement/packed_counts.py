"""Counts as numbers side by side, and not as objects: the last look at every pod is kept.

A busy engine's page has some 150 cells, and half as many of drafts. As objects they take 63 KB, and
the garbage collector goes through a thousand of them; as numbers they take 13 KB in two objects.
"""

from array import array
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Generic, TypeVar

from fathom.measurement.counters import (
    NO_CONTEXT,
    NO_DRAFTS,
    NO_STEPS,
    Cell,
    CellCounts,
    ContextCounts,
    ContextRange,
    DraftCell,
    DraftCounts,
    StepKind,
)

_Key = TypeVar("_Key")
_Counts = TypeVar("_Counts")


@dataclass(frozen=True, slots=True)
class CountsForm(Generic[_Key, _Counts]):
    """How counts of one kind lie side by side."""

    width: Callable[[_Key], int]
    """Numbers of one key."""
    counts: Callable[[Sequence[float]], _Counts]
    """From the numbers of one key."""
    none: _Counts
    """What a key has counted that is not there."""


class PackedCounts(Mapping[_Key, _Counts]):
    """Counts by key. Made to be kept and compared: each look-up unpacks them all."""

    __slots__ = ("form", "numbers", "order")

    def __init__(
        self,
        form: CountsForm[_Key, _Counts],
        order: tuple[_Key, ...],
        numbers: Iterable[float],
    ) -> None:
        """Pack.

        Args:
            form: of the rows.
            order: each key once; looks that have the same keys best share it.
            numbers: of each key in turn, as many as the form says.
        """
        self.form = form
        self.order = order
        self.numbers = array("d", numbers)

    def __getitem__(self, key: _Key) -> _Counts:
        return self._unpacked()[key]

    def __iter__(self) -> Iterator[_Key]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def items(self) -> ItemsView[_Key, _Counts]:
        return self._unpacked().items()

    def changed(
        self, before: "PackedCounts[_Key, _Counts]"
    ) -> Iterator[tuple[_Key, _Counts, _Counts]]:
        """As the function of that name."""
        counts, none = self.form.counts, self.form.none
        if self.order == before.order and self.form is before.form:
            if self.numbers == before.numbers:
                return
            then, now = before.numbers, self.numbers
            for key, where in self.places():
                if then[where] != now[where]:
                    yield key, counts(then[where]), counts(now[where])
            return
        known = {key: before.numbers[where] for key, where in before.places()}
        for key, where in self.places():
            row, earlier = self.numbers[where], known.pop(key, None)
            if earlier != row:
                yield key, none if earlier is None else counts(earlier), counts(row)
        for key, earlier in known.items():
            yield key, counts(earlier), none

    def places(self) -> Iterator[tuple[_Key, slice]]:
        """Where each key's numbers are."""
        width, at = self.form.width, 0
        for key in self.order:
            end = at + width(key)
            yield key, slice(at, end)
            at = end

    def _unpacked(self) -> dict[_Key, _Counts]:
        numbers, counts = self.numbers, self.form.counts
        return {key: counts(numbers[where]) for key, where in self.places()}


def changed(
    before: Mapping[_Key, _Counts], after: Mapping[_Key, _Counts], none: _Counts
) -> Iterator[tuple[_Key, _Counts, _Counts]]:
    """Each key whose counts are others than before, with those of then and of now.

    What is not packed is told apart as an object: equal counts may come, too. Keys that are gone
    come last.

    Args:
        before: counts of then.
        after: of now.
        none: those of a key that is not there.
    """
    if isinstance(before, PackedCounts) and isinstance(after, PackedCounts):
        yield from after.changed(before)
        return
    # Each look-up of what is packed would unpack all of it.
    then, now = dict(before.items()), dict(after.items())
    for key, counts in now.items():
        if then.get(key) is not counts:
            yield key, then.get(key, none), counts
    for key, counts in then.items():
        if key not in now:
            yield key, counts, none


_NUMBERS_OF_STEPS: Final = len(fields(CellCounts))
_WITHOUT_PROMPTS: Final = _NUMBERS_OF_STEPS - 1
_NUMBERS_OF_CONTEXT: Final = len(fields(ContextCounts))


def _numbers_of_steps(cell: Cell) -> int:
    return _NUMBERS_OF_STEPS if cell.step is StepKind.MIXED else _WITHOUT_PROMPTS


def _numbers_without_prompts(_: Cell) -> int:
    return _WITHOUT_PROMPTS


def _steps_of(numbers: Sequence[float]) -> CellCounts:
    return CellCounts(*numbers)


def _numbers_of_drafts(cell: DraftCell) -> int:
    return 1 + cell.depth


def _drafts_of(numbers: Sequence[float]) -> DraftCounts:
    return DraftCounts(numbers[0], tuple(numbers[1:]))


def _numbers_of_context(_: ContextRange) -> int:
    return _NUMBERS_OF_CONTEXT


def _context_of(numbers: Sequence[float]) -> ContextCounts:
    return ContextCounts(*numbers)


STEPS_FORM: Final = CountsForm(_numbers_of_steps, _steps_of, NO_STEPS)
"""As many numbers as `CellCounts` has, in its order; steps of decodes have no prompts."""
OLD_STEPS_FORM: Final = CountsForm(_numbers_without_prompts, _steps_of, NO_STEPS)
"""Form of pages that do not count tokens of prompts."""
DRAFTS_FORM: Final = CountsForm(_numbers_of_drafts, _drafts_of, NO_DRAFTS)
"""Drafts, and then as many accepted ones as the cell is deep."""
CONTEXTS_FORM: Final = CountsForm(_numbers_of_context, _context_of, NO_CONTEXT)
"""As many numbers as `ContextCounts` has, in its order."""
