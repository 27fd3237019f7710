import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fathom.api.conditions import AlarmKind, Reason
from fathom.engine.depth import buckets
from fathom.engine.report import ServedPair
from fathom.measurement.counters import ContextCounts, StepKind
from fathom.quality.check import LONGEST_ID
from fathom.tuning.alarms.alarm import Engine, Watch
from fathom.tuning.assessment import assess
from fathom.tuning.estimate import acceptance_changes, yields
from fathom.tuning.estimate.acceptance_by_context import Contexts, ContextSums
from fathom.tuning.estimate.acceptance_by_position import FRESH_WINDOWS, Survival
from fathom.tuning.estimate.acceptance_changes import (
    LEVELS,
    Acceptance,
    Cliff,
    HealedCliff,
    PodAcceptance,
)
from fathom.tuning.estimate.acceptance_length import Trials
from fathom.tuning.estimate.measured import Measured
from fathom.tuning.estimate.reference import MOST_POSITIONS, Reference
from fathom.tuning.estimate.step_filter import MOST_CELLS, MOST_PODS
from fathom.tuning.estimate.step_time import CellTime, PodSpeed, StepTimes
from fathom.tuning.estimate.tail import Ran, Tail
from fathom.tuning.estimate.text_spread import TextSpread
from fathom.tuning.estimate.traffic import HOURS, BucketLoad, HourLoad, Load, Traffic
from fathom.tuning.estimate.yields import Yield, Yields
from fathom.tuning.gains import Gained
from fathom.tuning.learned_state import (
    LARGEST_BYTES,
    MOST_VISITS,
    Change,
    Probe,
    Trial,
    TuningState,
)
from fathom.tuning.policy.ledger import Ledger
from fathom.tuning.policy.option import Visit
from fathom_vllm.buckets import CONTEXT_RANGES
from unit.tuning.plant import EASY, Fleet

UGLY = 1_700_000_000.1234567
BUCKETS = buckets(2048)
POD = "p" * 63
MOST_REPLICAS = 1024


