from dataclasses import replace
from math import log1p

import pytest

from fathom.tuning.assessment import assess
from fathom.tuning.estimate.prompts import NO_PROMPTS
from fathom.tuning.policy.experiments import control, experiments
from fathom.tuning.policy.option import LeftOut, ProbePlan, Visit
from fathom.tuning.policy.policy import Policy
from unit.tuning.plant import EASY, SETTINGS, Fleet


def policy_back_at_the_start() -> Policy:
    """All is known of easy traffic, and the depth in force is the user's own."""
    fleet = Fleet(acceptance=EASY).run(240)
    assert fleet.document is not None
    policy = assess(fleet.snapshot(), fleet.document).policy
    return replace(policy, depths=dict.fromkeys(policy.depths, SETTINGS.tokens))


def targets(policy: Policy) -> dict[int, int]:
    return {option.bucket: option.to for option in policy.moves()}


def test_what_is_better_beyond_doubt_is_a_move() -> None:
    assert targets(policy_back_at_the_start())[4] == 7


def test_what_failed_under_this_traffic_is_no_move_until_the_traffic_changes() -> None:
    policy = policy_back_at_the_start()
    survival = policy.evidence.text
    now_s = policy.evidence.now_s
    failed = replace(
        policy, visits=(Visit(bucket=4, depth=7, at_s=now_s, epoch=survival.epoch, failed=True),)
    )
    other_traffic = replace(
        failed,
        evidence=replace(failed.evidence, text=replace(survival, epoch=survival.epoch + 1)),
    )

    assert targets(failed).get(4) != 7
    assert targets(other_traffic)[4] == 7


@pytest.mark.parametrize(("busy_s", "looks"), [(8.0, False), (14.0, True)])
def test_the_users_own_depth_is_looked_at_again_only_where_there_is_load(
    busy_s: float, *, looks: bool
) -> None:
    fleet = Fleet(acceptance=EASY, jitter=0).run(240)
    assert fleet.document is not None
    policy = assess(fleet.snapshot(), fleet.document).policy
    evidence = policy.evidence
    (four,) = (each for each in evidence.traffic.loads if each.batch_le == 4)
    loads = (replace(four, busy_seconds=90.0), replace(four, batch_le=8, busy_seconds=busy_s))
    later = replace(evidence, traffic=replace(evidence.traffic, loads=loads))
    due = control(replace(policy, evidence=later, visits=()), ProbePlan(15.0, 8))
    assert (8 in {each.bucket for each in due}) is looks


def tried(policy: Policy, times: int, rested_s: float) -> Policy:
    """The same where every depth was tried so often, under this traffic."""
    at_s, epoch = policy.evidence.now_s - rested_s, policy.evidence.text.epoch
    depths = policy.bounds.depths
    visits = (
        Visit(bucket=bucket, depth=each, at_s=at_s, epoch=epoch, times=times)
        for bucket in policy.depths
        for each in depths
    )
    return replace(policy, visits=tuple(visits))


@pytest.mark.parametrize(
    ("times", "rested_s"),
    [(1, 60.0), (2, 300.0), (3, 1800.0), (4, 7200.0), (5, 28800.0), (9, 28800.0)],
)
def test_the_more_often_a_depth_was_tried_the_longer_it_is_left_alone(
    times: int, rested_s: float
) -> None:
    policy = policy_back_at_the_start()
    assert tried(policy, times, rested_s).may_visit(4, 5)
    assert not tried(policy, times, rested_s - 1).may_visit(4, 5)


def test_what_seems_to_gain_enough_is_not_left_alone_for_hours() -> None:
    fleet = Fleet(acceptance=EASY, jitter=0).run(22)
    assert fleet.document is not None
    policy, plan = assess(fleet.snapshot(), fleet.document).policy, ProbePlan(15.0, 8)
    least = log1p(policy.bounds.min_gain)
    before, after = (experiments(tried(policy, 9, each), plan) for each in (1799.0, 1801.0))
    assert before == ()
    assert after
    assert all(each.gain.mean >= least for each in after)


def test_the_users_own_depth_is_looked_at_again_however_often_it_was() -> None:
    fleet = Fleet(acceptance=EASY, jitter=0).run(240)
    assert fleet.document is not None
    policy, plan = assess(fleet.snapshot(), fleet.document).policy, ProbePlan(15.0, 8)
    old = replace(policy.evidence, now_s=policy.evidence.now_s + 3600)
    later = replace(policy, evidence=old)
    assert not control(tried(later, 9, 1799.0), plan)
    assert {each.to for each in control(tried(later, 9, 1801.0), plan)} == {SETTINGS.tokens}


def test_idle_buckets_follow_those_that_were_measured() -> None:
    policy = policy_back_at_the_start()
    after = policy.after(policy.moves())
    assert after[1] == 7
    assert set(after) == set(policy.depths)


def test_a_depth_that_fills_half_of_the_token_budget_is_left_out() -> None:
    policy = policy_back_at_the_start()
    tight = replace(policy, bounds=replace(policy.bounds, token_budget=4 * 2 * 6))

    assert {each.to for each in tight.alternatives(4, 1.0)} == {1, 2, 4, 5}
    assert tight.left_out(4) == {6: LeftOut.BUDGET, 7: LeftOut.BUDGET}
    assert tight.after(tight.moves())[4] == 5


def test_what_the_user_wrote_fits_any_budget() -> None:
    policy = policy_back_at_the_start()
    tiny = replace(policy, bounds=replace(policy.bounds, token_budget=16))

    assert tiny.bounds.at(16) == (1, 2, 3)
    assert set(tiny.after(()).values()) == {SETTINGS.tokens}


def test_depths_that_were_chosen_before_the_budget_was_known_are_given_up() -> None:
    fleet = Fleet(acceptance=EASY).run(240)
    assert fleet.depth(4) == 7
    for pod in fleet.pods:
        pod.token_budget = 4 * 2 * 6
    fleet.run(60)

    assert fleet.depth(4) <= 5
    assert "token budget" in fleet.log()


def test_a_gain_is_unknown_where_many_steps_mix_depths_or_no_pod_counts_prompts() -> None:
    policy = policy_back_at_the_start()
    deep = replace(policy, depths=dict.fromkeys(policy.depths, 7))
    prompts = policy.evidence.prompts
    mixing = replace(prompts, transition_seconds=0.5 * prompts.seconds)

    assert deep.gain_over(3) is not None
    for other in (mixing, NO_PROMPTS):
        evidence = replace(deep.evidence, prompts=other)
        assert replace(deep, evidence=evidence).gain_over(3) is None
    old = replace(deep, evidence=replace(deep.evidence, prompts=NO_PROMPTS))
    assert old.gain_over_tokens(4, 7) is None


def test_where_many_steps_mix_depths_the_buckets_under_load_get_one() -> None:
    policy = policy_back_at_the_start()
    loaded = sorted(policy.shares)
    split = replace(policy, depths={**policy.depths, loaded[0]: 7})
    prompts = policy.evidence.prompts
    evidence = replace(
        split.evidence, prompts=replace(prompts, transition_seconds=0.2 * prompts.seconds)
    )
    mixing = replace(split, evidence=evidence)

    assert not split.joined()
    assert {each.bucket: each.to for each in mixing.joined()} == dict.fromkeys(loaded[1:], 7)
    assert not replace(mixing, depths=dict.fromkeys(mixing.depths, 7)).joined()
