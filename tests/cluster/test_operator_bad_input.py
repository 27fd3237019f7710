"""Bad input at a real API server: refused there, or kept and told as InvalidSpec."""

from http import HTTPStatus

import pytest
from kubernetes.aio.client.exceptions import ApiException

from bad_input import BAD
from fathom.api import names
from manifest_samples import manifest
from support.local_cluster import TestNamespace
from support.operated import Resource, operator

__all__ = ["operator"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

REFUSED_BY_THE_SERVER = {
    "unknown method": "spec.draft.method",
    "depth by rollout": "spec.speculation.tuning.actuation",
}
"""By the field that it names."""
PRUNED_BY_THE_SERVER = {"unknown field"}


@pytest.mark.usefixtures("operator")
async def test_what_the_server_keeps_becomes_invalid_spec_with_the_same_sentence(
    namespace: TestNamespace,
) -> None:
    good = set()
    for number, (kind, (changes, sentence)) in enumerate(BAD.items()):
        resource = Resource(namespace, f"bad-{number}")
        spec = manifest(changes)["spec"] | {"replicas": 0}
        if kind in REFUSED_BY_THE_SERVER:
            with pytest.raises(ApiException) as refusal:
                await resource.apply(spec)
            assert refusal.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
            assert REFUSED_BY_THE_SERVER[kind] in str(refusal.value.reason)
            continue
        await resource.apply(spec)
        if kind in PRUNED_BY_THE_SERVER:
            assert "token" not in (await resource.get())["spec"]["speculation"]
            good.add(resource.name)
            continue
        degraded = await resource.wait("Degraded", "True", "InvalidSpec")
        assert sentence in degraded["message"], kind
    deployments = await namespace.all_of("Deployment")
    assert {each["metadata"]["labels"][names.LABEL_NAME] for each in deployments} <= good


async def test_a_name_that_no_service_may_have_is_refused_by_the_server(
    namespace: TestNamespace,
) -> None:
    for name in ("1digit", "dot.ted", "a" * 46):
        with pytest.raises(ApiException) as refusal:
            await Resource(namespace, name).apply(manifest()["spec"] | {"replicas": 0})
        assert refusal.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "metadata.name: Invalid value" in str(refusal.value.reason)
