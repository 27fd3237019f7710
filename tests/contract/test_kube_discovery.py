from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from fathom.adapters.kube_discovery import discover
from fathom.adapters.ports import KubeError
from fathom.core.kinds import DEPLOYMENT, POD_MONITOR

DEPLOYMENTS: Mapping[str, JsonValue] = {"resources": [{"kind": "Deployment"}, {"kind": "Scale"}]}


async def test_a_group_that_is_missing_or_broken_is_not_served() -> None:
    async def get(path: str) -> Mapping[str, JsonValue] | None:
        if path == "/apis/apps/v1":
            return DEPLOYMENTS
        if path.startswith("/apis/monitoring"):
            raise KubeError(503, "the server is currently unable to handle the request")
        return None

    served = await discover(get)
    assert served.has(DEPLOYMENT)
    assert not served.has(POD_MONITOR)


async def test_a_server_that_does_not_answer_is_no_cluster_without_apis() -> None:
    async def get(_: str) -> Mapping[str, JsonValue] | None:
        raise KubeError(0, "no answer")

    with pytest.raises(KubeError):
        await discover(get)
