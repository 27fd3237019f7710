"""Whole rollouts, step by step: what each revision asks for, and what stands at each moment."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.rollout.replicas import Fleet, ReplicaBounds, replicas_by_revision


@dataclass(frozen=True)
class Deployed:
    """A Deployment with its pods, of which those that are not ready go first."""

    revision: str
    asked: int = 0
    pods: int = 0
    ready: int = 0
    terminating: int = 0

    @property
    def fleet(self) -> Fleet:
        serves = tuple(index < self.ready for index in range(self.asked))
        return Fleet(
            revision=self.revision,
            serves=serves,
            held=max(self.asked, self.pods) + self.terminating,
        )


def deployed(revision: str, asked: int, ready: int) -> Fleet:
    """With as many pods as it asks for."""
    return Deployed(revision, asked, asked, ready).fleet


@dataclass
class Cluster:
    """Deployments with their pods, moved on one event at a time."""

    bounds: ReplicaBounds
    fleets: dict[str, Deployed] = field(default_factory=dict)
    least_ready: int = 1_000_000
    most_held: int = 0

    def ask(self, wanted: str) -> dict[str, int]:
        """One pass: apply what is asked for, as the controllers would at once."""
        fleets = [each.fleet for each in self.fleets.values()]
        asked = replicas_by_revision(wanted, fleets, self.bounds)
        for revision, replicas in asked.items():
            before = self.fleets.get(revision, Deployed(revision))
            gone = max(0, before.pods - replicas)
            self.fleets[revision] = Deployed(
                revision,
                replicas,
                max(before.pods - gone, replicas),
                # A ReplicaSet takes pods that are not ready first.
                min(before.ready, replicas),
                before.terminating + gone,
            )
        self.look()
        return asked

    def drained(self) -> None:
        """Every terminating pod is gone."""
        self.fleets = {name: replace(each, terminating=0) for name, each in self.fleets.items()}

    def ready(self, revision: str) -> None:
        """Every pod of a revision has become ready."""
        each = self.fleets[revision]
        self.fleets[revision] = replace(each, ready=each.pods)

    def look(self) -> None:
        each = self.fleets.values()
        self.least_ready = min(self.least_ready, sum(fleet.ready for fleet in each))
        self.most_held = max(self.most_held, sum(fleet.fleet.held for fleet in each))


def serving(replicas: int, unavailable: int, surge: int, *, paused: bool = False) -> Cluster:
    """A cluster where every replica of revision `old` is ready."""
    bounds = ReplicaBounds(
        replicas=replicas, max_unavailable=unavailable, max_surge=surge, paused=paused
    )
    return Cluster(bounds, {"old": Deployed("old", replicas, replicas, replicas)})


def rolled(cluster: Cluster, wanted: str, steps: int = 40) -> list[tuple[int, int]]:
    """Passes, drains and starts in turn, until nothing changes; (old, new) after each pass."""
    seen: list[tuple[int, int]] = []
    for _ in range(steps):
        cluster.ask(wanted)
        now = (cluster.fleets["old"].asked, cluster.fleets["new"].asked)
        if seen and seen[-1] == now:
            return seen
        seen.append(now)
        cluster.drained()
        cluster.ask(wanted)
        seen.append((cluster.fleets["old"].asked, cluster.fleets["new"].asked))
        cluster.ready(wanted)
    raise AssertionError(f"never ends: {seen}")


def test_a_first_revision_asks_for_everything_at_once() -> None:
    assert replicas_by_revision(
        "new", (), ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0)
    ) == {"new": 3}


def test_without_a_surge_each_new_pod_waits_for_an_old_ones_gpus() -> None:
    cluster = serving(3, 1, 0)
    assert rolled(cluster, "new") == [
        (2, 0),
        (2, 1),
        (1, 1),
        (1, 2),
        (0, 2),
        (0, 3),
    ]
    assert (cluster.least_ready, cluster.most_held) == (2, 3)


def test_with_a_surge_a_new_pod_comes_first() -> None:
    cluster = serving(2, 0, 1)
    assert rolled(cluster, "new") == [(2, 1), (2, 1), (1, 1), (1, 2), (0, 2), (0, 2)]
    assert (cluster.least_ready, cluster.most_held) == (2, 3)


def test_draining_pods_hold_their_gpus() -> None:
    cluster = serving(2, 1, 0)
    assert cluster.ask("new") == {"old": 1, "new": 0}
    assert cluster.ask("new") == {"old": 1, "new": 0}
    cluster.drained()
    assert cluster.ask("new") == {"old": 1, "new": 1}


def test_a_revision_that_never_becomes_ready_stops_the_rollout() -> None:
    cluster = serving(3, 1, 0)
    for _ in range(10):
        cluster.ask("new")
        cluster.drained()
    assert (cluster.fleets["old"].asked, cluster.fleets["new"].asked) == (2, 1)
    assert cluster.least_ready == 2


def test_a_revert_in_the_middle_only_changes_who_is_wanted() -> None:
    cluster = serving(3, 1, 0)
    cluster.ask("new")
    cluster.drained()
    cluster.ask("new")
    # One pod of the new revision exists, and is not ready: it goes first.
    assert cluster.ask("old") == {"old": 2, "new": 0}
    cluster.drained()
    assert cluster.ask("old") == {"old": 3, "new": 0}
    assert cluster.least_ready == 2


def test_pods_that_are_not_ready_go_first_and_only_as_far_as_allowed() -> None:
    fleets = (deployed("old", 4, 1),)
    assert replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=4, max_unavailable=1, max_surge=0)
    ) == {"old": 3, "new": 0}


def test_of_two_old_revisions_the_one_that_serves_least_goes_first() -> None:
    fleets = (deployed("a", 2, 2), deployed("b", 1, 1), deployed("new", 1, 1))
    assert replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=4, max_unavailable=1, max_surge=0)
    ) == {"a": 2, "b": 0, "new": 1}


def test_of_all_old_revisions_what_serves_nobody_goes_first() -> None:
    """The canary's place comes from a pod that is not ready, though `a` serves less than `b`."""
    fleets = (deployed("a", 1, 1), deployed("b", 2, 1))
    bounds = ReplicaBounds(replicas=3, max_unavailable=2, max_surge=0, most_new=1)
    assert replicas_by_revision("new", fleets, bounds) == {"a": 1, "b": 1, "new": 0}


