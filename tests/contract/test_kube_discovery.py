from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from fathom.adapters.kube_answers import discover
from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import DEPLOYMENT, POD_MONITOR

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
    assert served.unknown == {POD_MONITOR.api_version}


async def test_a_server_that_is_too_busy_to_say_its_version_may_say_it_later() -> None:
    async def get(path: str) -> Mapping[str, JsonValue] | None:
        if path == "/version":
            raise KubeError(429, "too many requests")
        return DEPLOYMENTS

    assert (await discover(get)).unknown == {"version"}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({"major": "1", "minor": "36"}, (1, 36)),
        ({"major": "1", "minor": "27+"}, (1, 27)),
        ({"major": "", "minor": "x"}, None),
        (None, None),
    ],
)
async def test_the_servers_version_is_known_or_not(
    said: Mapping[str, JsonValue] | None, version: tuple[int, int] | None
) -> None:
    async def get(path: str) -> Mapping[str, JsonValue] | None:
        return said if path == "/version" else None

    assert (await discover(get)).version == version


async def test_a_server_that_hides_its_version_is_served_all_the_same() -> None:
    async def get(path: str) -> Mapping[str, JsonValue] | None:
        if path == "/version":
            raise KubeError(403, "forbidden")
        return DEPLOYMENTS

    served = await discover(get)
    assert served.has(DEPLOYMENT)
    assert not served.since((1, 0))


async def test_a_server_that_does_not_answer_is_no_cluster_without_apis() -> None:
    async def get(_: str) -> Mapping[str, JsonValue] | None:
        raise KubeError(0, "no answer")

    with pytest.raises(KubeError):
        await discover(get)
