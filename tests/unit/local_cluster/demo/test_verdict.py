"""What the demo says of what it measured, and with which exit code."""

import math
import random
from collections import Counter

import pytest

from local_cluster.demo.measure import Pairs, PhaseResult, SweepResult
from local_cluster.demo.phases import PHASES
from local_cluster.demo.verdict import (
    NEVER_BELOW,
    ONCE_ABOVE,
    Claim,
    DemoOutcome,
    Mixup,
    MixupResult,
    Served,
    bounds_to_decide,
    claims,
    code_of,
    is_decided,
    last_word,
    outcome,
    worst_mixup,
)

ALL_SERVED = Served(requests=1000, failed=0, first_error="", restarts=0)
MOST_PAIRS = 20
"""About as many as fit into the limit."""
EASY_SWEEP = SweepResult(PHASES[0], {1: 600.0, 3: 1000.0, 7: 1400.0})
HARD_SWEEP = SweepResult(PHASES[1], {1: 1300.0, 3: 1100.0, 7: 700.0})


def measured(truth: float, noise: float, bounds: tuple[float, ...], rng: random.Random) -> Pairs:
    """Pairs until they decide, or there are too many."""
    ours: list[float] = []
    while True:
        ours.append(100 * truth * math.exp(rng.gauss(0, noise)))
        pairs = Pairs(tuple(ours), (100.0,) * len(ours))
        if len(ours) == MOST_PAIRS or (len(ours) > 1 and is_decided(pairs.ratio, bounds)):
            return pairs


def played(truths: tuple[float, ...], noise: float, seed: int) -> list[PhaseResult]:
    """The phases of a demo in which the tuner makes so many times the tokens."""
    rng = random.Random(seed)
    results: list[PhaseResult] = []
    for phase, truth in zip(PHASES, truths, strict=True):
        pairs = measured(truth, noise, bounds_to_decide(results), rng)
        results.append(PhaseResult(phase, 1, pairs))
    return results


def mixed_up(truth: float = 0.6, noise: float = 0.03) -> MixupResult:
    pairs = measured(truth, noise, (0.9,), random.Random(1))
    return MixupResult(Mixup(here=HARD_SWEEP, there=EASY_SWEEP), pairs)


def ended(results: list[PhaseResult], served: Served = ALL_SERVED) -> DemoOutcome:
    return outcome(claims(results, mixed_up(), served))


def words(results: list[PhaseResult], mixup: MixupResult | None = None) -> list[str]:
    return [claim.text for claim in claims(results, mixup or mixed_up(), ALL_SERVED)]


def test_exit_codes_are_what_the_command_documents() -> None:
    assert [(each.name, each.value) for each in DemoOutcome] == [
        ("HELD", 0),
        ("REFUTED", 1),
        ("TOO_NOISY", 3),
    ]


def test_a_quiet_machine_is_decided_by_a_few_pairs() -> None:
    for seed in range(20):
        results = played((1.4, 1.3, 1.27), 0.05, seed)
        assert ended(results) is DemoOutcome.HELD
        assert max(result.ratio.pairs for result in results) <= 9


def test_a_tuner_that_is_slower_is_told_even_where_another_phase_stays_open() -> None:
    slower = played((1.4, 0.85, 1.3), 0.03, 1)
    assert ended(slower) is DemoOutcome.REFUTED
    assert "slower: hard × 8 0.8" in words(slower)[0]
    open_too = [*slower[:2], *played((1.0, 1.0, 1.1), 0.5, 2)[2:]]
    assert ended(open_too) is DemoOutcome.REFUTED


def test_a_noisy_machine_is_no_failure_of_the_tuner() -> None:
    noisy = played((1.19, 1.1, 1.2), 0.4, 3)
    assert ended(noisy) is DemoOutcome.TOO_NOISY
    assert "cannot be told: easy × 2" in words(noisy)[0]


def test_noise_alone_hardly_ever_makes_a_tuner_slower() -> None:
    """A tuner that does nothing, by chance 30 % up or down in each pair."""
    found = Counter(ended(played((1.0, 1.0, 1.0), 0.3, seed)) for seed in range(200))
    assert found[DemoOutcome.REFUTED] <= 0.05 * 200
    assert found[DemoOutcome.HELD] <= 0.05 * 200


