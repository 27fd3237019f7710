"""Takes the rollout of one resource one step on, and says what is desired then."""

from collections.abc import Iterable
from dataclasses import replace

from fathom.api import names
from fathom.api.choices import Compares, TuningMode, WhenNoCapacity
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.missing_pods import measured_start_s, unplaced
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Objects, Snapshot
from fathom.engine.depth import DepthDocument
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import Fetched, FetchStanding, pinned
from fathom.manifests.cache import wanted_fetch
from fathom.manifests.pod_template import pod_template, worker_template
from fathom.manifests.workloads import serving_template, workers_template
from fathom.model_refs import draft_ref, target_ref
from fathom.reconcile.annotations import pause_of, pinned_depth
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.desired_state import DesiredState, following_of, follows
from fathom.reconcile.fetching import fetch_standing, fetched_news, pinned_to_fetched
from fathom.reconcile.holding import PATIENCE_S, Hold, started_as
from fathom.reconcile.intent import Intent
from fathom.reconcile.next_revision import asked_for, rollout_announcement
from fathom.reconcile.renderings import Renderings
from fathom.reconcile.specs import earlier_spec
from fathom.reconcile.variant import Arm, beside_others, wanted_arm, with_target_of_others
from fathom.resource import SpeculativeDeployment
from fathom.rollout.canary_evidence import CanaryWindows, window_length_s
from fathom.rollout.input import CanaryWindow, RolloutInput, RolloutSettings
from fathom.rollout.progress import what_blocks
from fathom.rollout.rollout import Rollout, Stage
from fathom.rollout.steps import SETTLE_S, next_step
from fathom.rollout.template_changes import first_change
from fathom.tuning.learned_state import TuningState
from fathom_fetch.metrics import DRAFT, MODEL


def desired_state(
    intent: Intent,
    wanted: SpeculativeDeployment,
    snapshot: Snapshot,
    *,
    checkpoint: Checkpoint,
    hold: Hold | None,
    windows: CanaryWindows,
    tuner: TuningState,
    document_written_at_s: float,
    bundle: PluginBundle,
    renderings: Renderings,
) -> DesiredState:
    """Take the rollout one step on.

    Args:
        intent: what the spec asks for.
        wanted: the spec that could be carried out.
        snapshot: this pass's view.
        checkpoint: what is known of earlier specs, and the rollout as it was.
        hold: why nothing new starts for now.
        windows: cuts what canary and others count.
        tuner: what the tuner learned.
        document_written_at_s: when the depth document was written (Unix seconds).
        bundle: this Fathom's plugin.
        renderings: what this build renders; it remembers.
    """
    objects, before = snapshot.objects, checkpoint.rollout
    asked = asked_for(
        intent.revision,
        wanted,
        objects,
        checkpoint=checkpoint,
        bundle=bundle,
        renderings=renderings,
    )
    intent, revision = replace(intent, revision=asked.revision), asked.revision
    following, paused = following_of(objects), pause_of(objects.metadata.annotations)
    weights = fetch_standing(wanted, revision, objects, checkpoint)
    new = before is None or before.revision != revision
    windows, window = _window(before, objects, snapshot, windows, wanted.spec)
    given = RolloutInput(
        now_s=snapshot.now_s,
        revision=revision,
        settings=_settings(wanted.spec, frozen=bool(paused) or (hold is not None and hold.frozen)),
        workloads=objects.workloads,
        pods=objects.standing,
        counters=snapshot.counters,
        document=objects.depth,
        document_written_at_s=document_written_at_s,
        window=window,
        stable_spec_known=before is not None
        and earlier_spec(objects.resource, checkpoint.spec_of(before.stable)) is not None,
        live=follows(following, revision, wanted),
        specs_known=frozenset(found for found, _ in checkpoint.specs()),
        refused_pods=objects.refused_pods,
        unplaced=unplaced(objects),
        start_s=measured_start_s(objects.standing),
        failed_pods=objects.failed,
        blocked=_blocked(before, wanted, objects),
        held=_held(weights, hold, objects),
        fallen_back=not intent.newest,
        retry=objects.metadata.annotations.get(names.ANNOTATION_RETRY_ROLLOUT, ""),
        looked_at_s=checkpoint.looked_at_s,
        offered=asked.offered,
        depth_settled=all(each.settled for each in tuner.cohorts if each.draft),
    )
    arm = wanted_arm(wanted, before, given, refused=intent.trial_refused)
    if arm is not None and not arm.waits:
        if arm.compares is Compares.DRAFT:
            arm = with_target_of_others(arm, weights)
            weights = fetch_standing(arm.sd, arm.revision, objects, checkpoint)
        given = beside_others(
            given,
            arm,
            draft=wanted.spec.draft.on_trial,
            live=follows(following, arm.revision, arm.sd),
            held=_held(weights, hold, objects)
            or (_unknown_yet(arm, before, snapshot.now_s) if intent.trial_awaited else ""),
            own_depth=wanted.spec.speculation.tuning.mode is TuningMode.AUTO,
        )
    elif new and given.others:
        stable_revision = given.others[0]
        comparable = _as_fetched_before(wanted, stable_revision, objects, checkpoint)
        why = _why(objects, stable_revision, comparable, revision, bundle)
        given = replace(given, why=why)
    specs = (wanted,) if arm is None else (wanted, arm.sd)
    checkpoint = _with_weights(checkpoint, weights, specs, objects)
    step = next_step(before, given)
    after = _checkpoint_after(checkpoint, step.rollout, intent, given)
    events = (*fetched_news(weights), *step.events)
    if new and given.compares is None and step.rollout and step.rollout.stage is Stage.SETTLING:
        began = rollout_announcement(
            wanted,
            objects.resource,
            checkpoint,
            step.rollout,
            started=started_as(objects).get(step.rollout.stable),
            paused=paused,
        )
        events = (began, *events)
    rollout = step.rollout
    carried, stable = wanted, None
    if arm is not None and given.compares:
        if rollout is not None and rollout.on_trial:
            # But for a draft on trial it loads what the others load.
            carried, stable, revision = pinned(arm.sd, weights.fetched), wanted, arm.revision
    elif rollout is not None and rollout.stage is Stage.ROLLED_BACK:
        earlier = earlier_spec(objects.resource, after.stable_spec)
        if earlier is not None:
            carried, revision = earlier, rollout.stable
    elif rollout is not None and rollout.on_trial:
        stable = earlier_spec(objects.resource, after.stable_spec)
    return DesiredState(
        sd=pinned_to_fetched(carried, revision, objects, after),
        revision=revision,
        stable=stable,
        checkpoint=after,
        events=events,
        following=following,
        windows=windows,
        wake_after_s=min(
            _wake_after_s(rollout, wanted.spec), float("inf") if hold is None else hold.wake_after_s
        ),
        arm=arm,
        weights=weights,
        hold=hold,
        paused=paused,
        offer=asked.offer,
    )