def test_and_what_serves_goes_after_it_in_the_same_look() -> None:
    fleets = (deployed("a", 1, 1), deployed("b", 3, 2), deployed("new", 1, 1))
    assert replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=4, max_unavailable=1, max_surge=1)
    ) == {"a": 0, "b": 2, "new": 1}


def test_paused_holds_everything_between_revisions() -> None:
    cluster = serving(3, 1, 0, paused=True)
    assert cluster.ask("new") == {"old": 3, "new": 0}


@pytest.mark.parametrize(("replicas", "expected"), [(5, 4), (4, 3), (2, 1), (0, 0)])
def test_paused_still_scales_what_serves(replicas: int, expected: int) -> None:
    fleets = (deployed("old", 2, 2), deployed("new", 1, 0))
    asked = replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=replicas, max_unavailable=1, max_surge=0, paused=True)
    )
    assert sum(asked.values()) == replicas
    assert asked["old"] >= expected


def test_a_pause_in_the_middle_of_a_surge_costs_no_pod_that_serves() -> None:
    """One surplus pod is asked for, and it is the one that starts that gives way."""
    fleets = (deployed("old", 1, 1), deployed("new", 2, 1))
    asked = replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=2, max_unavailable=0, max_surge=1, paused=True)
    )
    assert asked == {"old": 1, "new": 1}


def test_paused_groups_that_serve_stay_though_one_too_many_is_asked_for() -> None:
    """The group that starts comes before one that serves, and so cannot go alone."""
    fleets = (numbered("old", {0}, 1), numbered("new", {1}, 2))
    asked = replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=2, max_unavailable=0, max_surge=1, paused=True)
    )
    assert asked == {"old": 1, "new": 2}


