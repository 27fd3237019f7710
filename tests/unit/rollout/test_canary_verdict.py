"""What is held against a canary, and when doubt ends."""

import itertools
from dataclasses import replace
from math import inf, log

import pytest

from fathom.api.conditions import Reason
from fathom.measurement.counters import Histogram
from fathom.rollout.canary_evidence import BakeTotals, CanaryContrast, CanaryEvidence, slow_share
from fathom.rollout.canary_verdict import Answer, Verdict, verdict_alone, verdict_on

BAKE_S = 1200.0


def contrast(difference: float, windows: int = 20, noise: float = 0.01) -> CanaryContrast:
    """Windows in which the canary differs so much from the others."""
    found = CanaryContrast()
    for sign in itertools.islice(itertools.cycle((1, -1)), windows):
        found = found.updated(difference + sign * noise, 50.0)
    return found


def speed(ratio: float, windows: int = 20, noise: float = 0.01) -> CanaryContrast:
    """Windows of a canary that is so much faster than the others."""
    return contrast(log(ratio), windows, noise)


def histogram(requests: float, slow: float) -> Histogram:
    """So many requests, of which a share is slower than 100 ms."""
    fast = requests * (1 - slow)
    return ((0.05, fast * 0.9), (0.1, fast), (1.0, requests), (inf, requests))


def evidence(
    canary: BakeTotals | None = None, found: CanaryContrast | None = None, *, blind: float = 0
) -> CanaryEvidence:
    stable = BakeTotals(tokens=2e5, finished=2000, tpot=histogram(2000, 0.01))
    mine = canary or BakeTotals(tokens=1e5, finished=1000, tpot=histogram(1000, 0.01))
    tpot_tail, ttft_tail = (
        contrast(slow_share(each, 0.1) - 0.01) for each in (mine.tpot, mine.ttft)
    )
    found = speed(1.0) if found is None else found
    return CanaryEvidence(
        canary=mine,
        stable=stable,
        speed=found,
        tpot_tail=tpot_tail,
        ttft_tail=ttft_tail,
        looks=20,
        blind=blind,
    )


def at_the_end(found: CanaryEvidence, bakes: float = 1.0) -> Verdict:
    return verdict_on(found, bakes * BAKE_S, BAKE_S)


@pytest.mark.parametrize("ratio", [1.0, 1.05, 0.998])
def test_as_good_is_promoted_when_the_bake_is_over_and_not_before(ratio: float) -> None:
    found = evidence(found=speed(ratio))
    early = verdict_on(found, BAKE_S - 60, BAKE_S)
    assert early.answer is Answer.WATCH
    assert "watched for 1 more minute." in early.message
    assert "1 more minute." in verdict_on(found, BAKE_S - 10, BAKE_S).message
    assert at_the_end(found).answer is Answer.PROMOTE


def test_slower_by_three_percent_ends_the_bake_early() -> None:
    found = verdict_on(evidence(found=speed(0.97)), 600, BAKE_S)
    assert (found.answer, found.reason) == (Answer.ROLL_BACK, Reason.CANARY_SLOWER)
    assert found.message.startswith("-3.")


def test_a_difference_of_speed_is_told_with_two_standard_errors() -> None:
    found = at_the_end(evidence(found=speed(0.5, noise=0.1)))
    assert found.message == "-50.0 % ± 3.3 tokens per second per request, compared with the others."


def test_the_end_of_a_bake_takes_less_certainty_than_ending_it_early() -> None:
    """Two standard errors there, and three before: only looking often asks for more."""
    slower = evidence(found=speed(0.97, noise=0.025))
    assert verdict_on(slower, BAKE_S - 60, BAKE_S).answer is Answer.WATCH
    found = at_the_end(slower)
    assert (found.answer, found.reason) == (Answer.ROLL_BACK, Reason.CANARY_SLOWER)
    # And as much shows that it is as good.
    assert at_the_end(evidence(found=speed(1.0, noise=0.012))).answer is Answer.PROMOTE