def _blocked(before: Rollout | None, wanted: SpeculativeDeployment, objects: Objects) -> str:
    """Why no canary can come, in words; empty: it can, or none is on its way."""
    if before is None or before.stage is not Stage.CANARY:
        return ""
    return what_blocks(
        objects,
        wanted,
        before.revision,
        stable=before.stable,
        most_new=before.most_new,
        no_room=before.no_room,
    )


def _held(weights: FetchStanding, hold: Hold | None, objects: Objects) -> str:
    if objects.foreign:
        return "no name that it needs is taken by something else"
    if hold is not None:
        return hold.until
    return "its weights are fetched" if weights.holds_pods else ""


def _unknown_yet(arm: Arm, before: Rollout | None, now_s: float) -> str:
    """That the hub may yet tell what a draft on trial is; empty: it has had its time."""
    if (
        before is not None
        and before.revision == arm.revision
        and now_s - before.began_at_s >= PATIENCE_S
    ):
        return ""
    return f"the hub has answered for its draft, or {PATIENCE_S:.0f} s are over"


def _with_weights(
    checkpoint: Checkpoint,
    standing: FetchStanding,
    wanted: Iterable[SpeculativeDeployment],
    objects: Objects,
) -> Checkpoint:
    """With what this fetch has found; what was found for other specs goes with them."""
    if not checkpoint.weights and standing.fetched is None:
        return checkpoint
    found = {}
    if standing.fetch is not None and standing.fetched is not None:
        found[standing.fetch.digest] = standing.fetched
    earlier = (earlier_spec(objects.resource, text) for _, text in checkpoint.specs())
    specs = (*wanted, *(each for each in earlier if each is not None))
    fetches = (wanted_fetch(each) for each in specs)
    return checkpoint.with_weights(found, {each.digest for each in fetches if each is not None})


def _wake_after_s(rollout: Rollout | None, spec: SpeculativeDeploymentSpec) -> float:
    match rollout.stage if rollout else None:
        case Stage.SETTLING:
            return SETTLE_S
        case Stage.CANARY:
            return window_length_s(_bake_s(spec))
        case _:
            return float("inf")


