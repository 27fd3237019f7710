"""What survives a restart of the operator."""

import json
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.api.status import Compared
from fathom.api.training import TrainingPhase
from fathom.fetch.state import Fetched
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.quality.check import QualityCheck
from fathom.reconcile.checkpoint import Checkpoint, SeenGeneration
from fathom.rollout.canary_evidence import BakeTotals, CanaryContrast, CanaryEvidence
from fathom.rollout.comparison import ArmComparison
from fathom.rollout.refresh import PastRefresh, RefreshLog
from fathom.rollout.rollout import CanaryWatch, Rollout, Stage
from fathom.training.record import Acceptance, Start, TrainedDraft, TrainingRecord
from fathom_intake.model_weights import Tensor, Weights

ROLLOUT = Rollout(
    revision="bbbbbbbb",
    stable="aaaaaaaa",
    stage=Stage.CANARY,
    began_at_s=1.5,
    reason=Reason.CANARY_BAKING,
    message="watched.",
    why="image: one became another",
    watch=CanaryWatch(pod="kimi-b-1", ready_since_s=2.5, restarts=1),
    evidence=CanaryEvidence(
        canary=BakeTotals(
            tokens=1, finished=2, failed=3, preemptions=4, tpot=((0.1, 1.0), (inf, 2.0))
        ),
        stable=BakeTotals(),
        speed=CanaryContrast(windows=1, weight=2, weight2=4, total=0.5, squares=0.25),
        tpot_tail=CanaryContrast(windows=2, weight=3, weight2=5, total=0.1, squares=0.02),
        looks=1,
    ),
    retry="1",
    arm=True,
    compared=ArmComparison(found=Compared.FASTER, at_s=3.5, mean=0.1, error=0.01, remark="But."),
)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = {"digest": Fetched((("draft", COMMIT), ("model", COMMIT)), 1 << 40)}
CHECKPOINT = Checkpoint(
    good_spec="{}",
    good_revision="bbbbbbbb",
    accepted_spec='{"y":1}',
    accepted_revision="dddddddd",
    stable_spec='{"x":1}',
    rollout=ROLLOUT,
    weights=WEIGHTS,
    models={
        ModelRef("org/a", "v1"): ModelFacts(
            config=ModelConfig(architectures=("LlamaForCausalLM",), hidden_size=64),
            weights=Weights(
                total_bytes=5,
                tensors=(Tensor("d2t", "I64", (10,)), Tensor("fc.weight")),
                pickled=False,
                index_lacks="gone",
            ),
        )
    },
    seen=SeenGeneration("uid", 3),
)


def parsed(data: Mapping[str, str]) -> dict[str, Any]:
    return {key: json.loads(text) if key.endswith(".json") else text for key, text in data.items()}


def test_everything_comes_back_as_it_was() -> None:
    back = Checkpoint.of(replace(CHECKPOINT, looked_at_s=7.5).data())
    assert (back, back.seen, back.looked_at_s) == (CHECKPOINT, CHECKPOINT.seen, 7.5)
    assert Checkpoint.of(CHECKPOINT.data()).looked_at_s is None
    assert Checkpoint.of({}) == Checkpoint()


def test_what_an_earlier_operator_stored_is_read_and_written_back_as_it_was() -> None:
    """A key or a field that is spelled in another way would move a fleet at an upgrade."""
    folder = Path(__file__).parent / "checkpoints"
    stored = json.loads((folder / "by_an_earlier_operator.json").read_text())
    checkpoint = Checkpoint.of(stored)
    # Of the weights it kept one thing more, which the hub is asked for again.
    (model,) = CHECKPOINT.models
    config = CHECKPOINT.models[model].config
    assert checkpoint == replace(
        CHECKPOINT,
        models={model: ModelFacts(config=config, weights=Weights(total_bytes=5))},
        refreshes=RefreshLog((PastRefresh("kimi-a-1", 7.5),)),
        training=TrainingRecord(
            phase=TrainingPhase.TRIAL,
            run="7f3a90c1",
            reason="AcceptanceCliff",
            why="acceptance fell.",
            since_s=8.5,
            target="a/target",
            draft=ModelRef("a/draft", "main"),
            acceptance=Acceptance(reference=(0.8, 0.6), now=(0.4,)),
            proposed_at_s=7.5,
            begun="7f3a90c1",
            is_job_seen=True,
            result=TrainedDraft(id="/cache/fathom/drafts/3f9a1c0be2d74a51", facts="{}"),
            ending="run 00000000 failed.",
            asked="1",
            starts=(Start(run="7f3a90c1", at_s=7.5, gpu_minutes=360),),
        ),
        quality=stored["quality.json"],
    )
    assert (checkpoint.unread, checkpoint.lost, checkpoint.seen) == ({}, (), CHECKPOINT.seen)
    # It knew nothing else that one replica may have otherwise, nor what a canary has in force, nor
    # of rollouts that nothing but a person asks for.
    compares = {"compares": Compares.ADAPTIVE_VERIFICATION}
    written, expected = parsed(checkpoint.data()), parsed(stored)
    del expected["models.json"][0]["weights"]["has_d2t"]
    expected["rollout.json"] |= {**compares, "no_room": False, "offered": False, "draft": ""}
    expected["rollout.json"]["compared"] |= {**compares, "own_depth": False}
    expected["rollout.json"]["watch"] |= {"generation": 0, "behind_since_s": None}
    assert written == expected
    check = QualityCheck.from_json(stored["quality.json"])
    assert check is not None
    assert check.to_json() == stored["quality.json"]


