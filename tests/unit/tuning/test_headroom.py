"""What a fleet could serve beside what it does, by what was measured of it."""

from dataclasses import replace

import pytest

from fathom.api.choices import Objective
from fathom.tuning.tuner import decide
from unit.tuning.plant import MIDDLE, SETTINGS, WINDOW_30, Fleet, expected_length


def served(fleet: Fleet, batch: int, *, prefill: float = 0.0) -> float:
    """Tokens per second of the fleet with so many requests on each pod.

    Args:
        fleet: at its depths.
        batch: on each pod.
        prefill: share of the steps that prefill as well.
    """
    depth, hardware = fleet.depth(batch), fleet.hardware
    seconds = hardware.step_seconds(batch, depth) + prefill * hardware.prefill_s
    return len(fleet.pods) * batch * expected_length(MIDDLE, depth) / seconds


def grown_quiet(**changes: object) -> Fleet:
    """A fleet that was busy, and is less so now; its steps hold no prompts."""
    fleet = Fleet(settings=WINDOW_30, concurrency=12, jitter=0, **changes)  # type: ignore[arg-type]
    for pod in fleet.pods:
        pod.mixed_share = 0.0
    fleet.run(600)
    fleet.concurrency = 4
    return fleet.run(300)


def headroom(fleet: Fleet) -> float | None:
    return decide(fleet.snapshot()).headroom_tokens_per_second


def test_up_to_the_largest_batch_that_was_measured() -> None:
    fleet = grown_quiet()
    expected = served(fleet, 12) - served(fleet, 4)

    assert headroom(fleet) == pytest.approx(expected, rel=0.12)


def test_prefill_takes_of_it_what_it_takes_at_present() -> None:
    fleet = grown_quiet()
    for pod in fleet.pods:
        pod.mixed_share = 0.5
    fleet.run(900)

    # Each token brings as much of a prompt as at present: three times as much in a step.
    expected = served(fleet, 12, prefill=1.5) - served(fleet, 4, prefill=0.5)
    assert headroom(fleet) == pytest.approx(expected, rel=0.1)


def test_unknown_where_no_pod_counts_prompts() -> None:
    fleet = Fleet(settings=WINDOW_30, concurrency=12)
    for pod in fleet.pods:
        pod.counts_prompts = False

    assert headroom(fleet.run(600)) is None


def test_a_replica_more_is_room_for_more() -> None:
    fleet = grown_quiet()
    before = headroom(fleet)
    fleet.add_pod()

    assert before is not None
    assert (headroom(fleet) or 0) > before + served(fleet, 12) / 3


def test_with_an_slo_only_batches_that_keep_it_count() -> None:
    fleet = grown_quiet()
    goodput = replace(WINDOW_30, objective=Objective.GOODPUT, tpot_slo_seconds=1e-4)
    fleet.settings = goodput

    assert headroom(fleet) == 0


def test_at_the_busiest_batch_that_was_seen_it_is_unknown_and_not_zero() -> None:
    fleet = Fleet(settings=WINDOW_30, concurrency=12, jitter=0)
    assert headroom(fleet.run(600)) is None


def test_at_the_largest_batch_that_an_engine_takes_it_is_known() -> None:
    full = replace(WINDOW_30, max_batch=12)
    known = headroom(Fleet(settings=full, concurrency=12, jitter=0).run(600))
    assert known == pytest.approx(0, abs=60)


def test_what_is_not_measured_is_not_zero() -> None:
    assert headroom(Fleet()) is None
    fleet = Fleet(settings=SETTINGS).run(60)
    for pod in fleet.pods:
        pod.ready = False
    assert headroom(fleet) is None


def test_at_rest_it_stays_as_it_is() -> None:
    """Else a status would be written each minute of a night without traffic."""
    fleet = grown_quiet()
    fleet.concurrency = 0
    fleet.run(300)
    first = headroom(fleet)
    fleet.run(7200)

    assert first == headroom(fleet)