def _settings(spec: SpeculativeDeploymentSpec, *, frozen: bool) -> RolloutSettings:
    return RolloutSettings(
        replicas=spec.replicas,
        max_unavailable=spec.rollout.max_unavailable,
        max_surge=spec.rollout.max_surge,
        bake_s=_bake_s(spec),
        startup_s=spec.engine.startup_minutes * 60.0,
        drain_s=float(spec.engine.drain_seconds),
        paused=spec.rollout.paused or frozen,
        waits=spec.rollout.when_no_capacity is WhenNoCapacity.WAIT,
        capacity_s=spec.rollout.capacity_minutes * 60.0,
    )


def _bake_s(spec: SpeculativeDeploymentSpec) -> float:
    return spec.rollout.canary_minutes * 60.0


def _window(
    before: Rollout | None,
    objects: Objects,
    snapshot: Snapshot,
    windows: CanaryWindows,
    spec: SpeculativeDeploymentSpec,
) -> tuple[CanaryWindows, CanaryWindow | None]:
    if before is None or before.stage is not Stage.CANARY or before.watch is None:
        return CanaryWindows(), None
    # Pods with a depth of their own are no measure for one without.
    document = objects.depth
    own = document.pods if document else {}
    ready = [
        pod
        for pod in objects.leaders
        if pod.ready
        and (
            pod.name not in own
            # But a draft on trial has its own depth, whenever nothing else is tried in it.
            or (before.draft and pod.name == before.watch.pod and not _tries(pod, document))
        )
    ]
    return windows.next(
        _names(ready, before.revision) & {before.watch.pod},
        _names(ready, before.stable),
        snapshot.counters,
        snapshot.now_s,
        window_length_s(_bake_s(spec)),
    )


def _tries(pod: ObservedPod, document: DepthDocument | None) -> bool:
    """Whether a pod is held at a depth for some seconds, or by a person."""
    probed = document is not None and pod.name in document.ends
    return probed or pinned_depth(pod) is not None


def _names(pods: Iterable[ObservedPod], revision: str) -> frozenset[str]:
    return frozenset(pod.name for pod in pods if pod.revision == revision)


def _checkpoint_after(
    checkpoint: Checkpoint, rollout: Rollout | None, intent: Intent, given: RolloutInput
) -> Checkpoint:
    """What should survive a restart, after this step."""
    stable = checkpoint.spec_of(rollout.stable) if rollout is not None else None
    on_trial = rollout is not None and rollout.stage is Stage.CANARY
    looked_at_s = given.now_s if on_trial else None
    after = replace(checkpoint, stable_spec=stable, rollout=rollout, looked_at_s=looked_at_s)
    # What was gone back to before it was ever good is known by the rollout alone, which has ended.
    if intent.newest or after.spec_of(intent.revision) is None:
        after = after.with_accepted(intent.text, intent.revision)
    # The proof that a spec is good: its pods serve, and no trial of theirs is under way.
    past_trial = rollout is None or rollout.arm or rollout.stage is Stage.PROMOTED
    if past_trial and given.ready(intent.revision):
        after = after.with_good(intent.text, intent.revision)
    return after


def _why(
    objects: Objects,
    stable: str,
    wanted: SpeculativeDeployment,
    revision: str,
    bundle: PluginBundle,
) -> str:
    """The first difference between the pods that serve and those that are wanted."""
    found = next((each for each in objects.workloads if each.revision == stable), None)
    if found is None:
        return ""
    live = objects.live[found.kind, found.name]
    serving, headless = serving_template(found.kind, live), workers_template(live)
    if serving is None:
        return ""
    workers = None
    if headless is not None and wanted.engine.layout.spans_nodes:
        workers = headless, worker_template(wanted, revision=revision, bundle=bundle)
    return first_change(serving, pod_template(wanted, revision=revision, bundle=bundle), workers)


def _as_fetched_before(
    wanted: SpeculativeDeployment, stable: str, objects: Objects, checkpoint: Checkpoint
) -> SpeculativeDeployment:
    """The wanted spec, at the commits of the stable one as far as both name the same models.

    Which commits are really wanted a fetch has yet to find out; until then nobody is to be told
    that they change.
    """
    earlier = earlier_spec(objects.resource, checkpoint.spec_of(stable))
    if earlier is None:
        return wanted
    known = fetch_standing(earlier, stable, objects, checkpoint).fetched
    if known is None:
        return wanted
    same = {
        MODEL: target_ref(earlier.spec) == target_ref(wanted.spec),
        DRAFT: draft_ref(earlier.spec) == draft_ref(wanted.spec),
    }
    commits = tuple((role, commit) for role, commit in known.commits if same[role])
    return pinned(wanted, Fetched(commits))