def largest() -> TuningState:
    """Every part at its largest, with long names and long numbers, in the largest of fleets."""
    depths = tuple((bucket, 64) for bucket in BUCKETS)
    deep = Trials((UGLY,) * 64, (UGLY,) * 64)
    shallow = Trials((UGLY,) * MOST_POSITIONS, (UGLY,) * MOST_POSITIONS)
    return TuningState(
        step_times=StepTimes(
            cells=tuple(
                CellTime(
                    batch_le=1024,
                    depth=i % 65,
                    step=StepKind.DECODE,
                    log_seconds=-4.123456789012345,
                    variance=1.234567890123e-05,
                    at_s=UGLY,
                    log_batch=UGLY,
                )
                for i in range(MOST_CELLS)
            ),
            pods=tuple(
                PodSpeed(pod=POD, log_factor=-0.12345678901234567, variance=UGLY, at_s=UGLY)
                for _ in range(MOST_PODS)
            ),
            dispersions=tuple((bucket, UGLY) for bucket in BUCKETS),
        ),
        survival=Survival(
            horizon=deep,
            fresh=(deep,) * FRESH_WINDOWS,
            slow=deep,
            design_effect=UGLY,
            at_s=UGLY,
            epoch=1000,
        ),
        contexts=Contexts(
            ranges=tuple(
                ContextSums(
                    index=index,
                    counts=ContextCounts(UGLY, UGLY, UGLY, UGLY),
                    drafts_squared=UGLY,
                    first_squared=UGLY,
                    first_by_drafts=UGLY,
                )
                for index in range(CONTEXT_RANGES)
            ),
            at_s=UGLY,
        ),
        traffic=Traffic(
            tuple(
                BucketLoad(
                    batch_le=bucket,
                    busy_seconds=UGLY,
                    decode_steps=UGLY,
                    mixed_steps=UGLY,
                    requests=UGLY,
                    at_s=UGLY,
                )
                for bucket in BUCKETS
            ),
            UGLY,
        ),
        probe=Probe(
            pod=POD, depths=depths, started_at_s=UGLY, in_force_at_s=UGLY, steps=UGLY, looks=10
        ),
        trial=Trial(
            changes=tuple(Change(bucket, 64, 63) for bucket in BUCKETS),
            expected_gain=UGLY,
            at_s=UGLY,
            steps=UGLY,
        ),
        visits=tuple(
            Visit(bucket=1024, depth=64, at_s=UGLY, epoch=1000, times=10)
            for _ in range(MOST_VISITS)
        ),
        measured=Measured(
            at_s=UGLY,
            window_seconds=UGLY,
            tokens_per_second=UGLY,
            mean_batch=UGLY,
            acceptance_length=UGLY,
            acceptance_rate=UGLY,
            survival=(UGLY,) * 64,
            tpot_seconds=UGLY,
            gain=UGLY,
        ),
        load=Load(
            tuple(
                HourLoad(hour, tuple((bucket, 12345678.123) for bucket in BUCKETS), 12345678.123)
                for hour in range(HOURS)
            ),
            UGLY,
            UGLY,
        ),
        acceptance=Acceptance(
            levels=(UGLY,) * LEVELS,
            level=UGLY,
            pods=(
                PodAcceptance(
                    pod=POD, started_at_s=UGLY, drafts=UGLY, expected=UGLY, accepted=UGLY, at_s=UGLY
                ),
            )
            * acceptance_changes.MOST_PODS,
            at_s=UGLY,
            cliff=Cliff(
                lowest=0.12345678901234567,
                since_s=UGLY,
                normal=0.12345678901234567,
                restored_s=UGLY,
            ),
            healed=HealedCliff(0.12345678901234567, UGLY),
        ),
        reference=Reference(
            pair=ServedPair(target="t" * 16, draft="d" * 16, engine="e" * 16, commits=True),
            asked="a" * LONGEST_ID,
            began_at_s=UGLY,
            first=shallow,
            lowest=0.12345678901234567,
            days=1000,
            day=shallow,
            day_began_at_s=UGLY,
            last=shallow,
            days_below=3,
        ),
        watches=tuple(
            Watch(
                kind=kind,
                reason=Reason.OLDER_REPLICAS_ACCEPT_LESS,
                message="m" * 300,
                recommendation="r" * 300,
                first_seen_s=UGLY,
                last_seen_s=UGLY,
                raised_at_s=UGLY,
                older_than_s=UGLY,
                engine=Engine(POD, UGLY),
            )
            for kind in AlarmKind
        ),
        tail=Tail(
            tpot=tuple((UGLY, UGLY) for _ in range(64)),
            seconds_sum=UGLY,
            at_s=UGLY,
            level=UGLY,
            scatter_squared=UGLY,
            ran=tuple(Ran(bucket, depth, UGLY) for bucket in BUCKETS for depth in range(8)),
        ),
        by_text=TextSpread(**dict.fromkeys(TextSpread.__dataclass_fields__, UGLY)),
        ledger=Ledger(**dict.fromkeys(Ledger.__dataclass_fields__, UGLY)),
        disobeying=(POD,) * MOST_REPLICAS,
    )


def largest_of_cut_drafts() -> TuningState:
    """The same where drafts are cut before they are verified: yields instead of survival."""
    cells = tuple(
        Yield(batch_le=2048, depth=64, requests=UGLY, tokens=UGLY, at_s=UGLY)
        for _ in range(yields.MOST_CELLS)
    )
    known = Yields(cells=cells, at_s=UGLY, epoch=1000, turns=UGLY, watched_s=UGLY)
    return replace(largest(), survival=Survival(), yields=known)


@pytest.mark.parametrize("state", [largest(), largest_of_cut_drafts()], ids=["whole", "cut"])
def test_the_largest_state_fits_with_room_to_spare(state: TuningState) -> None:
    text = state.to_json()
    assert len(text.encode()) < LARGEST_BYTES * 0.9
    assert TuningState.from_json(text) == state


def test_looks_are_not_persisted() -> None:
    fleet = Fleet(acceptance=EASY).run(60)
    assert fleet.state.looks
    again = TuningState.from_json(fleet.state.to_json())

    assert not again.looks
    # What was gained is kept apart.
    assert again == replace(fleet.state, looks={}, stepped=(), held=(), gained=Gained())
    assert again.to_json() == fleet.state.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}}",
        "null",
        "[]",
        '{"version": 2}',
        '{"version": 1, "probe_ended_at_s": NaN}',
        '{"version": 1, "survival": {"at_s": "soon"}}',
        " " * (LARGEST_BYTES + 1),
    ],
)
def test_garbage_is_a_fresh_state(text: str) -> None:
    assert TuningState.from_json(text) == TuningState()


