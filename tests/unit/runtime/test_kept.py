"""What survives a restart of the operator."""

from dataclasses import replace
from math import inf

from fathom.api.conditions import Reason
from fathom.core.fetch import Fetched
from fathom.rollout.evidence import Evidence, Side, Speed
from fathom.rollout.rollout import Rollout, Stage, Watch
from fathom.runtime.kept import Kept

ROLLOUT = Rollout(
    revision="b",
    stable="a",
    stage=Stage.CANARY,
    began_at_s=1.5,
    reason=Reason.CANARY_BAKING,
    message="watched.",
    why="image: one became another",
    watch=Watch("kimi-b-1", ready_since_s=2.5, restarts=1),
    evidence=Evidence(
        Side(1, 2, 3, 4, ((0.1, 1.0), (inf, 2.0))), Side(), Speed(1, 2, 4, 0.5, 0.25), 1, 0
    ),
    retry="1",
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = {"digest": Fetched((("draft", COMMIT), ("model", COMMIT)), 1 << 40)}
KEPT = Kept(
    good_spec="{}", good_revision="b", stable_spec='{"x":1}', rollout=ROLLOUT, weights=WEIGHTS
)


def test_everything_comes_back_as_it_was() -> None:
    assert Kept.of(KEPT.data()) == KEPT
    assert Kept.of({}) == Kept()


def test_what_another_fathom_wrote_is_no_rollout() -> None:
    assert Kept.of({**KEPT.data(), "rollout.json": '{"stage":"Sideways"}'}).rollout is None
    assert Kept.of({**KEPT.data(), "rollout.json": "not json"}).rollout is None


def test_a_revisions_spec_is_the_newest_or_the_stable_one() -> None:
    assert KEPT.spec_of("b") == "{}"
    assert KEPT.spec_of("a") == '{"x":1}'
    assert KEPT.spec_of("c") is None
    assert replace(KEPT, rollout=None).spec_of("a") is None


def test_what_was_only_seen_can_wait_and_a_step_cannot() -> None:
    seen = replace(ROLLOUT, evidence=Evidence(), message="still watched.")
    assert KEPT.same_step(replace(KEPT, rollout=seen))
    for change in (
        {"stage": Stage.PROMOTED},
        {"paused_at_s": 3.0},
        {"watch": replace(ROLLOUT.watch, unready_since_s=3.0)},  # type: ignore[type-var]
    ):
        stepped = replace(ROLLOUT, **change)  # type: ignore[arg-type]
        assert not KEPT.same_step(replace(KEPT, rollout=stepped))
    assert not KEPT.same_step(replace(KEPT, rollout=None))
    assert not KEPT.same_step(replace(KEPT, stable_spec="{}"))
    assert not KEPT.same_step(replace(KEPT, weights={}))


def test_weights_are_kept_as_long_as_a_spec_wants_them() -> None:
    other = Fetched((("model", COMMIT),))
    assert KEPT.with_weights({"new": other}, {"new", "digest"}).weights == {**WEIGHTS, "new": other}
    assert KEPT.with_weights({}, {"new"}).weights == {}


def test_weights_that_cannot_be_read_are_not_known() -> None:
    for text in ("", "not json", "[]", '{"digest": 1}', '{"digest": "not json"}'):
        assert Kept.of({**KEPT.data(), "weights.json": text}).weights == {}
