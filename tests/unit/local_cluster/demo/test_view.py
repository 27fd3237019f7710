from rich.console import Console

from local_cluster.demo.verdict import Claim
from local_cluster.demo.view import claim_lines


def test_what_could_not_be_told_is_marked_as_neither_held_nor_refuted() -> None:
    console = Console(width=80)
    with console.capture() as shown:
        console.print(claim_lines([Claim(str(holds), holds) for holds in (True, False, None)]))
    assert shown.get().splitlines() == ["✔ True", "✘ False", "? None"]
