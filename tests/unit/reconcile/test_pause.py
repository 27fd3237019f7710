import pytest

from fathom.reconcile.annotations import pause_of

PAUSED = "fathom.dev/paused"


@pytest.mark.parametrize("annotations", [{}, {PAUSED: ""}, {PAUSED: "false"}, {PAUSED: " False "}])
def test_what_is_no_pause(annotations: dict[str, str]) -> None:
    assert pause_of(annotations) == ""


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("true", "annotation fathom.dev/paused holds depth, rollouts and refreshes."),
        ("ture", "annotation fathom.dev/paused holds depth, rollouts and refreshes: ture."),
        (
            " incident\n42. ",
            "annotation fathom.dev/paused holds depth, rollouts and refreshes: incident 42.",
        ),
    ],
)
def test_whatever_else_it_says_is_one_and_the_reason(value: str, sentence: str) -> None:
    assert pause_of({PAUSED: value}) == sentence


def test_a_reason_that_is_a_book_is_shortened() -> None:
    assert len(pause_of({PAUSED: "x" * 10_000})) < 400