@pytest.mark.parametrize(
    ("replicas", "unavailable", "surge", "expected"),
    [
        (2, 0, 1, {"old": 2, "new": 1}),
        (4, 0, 1, {"old": 4, "new": 1}),
        (1, 0, 1, {"old": 1, "new": 1}),
        (3, 1, 0, {"old": 2, "new": 1}),
        (2, 1, 0, {"old": 1, "new": 1}),
        (0, 1, 0, {"old": 0, "new": 0}),
    ],
)
def test_paused_a_canary_stays_while_the_others_scale(
    replicas: int, unavailable: int, surge: int, expected: dict[str, int]
) -> None:
    fleets = (deployed("old", 2, 2), deployed("new", 1, 1))
    bounds = ReplicaBounds(
        replicas=replicas, max_unavailable=unavailable, max_surge=surge, paused=True, most_new=1
    )
    assert replicas_by_revision("new", fleets, bounds) == expected


def test_paused_nobody_makes_room_for_a_canary_that_has_not_come() -> None:
    fleets = (deployed("old", 2, 2), deployed("new", 0, 0))
    bounds = ReplicaBounds(replicas=2, max_unavailable=1, max_surge=0, paused=True, most_new=1)
    assert replicas_by_revision("new", fleets, bounds) == {"old": 2, "new": 0}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=3),
    st.integers(0, 6),
)
def test_paused_nobody_serves_less_than_asked(
    revisions: list[tuple[int, int]], replicas: int
) -> None:
    fleets = [deployed(f"r{index}", asked, ready) for index, (asked, ready) in enumerate(revisions)]
    asked = replicas_by_revision(
        "r0", fleets, ReplicaBounds(replicas=replicas, max_unavailable=1, max_surge=1, paused=True)
    )
    before = sum(fleet.serving for fleet in fleets)
    after = sum(fleet.serving_at(asked[fleet.revision]) for fleet in fleets)
    assert after >= min(before, replicas)
    assert sum(asked.values()) == replicas


def test_scaling_up_in_the_middle_grows_the_new_revision() -> None:
    fleets = (deployed("old", 1, 1), deployed("new", 1, 1))
    assert replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=4, max_unavailable=1, max_surge=0)
    ) == {"old": 1, "new": 3}


@given(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3))
def test_every_rollout_ends_within_its_bounds(replicas: int, unavailable: int, surge: int) -> None:
    if unavailable + surge == 0:
        return
    cluster = serving(replicas, unavailable, surge)
    rolled(cluster, "new", steps=80)
    assert {name: each.asked for name, each in cluster.fleets.items()} == {
        "old": 0,
        "new": replicas,
    }
    assert cluster.least_ready >= replicas - unavailable
    assert cluster.most_held <= replicas + surge


def trial(cluster: Cluster, most_new: int | None) -> None:
    cluster.bounds = replace(cluster.bounds, most_new=most_new)


def test_on_trial_the_new_revision_stays_one_and_the_others_keep_the_rest() -> None:
    cluster = serving(4, 2, 0)
    trial(cluster, 1)
    assert rolled(cluster, "new") == [(3, 0), (3, 1)]
    # Ready, it makes no other surplus.
    cluster.ready("new")
    assert cluster.ask("new") == {"old": 3, "new": 1}
    trial(cluster, None)
    assert rolled(cluster, "new")[-1] == (0, 4)
    assert cluster.least_ready == 2


def test_before_the_trial_nothing_moves() -> None:
    cluster = serving(3, 1, 0)
    trial(cluster, 0)
    assert cluster.ask("new") == {"old": 3, "new": 0}


def test_on_trial_with_a_surge_nobody_makes_room() -> None:
    cluster = serving(3, 1, 1)
    trial(cluster, 1)
    assert cluster.ask("new") == {"old": 3, "new": 1}


def test_the_trial_of_a_single_replica_takes_its_place() -> None:
    cluster = serving(1, 1, 0)
    trial(cluster, 1)
    assert rolled(cluster, "new") == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [(5, {"old": 4, "new": 1}), (2, {"old": 1, "new": 1}), (0, {"old": 0, "new": 0})],
)
def test_on_trial_it_is_the_others_that_scale(replicas: int, expected: dict[str, int]) -> None:
    fleets = (deployed("old", 2, 2), deployed("new", 1, 1))
    assert (
        replicas_by_revision(
            "new",
            fleets,
            ReplicaBounds(replicas=replicas, max_unavailable=1, max_surge=0, most_new=1),
        )
        == expected
    )


