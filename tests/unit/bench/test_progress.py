"""Where a bench stands, shown to whoever waits."""

from io import StringIO

from rich.console import Console

from fathom.bench.log import Heard, progress


def test_a_file_gets_a_line_for_each_new_thing() -> None:
    output = StringIO()
    with progress(Console(file=output, width=40)) as tell:
        for now, runs in (("waits", None), ("waits", None), ("random 64 [1]", 6)):
            tell(Heard(runs=runs, now=now))

    assert output.getvalue() == "waits\n[0/6] random 64 [1]\n"


def test_a_terminal_gets_a_bar() -> None:
    output = StringIO()
    with progress(Console(file=output, width=100, force_terminal=True)) as tell:
        tell(Heard(runs=6, now="random 64 [1]"))

    assert "0/6" in output.getvalue()
    assert "random 64 [1]" in output.getvalue()
