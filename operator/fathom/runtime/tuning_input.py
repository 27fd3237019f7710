"""What the tuner is told, from a spec and a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fathom.api import names
from fathom.api.spec import MAX_TOKENS_LIMIT, SpeculativeDeploymentSpec
from fathom.core.capability import live_depth, live_depth_refusal
from fathom.core.observed import ObservedPod
from fathom.core.snapshot import Objects, Snapshot
from fathom.manifests.render import max_batch
from fathom.runtime.course import Course
from fathom.tuning.interface import Settings, TunedPod, TuningSnapshot
from fathom.tuning.settings import settings_from
from fathom.tuning.state import TuningState


@dataclass(frozen=True, slots=True)
class BadPin:
    """A pin annotation that is not a depth this engine can be held at."""

    pod: str
    value: str
    message: str


def tuning_snapshot(
    snapshot: Snapshot,
    course: Course,
    state: TuningState,
    *,
    document_written_at_s: float,
    pods: Sequence[ObservedPod],
) -> TuningSnapshot:
    """Everything the tuner may know, in its own words.

    Args:
        snapshot: this pass's view.
        course: what it carries out.
        state: what the tuner learnt.
        document_written_at_s: when the depth document was written (Unix seconds).
        pods: those to judge by.
    """
    spec = course.sd.spec
    settings = settings_of(spec)
    if course.stable is not None:
        settings = within(settings, course.stable.spec.speculation.effective_max_tokens)
    return TuningSnapshot(
        now_s=snapshot.now_s,
        settings=settings,
        pods=tuple(
            _tuned_pod(pod, snapshot, settings.max_tokens, course.held.get(pod.name))
            for pod in pods
        ),
        document=snapshot.objects.depth,
        document_written_at_s=document_written_at_s,
        live_refusal=live_depth_refusal(spec),
        state=state,
    )


def tuned_pods(objects: Objects, course: Course) -> tuple[ObservedPod, ...]:
    """The pods to judge by: those of the revision that most replicas are, or else all.

    During a rollout two kinds of engine serve. What an old one reports, at an old `maxTokens` or
    without the plugin, says nothing about the new ones, and it need not obey either. While a canary
    is on trial it is the other way round; and without the plugin the stable ones cannot obey.
    """
    leaders = tuple(pod for pod in objects.leaders if not pod.terminating)
    tuned = course.tuned_revision
    if tuned != course.revision and live_depth(course.sd.spec):
        workloads = (each for each in objects.workloads if each.revision == tuned)
        if not any(each.plugin for each in workloads):
            return ()
    return tuple(pod for pod in leaders if pod.revision == tuned) or leaders


def within(settings: Settings, max_tokens: int) -> Settings:
    """No deeper than other engines that read the same document."""
    return replace(
        settings,
        max_tokens=min(settings.max_tokens, max_tokens),
        min_tokens=min(settings.min_tokens, max_tokens),
        tokens=min(settings.tokens, max_tokens),
    )


def settings_of(spec: SpeculativeDeploymentSpec) -> Settings:
    """The user's wishes in the tuner's units."""
    return settings_from(spec.speculation, max_batch(spec))


def bad_pins(snapshot: Snapshot, max_tokens: int) -> tuple[BadPin, ...]:
    """Pins that are ignored, with the sentence that says why."""
    found = []
    for pod in snapshot.objects.leaders:
        value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH)
        if value is not None and pinned_depth(pod, max_tokens) is None:
            message = (
                f"annotation {names.ANNOTATION_PIN_DEPTH}={value!r} of pod {pod.name} is ignored: "
                f"write a whole number from 0 to {max_tokens} (maxTokens), or remove it."
            )
            found.append(BadPin(pod.name, value, message))
    return tuple(found)


def pinned_depth(pod: ObservedPod, max_tokens: int = MAX_TOKENS_LIMIT) -> int | None:
    """The depth a person holds this pod at; None: none, or not a possible one."""
    value = pod.metadata.annotations.get(names.ANNOTATION_PIN_DEPTH, "")
    if not (value.isascii() and value.isdecimal()):
        return None
    return int(value) if int(value) <= max_tokens else None


def _tuned_pod(pod: ObservedPod, snapshot: Snapshot, max_tokens: int, held: int | None) -> TunedPod:
    since = pod.ready_since_s
    return TunedPod(
        name=pod.name,
        ready=pod.ready,
        ready_for_s=0.0 if since is None else max(0.0, snapshot.now_s - since),
        pinned_depth=pinned_depth(pod, max_tokens) if held is None else held,
        checked=held is not None,
        counters=snapshot.counters.get(pod.name),
    )
