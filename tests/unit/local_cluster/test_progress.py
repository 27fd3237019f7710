"""How far a set-up is, where no bar can be drawn."""

import io

from rich.console import Console
from rich.progress import Progress

from local_cluster.progress import LINE_EVERY_SECONDS, ProgressLines, setup_progress


class Hand:
    """A clock that is moved by hand, and the tasks that it times."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.progress = Progress(disable=True, get_time=lambda: self.now_s)
        self._lines = ProgressLines()

    def after(self, seconds: float) -> list[str]:
        self.now_s += seconds
        return self._lines.new(self.progress.tasks, self.now_s)


def test_a_task_is_said_when_it_begins_and_when_it_ends_with_how_long_it_took() -> None:
    hand = Hand()
    task = hand.progress.add_task("Helm 4", total=None)
    assert hand.after(0) == ["Helm 4"]
    assert hand.after(1) == []
    hand.progress.update(task, total=1, completed=1)
    assert hand.after(0) == ["Helm 4: done (1 s)"]
    assert hand.after(100) == []


def test_what_lasts_says_how_far_it_is_and_how_long_it_takes_yet() -> None:
    hand = Hand()
    task = hand.progress.add_task("compiling", total=100)
    hand.after(0)
    for _ in range(10):
        hand.progress.advance(task, 4)
        hand.now_s += LINE_EVERY_SECONDS / 10
    assert hand.after(0) == ["compiling: 40 %, about 30 s more"]
    assert hand.after(1) == []


def test_what_has_no_known_end_says_how_long_it_has_taken() -> None:
    hand = Hand()
    hand.progress.add_task("reading", total=None)
    hand.after(0)
    assert hand.after(130) == ["reading: 2 min so far"]


def test_a_next_step_is_said_at_once() -> None:
    hand = Hand()
    task = hand.progress.add_task("vLLM: torch", total=10)
    hand.after(0)
    hand.progress.update(task, description="vLLM: the rest")
    assert hand.after(1) == ["vLLM: the rest"]


def test_elsewhere_than_on_a_terminal_there_are_lines_and_no_bars() -> None:
    console = Console(file=io.StringIO(), width=40)
    with setup_progress(console) as progress:
        task = progress.add_task("Kubernetes: downloading [its source], Go and etcd", total=2)
        progress.update(task, completed=2)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[-1] == "Kubernetes: downloading [its source], Go and etcd: done (0 s)"
    assert len(lines) <= 2
