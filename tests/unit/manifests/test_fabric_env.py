"""Replicas over several nodes are told of NVLink between them; replicas on one never are."""

from typing import Any

import pytest

from fathom.api.accelerators import PRESETS
from fathom.api.choices import Accelerator
from fathom.manifests.engine_env import INTERFACE, NVLINK, engine_env, fabric_env
from manifest_samples import resource

WITHOUT_GPUS = [accelerator for accelerator, preset in PRESETS.items() if not preset.has_gpus]
TWO_TRAYS = {"engine.tensorParallelSize": 8}
TWO_SERVERS = {"engine.tensorParallelSize": 16, "nodePool.accelerator": "H200"}


@pytest.mark.parametrize("accelerator", [each for each in Accelerator if each not in WITHOUT_GPUS])
def test_one_node_gets_nothing(accelerator: Accelerator) -> None:
    pool = {"nodePool.accelerator": accelerator.value, "nodePool.gpusPerNode": 4}

    assert fabric_env(resource(pool).engine) == {}


@pytest.mark.parametrize(
    ("changes", "nvlink"),
    [
        (TWO_TRAYS, True),
        (TWO_TRAYS | {"nodePool.accelerator": "GB300"}, True),
        ({"engine.pipelineParallelSize": 2}, True),
        (TWO_TRAYS | {"nodePool.computeDomain": "External"}, True),
        (TWO_TRAYS | {"nodePool.computeDomain": "Never"}, False),
        (TWO_SERVERS, False),
        (TWO_SERVERS | {"nodePool.accelerator": "B200"}, False),
        (TWO_TRAYS | {"nodePool.accelerator": "Custom", "nodePool.gpusPerNode": 4}, False),
        (TWO_SERVERS | {"nodePool.topologyKey": "rack"}, True),
        (TWO_SERVERS | {"nodePool.topologyKey": "rack", "nodePool.accelerator": "MI300X"}, False),
    ],
    ids=str,
)
def test_nvlink_is_named_where_it_reaches_other_nodes(
    changes: dict[str, Any], *, nvlink: bool
) -> None:
    found = fabric_env(resource(changes).engine)

    assert found == {**(NVLINK if nvlink else {}), **INTERFACE}


def test_on_the_hosts_network_no_interface_is_named() -> None:
    template = {"podTemplate": {"spec": {"hostNetwork": True}}}

    assert fabric_env(resource(TWO_TRAYS | template).engine) == NVLINK


def test_the_users_own_win() -> None:
    own = {"name": "NCCL_SOCKET_IFNAME", "value": "net1"}

    variables = engine_env(resource(TWO_TRAYS | {"engine.env": [own]}).engine)

    named = [each for each in variables if isinstance(each, dict) and each["name"] == own["name"]]
    assert named == [own]
    assert {"name": "NCCL_MNNVL_ENABLE", "value": "1"} in variables
