"""Bad input at a real API server: refused there, or kept and told as InvalidSpec."""

from http import HTTPStatus

import pytest
from kubernetes.aio.client.exceptions import ApiException

from bad_input import BAD
from fathom.api import names
from fathom.api.crd import custom_resource_definition
from fathom.api.resource import SpeculativeDeployment, parse
from manifest_samples import manifest
from structural_schema import spec_schema, with_defaults
from support.local_cluster import TestNamespace
from support.operated import Resource, operator
from support.operator_process import install_crd

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


NULLS = {
    "draft": {"tensorParallelSize": None, "options": {"prompt_lookup_max": None}},
    "engine": {"args": None, "env": None, "resources": {"limits": {"cpu": None}}},
    "nodePool": {"nodeSelector": {"a": None, "b": "c"}},
    "cache": None,
    "rollout": None,
    "podTemplate": {"spec": {"affinity": None}},
}


async def test_a_field_without_a_value_is_read_as_the_server_stores_it(
    namespace: TestNamespace,
) -> None:
    await install_crd(namespace)
    resource = Resource(namespace, "nulls")
    spec = manifest()["spec"] | {"replicas": 0}
    for section, fields in NULLS.items():
        spec[section] = None if fields is None else spec.get(section, {}) | fields

    await resource.apply(spec)

    stored = (await resource.get())["spec"]
    assert stored == with_defaults(spec_schema(custom_resource_definition()), spec)
    as_written, as_stored = parse(manifest() | {"spec": spec}), parse(manifest() | {"spec": stored})
    assert as_written == as_stored
    assert isinstance(as_written, SpeculativeDeployment)
    assert as_written.spec.pod_template == NULLS["podTemplate"]


async def test_a_name_that_no_service_may_have_is_refused_by_the_server(
    namespace: TestNamespace,
) -> None:
    for name in ("1digit", "dot.ted", "a" * 46):
        with pytest.raises(ApiException) as refusal:
            await Resource(namespace, name).apply(manifest()["spec"] | {"replicas": 0})
        assert refusal.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "metadata.name: Invalid value" in str(refusal.value.reason)
