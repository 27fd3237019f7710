"""The status of a SpeculationTuner, from what one reconcile found. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType, Reason
from fathom.api.problem import Problem
from fathom.api.status import Condition, DepthStatus
from fathom.api.tuner import BreakEven, EnginesStatus, Level, SpeculationTunerStatus
from fathom.attach.evidence import PodEvidence, depths_of, first_missing, kinds_of_engines
from fathom.attach.step import Came, Effects, Found, TunerState
from fathom.attach.tuning_input import settings_of, started_at
from fathom.cluster.snapshot import SelectedObjects
from fathom.reconcile.conditions import alarms, condition
from fathom.reconcile.status import depth_status, scrubbed_status
from fathom.reconcile.status_input import Finding
from fathom.reconcile.tuning_report import gained_status
from fathom.text import counted
from fathom.times import rfc3339
from fathom.tuning.interface import TuningDecision

_MOST_KINDS: Final = 16
"""Kinds of engines that the status lists."""
_MOST_BREAK_EVENS: Final = 3
"""Depths that the sentence names: the shallower ones lose more."""
_Conditions = Mapping[ConditionType | AlarmKind, Finding]
_NOT_TUNED: Final = Finding(
    ConditionStatus.FALSE,
    Reason.INVALID_SPEC,
    "nothing is tuned until the spec is one that can be carried out: see Attached.",
)


def status_of(
    found: Found, effects: Effects, came: Came, state: TunerState
) -> SpeculationTunerStatus:
    """The status to report; times of conditions are carried over from the one that is there."""
    pods, judged, decision = found.pods, found.judged, effects.decision
    before, evens = _before(found.objects, state), _known_break_evens(decision, judged)
    attached, tuning = _attached(found, came), _tuning(came.tuning, decision, evens)
    readable = sum(each.counters is not None for each in pods)
    status = SpeculationTunerStatus(
        observed_generation=found.objects.metadata.generation,
        reason=(tuning if attached.status is ConditionStatus.TRUE else attached).reason,
        conditions=_conditions(
            {
                ConditionType.ATTACHED: attached,
                ConditionType.TUNING: tuning,
                **alarms(_standing(decision), before),
            },
            found.objects,
            before,
            found.now_s,
        ),
        pods=len(pods),
        readable_pods=readable,
        readable=f"{readable}/{len(pods)}",
        level=judged[0].level if judged else None,
        tokens=_tokens(found),
        tuned_pods=len(judged),
        engines=tuple(_engines(pods))[:_MOST_KINDS],
        break_even=evens,
        depth=_depth(found, came, state),
        measured=state.measured,
        gained=gained_status(
            state.tuner.gained,
            on_gpus=any(each.counters and each.counters.device for each in judged),
        ),
        tuning=state.tuning,
        last_reconcile_time=rfc3339(found.now_s),
    )
    return scrubbed_status(status, found.objects)


def status_of_refused(
    problems: Sequence[Problem], objects: SelectedObjects, state: TunerState, now_s: float
) -> SpeculationTunerStatus:
    """The status of a spec that cannot be carried out: what runs keeps running."""
    before = _before(objects, state)
    listed = " ".join(map(str, problems))
    attached = Finding(
        ConditionStatus.FALSE,
        Reason.INVALID_SPEC,
        f"{listed} Until that is fixed, nothing is written.",
    )
    last = objects.status or SpeculationTunerStatus()
    status = last.model_copy(
        update={
            "observed_generation": objects.metadata.generation,
            "reason": attached.reason,
            "conditions": _conditions(
                {
                    ConditionType.ATTACHED: attached,
                    ConditionType.TUNING: _NOT_TUNED,
                    **alarms({}, before),
                },
                objects,
                before,
                now_s,
            ),
            "last_reconcile_time": rfc3339(now_s),
        }
    )
    return scrubbed_status(status, objects)


def _before(
    objects: SelectedObjects, state: TunerState
) -> Mapping[ConditionType | AlarmKind, Condition]:
    """By subject; where what is there cannot be read, as this operator wrote it last."""
    told = objects.status or state.said.written
    return {each.type: each for each in told.conditions} if told else {}


def _conditions(
    found: _Conditions,
    objects: SelectedObjects,
    before: Mapping[ConditionType | AlarmKind, Condition],
    now_s: float,
) -> tuple[Condition, ...]:
    generation = objects.metadata.generation
    return tuple(
        condition(kind, each, before.get(kind), generation, now_s) for kind, each in found.items()
    )


def _standing(decision: TuningDecision | None) -> Mapping[AlarmKind, Finding]:
    return {
        each.kind: Finding(
            ConditionStatus.TRUE, each.reason, f"{each.message} {each.recommendation}"
        )
        for each in (decision.alarms if decision is not None else ())
    }


def _attached(found: Found, came: Came) -> Finding:
    """How far the engines can be tuned, and what is missing first for more."""
    if found.objects.foreign:
        (_, name), *_ = found.objects.foreign
        message = (
            f"ConfigMap {name} exists and does not belong to this resource, so it is left as it "
            "is: delete or rename it, or give the resource another name."
        )
        return Finding(ConditionStatus.FALSE, Reason.NAME_TAKEN, message)
    if came.refusals:
        return Finding(ConditionStatus.FALSE, Reason.CHILD_REFUSED, " ".join(came.refusals))
    if not found.pods:
        message = f"no pod of this namespace has the labels {found.tuner.spec.selector}."
        return Finding(ConditionStatus.FALSE, Reason.NO_PODS, message)
    judged = found.judged
    missing = first_missing(judged or found.pods)
    if missing is None:
        return Finding(ConditionStatus.TRUE, Reason.ATTACHED, f"{_of_all(found)} depth is live.")
    known = ConditionStatus.FALSE if judged else ConditionStatus.UNKNOWN
    return Finding(known, missing.reason, f"{_of_all(found)} {missing.sentence}")


def _of_all(found: Found) -> str:
    """Which pods are meant, of all."""
    judged, pods = found.judged, found.pods
    if not judged:
        return f"{counted(len(pods), 'pod')}, and nothing is known of them:"
    level = judged[0].level
    if len(judged) == len(pods):
        return f"{counted(len(pods), 'pod')} ({level}):"
    return f"{len(judged)} of {counted(len(pods), 'pod')} ({level}; the others differ):"


def _engines(pods: Sequence[PodEvidence]) -> Iterator[EnginesStatus]:
    for kind, alike in kinds_of_engines(pods):
        yield EnginesStatus(
            pods=len(alike),
            level=kind.level,
            reason=kind.reason,
            version=kind.version,
            runner=kind.runner,
            depths=",".join(map(str, depths_of(alike))),
            max_num_seqs=kind.max_num_seqs,
        )


def _known_break_evens(
    decision: TuningDecision | None, judged: Sequence[PodEvidence]
) -> tuple[BreakEven, ...]:
    """None where depths may vary: then later positions are of fewer drafts, and of other ones."""
    if decision is None or decision.measured is None or judged[0].level is Level.LIVE:
        return ()
    several = len([each for each in depths_of(judged) if each > 0]) > 1
    return () if several else break_evens(decision.measured.survival)


def _tuning(
    finding: Finding, decision: TuningDecision | None, evens: Sequence[BreakEven]
) -> Finding:
    if not evens or decision is None or decision.measured is None:
        return finding
    words = break_evens_in_words(decision.measured.survival, evens)
    return Finding(finding.status, finding.reason, f"{words} {finding.message}")


def _tokens(found: Found) -> int | None:
    """The user's own depth; None: how long drafts are on average says nothing of it."""
    judged, given = found.judged, found.tuner.spec.tokens
    if not judged or not (given or depths_of(judged) or judged[0].level is not Level.METRICS):
        return None
    return settings_of(found.tuner, judged, found.followers).tokens


