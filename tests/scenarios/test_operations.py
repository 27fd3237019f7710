"""The order in which what is missing is written."""

import copy
from dataclasses import replace
from typing import cast

import pytest

from fathom.api.conditions import Reason
from fathom.cluster.kinds import DEPLOYMENT
from fathom.cluster.manifest import Manifest
from fathom.engine.plugin import PluginBundle
from fathom.reconcile.operations import Children, Patch, operations
from fathom.reconcile.renderings import AsRendered
from fathom.resource import SpeculativeDeployment, parse
from fathom.rollout.plan import Plan, Template, WorkloadStep
from fathom.rollout.progress import Progress
from fathom.runtime.gather import read_objects
from support.loop_harness import KEY, LoopHarness


@pytest.mark.parametrize("shrinks", ["a", "b"])
async def test_what_shrinks_goes_first(harness: LoopHarness, shrinks: str) -> None:
    """What grows may need its GPUs."""
    (found,) = harness.kube.all_of(DEPLOYMENT)
    for revision in ("a", "b"):
        other = copy.deepcopy(found)
        other["metadata"] |= {"name": f"kimi-{revision}", "uid": f"uid-of-{revision}"}
        other["spec"]["replicas"] = 2
        harness.kube.put(DEPLOYMENT, other)
    objects = await read_objects(harness.world, KEY)
    assert objects is not None
    steps = tuple(
        WorkloadStep(
            kind=DEPLOYMENT,
            name=f"kimi-{each}",
            revision=each,
            replicas=1 if each == shrinks else 3,
            template=Template.KEEP,
        )
        for each in ("a", "b")
    )
    progress = Progress(Reason.ROLLING_OUT, "")
    plan = Plan(
        revision="b",
        workloads=steps,
        emptied=(),
        unused_config_maps=(),
        progress=progress,
        mounts_plugin=False,
    )
    sd = parse(harness.resource)
    assert isinstance(sd, SpeculativeDeployment)
    children = Children(sd=sd, bundle=harness.bundle, document=None, tuning_data=None)

    found = operations(objects, plan, children, AsRendered())
    todo = [each for each in found if isinstance(each, Patch)]

    replicas = [(each.name, each.patch["spec"]) for each in todo]
    grows = "b" if shrinks == "a" else "a"
    assert replicas == [
        (f"kimi-{shrinks}", {"replicas": 1}),
        (f"kimi-{grows}", {"replicas": 3}),
    ]


async def test_a_workload_is_looked_at_again_once_it_or_what_it_is_made_from_moves(
    harness: LoopHarness,
) -> None:
    objects = await read_objects(harness.world, KEY)
    assert objects is not None
    (found,) = objects.workloads
    key, sd, as_rendered = (DEPLOYMENT, found.name), parse(harness.resource), AsRendered()
    assert isinstance(sd, SpeculativeDeployment)
    as_it_is = WorkloadStep(
        kind=DEPLOYMENT,
        name=found.name,
        revision=found.revision,
        replicas=2,
        template=Template.RENDER,
    )

    def wrong(
        live: Manifest = objects.live[key],
        step: WorkloadStep = as_it_is,
        of: SpeculativeDeployment = sd,
        bundle: PluginBundle = harness.bundle,
    ) -> str:
        progress = Progress(Reason.UP_TO_DATE, "")
        plan = Plan(
            revision=found.revision,
            workloads=(step,),
            emptied=(),
            unused_config_maps=(),
            progress=progress,
            mounts_plugin=True,
        )
        children = Children(sd=of, bundle=bundle, document=None, tuning_data=None)
        seen = replace(objects, live={**objects.live, key: live})
        todo = operations(seen, plan, children, as_rendered)
        return " ".join(each.why for each in todo if each.kind == DEPLOYMENT)

    live = objects.live[key]
    scaled, other = copy.deepcopy(live), copy.deepcopy(harness.resource)
    scaled["spec"] = {**cast("Manifest", live["spec"]), "replicas": 7}
    other["spec"]["engine"]["startupMinutes"] = 77
    edited = parse(other)
    assert isinstance(edited, SpeculativeDeployment)
    for _ in range(2):
        assert not wrong()
        assert "spec.replicas is 7" in wrong(live=scaled)
        assert "spec.replicas is 2" in wrong(step=replace(as_it_is, replicas=3))
        # By the hash of what it is made from.
        assert "rendered-by" in wrong(of=edited)
        assert "rendered-by" in wrong(bundle=replace(harness.bundle, content="bbbbbbbbbb"))
