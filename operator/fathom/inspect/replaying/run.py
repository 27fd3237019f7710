"""Runs a replay to its end, or refuses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import typer

from fathom.adapters.prometheus.query import PrometheusUnreadableError
from fathom.core.counted import counted
from fathom.inspect.options import refuse
from fathom.inspect.replaying.feeding import Complain, Take
from fathom.inspect.replaying.recording import UnreadableRecordingError
from fathom.inspect.replaying.replay import Replay, ReplayResult
from fathom.inspect.replaying.settings import BadSettingsError

MOST_COMPLAINTS: Final = 10
NO_LOOK: Final = "there is no look at any engine in it"
"""Why there is nothing to replay in a recording."""

Feed = Callable[[Take, Complain], None]
"""Hands over every look, and a sentence about each that is passed over."""


@contextmanager
def refusing_replays() -> Iterator[None]:
    """Turns wishes and sources that cannot be read into a sentence and exit code 2."""
    try:
        yield
    except (BadSettingsError, UnreadableRecordingError) as error:
        refuse(str(error))
    except PrometheusUnreadableError as error:
        refuse(f"{error}.")


def run(replay: Replay, feed: Feed, nothing: str = NO_LOOK) -> ReplayResult:
    """Feed a replay, and say on stderr what was passed over.

    Args:
        replay: at its beginning.
        feed: where its looks come from.
        nothing: why there is nothing to replay, where there is nothing.

    Raises:
        typer.Exit: there is nothing to replay, or it cannot be read; stderr says why.
    """
    complaints = _Complaints()
    with refusing_replays():
        feed(replay.take, complaints.add)
    complaints.print()
    replayed = replay.result()
    if replayed is None:
        refuse(f"There is nothing to replay: {nothing}.")
    return replayed


@dataclass(slots=True)
class _Complaints:
    """What was passed over: the first ones in full, the others counted."""

    first: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, sentence: str) -> None:
        if len(self.first) < MOST_COMPLAINTS:
            self.first.append(sentence)
        else:
            self.more += 1

    def print(self) -> None:
        for sentence in self.first:
            typer.echo(sentence, err=True)
        if self.more:
            typer.echo(
                f"{counted(self.more, 'more look was', 'more looks were')} passed over.", err=True
            )