def test_a_few_windows_judge_no_speed() -> None:
    found = evidence(found=speed(0.9, windows=6))
    assert verdict_on(found, 600, BAKE_S).answer is Answer.WATCH
    assert at_the_end(found).answer is Answer.WATCH


@pytest.mark.parametrize("windows", [0, 1, 2, 7])
def test_nor_do_they_after_the_longest_bake(windows: int) -> None:
    """A single window of a healthy canary, with the noise of few requests."""
    found = at_the_end(evidence(found=speed(0.98, windows=windows, noise=-0.1)), 3.0)
    assert found.answer is Answer.PROMOTE
    assert "no more is known after the longest bake" in found.message


@pytest.mark.parametrize("windows", [8, 12])
def test_a_doubt_is_watched_on_and_then_settled_by_what_is_likely(windows: int) -> None:
    slower = evidence(found=speed(0.87, windows=windows, noise=0.15))
    assert at_the_end(slower).answer is Answer.WATCH
    found = at_the_end(slower, 3.0)
    assert (found.answer, found.reason) == (Answer.ROLL_BACK, Reason.CANARY_SLOWER)
    assert "likely slower, though not certain after the longest bake" in found.message
    level = evidence(found=speed(1.05, windows=windows, noise=0.15))
    assert at_the_end(level).answer is Answer.WATCH
    assert at_the_end(level, 3.0).answer is Answer.PROMOTE


def test_a_mean_that_chance_may_have_made_gives_up_no_canary() -> None:
    """As of three requests in each window: -21 % ± 43."""
    chance = evidence(found=speed(0.79, windows=16, noise=0.7))
    found = at_the_end(chance, 3.0)
    assert found.answer is Answer.PROMOTE
    assert "no more is known after the longest bake" in found.message


def test_failures_beyond_chance_and_beyond_the_others_are_held_against_it() -> None:
    bad = BakeTotals(tokens=1e5, finished=1000, failed=20)
    assert at_the_end(evidence(bad)).reason is Reason.CANARY_ERRORS
    few = BakeTotals(tokens=1e5, finished=1000, failed=4)
    assert at_the_end(evidence(few)).answer is Answer.PROMOTE
    # The others fail as often: it is the clients.
    found = evidence(bad)
    alike = replace(found, stable=BakeTotals(tokens=2e5, finished=2000, failed=40))
    assert at_the_end(alike).answer is Answer.PROMOTE


def test_a_difference_that_chance_explains_is_not() -> None:
    """1.6 % of 500 requests and 1 % of 1000: one standard error."""
    found = evidence(BakeTotals(tokens=1e5, finished=500, failed=8))
    alike = replace(found, stable=BakeTotals(tokens=2e5, finished=1000, failed=10))
    assert at_the_end(alike).answer is Answer.PROMOTE


def test_most_requests_failing_is_beyond_chance_even_of_twenty() -> None:
    found = evidence(BakeTotals(tokens=1e5, finished=20, failed=18))
    worse = replace(found, stable=BakeTotals(tokens=2e5, finished=1000, failed=500))
    assert at_the_end(worse).reason is Reason.CANARY_ERRORS
    assert "90.0% of its 20 requests failed or were aborted, and 50.0% of" in (
        at_the_end(worse).message
    )


@pytest.mark.parametrize(
    ("failed", "reason"), [(4, Reason.CANARY_AS_GOOD), (5, Reason.CANARY_ERRORS)]
)
def test_five_failures_tell_something(failed: int, reason: Reason) -> None:
    assert (
        at_the_end(evidence(BakeTotals(tokens=1e5, finished=100, failed=failed))).reason is reason
    )


@pytest.mark.parametrize(("windows", "answer"), [(7, Answer.WATCH), (8, Answer.ROLL_BACK)])
def test_eight_windows_tell_something_of_speed(windows: int, answer: Answer) -> None:
    assert verdict_on(evidence(found=speed(0.9, windows)), 600, BAKE_S).answer is answer
    as_good = at_the_end(evidence(found=speed(1.0, windows, noise=0.001)))
    assert as_good.answer is (Answer.WATCH if windows < 8 else Answer.PROMOTE)