def test_on_trial_the_others_come_back_before_the_canary_comes() -> None:
    fleets = (deployed("old", 1, 1), deployed("new", 0, 0))
    bounds = ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0, most_new=1)
    assert replicas_by_revision("new", fleets, bounds) == {"old": 2, "new": 0}


def test_a_canary_that_is_superseded_goes_before_what_serves() -> None:
    fleets = (deployed("old", 2, 2), deployed("canary", 1, 0))
    assert replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0, most_new=1)
    ) == {
        "old": 2,
        "canary": 0,
        "new": 0,
    }


@pytest.mark.parametrize("old_asked", [2, 3])
def test_a_canary_that_is_over_goes_once_the_others_can_spare_it(old_asked: int) -> None:
    """As where one of the others was drained while it baked, and what it was tried for is lost."""
    bounds = ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0, most_new=0)
    short = (deployed("old", old_asked, 1), deployed("new", 1, 1))
    assert replicas_by_revision("new", short, bounds) == {"old": old_asked, "new": 1}
    enough = (deployed("old", old_asked, 2), deployed("new", 1, 1))
    assert replicas_by_revision("new", enough, bounds) == {"old": 3, "new": 0}
    down = (deployed("old", old_asked, 1), deployed("new", 1, 0))
    assert replicas_by_revision("new", down, bounds) == {"old": 3, "new": 0}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("ready", [0, 1])
def test_scaled_to_one_a_canary_that_is_there_keeps_one_beside_it(
    ready: int, *, paused: bool
) -> None:
    fleets = (deployed("old", 2, 2), deployed("new", 1, ready))
    bounds = ReplicaBounds(replicas=1, max_unavailable=1, max_surge=0, paused=paused, most_new=1)
    assert replicas_by_revision("new", fleets, bounds) == {"old": 1, "new": 1}
    gone = (deployed("old", 0, 0), deployed("new", 1, ready))
    assert replicas_by_revision("new", gone, bounds) == {"old": 0, "new": 1}


def test_scaled_to_one_before_the_canary_has_come_it_takes_the_only_place() -> None:
    cluster = serving(3, 1, 0)
    trial(cluster, 1)
    cluster.bounds = replace(cluster.bounds, replicas=1)
    seen = []
    for _ in range(3):
        seen.append(cluster.ask("new"))
        cluster.drained()
    assert seen == [{"old": 1, "new": 0}, {"old": 0, "new": 0}, {"old": 0, "new": 1}]


def test_scaled_to_one_past_the_trial_the_last_that_serves_waits_for_another() -> None:
    """As where what was promoted is down again."""
    cluster = serving(3, 1, 0)
    cluster.fleets["old"] = Deployed("old", 2, 2, 2)
    cluster.fleets["new"] = Deployed("new", 1, 1, 0)
    cluster.bounds = replace(cluster.bounds, replicas=1)
    assert cluster.ask("new") == {"old": 1, "new": 1}
    cluster.drained()
    assert cluster.ask("new") == {"old": 1, "new": 1}
    cluster.ready("new")
    assert cluster.ask("new") == {"old": 0, "new": 1}


def test_a_surge_does_not_wait_for_what_the_room_was_made_for() -> None:
    """Within N + S, U says whether all may be missing: the new pod may need the old one's node."""
    fleets = (deployed("old", 1, 1), deployed("new", 1, 0))
    asked = replicas_by_revision(
        "new", fleets, ReplicaBounds(replicas=1, max_unavailable=1, max_surge=1)
    )
    assert asked == {"old": 0, "new": 1}


def numbered(revision: str, ready: set[int], asked: int) -> Fleet:
    """Groups of one set, of which the last ones go first."""
    return Fleet(
        revision=revision, serves=tuple(index in ready for index in range(asked)), held=asked
    )


def test_a_group_that_serves_is_not_taken_for_an_idle_one_before_it() -> None:
    """Only 0 is down of 0, 1 and 2: to shrink by one is to take 2, which serves."""
    new = deployed("new", 0, 0)
    idle_first = numbered("old", {1, 2}, 3)
    assert replicas_by_revision(
        "new", (idle_first, new), ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0)
    ) == {
        "old": 3,
        "new": 0,
    }
    idle_last = numbered("old", {0, 1}, 3)
    assert replicas_by_revision(
        "new", (idle_last, new), ReplicaBounds(replicas=3, max_unavailable=1, max_surge=0)
    ) == {
        "old": 2,
        "new": 0,
    }


