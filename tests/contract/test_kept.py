"""What the simulated API server makes of every object of ours is what a real one makes of it."""

from typing import Any

import pytest

from fathom.cluster.kinds import (
    DEPLOYMENT,
    JOB,
    LEADER_WORKER_SET,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    Kind,
)
from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram
from fathom.manifests.render import children
from local_cluster.kube import Object
from manifest_samples import resource
from storms.kept import filled_in
from support.foreign_kinds import crd
from support.local_cluster import TestNamespace, local_cluster, namespace
from support.operator_process import CRDS, install_crd

__all__ = ["local_cluster", "namespace"]

pytestmark = pytest.mark.cluster

BUNDLE = PluginBundle({"fathom_vllm/__init__.py": '"""The plugin."""\n'}, "0123456789ab")
PROGRAM = FetchProgram({"fathom_fetch/__init__.py": '"""The program."""\n'}, "0123456789ab")
GIVEN_OUT = frozenset({"clusterIP", "clusterIPs", "ipFamilies", "volumeName"})
"""Values that a server chooses itself."""
SINCE: dict[str, tuple[int, int]] = {
    "internalTrafficPolicy": (1, 22),
    "ipFamilyPolicy": (1, 21),
    "completionMode": (1, 22),
    "suspend": (1, 22),
    "podReplacementPolicy": (1, 29),
    "manualSelector": (1, 31),
}
"""The release of Kubernetes from which on a server fills a field in."""


def rendered(kind: Kind, **changes: Any) -> Any:
    found = children(resource({"cache.size": "2Ti", **changes}), BUNDLE, PROGRAM)
    return next(each for each in found if each["kind"] == kind.kind)


async def kept(namespace: TestNamespace, manifest: Object) -> Object:
    """As a real server has it."""
    metadata = {**manifest["metadata"], "namespace": namespace.name}
    await namespace.create({**manifest, "metadata": metadata})
    found = await namespace.get(manifest["kind"], metadata["name"])
    assert found is not None
    return found


@pytest.mark.parametrize("kind", [DEPLOYMENT, SERVICE, JOB, PERSISTENT_VOLUME_CLAIM])
async def test_the_simulated_server_fills_in_what_a_real_one_does(
    namespace: TestNamespace, kind: Kind
) -> None:
    await _compare(namespace, kind, rendered(kind))


async def test_so_it_is_with_what_a_foreign_crd_has_defaults_for(namespace: TestNamespace) -> None:
    definition = crd("leaderworkersets.yaml")
    await install_crd(namespace, definition)
    try:
        groups = rendered(LEADER_WORKER_SET, **{"engine.tensorParallelSize": 8})
        await _compare(namespace, LEADER_WORKER_SET, groups)
    finally:
        await namespace.api.request("DELETE", f"{CRDS}/{definition['metadata']['name']}")


async def _compare(namespace: TestNamespace, kind: Kind, manifest: Any) -> None:
    live = await kept(namespace, manifest)
    asked = {**manifest, "metadata": {**manifest["metadata"], "uid": live["metadata"]["uid"]}}
    simulated = filled_in(kind, asked)
    assert _comparable(simulated["spec"], namespace) == _comparable(live["spec"], namespace)


def _comparable(value: Any, namespace: TestNamespace) -> Any:
    if isinstance(value, list):
        return [_comparable(each, namespace) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        # Releases before 1.27 have the labels of a Job's pods without it.
        key.removeprefix("batch.kubernetes.io/"): _comparable(each, namespace)
        for key, each in value.items()
        # Null is how a server says that something has not happened yet.
        if each is not None and key not in GIVEN_OUT and namespace.release >= SINCE.get(key, (0, 0))
    }