@pytest.mark.parametrize(("blind", "answer"), [(9, Answer.PROMOTE), (10, Answer.WATCH)])
def test_half_of_the_windows_unread_show_nothing(blind: float, answer: Answer) -> None:
    assert at_the_end(evidence(blind=blind)).answer is answer


def test_the_longest_bake_is_three_times_the_shortest() -> None:
    doubtful = evidence(found=speed(1.05, windows=12, noise=0.15))
    assert at_the_end(doubtful, 2.99).answer is Answer.WATCH
    assert at_the_end(doubtful, 3.0).answer is Answer.PROMOTE


@pytest.mark.parametrize(("slow", "answer"), [(0.25, Answer.ROLL_BACK), (0.06, Answer.PROMOTE)])
def test_a_tail_twice_as_heavy_is_held_against_it(slow: float, answer: Answer) -> None:
    canary = BakeTotals(tokens=1e5, finished=1000, tpot=histogram(1000, slow))
    found = at_the_end(evidence(canary))
    assert found.answer is answer
    assert ("time per output token above 100 ms" in found.message) is (answer is Answer.ROLL_BACK)


def test_the_same_tail_of_a_handful_of_requests_is_not() -> None:
    canary = BakeTotals(tokens=1e5, finished=12, tpot=histogram(12, 0.25))
    assert at_the_end(evidence(canary)).answer is Answer.PROMOTE


@pytest.mark.parametrize(
    ("late", "answer"),
    [((0.0,) * 19 + (1.0,), Answer.PROMOTE), ((0.15, 0.35) * 10, Answer.ROLL_BACK)],
)
def test_what_was_late_at_one_moment_is_no_slow_tail(
    late: tuple[float, ...], answer: Answer
) -> None:
    """A node that stalls once makes every request of that moment late, however many there are."""
    slow = sum(late) / len(late)
    tail = CanaryContrast()
    for share in late:
        tail = tail.updated(share, 500)
    canary = BakeTotals(tokens=1e5, finished=10_000, tpot=histogram(10_000, max(slow, 0.11)))
    found = replace(evidence(canary), tpot_tail=tail)
    assert at_the_end(found).answer is answer
    assert verdict_on(found, BAKE_S / 2, BAKE_S).answer is (
        Answer.WATCH if answer is Answer.PROMOTE else answer
    )


@pytest.mark.parametrize(("windows", "answer"), [(7, Answer.WATCH), (8, Answer.ROLL_BACK)])
def test_eight_windows_tell_something_of_a_tail(windows: int, answer: Answer) -> None:
    canary = BakeTotals(tokens=1e5, finished=1000, tpot=histogram(1000, 0.25))
    found = replace(evidence(canary), tpot_tail=contrast(0.24, windows))
    assert verdict_on(found, BAKE_S / 2, BAKE_S).answer is answer


def test_the_end_of_a_bake_takes_less_certainty_of_a_tail_too() -> None:
    canary = BakeTotals(tokens=1e5, finished=1000, tpot=histogram(1000, 0.25))
    found = replace(evidence(canary), tpot_tail=contrast(0.24, noise=0.3))
    assert verdict_on(found, BAKE_S / 2, BAKE_S).answer is Answer.WATCH
    assert at_the_end(found).reason is Reason.CANARY_TAIL_SLOWER


def test_the_bound_of_a_tail_is_told_in_milliseconds() -> None:
    found = evidence(BakeTotals(tokens=1e5, finished=1000, tpot=histogram(1000, 0.25)))
    ours, theirs = (
        replace(side, tpot=tuple((le * 10, count) for le, count in side.tpot))
        for side in (found.canary, found.stable)
    )
    late = replace(found, canary=ours, stable=theirs)
    assert at_the_end(late).message == (
        "25.0% of its requests have a time per output token above 1000 ms, and 1.0% of the others'."
    )


def test_late_first_tokens_are_held_against_it() -> None:
    found = evidence(BakeTotals(tokens=1e5, finished=1000, ttft=histogram(1000, 0.3)))
    late = replace(found, stable=BakeTotals(tokens=2e5, finished=2000, ttft=histogram(2000, 0.01)))
    assert at_the_end(late).reason is Reason.CANARY_TAIL_SLOWER
    assert "time to first token" in at_the_end(late).message


