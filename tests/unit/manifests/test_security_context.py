"""What pods may do, held against the pod security standards of Kubernetes."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import FetchProgram
from fathom.manifests.cache import wanted_fetch
from fathom.manifests.fetch_job import fetch_job
from fathom.manifests.pod_template import pod_template
from fathom.manifests.training_job import training_job
from fathom.training.evidence import Evidence, EvidenceModel
from manifest_samples import resource
from support.played_training import ALLOWED, TEMPLATE, TRAINING
from support.pod_security import below_baseline, below_restricted

BUNDLE: Final = PluginBundle({"fathom_vllm/__init__.py": ""}, "0123456789ab")
USER: Final = {"engine.user": 2000}
CLAIM: Final = {"cache.claimName": "weights"}
FORMS: Final[Mapping[str, dict[str, Any]]] = {
    "live": {},
    "stock": {"speculation.tuning.mode": "Static"},
    "claim": CLAIM,
}


def pod(changes: dict[str, Any]) -> dict[str, Any]:
    return pod_template(resource(changes), revision="abcd0123", bundle=BUNDLE)["spec"]  # type: ignore[return-value]


def engine(changes: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(changes)["containers"]
    return dict(only)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_as_the_images_user_only_the_user_is_missing_from_restricted(form: dict[str, Any]) -> None:
    assert below_baseline(pod(form)) == []
    assert below_restricted(pod(form)) == ["runAsNonRoot"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_with_a_user_the_pod_is_restricted(form: dict[str, Any]) -> None:
    assert below_restricted(pod(form | USER)) == []
    assert pod(form | USER)["securityContext"]["runAsUser"] == 2000


def fetch(changes: dict[str, Any]) -> dict[str, Any]:
    sd = resource(changes | CLAIM)
    wanted = wanted_fetch(sd)
    assert wanted is not None
    job: Any = fetch_job(sd, wanted, FetchProgram({}, "0123456789ab"))
    return dict(job["spec"]["template"]["spec"])


def test_what_fetches_weights_may_do_no_more_than_what_reads_them() -> None:
    assert below_restricted(fetch({})) == ["runAsNonRoot"]
    assert below_restricted(fetch(USER)) == []
    assert fetch(USER)["securityContext"] == pod(USER | CLAIM)["securityContext"]
    volumes = [volume["name"] for volume in fetch(USER)["volumes"]]
    (container,) = fetch(USER)["containers"]
    assert sorted(mount["name"] for mount in container["volumeMounts"]) == sorted(volumes)


def test_what_fetches_follows_the_pod_template_where_that_says_more() -> None:
    group = {"podTemplate": {"spec": {"securityContext": {"fsGroup": 5}}}}
    assert fetch(USER | group)["securityContext"] == {
        **pod(USER)["securityContext"],
        "fsGroup": 5,
    }


def test_what_is_asked_for_by_name_is_all_that_is_added() -> None:
    asked = {"name": "vllm", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    found = pod({"podTemplate": {"spec": {"containers": [asked]}}})

    assert below_baseline(found) == ["IPC_LOCK"]
    assert found["containers"][0]["securityContext"]["capabilities"]["drop"] == ["ALL"]


def test_a_user_writes_where_volumes_are_and_nowhere_else() -> None:
    found = pod(USER | CLAIM)
    container = engine(USER | CLAIM)
    volumes = {volume["name"]: volume for volume in found["volumes"]}
    writable = {
        mount["mountPath"]: volumes[mount["name"]]
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }
    env = {variable["name"]: variable.get("value") for variable in container["env"]}

    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert writable.keys() == {"/dev/shm", "/tmp", "/home/vllm", "/cache"}
    assert writable[env["HOME"]] == {"name": "home", "emptyDir": {}}
    assert any(str(env["HF_HOME"]).startswith(path) for path in writable)
    assert env["USER"] == "vllm"


def test_a_claim_is_made_the_users_own_once() -> None:
    context = pod(USER)["securityContext"]

    assert context["fsGroup"] == 2000
    assert context["fsGroupChangePolicy"] == "OnRootMismatch"


def test_without_a_user_the_image_keeps_its_own() -> None:
    assert pod({})["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert "readOnlyRootFilesystem" not in engine({})["securityContext"]
    assert not {"HOME", "USER"} & {variable["name"] for variable in engine({})["env"]}


@pytest.mark.parametrize(
    ("size", "volume"),
    [
        ("", {"medium": "Memory"}),
        ("200Gi", {"medium": "Memory", "sizeLimit": "200Gi"}),
    ],
)
def test_shared_memory_is_as_large_as_asked_for(size: str, volume: dict[str, str]) -> None:
    (shm,) = (v for v in pod({"engine.sharedMemory": size})["volumes"] if v["name"] == "shm")

    assert shm == {"name": "shm", "emptyDir": volume}


EVIDENCE: Final = Evidence(
    run="7f3a90c1",
    target=EvidenceModel(id="a/b"),
    draft=EvidenceModel(id="a/c"),
    method="eagle3",
    vllm_version="",
    tensor_parallel_size=1,
    reason="AskedFor",
)


def trainer(
    security: dict[str, Any] | None, changes: dict[str, Any], **container: Any
) -> dict[str, Any]:
    own = {} if security is None else {"securityContext": security}
    (trains,) = TEMPLATE["spec"]["containers"]
    template = {"spec": {**TEMPLATE["spec"], **own, "containers": [{**trains, **container}]}}
    sd = resource({**ALLOWED, "draft.training": {**TRAINING, "template": template}, **changes})
    assert sd.spec.draft.training is not None
    job: Any = training_job(sd, "7f3a90c1", sd.spec.draft.training, EVIDENCE)
    return dict(job["spec"]["template"]["spec"])


@pytest.mark.parametrize("security", [None, {"fsGroup": 3000}], ids=["none", "a group"])
def test_what_trains_may_do_no_more_than_what_serves(security: dict[str, Any] | None) -> None:
    assert below_restricted(trainer(security, {})) == ["runAsNonRoot"]
    assert below_restricted(trainer(security, USER)) == []
    expected = {**pod(USER)["securityContext"], **(security or {})}
    assert trainer(security, USER)["securityContext"] == expected


def test_a_trainers_own_user_takes_the_place_of_the_engines() -> None:
    found = trainer({"runAsUser": 0}, USER)["securityContext"]
    assert found["runAsUser"] == 0
    assert "runAsNonRoot" not in found


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (
            {"runAsUser": 1000},
            {
                "runAsUser": 1000,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        ),
        (
            {"capabilities": {"add": ["IPC_LOCK"]}},
            {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
            },
        ),
        ({"privileged": True}, {"privileged": True, "capabilities": {"drop": ["ALL"]}}),
        (
            {"capabilities": {"add": ["CAP_SYS_ADMIN"]}},
            {"capabilities": {"drop": ["ALL"], "add": ["CAP_SYS_ADMIN"]}},
        ),
        ({"capabilities": {"add": ["ALL"]}}, {"capabilities": {"add": ["ALL"]}}),
    ],
    ids=["a user", "a capability", "privileged", "what needs to gain rights", "all of them"],
)
def test_what_a_trainers_container_leaves_open_is_as_narrow_as_the_engines(
    theirs: dict[str, Any], expected: dict[str, Any]
) -> None:
    (found,) = trainer(None, {}, securityContext=theirs)["containers"]
    assert found["securityContext"] == expected