def test_a_tuner_that_brings_nothing_is_refuted_and_not_called_slower() -> None:
    results = played((1.0, 1.0, 1.0), 0.01, 4)
    assert ended(results) is DemoOutcome.REFUTED
    assert "lowest bound" in words(results)[0]
    found = claims(results, mixed_up(), ALL_SERVED)
    assert [claim.holds for claim in found] == [True, False, True, True, True]


@pytest.mark.parametrize(
    "served",
    [
        Served(requests=1000, failed=1, first_error="HTTP 500", restarts=0),
        Served(requests=1000, failed=0, first_error="", restarts=1),
        Served(requests=0, failed=0, first_error="", restarts=0),
    ],
)
def test_what_was_lost_was_lost_on_a_noisy_machine_too(served: Served) -> None:
    assert ended(played((1.4, 1.3, 1.2), 0.03, 5), served) is DemoOutcome.REFUTED
    assert ended(played((1.4, 1.3, 1.2), 0.4, 5), served) is DemoOutcome.REFUTED


def test_one_phase_that_is_worth_it_is_enough() -> None:
    first = played((1.4, 1.3, 1.3), 0.03, 6)[:1]
    results = [*first, *played((1.0, 1.0, 1.0), 0.005, 7)[1:]]
    assert ended(results) is DemoOutcome.HELD


def test_only_the_last_phase_goes_on_until_it_is_worth_it_and_only_where_none_was() -> None:
    worth_it = played((1.4, 1.3, 1.3), 0.005, 6)
    not_yet = played((1.0, 1.0, 1.0), 0.005, 7)
    assert bounds_to_decide([]) == bounds_to_decide(not_yet[:1]) == (NEVER_BELOW,)
    assert bounds_to_decide(not_yet[:2]) == (NEVER_BELOW, ONCE_ABOVE)
    assert bounds_to_decide([*not_yet[:1], *worth_it[1:2]]) == (NEVER_BELOW,)


def test_what_a_wrong_depth_costs_is_measured_where_it_costs_most() -> None:
    mixup = worst_mixup([EASY_SWEEP, HARD_SWEEP])
    assert (mixup.here, mixup.there) == (EASY_SWEEP, HARD_SWEEP)
    assert mixup.here.loss(mixup.there.best) == pytest.approx(1 - 600 / 1400)
    good = played((1.4, 1.3, 1.3), 0.03, 8)
    found = {
        truth: claims(good, mixed_up(truth, noise), ALL_SERVED)[2].holds
        for truth, noise in ((0.6, 0.03), (1.0, 0.02), (0.8, 0.5))
    }
    assert found == {0.6: True, 1.0: False, 0.8: None}
    assert "the best depth of easy × 2, 7, makes at most 0.90" in words(good)[2]


def test_the_last_word_says_what_to_do_on_a_noisy_machine() -> None:
    said = last_word(DemoOutcome.TOO_NOISY, noisiest=0.26)
    assert "with --strict this is a failure (exit code 3)" in said
    assert "differs by 26 %" in said.replace("%", " %")
    assert "Run the demo again when nothing else runs on this machine" in said
    assert "exit code 1" in last_word(DemoOutcome.REFUTED, noisiest=0.26)
    assert "exit code 0" in last_word(DemoOutcome.HELD, noisiest=0.03)


@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_be_told_fails_only_where_it_is_asked_to(strict: bool) -> None:  # noqa: FBT001
    codes = {each: code_of(each, strict=strict) for each in DemoOutcome}
    assert codes == {
        DemoOutcome.HELD: 0,
        DemoOutcome.REFUTED: 1,
        DemoOutcome.TOO_NOISY: 3 if strict else 0,
    }


def test_a_refuted_claim_outweighs_an_open_one() -> None:
    held, refuted, unknown = (Claim("x", holds) for holds in (True, False, None))
    assert outcome([held, held]) is DemoOutcome.HELD
    assert outcome([held, unknown]) is DemoOutcome.TOO_NOISY
    assert outcome([unknown, refuted, held]) is DemoOutcome.REFUTED