def test_an_idle_group_that_cannot_go_costs_no_pod_that_serves() -> None:
    """Group 0 of `b` is down and the last to go: what may go beside it is one pod, not two."""
    fleets = (deployed("a", 2, 2), numbered("b", {1, 2}, 3), deployed("new", 0, 0))
    bounds = ReplicaBounds(replicas=4, max_unavailable=1, max_surge=0)
    assert replicas_by_revision("new", fleets, bounds) == {"a": 1, "b": 3, "new": 0}


def test_a_surplus_group_that_serves_does_not_count() -> None:
    assert numbered("old", {0, 2}, 2).serving == 1


@pytest.mark.parametrize(
    ("old", "new", "replicas", "left"),
    [
        (numbered("old", {0, 1}, 2), numbered("new", {1}, 2), 1, 1),
        (numbered("old", {0, 1, 2, 3}, 4), numbered("new", {3}, 4), 2, 1),
    ],
)
def test_groups_that_go_with_fewer_replicas_are_not_counted_on(
    old: Fleet, new: Fleet, replicas: int, left: int
) -> None:
    """The wanted revision is cut, too, and its last groups, which serve, are the first to go."""
    asked = replicas_by_revision(
        "new", (old, new), ReplicaBounds(replicas=replicas, max_unavailable=1, max_surge=0)
    )
    assert asked == {"old": left, "new": replicas}


_GROUPS = st.tuples(st.sets(st.integers(0, 4)), st.integers(0, 5))


@given(_GROUPS, _GROUPS, st.integers(1, 5), st.integers(0, 3), st.integers(0, 2))
def test_groups_keep_what_must_serve_whatever_changes(
    old: tuple[set[int], int],
    new: tuple[set[int], int],
    replicas: int,
    unavailable: int,
    surge: int,
) -> None:
    fleets = (numbered("old", *old), numbered("new", *new))
    bounds = ReplicaBounds(replicas=replicas, max_unavailable=unavailable, max_surge=surge)
    asked = replicas_by_revision("new", fleets, bounds)
    of_new = sum(index < asked["new"] for index in new[0])
    left = of_new + sum(index < asked["old"] for index in old[0])
    assert left >= min(of_new + fleets[0].serving, replicas - unavailable)


@given(st.sets(st.integers(0, 4)), st.integers(0, 3), st.integers(0, 2))
def test_shrinking_groups_keeps_what_must_serve(
    ready: set[int], unavailable: int, of_new: int
) -> None:
    old = numbered("old", ready, 5)
    new = numbered("new", set(range(of_new)), of_new)
    bounds = ReplicaBounds(replicas=5, max_unavailable=unavailable, max_surge=1)
    asked = replicas_by_revision("new", (old, new), bounds)
    left = sum(index < asked["old"] for index in ready) + min(of_new, 5)
    assert left >= min(len(ready) + of_new, bounds.replicas - unavailable)


_TRIALS = st.builds(
    ReplicaBounds,
    replicas=st.integers(1, 5),
    max_unavailable=st.integers(0, 3),
    max_surge=st.integers(0, 2),
    most_new=st.integers(0, 1),
).filter(lambda bounds: bounds.max_unavailable + bounds.max_surge > 0)


@given(_GROUPS, st.sets(st.integers(0, 4)), _TRIALS)
def test_whatever_becomes_of_a_trial_keeps_what_must_serve(
    old: tuple[set[int], int], ready: set[int], bounds: ReplicaBounds
) -> None:
    fleets = (numbered("old", *old), numbered("new", ready, bounds.replicas))
    asked = replicas_by_revision("new", fleets, bounds)
    left = sum(each.serving_at(asked[each.revision]) for each in fleets)
    least = bounds.replicas - bounds.max_unavailable
    assert left >= min(sum(each.serving for each in fleets), least)
    before = sum(each.asked for each in fleets)
    assert sum(asked.values()) <= max(before, bounds.replicas + bounds.max_surge)