def _depth(found: Found, came: Came, state: TunerState) -> DepthStatus:
    if came.document is not None:
        return depth_status(
            came.document, state.document_written_at_s, found.objects, found.counters
        )
    depth = started_at(found.judged)
    return DepthStatus(summary="" if depth is None else str(depth))


def break_evens(survival: Sequence[float]) -> tuple[BreakEven, ...]:
    """What acceptance alone says of each shallower depth: the break-even of a decode step.

    At depth k a step gives a request L(k) = 1 + S_1 + … + S_k tokens, S_i being the share of drafts
    whose first i tokens are all accepted. A shallower depth gives fewer tokens, and a shorter step;
    it gives more tokens per second where a step at it takes less than L(k) / L(K) of one at K. How
    long such a step takes nobody knows who has not measured it, and of whole requests, with their
    prompts and their waiting, this says nothing. The deepest comes first.

    Args:
        survival: of drafts by position, all of one depth; empty: not known.
    """
    return tuple(
        BreakEven(
            depth=depth,
            keeps_percent=f"{100 * share:.0f}",
            pays_if_shorter_by_percent=f"{100 * (1 - share):.0f}",
        )
        for depth, share in _shares(survival)
    )


def _shares(survival: Sequence[float]) -> Iterator[tuple[int, float]]:
    whole = 1 + sum(survival)
    for depth in range(len(survival) - 1, 0, -1):
        yield depth, (1 + sum(survival[:depth])) / whole


def break_evens_in_words(survival: Sequence[float], found: Sequence[BreakEven]) -> str:
    """Sentences for the status; empty: nothing is known."""
    if not survival:
        return ""
    whole, accepted = 1 + sum(survival), ", ".join(f"{each:.2f}" for each in survival)
    begin = (
        f"At depth {len(survival)} a request gets {whole:.2f} tokens per step (accepted by "
        f"position: {accepted})."
    )
    keeps = [
        f"depth {each.depth} keeps {each.keeps_percent} % of them, and pays if a step gets over "
        f"{each.pays_if_shorter_by_percent} % shorter"
        for each in found[:_MOST_BREAK_EVENS]
    ]
    if not keeps:
        return begin
    rest = "; ".join(keeps)
    return (
        f"{begin} Break-even of a decode step: {rest}. What that means for whole requests, and "
        "what a deeper depth would bring, is not known."
    )
