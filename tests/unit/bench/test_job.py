"""The pod of a bench: what a replica is, and found by nobody that looks for replicas."""

from typing import Any, cast

from fathom.api import names
from fathom.bench.job import BenchProgram, bench_code, bench_job, bench_program
from fathom.bench.planning import planned
from fathom.bench.request import BenchRequest
from fathom.cluster.manifest import owned_by
from fathom.engine.plugin import plugin_bundle
from fathom_measure.plan import MeasurePlan
from golden.rendering import engine
from support.pod_security import below_baseline, below_restricted
from unit.bench.benches import BUNDLE, PROGRAM, sample

LARGEST_CONFIG_MAP = 1 << 20


def job(request: BenchRequest | None = None, **changes: Any) -> dict[str, Any]:
    sd = sample(changes)
    bench = planned(sd, request or BenchRequest(), BUNDLE)
    made = bench_job(sd, bench, run="r1", deadline_minutes=240, program=PROGRAM)
    return cast("dict[str, Any]", made)


def pod_of(made: dict[str, Any]) -> dict[str, Any]:
    return dict(made["spec"]["template"]["spec"])


def test_nothing_selects_it_that_selects_replicas() -> None:
    routed = {"metadata": {"labels": {"llm-d.ai/pool": "kimi"}, "annotations": {"net": "rdma"}}}

    made = job(podTemplate=routed)

    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert metadata["labels"] == {names.LABEL_BENCH: "kimi"}
    assert made["spec"]["template"]["metadata"]["annotations"] == {"net": "rdma"}


def test_its_owner_does_not_control_it() -> None:
    (owner,) = job()["metadata"]["ownerReferences"]

    assert owner["uid"] == "uid-of-kimi"
    assert "controller" not in owner


def test_it_ends_by_itself_and_is_not_tried_again() -> None:
    spec = job()["spec"]

    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 240 * 60)
    assert spec["ttlSecondsAfterFinished"] == 3600
    assert pod_of(job())["restartPolicy"] == "Never"


def test_the_engine_s_container_starts_the_program_with_the_plan() -> None:
    container = engine(pod_of(job()))

    *program, plan = container["command"]
    assert program == ["python3", "/etc/fathom/bench"]
    assert MeasurePlan.from_json(plan) == planned(sample(), BenchRequest(), BUNDLE).measure
    assert not {"args", "readinessProbe", "startupProbe", "livenessProbe", "lifecycle"} & {
        *container
    }
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "4"}}


def test_its_depth_is_its_own_to_write() -> None:
    pod = pod_of(job())

    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["name"]: each for each in engine(pod)["volumeMounts"]}
    assert volumes["fathom-depth"] == {"name": "fathom-depth", "emptyDir": {}}
    assert mounts["fathom-depth"]["readOnly"] is False
    assert mounts["fathom-plugin"]["readOnly"] is True


def test_plugin_and_program_come_from_one_config_map_of_the_bench_s_own() -> None:
    sd = sample()
    bench = planned(sd, BenchRequest(), BUNDLE)
    owner = owned_by("batch/v1", "Job", "kimi-bench", "uid-of-job")
    code = cast("Any", bench_code(sd, bench, run="r1", program=PROGRAM, owner=owner))

    volumes = {each["name"]: each for each in pod_of(job())["volumes"]}
    laid_out = {
        item["path"]: code["data"][item["key"]]
        for name in ("fathom-plugin", "fathom-bench")
        for item in volumes[name]["configMap"]["items"]
    }
    assert laid_out == {**BUNDLE.files, **PROGRAM.files}
    assert {volumes[name]["configMap"]["name"] for name in ("fathom-plugin", "fathom-bench")} == {
        code["metadata"]["name"]
    }
    assert code["metadata"]["ownerReferences"] == owner


def test_a_static_engine_gets_no_plugin() -> None:
    pod = pod_of(job(**{"speculation.tuning.mode": "Static"}))

    assert "fathom-plugin" not in {each["name"] for each in pod["volumes"]}


def test_a_volume_of_the_user_s_is_mounted_once_and_to_be_read() -> None:
    asked = BenchRequest(prompts=("pvc:speed/a", "pvc:speed/b.json", "configmap:chats/c.json"))

    pod = pod_of(job(asked))

    volumes = {each["name"]: each for each in pod["volumes"] if "bench-data" in each["name"]}
    assert volumes == {
        "bench-data-0": {
            "name": "bench-data-0",
            "persistentVolumeClaim": {"claimName": "speed", "readOnly": True},
        },
        "bench-data-1": {"name": "bench-data-1", "configMap": {"name": "chats"}},
    }
    mounts = [each for each in engine(pod)["volumeMounts"] if each["name"] in volumes]
    assert [each["readOnly"] for each in mounts] == [True, True]


def test_it_may_do_no_more_than_an_engine() -> None:
    assert below_baseline(pod_of(job())) == []
    assert below_restricted(pod_of(job(**{"engine.user": 2000}))) == []
    assert pod_of(job())["automountServiceAccountToken"] is False


def test_it_takes_nobody_s_place() -> None:
    high = {"spec": {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}}

    assert not {"priorityClassName", "preemptionPolicy"} & pod_of(job(podTemplate=high)).keys()


def test_containers_beside_the_engine_stay() -> None:
    beside = {"spec": {"containers": [{"name": "cache", "image": "lmcache:1"}]}}

    assert {each["name"] for each in pod_of(job(podTemplate=beside))["containers"]} == {
        "vllm",
        "cache",
    }


def test_all_code_fits_one_config_map() -> None:
    program, bundle = bench_program(), plugin_bundle()

    assert isinstance(program, BenchProgram)
    texts = [*program.files.values(), *bundle.files.values()]
    assert sum(len(text.encode()) for text in texts) < LARGEST_CONFIG_MAP / 2
