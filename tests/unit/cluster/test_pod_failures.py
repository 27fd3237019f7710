from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.cluster.observed import ObservedDeployment
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.pod_failures import Trouble, trouble_with_pod, trouble_with_workload


def pod(**status: Any) -> ObservedPod:
    return ObservedPod.model_validate({"metadata": {"name": "kimi-1"}, "status": status})


def container(**state: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", **state}


CASES = [
    (
        {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
                }
            ],
        },
        Reason.POD_UNSCHEDULABLE,
        "pod kimi-1 finds no node: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    ),
    (
        {
            "containerStatuses": [
                container(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
            ]
        },
        Reason.IMAGE_UNAVAILABLE,
        "container vllm of pod kimi-1 cannot get vllm/vllm-openai:v0.32.0: not found.",
    ),
    (
        {
            "containerStatuses": [
                container(
                    restartCount=4,
                    state={"waiting": {"reason": "CrashLoopBackOff"}},
                    lastState={"terminated": {"exitCode": 1, "message": "out of memory\n"}},
                )
            ]
        },
        Reason.POD_FAILING,
        "container vllm of pod kimi-1 exited with code 1 (4 restarts of the pod): out of memory.",
    ),
    (
        {
            "containerStatuses": [
                container(
                    state={
                        "waiting": {
                            "reason": "CreateContainerConfigError",
                            "message": 'secret "hf-token" not found',
                        }
                    }
                )
            ]
        },
        Reason.POD_FAILING,
        'container vllm of pod kimi-1 cannot start: secret "hf-token" not found.',
    ),
    (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
        Reason.POD_FAILING,
        "pod kimi-1 failed: The node was low on memory.",
    ),
]


@pytest.mark.parametrize(("status", "reason", "message"), CASES)
def test_trouble_is_told_in_words(status: dict[str, Any], reason: Reason, message: str) -> None:
    trouble = trouble_with_pod(pod(**status))
    assert trouble is not None
    assert (trouble.reason, trouble.message) == (reason, message)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Running", "containerStatuses": [container(state={"running": {}})]},
        {"containerStatuses": [container(state={"waiting": {"reason": "ContainerCreating"}})]},
        {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                container(restartCount=1, lastState={"terminated": {"exitCode": 137}})
            ],
        },
        {"containerStatuses": None, "conditions": None},
    ],
)
def test_a_pod_that_is_only_on_its_way_is_in_no_trouble(status: dict[str, Any]) -> None:
    assert trouble_with_pod(pod(**status)) is None


def crashed(said: str, **more: Any) -> str:
    """What is told of an engine that serves a model, and ended with this on its log."""
    state = {"terminated": {"exitCode": 1, "message": said}}
    document = {
        "metadata": {"name": "kimi-1"},
        "spec": {"containers": [{"name": "vllm", "args": ["org/kimi", "--port=8000"]}]},
        "status": {"containerStatuses": [container(state=state)], **more},
    }
    trouble = trouble_with_pod(ObservedPod.model_validate(document))
    assert trouble is not None
    return trouble.message.removeprefix("container vllm of pod kimi-1 ")


TRACEBACK = """
(APIServer pid=1)   File "/usr/lib/python3.12/site-packages/vllm/entrypoints/api_server.py", line 1
(APIServer pid=1)     raise ValueError(f"{model}: {reason}")
"""


def test_a_crash_is_quoted_from_its_error_on_with_the_model_that_it_does_not_name() -> None:
    assert crashed(f"{TRACEBACK}(APIServer pid=1) OSError: not a folder, and not on the hub") == (
        "with org/kimi exited with code 1: OSError: not a folder, and not on the hub."
    )
    assert crashed(f"{TRACEBACK}huggingface_hub.errors.HFValidationError: org/kimi is no id") == (
        "exited with code 1: huggingface_hub.errors.HFValidationError: org/kimi is no id."
    )


def test_an_engines_own_error_is_quoted_and_not_the_one_that_refers_to_it() -> None:
    said = (
        "(EngineCore pid=9) ValueError: No available memory for the cache blocks.\n"
        f"{TRACEBACK}"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}"
    )
    assert crashed(said).startswith(
        "with org/kimi exited with code 1: ValueError: No available memory for the cache blocks."
    )


