"""A depth document in a volume whose ConfigMap is deleted, as the local kubelet fills volumes.

A real kubelet does the same: it empties an optional volume, and leaves one that is not optional as
it was, while its mount fails.
"""

from pathlib import Path
from typing import Any

import pytest

from fathom.engine.depth import DepthDocument, flat
from fathom_vllm.counters import CountersWriter
from fathom_vllm.depth_file import GONE_SECONDS, DepthFile, DepthWatch, Ready
from local_cluster.kubelet.models import Pod, TokenSource
from local_cluster.kubelet.problem import PodProblem
from local_cluster.kubelet.sources import PodAddresses, Sources
from local_cluster.kubelet.volumes.pod_volumes import PodVolumes

ADDRESSES = PodAddresses(pod_ip="10.244.0.16", host_ip="10.244.0.1")
KEY = ("llm", "kimi-depth")
ITEMS = [{"key": "depth.json", "path": "depth.json"}]


async def no_token(pod: Pod, source: TokenSource) -> str:
    raise AssertionError((pod, source))


class Stage:
    """A pod's volume, and the plugin in its engine."""

    def __init__(self, directory: Path, **source: object) -> None:
        self.now_s = 1000.0
        self.config_maps: dict[tuple[str, str], dict[str, Any]] = {}
        sources = Sources(self.config_maps, {})
        self._volumes = PodVolumes(
            directory / "volumes", directory / "memory", directory / "claims", sources, no_token
        )
        volume = {"name": "depth", "configMap": {"name": "kimi-depth", **source}}
        containers = [{"name": "vllm", "image": "i"}]
        self._pod = Pod.model_validate(
            {
                "metadata": {"name": "p", "namespace": "llm", "uid": "u", "labels": {}},
                "spec": {"containers": containers, "volumes": [volume]},
            }
        )
        self.file = DepthFile(
            str(directory / "volumes" / "depth" / "depth.json"), pod="p", max_depth=7
        )
        counters = CountersWriter(None, max_batch=8, max_depth=7)
        startup = Ready(0, (0, *[3] * 8))
        self.watch = DepthWatch(self.file, counters, startup, clock=lambda: self.now_s)

    def write(self, generation: int, depth: int, tokens: int) -> None:
        document = DepthDocument(
            generation=generation, schedule=flat(depth, 8), tokens=flat(tokens, 8)
        )
        self.config_maps[KEY] = {"data": {"depth.json": document.to_json()}}

    async def sync(self) -> None:
        await self._volumes.refresh(self._pod, ADDRESSES)

    def depth(self, after_s: float = 0.0) -> int:
        """What the next step obeys."""
        self.watch.look()
        self.now_s += after_s
        self.watch.look()
        return self.watch.ready.table[1]


@pytest.mark.parametrize("items", [[], ITEMS], ids=["every key", "one key"])
async def test_an_optional_volume_empties_and_the_engine_goes_back(
    tmp_path: Path, items: list[dict[str, str]]
) -> None:
    stage = Stage(tmp_path, optional=True, items=items)
    await stage.sync()
    assert stage.depth(2 * GONE_SECONDS) == 3
    stage.write(4, 7, tokens=2)
    await stage.sync()
    assert stage.depth() == 7

    del stage.config_maps[KEY]
    await stage.sync()
    assert stage.depth(GONE_SECONDS - 1) == 7
    assert stage.depth(1) == 2

    stage.write(1, 5, tokens=2)
    await stage.sync()
    assert stage.depth() == 5


async def test_a_volume_that_is_not_optional_stays_as_it_was(tmp_path: Path) -> None:
    stage = Stage(tmp_path, items=ITEMS)
    stage.write(4, 7, tokens=2)
    await stage.sync()
    assert stage.depth() == 7

    del stage.config_maps[KEY]
    with pytest.raises(PodProblem, match="not found"):
        await stage.sync()
    assert stage.depth(10 * GONE_SECONDS) == 7
