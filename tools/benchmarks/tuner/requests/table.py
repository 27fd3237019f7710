"""The scores as a table for people."""

from collections.abc import Iterable, Sequence
from statistics import mean

from rich.table import Table

from benchmarks.tuner.requests.score import Arm, RequestScore, by_world

_COLUMNS = (
    "tokens %",
    "best %",
    "median s",
    "p99 s",
    "waiting",
    "gain %",
    "GPU h %",
    "room",
)


def request_table(scores: Iterable[RequestScore]) -> Table:
    """Means over seeds, a row for each world."""
    table = Table(
        title="Whole requests, first token after so many seconds: tuned/at the user's own depth; "
        "gains and headroom: said/true",
        title_justify="left",
    )
    table.add_column("world", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for world, of in by_world(scores).items():
        table.add_row(world, *_cells(of))
    return table


def _cells(of: Sequence[RequestScore]) -> tuple[str, ...]:
    tuned, own = [each.tuned for each in of], [each.own for each in of]
    return (
        f"{100 * mean(each.vs_tokens for each in of):+.2f}",
        f"{100 * mean(each.vs_best for each in of):+.2f}",
        "/".join(_seconds(arm.first_token_p50_s for arm in arms) for arms in (tuned, own)),
        "/".join(_seconds(arm.first_token_p99_s for arm in arms) for arms in (tuned, own)),
        "/".join(_waiting(arms) for arms in (tuned, own)),
        f"{_said(each.gain_said for each in of)}/{_said(each.gain_true for each in of)}",
        f"{_said_within(of)}/{_said(each.gpu_share_true for each in of)}",
        "/".join(
            _tokens(values)
            for values in (
                [each.headroom_said for each in of],
                [each.headroom_true for each in of],
            )
        ),
    )


def _seconds(values: Iterable[float]) -> str:
    return f"{mean(values):.2f}"


def _waiting(arms: Iterable[Arm]) -> str:
    return f"{mean(arm.waiting_at_end for arm in arms):.0f}"


def _said(values: Iterable[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{100 * mean(known):+.1f}" if known else "unknown"


def _said_within(of: Sequence[RequestScore]) -> str:
    """With the mean half width of the intervals."""
    widths = [each.gpu_share_half_width for each in of if each.gpu_share_said is not None]
    said = _said(each.gpu_share_said for each in of)
    return f"{said}±{100 * mean(widths):.1f}" if widths else said


def _tokens(values: Iterable[float | None]) -> str:
    known = [each for each in values if each is not None]
    return f"{mean(known):.0f}" if known else "?"
