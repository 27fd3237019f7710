"""Bad input at a real API server: refused there, or kept and told as InvalidSpec."""

import json
from http import HTTPStatus

import pytest
from kubernetes.aio.client.exceptions import ApiException

from bad_input import BAD
from fathom.api import names
from fathom.api.crd import custom_resource_definition
from fathom.resource import SpeculativeDeployment, parse
from local_cluster.kube import Object
from manifest_samples import manifest
from structural_schema import spec_schema, with_defaults
from support.local_cluster import TestNamespace
from support.operated import Resource, operator
from support.operator_process import install_crd

__all__ = ["operator"]

pytestmark = pytest.mark.cluster

REFUSED_BY_THE_SERVER = {
    "unknown method": "spec.draft.method",
    "depth by rollout": "spec.speculation.tuning.actuation",
    "name of a Secret that breaks the commands that name it": (
        "spec.metrics.prometheus.basicAuthSecretRef.name"
    ),
    "account of another in the name of a Secret": "spec.model.tokenSecretRef.name",
    "key of a ConfigMap on two lines": "spec.metrics.prometheus.caConfigMapRef.key",
}
"""By the field that it names."""
CHECKS_RULES = (1, 25)
"""The release of Kubernetes from which on the server checks rules across fields, too."""
PRUNED_BY_THE_SERVER = {"unknown field"}


async def refused(resource: Resource, spec: Object) -> str | None:
    """What the server says against a spec; None: it keeps it."""
    try:
        await resource.apply(spec)
    except ApiException as refusal:
        if refusal.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        status: Object = json.loads(str(refusal.reason))
        return str(status["message"])
    return None


@pytest.mark.usefixtures("operator")
async def test_what_the_server_keeps_becomes_invalid_spec_with_the_same_sentence(
    namespace: TestNamespace,
) -> None:
    good = set()
    for number, (kind, (changes, sentence)) in enumerate(BAD.items()):
        resource = Resource(namespace, f"bad-{number}")
        spec = manifest(changes)["spec"] | {"replicas": 0}
        refusal = await refused(resource, spec)
        if kind in REFUSED_BY_THE_SERVER:
            assert refusal is not None
            assert REFUSED_BY_THE_SERVER[kind] in refusal
            continue
        if refusal is not None:
            assert namespace.release >= CHECKS_RULES
            field, _, reason = sentence.partition(": ")
            assert f"{field}: Invalid value: " in refusal, kind
            assert reason in refusal, kind
            continue
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
        refusal = await refused(Resource(namespace, name), manifest()["spec"] | {"replicas": 0})
        assert refusal is not None
        # A current server says of the long one how long it may be.
        assert "metadata.name: Invalid value" in refusal or "metadata.name: Too long" in refusal
