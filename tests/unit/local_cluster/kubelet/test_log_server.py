"""What the kubelet of a local cluster answers when it is asked for a container's output."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from local_cluster.kubelet.log_server import log_app


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TestClient]:
    folder = tmp_path / "llm_pod"
    folder.mkdir()
    (folder / "vllm.log").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.log").write_text("secret")
    async with TestClient(TestServer(log_app(tmp_path))) as client:
        yield client


async def answer(client: TestClient, path: str) -> tuple[int, str]:
    response = await client.get(f"/containerLogs/{path}")
    return response.status, await response.text()


async def test_all_of_it_its_end_or_its_beginning(client: TestClient) -> None:
    assert await answer(client, "llm/pod/vllm") == (200, "one\ntwo\nthree\n")
    assert await answer(client, "llm/pod/vllm?tailLines=1") == (200, "three\n")
    assert await answer(client, "llm/pod/vllm?limitBytes=5") == (200, "one\nt")


async def test_what_has_not_begun_and_what_is_not_built_is_said(client: TestClient) -> None:
    assert await answer(client, "llm/pod/other") == (400, "container other is waiting to start")
    status, said = await answer(client, "llm/pod/vllm?follow=true")
    assert status == 400
    assert "fathom local logs -f" in said


async def test_nothing_beside_the_logs_is_reached(client: TestClient) -> None:
    for path in ("llm/pod/..%2Fsecret", "llm/pod/../../secret", "%2e%2e/x/secret"):
        status, said = await answer(client, path)
        assert status in {400, 404}
        assert "secret" not in said or "waiting" in said