def test_what_an_earlier_version_remembered_besides_costs_nothing() -> None:
    """Depth by rollout had its canary and its comparison in there."""
    text = largest().to_json()
    rolls = {
        "canary": {"pod": POD, "depths": [[8, 5]], "started_at_s": UGLY},
        "comparison": {"pod": POD, "itself": [0, 0, 0, 1.5, 2.25, 0.01, 0.0, 3], "contrasts": []},
        "promoted_at_s": [UGLY],
    }
    assert TuningState.read(json.dumps({**json.loads(text), "rolls": rolls})) == largest()
    assert TuningState.read('{"version": 1, "rolls": null}') == TuningState()


def with_a_field_everywhere(value: Any) -> Any:
    """As a later Fathom might keep it: each object has one field more."""
    if isinstance(value, dict):
        return {**{k: with_a_field_everywhere(v) for k, v in value.items()}, "later": {"a": [1]}}
    if isinstance(value, list):
        return [with_a_field_everywhere(each) for each in value]
    return value


@pytest.mark.parametrize("state", [largest(), largest_of_cut_drafts()], ids=["whole", "cut"])
def test_what_a_later_version_remembers_besides_costs_nothing(state: TuningState) -> None:
    small = replace(state, disobeying=(), visits=state.visits[:3], watches=state.watches[:2])
    later = json.dumps(with_a_field_everywhere(json.loads(small.to_json())))
    assert TuningState.known_part(later) == (small, True)


def test_what_is_of_a_kind_without_a_name_here_costs_itself_alone() -> None:
    state = largest()
    later = json.loads(state.to_json())
    later["watches"][1]["kind"] = "DraftTooWarm"
    later["watches"][2]["reason"] = "WarmerThanItWas"
    later["step_times"]["cells"][5]["step"] = "encode"

    found, whole = TuningState.known_part(json.dumps(later))
    cells = state.step_times.cells
    assert found == replace(
        state,
        watches=(state.watches[0], *state.watches[3:]),
        step_times=replace(state.step_times, cells=(*cells[:5], *cells[6:])),
    )
    assert not whole


def test_other_junk_beside_it_is_refused() -> None:
    later = json.loads(largest().to_json())
    later["watches"][1]["kind"] = "DraftTooWarm"
    later["generation"] = "soon"
    assert TuningState.read(json.dumps(later)) is None
    assert TuningState.read('{"watches": [{"kind": 7}]}') is None


def test_what_was_tried_last_is_remembered_and_no_more() -> None:
    fleet = Fleet().run(60)
    assert fleet.document is not None
    situation = assess(fleet.snapshot(), fleet.document)
    situation = situation.with_state(replace(situation.state, visits=()))
    tried = [(8, depth) for depth in range(MOST_VISITS + 8)]
    visits = situation.noted(tried).state.visits
    assert [each.depth for each in visits] == list(range(8, 8 + MOST_VISITS))
    again = situation.noted(tried[:2]).noted(tried[:1], failed=True).state.visits
    assert [(each.depth, each.times, each.failed) for each in again] == [
        (1, 1, False),
        (0, 2, True),
    ]


def test_kept_drafts_of_which_more_were_accepted_than_made_end_no_decision() -> None:
    """Nothing that is read back is checked for sense, number by number."""
    fleet = Fleet(acceptance=EASY).run(600)
    whole = json.loads(fleet.state.to_json())
    for trials in trials_in(whole):
        trials["accepted"] = [10 * each for each in trials["accepted"]]
    junk = TuningState.read(json.dumps(whole))

    assert junk is not None
    assert junk != fleet.state
    fleet.state = junk
    decided = len(fleet.decisions)
    assert len(fleet.run(600).decisions) > decided


def trials_in(found: object) -> Iterator[dict[str, list[float]]]:
    if isinstance(found, dict):
        if found.keys() >= {"reached", "accepted"}:
            yield found
        found = list(found.values())
    for each in found if isinstance(found, list) else ():
        yield from trials_in(each)


@pytest.mark.parametrize("earlier", ["OtherDepthThanAsked", "SlowerThanWithout"])
def test_reasons_of_an_earlier_release_are_read_by_their_new_names(earlier: str) -> None:
    watch = Watch(
        kind=AlarmKind.SUSPICIOUS_ACCEPTANCE,
        reason=Reason.DEPTH_MISMATCH,
        message="m",
        recommendation="r",
        first_seen_s=1.0,
        last_seen_s=2.0,
    )
    text = TuningState(watches=(watch,)).to_json().replace("DepthMismatch", earlier)
    assert earlier in text
    (read,) = TuningState.from_json(text).watches
    assert read.reason in {Reason.DEPTH_MISMATCH, Reason.SPECULATION_SLOWER}