def test_a_long_error_keeps_its_beginning_which_says_what_is_wrong() -> None:
    """As vLLM 0.32 left it after --max-model-len 999999."""
    wrong = (
        "Value error, User-specified max_model_len (999999) is greater than the derived "
        "max_model_len (max_position_embeddings=4096.0 or model_max_length=None in model's "
        "config.json)."
    )
    more = " To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
    given = f"[type=value_error, input_value=ArgsKwargs((), {{'model': {'x' * 700}}}), input_type="
    said = (
        f"{TRACEBACK}(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation "
        f"error for ModelConfig\n  {wrong}{more * 5} {given}ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error\n"
    )
    found = crashed(said)
    assert wrong in found
    assert "input_value" not in found
    assert "errors.pydantic.dev" not in found
    assert found.endswith(" more characters ...")


def test_what_names_no_error_is_quoted_as_it_is() -> None:
    assert crashed("Killed") == "with org/kimi exited with code 1: Killed."


def test_restarts_are_added_up_as_kubectl_does() -> None:
    status = {
        "initContainerStatuses": [{"name": "fetch", "restartCount": 7, "ready": True}],
        "containerStatuses": [
            ended("vllm", 1, ready=False),
            {"name": "istio-proxy", "restartCount": 2, "ready": True},
        ],
    }
    trouble = trouble_with_pod(pod(**status))
    assert trouble is not None
    assert "exited with code 1 (3 restarts of the pod): vllm says why." in trouble.message


def ended(name: str, exit_code: int, *, ready: bool) -> dict[str, Any]:
    """A container that was started again once."""
    last = {"terminated": {"exitCode": exit_code, "message": f"{name} says why"}}
    return {"name": name, "restartCount": 1, "lastState": last, "ready": ready}


def test_a_container_that_is_ready_is_not_what_its_pod_waits_for() -> None:
    completed = {"state": {"terminated": {"exitCode": 0}}}
    fetch = {**ended("fetch", 1, ready=True), **completed}
    loading = container(state={"running": {}})
    status = {
        "initContainerStatuses": [fetch],
        "containerStatuses": [ended("istio-proxy", 1, ready=True), loading],
    }
    assert trouble_with_pod(pod(**status)) is None


def test_of_several_containers_the_engine_is_told_of_first() -> None:
    proxy = ended("istio-proxy", 1, ready=False)
    fetch = ended("fetch", 2, ready=False)
    engine = ended("vllm", 3, ready=False)
    for statuses, named in (([proxy, engine], "vllm"), ([proxy], "fetch")):
        trouble = trouble_with_pod(pod(initContainerStatuses=[fetch], containerStatuses=statuses))
        assert trouble is not None
        assert trouble.message.startswith(f"container {named} of pod kimi-1 exited")


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    text = "first " + "x" * 2000 + " last"
    ended = container(restartCount=1, lastState={"terminated": {"exitCode": 1, "message": text}})
    trouble = trouble_with_pod(pod(containerStatuses=[ended]))
    assert trouble is not None
    assert len(trouble.message) < 500
    assert "first" in trouble.message
    assert trouble.message.endswith("last.")


def test_refused_pods_are_told_of_their_deployment() -> None:
    deployment = ObservedDeployment.model_validate(
        {
            "metadata": {"name": "kimi-abc"},
            "status": {
                "conditions": [
                    {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
                ]
            },
        }
    )
    trouble = trouble_with_workload(deployment)
    assert trouble is not None
    assert trouble.reason is Reason.CHILD_REFUSED
    assert "exceeded quota: gpus" in trouble.message


def listening(*args: str, **spec: Any) -> ObservedPod:
    """A pod of an IPv6 cluster, whose engine was started so."""
    return ObservedPod.model_validate(
        {
            "metadata": {"name": "kimi-1"},
            "spec": {"containers": [{"name": "vllm", "args": ["m", *args]}], **spec},
            "status": {"phase": "Running", "podIP": "fd00::7"},
        }
    )


def test_an_engine_that_listens_where_nobody_asks_is_told_how_not_to() -> None:
    trouble = trouble_with_pod(listening("--host", "0.0.0.0"))
    assert trouble == Trouble(
        Reason.POD_FAILING,
        "pod kimi-1 has the address fd00::7, and its engine listens at IPv4 addresses alone: add "
        '"--host", "::" to spec.engine.args.',
    )


@pytest.mark.parametrize(
    "pod",
    [
        listening("--host", "::"),
        listening("--host=::"),
        listening(),
        # A mesh's container may listen for it.
        listening("--host", "0.0.0.0", initContainers=[{"name": "p", "restartPolicy": "Always"}]),
        listening(containers=[{"args": ["--host", "0.0.0.0"]}, {"name": "proxy"}]),
    ],
    ids=str,
)
def test_one_that_may_be_reached_is_in_no_trouble(pod: ObservedPod) -> None:
    assert trouble_with_pod(pod) is None
