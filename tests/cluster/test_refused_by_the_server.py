"""Whatever Fathom says an API server refuses, a real one refuses; and it takes what is like it.

And what nobody knows without a server, `fathom check --server` asks of it.
"""

from pathlib import Path

import pytest

from cluster.test_inspect import fathom
from cluster.test_rendered_on_the_server import BUNDLE, PROGRAM, complaint
from fathom.adapters.yaml_documents import to_yaml
from fathom.manifests.render import children
from manifest_samples import manifest, resource
from refused_pods import REFUSED, Edits
from support.local_cluster import TestNamespace

pytestmark = pytest.mark.cluster


async def test_the_server_refuses_what_fathom_refuses_in_its_name(
    namespace: TestNamespace,
) -> None:
    taken, refused = [], {}
    for name, case in REFUSED.items():
        if not await _said_of(namespace, case.edits):
            taken.append(name)
        if said := await _said_of(namespace, case.like_it):
            refused[name] = said

    assert (taken, refused) == ([], {})


async def _said_of(namespace: TestNamespace, edits: Edits) -> str:
    """What the server says against the workload, or its pods."""
    *_, workload = children(resource(edits), BUNDLE, PROGRAM)
    return await complaint(namespace, workload)


async def test_check_repeats_what_the_server_refuses(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    file = tmp_path / "kimi.yaml"
    asked = ("check", "--offline", "--server", "-n", namespace.name, str(file))

    async def checked(**pod: str) -> tuple[int, str, str]:
        document = manifest({"podTemplate": {"spec": pod}} if pod else None)
        del document["metadata"]["namespace"]
        file.write_text(to_yaml([document]))
        return await fathom(namespace, *asked)

    code, out, err = await checked()
    assert (code, err) == (0, "")
    assert "  server: it would take all " in out
    assert await namespace.all_of("Deployment") == []

    code, out, _ = await checked(priorityClassName="nobody-made-this")
    assert code == 2
    printed = " ".join(out.split())
    assert "error [api-server] Pod kimi-dry-run: the API server refuses it: " in printed
    assert "no PriorityClass with name nobody-made-this" in printed

    code, out, _ = await checked(dnsPolicy="Nearest")
    assert code == 2
    assert "error [api-server] Deployment kimi-" in out
