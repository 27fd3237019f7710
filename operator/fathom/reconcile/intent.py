"""Which spec is to be carried out: the newest, or, while that one is bad, the last good one."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fathom.api.problem import Problem, Severity
from fathom.cluster.manifest import Manifest
from fathom.engine.profile import StartedAs
from fathom.model_facts import ModelFacts
from fathom.model_refs import ModelRef, draft_ref, model_refs, target_ref, trial_ref
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.specs import (
    earlier_spec,
    good_spec_text,
    newest_of,
    whole_number,
    with_max_tokens,
    without_ended_trial,
)
from fathom.resource import SpeculativeDeployment
from fathom.rollout.replicas import arm_of
from fathom.rollout.revision import (
    changed_restart_fields,
    rerendered,
    revision_of,
    revisions_of,
)
from fathom.validation.candidate import (
    Candidate,
    Cluster,
    candidate_of,
    hybrid,
    may_be_sized,
    only_tokens,
)
from fathom.validation.chain import problems_of
from fathom.validation.model_input import preflight_of
from fathom.validation.model_verdict import DraftVerdict, check_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    wanted: SpeculativeDeployment | None
    """What to carry out; None: neither the newest spec nor an earlier one can be."""
    text: str
    """The spec of `wanted`, as it is kept."""
    revision: str
    """Whose pods `wanted` asks for; empty: nobody's."""
    replicas: int
    problems: tuple[Problem, ...]
    """Why the newest spec cannot be carried out, or not in this cluster."""
    draft: DraftVerdict | None
    """What is known of the newest spec's draft."""
    awaited: tuple[ModelRef, ...] = ()
    """Models of `wanted` of which the hub may yet tell."""
    trial_awaited: bool = False
    """Whether the hub may yet tell what the draft on trial is."""
    trial_refused: str = ""
    """Why the draft on trial cannot work, as a sentence; empty: it may, or there is none."""
    warnings: tuple[Problem, ...] = ()
    """What the user of the newest spec should know, where it is carried out."""

    @property
    def newest(self) -> bool:
        """Whether it is the newest spec that is carried out."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBy:
    """What a spec is judged by."""

    checkpoint: Checkpoint
    """What is known of earlier specs."""
    models: Mapping[ModelRef, ModelFacts]
    """What is known of target and draft of all these specs, as far as it is known."""
    cluster: Cluster
    running: Mapping[str, StartedAs | None]
    """Revisions that have replicas, and how these were started."""
    renderings: Mapping[str, str] = field(default_factory=dict)
    """By revision: the hash of its pods that its workload has."""
    at_rest: bool = False
    """Whether the status tells that what runs is what this very generation asks for."""
    refused: DraftVerdict | None = None
    """The refusal of this very generation's draft that the status tells of. It stands until the hub
    has been heard; None: there is none."""


def intent_of(resource: Manifest, by: JudgedBy) -> Intent:
    """Judge the newest spec of a resource as it was read, and fall back where it must be."""
    newest = newest_of(resource)
    verdict: DraftVerdict | None = None
    if isinstance(newest, SpeculativeDeployment):
        newest, resource = _as_sized(newest, resource, by)
        revision = wanted_revision(newest, resource, by)
        candidate = _candidate(newest, revision, by)
        verdict, found = candidate.verdict, problems_of(candidate)
        problems = tuple(each for each in found if each.severity is Severity.ERROR)
        if not problems:
            return Intent(
                wanted=newest,
                text=good_spec_text(resource),
                revision=revision,
                replicas=newest.spec.replicas,
                problems=(),
                draft=verdict,
                awaited=_awaited(newest, by.models),
                trial_awaited=_is_awaited(trial_ref(newest.spec), by.models),
                trial_refused=_refusal(candidate.trial),
                warnings=tuple(each for each in found if not each.silenced),
            )
    else:
        problems = newest
    earlier = _fallback(resource, by.checkpoint, by.models, by.running)
    if earlier is None:
        return Intent(
            wanted=None,
            text="",
            revision="",
            replicas=_replicas(resource),
            problems=problems,
            draft=verdict,
        )
    return Intent(
        wanted=earlier.sd,
        text=earlier.text,
        revision=earlier.revision,
        replicas=earlier.sd.spec.replicas,
        problems=problems,
        draft=verdict,
        awaited=_awaited(earlier.sd, by.models),
        trial_awaited=_is_awaited(trial_ref(earlier.sd.spec), by.models),
        trial_refused=_refusal(candidate_of(earlier.sd, by.models).trial),
    )


def _refusal(trial: Candidate | None) -> str:
    return trial.verdict.message if trial is not None and trial.verdict.refused else ""


def _as_sized(
    newest: SpeculativeDeployment, resource: Manifest, by: JudgedBy
) -> tuple[SpeculativeDeployment, Manifest]:
    """The newest spec as it is carried out, and the resource as if its user had written that.

    A hybrid target has space for `tokens` and no more where its user leaves it open. Pods that were
    started with more keep it until an edit asks for others. Where the hub has yet to say what the
    target is, pods that were started so tell it.
    """
    if not may_be_sized(newest) or _has_pods(newest, resource, by):
        return newest, resource
    sized = newest.with_spec(only_tokens(newest.spec))
    as_written = with_max_tokens(resource, newest.spec.speculation.tokens)
    keeps_states = hybrid(newest, by.models)
    if keeps_states or target_ref(newest.spec) in _awaited(newest, by.models):
        # Nobody can tell what pods are of which the name says nothing: they stay as they are.
        told = not (by.at_rest and by.running)
        if _has_pods(sized, as_written, by) or (keeps_states and told):
            return sized, as_written
    return newest, resource


def _has_pods(sd: SpeculativeDeployment, resource: Manifest, by: JudgedBy) -> bool:
    """Whether there is a workload that was made from this very spec, as far as can be told."""
    there = {*by.running, *by.renderings}
    return (_recorded(sd, resource, by) or next(_by_name(sd, by), "")) in there


def _candidate(newest: SpeculativeDeployment, revision: str, by: JudgedBy) -> Candidate:
    known = {*by.running, *(each for each, _ in by.checkpoint.specs())}
    candidate = candidate_of(newest, by.models, cluster=by.cluster, accepted=revision in known)
    if by.refused is None or candidate.verdict.refused or not _awaited(newest, by.models):
        return candidate
    return replace(candidate, verdict=by.refused)


def _awaited(
    sd: SpeculativeDeployment, models: Mapping[ModelRef, ModelFacts]
) -> tuple[ModelRef, ...]:
    # For a draft on trial nothing waits but its own pod.
    served = (ref for ref in (target_ref(sd.spec), draft_ref(sd.spec)) if ref.id)
    return tuple(ref for ref in served if _is_awaited(ref, models))


def _is_awaited(ref: ModelRef, models: Mapping[ModelRef, ModelFacts]) -> bool:
    return ref in models and models[ref].awaited


@dataclass(frozen=True, slots=True)
class _Earlier:
    sd: SpeculativeDeployment
    text: str
    revision: str


def _fallback(
    resource: Manifest,
    checkpoint: Checkpoint,
    models: Mapping[ModelRef, ModelFacts],
    running: Collection[str],
) -> _Earlier | None:
    """The newest of the earlier specs against which nothing is known.

    If there is none: the one whose pods were ready, as long as some run, or would if a rollout had
    not taken their place. What is known by now did not keep them from serving.
    """
    found = [
        _Earlier(sd, text, revision)
        for revision, text in checkpoint.specs()
        if (sd := earlier_spec(resource, without_ended_trial(text, checkpoint.training)))
        is not None
    ]
    for each in found:
        if not check_draft(preflight_of(each.sd.engine, models)).refused:
            return each
    proven = (each for each in found if each.revision == checkpoint.good_revision)
    replaced = {checkpoint.rollout.stable} if checkpoint.rollout else set()
    return next((each for each in proven if each.revision in {*running, *replaced}), None)


def models_of(resource: Manifest, checkpoint: Checkpoint) -> tuple[ModelRef, ...]:
    """The models that a resource names, and those that its earlier specs name."""
    newest = newest_of(resource)
    specs = [newest.spec] if isinstance(newest, SpeculativeDeployment) else []
    earlier = (earlier_spec(resource, text) for _, text in checkpoint.specs())
    specs += [each.spec for each in earlier if each is not None]
    return tuple(dict.fromkeys(ref for spec in specs for ref in model_refs(spec)))


def wanted_revision(sd: SpeculativeDeployment, resource: Manifest, by: JudgedBy) -> str:
    """The revision whose pods a spec asks for.

    As long as nothing changed that needs new pods it is the one that was given, whatever this
    Fathom would call it: one that knows more engines must not roll what an older one started. Of
    several such the one whose very spec it is: what this Fathom takes for the same, an older one
    may have started otherwise.

    Where no earlier spec is known, as after the tuning ConfigMap was deleted, the names of what
    runs tell what it was made from, or the status does.

    Args:
        sd: whose spec is carried out.
        resource: the same as it was read.
        by: what it is judged by.
    """
    return _recorded(sd, resource, by) or _by_its_name(sd, by)


def _recorded(sd: SpeculativeDeployment, resource: Manifest, by: JudgedBy) -> str:
    """The revision that a spec was given; empty: none that is known."""
    for revision, earlier in _known(resource, by.checkpoint):
        if not changed_restart_fields(earlier, sd, revision, by.running.get(revision)):
            return revision
    return ""


def _known(
    resource: Manifest, checkpoint: Checkpoint
) -> Iterator[tuple[str, SpeculativeDeployment]]:
    """Pairs of a revision and the spec that its pods were made from; that of an arm comes last."""
    newest = good_spec_text(resource)
    for revision, text in sorted(checkpoint.specs(), key=lambda each: each[1] != newest):
        if (earlier := earlier_spec(resource, text)) is not None:
            yield revision, earlier
    if checkpoint.rollout is None or not checkpoint.rollout.arm:
        return
    # The spec may ask for all to be like the one that is compared.
    fleet = earlier_spec(resource, checkpoint.spec_of(checkpoint.rollout.stable))
    if fleet is not None and (one := arm_of(fleet.spec)) is not None:
        yield checkpoint.rollout.revision, fleet.with_spec(one)


def _by_its_name(sd: SpeculativeDeployment, by: JudgedBy) -> str:
    """What this Fathom calls the spec, or what the one called it that started what runs."""
    name = revision_of(sd)
    if by.checkpoint.specs():
        return name
    only = next(iter(by.running)) if by.at_rest and len(by.running) == 1 else name
    return next(_by_name(sd, by), only)


def _by_name(sd: SpeculativeDeployment, by: JudgedBy) -> Iterator[str]:
    """Revisions that are there and whose names are those of this spec."""
    names = revisions_of(sd)
    rerenderings = (
        each
        for each, rendering in by.renderings.items()
        if any(each == rerendered(name, rendering) for name in names)
    )
    # The status may yet tell of a rollout to it, or of its veto.
    told = (by.checkpoint.rollout.revision,) if by.checkpoint.rollout else ()
    return (each for each in (*names, *rerenderings) if each in {*by.running, *told})


def _replicas(resource: Manifest) -> int:
    newest = resource.get("spec")
    asked = whole_number(newest.get("replicas")) if isinstance(newest, dict) else None
    return 1 if asked is None else asked
