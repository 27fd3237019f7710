"""What is told of pods that another build rendered, and by which hash it is known."""

import copy
from typing import Any

import pytest

from fathom import __version__
from fathom.api import names
from fathom.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET
from fathom.cluster.observed import ObservedDeployment, ObservedLeaderWorkerSet, ObservedWorkload
from fathom.engine.plugin import PluginBundle
from fathom.manifests.workloads import rendering_of, workload
from fathom.reconcile.renderings import Renderings, Running
from fathom.resource import SpeculativeDeployment
from fathom.rollout.revision import rerendered, revision_of
from manifest_samples import resource

BUNDLE = PluginBundle({}, "aaaaaaaaaa")
GROUP = {"engine.tensorParallelSize": 8, "nodePool.gpusPerNode": 4}
KINDS = [({}, DEPLOYMENT), (GROUP, LEADER_WORKER_SET)]


def of_this_build(sd: SpeculativeDeployment, revision: str = "aaaaaaaa") -> dict[str, Any]:
    kind = LEADER_WORKER_SET if sd.spec.engine.tensor_parallel_size > 4 else DEPLOYMENT
    name = names.revision_child(sd.metadata.name, revision)
    return copy.deepcopy(
        workload(kind, sd, name=name, revision=revision, replicas=2, bundle=BUNDLE)
    )


def running(live: dict[str, Any], sd: SpeculativeDeployment) -> Running:
    model = ObservedDeployment if live["kind"] == "Deployment" else ObservedLeaderWorkerSet
    found: ObservedWorkload = model.model_validate(live)
    return Running(workload=found, live=live, wanted=sd, made_from=sd, makes=sd)


@pytest.mark.parametrize(("changes", "kind"), KINDS)
def test_the_hash_is_of_the_pods_whatever_their_revision(
    changes: dict[str, Any], kind: Any
) -> None:
    sd = resource(changes)
    hashes = {
        of_this_build(each, revision)["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY]
        for each in (sd, resource({**changes, "replicas": 3, "rollout.maxUnavailable": 2}))
        for revision in ("aaaaaaaa", "bbbbbbbb")
    }
    (rendered_by,) = hashes
    assert rendered_by.split(" ")[1] == rendering_of(kind, sd, BUNDLE)
    others = (
        rendering_of(kind, resource({**changes, "engine.drainSeconds": 7}), BUNDLE),
        rendering_of(kind, sd, PluginBundle({}, "bbbbbbbbbb")),
    )
    assert rendered_by.split(" ")[1] not in others


def test_what_only_workers_have_otherwise_is_in_the_hash() -> None:
    sd = resource(GROUP)
    other = resource({**GROUP, "workerTemplate": {"spec": {"hostPID": True}}})
    assert rendering_of(LEADER_WORKER_SET, sd, BUNDLE) != rendering_of(
        LEADER_WORKER_SET, other, BUNDLE
    )


@pytest.mark.parametrize(("changes", "kind"), KINDS)
def test_what_this_build_rendered_offers_nothing(changes: dict[str, Any], kind: Any) -> None:
    sd, renderings = resource(changes), Renderings()
    live = of_this_build(sd)
    assert kind.kind == live["kind"]
    assert renderings.offer(running(live, sd), BUNDLE) is None


@pytest.mark.parametrize("rendered_by", ["0.1.0 0123456789abcdef", "0.1.0"])
def test_a_difference_of_workers_alone_is_told_as_theirs(rendered_by: str) -> None:
    sd = resource(GROUP)
    live = of_this_build(sd)
    live["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = rendered_by
    workers = live["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    workers["terminationGracePeriodSeconds"] = 60
    offer = Renderings().offer(running(live, sd), BUNDLE)
    assert offer is not None
    assert offer.why == "workers' terminationGracePeriodSeconds: 60 became 140"
    rendering = rendering_of(LEADER_WORKER_SET, sd, BUNDLE)
    assert offer.revision == rerendered(revision_of(sd), rendering)
    assert (offer.stable, len(offer.revision)) == ("aaaaaaaa", 8)


def test_who_rendered_it_is_told_as_far_as_that_is_known() -> None:
    sd = resource()
    live = of_this_build(sd)
    live["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60
    told = []
    for rendered_by in (__version__, "0.2.0 0123456789abcdef", ""):
        live["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = rendered_by
        offer = Renderings().offer(running(live, sd), BUNDLE)
        assert offer is not None
        told.append(offer.by)
    assert told == [f"another build of Fathom {__version__}", "Fathom 0.2.0", "another build"]


def test_what_this_build_cannot_render_is_kept_and_offers_nothing() -> None:
    """What another one took for a template may be none for this one."""
    sd = resource()
    live = of_this_build(sd)
    live["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = "0.2.0 0123456789abcdef"
    unfit = resource({"podTemplate": {"spec": {"containers": "none"}}})
    renderings = Renderings()
    assert renderings.of(unfit, BUNDLE) == ""
    assert renderings.offer(running(live, unfit), BUNDLE) is None


def test_what_was_found_is_found_again_once_something_moves() -> None:
    sd, renderings = resource(), Renderings()
    live = of_this_build(sd)
    assert renderings.offer(running(live, sd), BUNDLE) is None
    other = copy.deepcopy(live)
    other["metadata"]["annotations"][names.ANNOTATION_RENDERED_BY] = "0.2.0 0123456789abcdef"
    other["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 60
    assert renderings.offer(running(other, sd), BUNDLE) is not None
    assert renderings.offer(running(live, sd), BUNDLE) is None
    assert renderings.offer(running(live, sd), PluginBundle({}, "bbbbbbbbbb")) is not None