def test_the_same_spec_is_not_kept_twice() -> None:
    checkpoint = Checkpoint().with_good("{}", "bbbbbbbb")
    assert checkpoint.with_accepted("{}", "bbbbbbbb") == checkpoint
    accepted = checkpoint.with_accepted('{"y":1}', "bbbbbbbb")
    assert accepted.specs() == (("bbbbbbbb", '{"y":1}'), ("bbbbbbbb", "{}"))
    assert accepted.with_good('{"y":1}', "bbbbbbbb").specs() == (("bbbbbbbb", '{"y":1}'),)


def test_what_matters_and_cannot_be_read_stays_as_it_is() -> None:
    junk = {"lastGoodSpec.json": "[" * 20_000, "revision": "bbbb", "models.json": "{}"}
    checkpoint = Checkpoint.of({**CHECKPOINT.data(), **junk, "weights.json": "["})
    assert (checkpoint.good_spec, checkpoint.good_revision, checkpoint.models) == (None, None, {})
    assert checkpoint.specs() == CHECKPOINT.specs()[:1] + CHECKPOINT.specs()[2:]
    assert (checkpoint.unread, checkpoint.lost) == (junk, ("weights.json",))
    assert checkpoint.data().items() >= junk.items()
    assert checkpoint.rollout == ROLLOUT


def test_what_another_fathom_wrote_is_no_rollout() -> None:
    assert (
        Checkpoint.of({**CHECKPOINT.data(), "rollout.json": '{"stage":"Sideways"}'}).rollout is None
    )
    assert Checkpoint.of({**CHECKPOINT.data(), "rollout.json": "not json"}).rollout is None


def test_a_revisions_spec_is_the_newest_or_the_stable_one() -> None:
    assert CHECKPOINT.spec_of("bbbbbbbb") == "{}"
    assert CHECKPOINT.spec_of("aaaaaaaa") == '{"x":1}'
    assert CHECKPOINT.spec_of("cccccccc") is None
    assert replace(CHECKPOINT, rollout=None).spec_of("aaaaaaaa") is None


def test_what_was_only_seen_can_wait_and_a_step_cannot() -> None:
    seen = replace(ROLLOUT, evidence=CanaryEvidence(), message="still watched.")
    assert CHECKPOINT.same_step(replace(CHECKPOINT, rollout=seen))
    for change in (
        {"stage": Stage.PROMOTED},
        {"paused_at_s": 3.0},
        {"arm": False},
        {"compared": ArmComparison(found=Compared.CANNOT_TELL, at_s=3.5)},
        {"watch": replace(ROLLOUT.watch, unready_since_s=3.0)},  # type: ignore[type-var]
    ):
        stepped = replace(ROLLOUT, **change)  # type: ignore[arg-type]
        assert not CHECKPOINT.same_step(replace(CHECKPOINT, rollout=stepped))
    assert not CHECKPOINT.same_step(replace(CHECKPOINT, rollout=None))
    assert not CHECKPOINT.same_step(replace(CHECKPOINT, stable_spec="{}"))
    assert not CHECKPOINT.same_step(replace(CHECKPOINT, weights={}))


def test_weights_are_kept_as_long_as_a_spec_wants_them() -> None:
    other = Fetched((("model", COMMIT),))
    assert CHECKPOINT.with_weights({"new": other}, {"new", "digest"}).weights == {
        **WEIGHTS,
        "new": other,
    }
    assert CHECKPOINT.with_weights({}, {"new"}).weights == {}


def test_weights_that_cannot_be_read_are_not_known() -> None:
    for text in ("", "not json", "[]", '{"digest": 1}', '{"digest": "not json"}'):
        assert Checkpoint.of({**CHECKPOINT.data(), "weights.json": text}).weights == {}