def test_preemptions_are_held_against_it() -> None:
    preempting = BakeTotals(tokens=1e5, finished=1000, preemptions=400)
    found = at_the_end(evidence(preempting))
    assert (found.answer, found.reason) == (Answer.ROLL_BACK, Reason.CANARY_PREEMPTS)
    assert found.message.startswith("it preempts 0.40 times per request, and the others 0.00 times")
    a_few = replace(
        evidence(preempting), stable=BakeTotals(tokens=2e5, finished=2000, preemptions=100)
    )
    assert at_the_end(a_few).reason is Reason.CANARY_PREEMPTS
    # As many as the others, by request, or as few as chance explains.
    for canary, stable in (((1000, 400), (2000, 800)), ((20, 6), (20, 3))):
        mine, theirs = (
            BakeTotals(tokens=1e5, finished=n, preemptions=m) for n, m in (canary, stable)
        )
        alike = replace(evidence(mine), stable=theirs)
        assert at_the_end(alike).answer is Answer.PROMOTE
    seldom = BakeTotals(tokens=1e5, finished=1000, preemptions=50)
    assert at_the_end(evidence(seldom)).answer is Answer.PROMOTE


def test_what_could_not_be_seen_is_held_and_then_goes_back() -> None:
    dark = evidence(blind=15)
    assert at_the_end(dark).answer is Answer.WATCH
    lost = at_the_end(dark, 3.0)
    assert lost.reason is Reason.METRICS_LOST
    assert "could not be compared with the others in 15 of" in lost.message
    # As where a person held the canary at a depth all the time.
    never_looked = CanaryEvidence()
    assert at_the_end(never_looked).answer is Answer.WATCH
    unseen = at_the_end(never_looked, 3.0)
    assert unseen.reason is Reason.METRICS_LOST
    assert "could not be compared with the others at any time" in unseen.message
    some = evidence(blind=5)
    assert at_the_end(some).answer is Answer.PROMOTE


def test_no_requests_anywhere_need_no_comparison() -> None:
    quiet = CanaryEvidence(looks=20)
    assert at_the_end(quiet).answer is Answer.PROMOTE


def test_a_canary_that_gets_nothing_while_the_others_serve_goes_back() -> None:
    idle = evidence(BakeTotals(), CanaryContrast())
    assert at_the_end(idle).answer is Answer.WATCH
    found = at_the_end(idle, 3.0)
    assert (found.answer, found.reason) == (Answer.ROLL_BACK, Reason.CANARY_IDLE)


def test_a_trickle_of_requests_is_no_reason_to_go_back() -> None:
    trickle = evidence(BakeTotals(tokens=500, finished=5), CanaryContrast())
    assert at_the_end(trickle, 3.0).answer is Answer.PROMOTE


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (CanaryEvidence(), Answer.PROMOTE),
        (CanaryEvidence(looks=5, blind=5), Answer.PROMOTE),
        (evidence(found=speed(0.7, windows=5)), Answer.ROLL_BACK),
        (evidence(found=speed(0.7, windows=2)), Answer.PROMOTE),
        # The first minutes are cold, and alike.
        (evidence(found=speed(0.95, windows=3)), Answer.PROMOTE),
        (evidence(found=speed(0.97, windows=5)), Answer.PROMOTE),
        (evidence(found=speed(0.97, windows=8)), Answer.ROLL_BACK),
        (evidence(found=speed(0.7, windows=3)), Answer.ROLL_BACK),
        (evidence(found=speed(0.97, windows=5, noise=0.1)), Answer.PROMOTE),
        (evidence(replace(BakeTotals(), finished=100, failed=20)), Answer.ROLL_BACK),
        (evidence(found=speed(1.0)), Answer.PROMOTE),
    ],
)
def test_alone_only_what_was_seen_before_and_is_certain_is_held_against_it(
    found: CanaryEvidence, answer: Answer
) -> None:
    assert verdict_alone(found).answer is answer
