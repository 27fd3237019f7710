"""The order in which what is missing is written."""

import copy

import pytest

from fathom.api.conditions import Reason
from fathom.api.resource import SpeculativeDeployment, parse
from fathom.core.cluster.kinds import DEPLOYMENT
from fathom.core.plan import Plan, Progress, Template, WorkloadStep
from fathom.reconcile.writing.operations import Children, Patch, operations
from fathom.runtime.gather import read_objects
from support.bench import KEY, Bench


@pytest.mark.parametrize("shrinks", ["a", "b"])
async def test_what_shrinks_goes_first(bench: Bench, shrinks: str) -> None:
    """What grows may need its GPUs."""
    (found,) = bench.kube.all_of(DEPLOYMENT)
    for revision in ("a", "b"):
        other = copy.deepcopy(found)
        other["metadata"] |= {"name": f"kimi-{revision}", "uid": f"uid-of-{revision}"}
        other["spec"]["replicas"] = 2
        bench.kube.put(DEPLOYMENT, other)
    objects = await read_objects(bench.world, KEY)
    assert objects is not None
    steps = tuple(
        WorkloadStep(DEPLOYMENT, f"kimi-{each}", each, 1 if each == shrinks else 3, Template.KEEP)
        for each in ("a", "b")
    )
    progress = Progress(Reason.ROLLING_OUT, "")
    plan = Plan("b", steps, emptied=(), unused_config_maps=(), progress=progress)
    sd = parse(bench.resource)
    assert isinstance(sd, SpeculativeDeployment)
    children = Children(sd, bench.bundle, mounts_plugin=False, document=None, tuning_data=None)

    todo = [each for each in operations(objects, plan, children) if isinstance(each, Patch)]

    replicas = [(each.name, each.patch["spec"]) for each in todo]
    grows = "b" if shrinks == "a" else "a"
    assert replicas == [
        (f"kimi-{shrinks}", {"replicas": 1}),
        (f"kimi-{grows}", {"replicas": 3}),
    ]
