"""What is printed for a host, merged onto it, starts vLLM as it is meant to."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
import yaml
from packaging.version import Version

from fathom.adapters.yaml_documents import to_yaml
from fathom.attach.evidence import has_own_schedule
from fathom.attach.host import Host, HostError, host_of, host_of_pods
from fathom.attach.patch import (
    PLUGIN_PATH,
    Attachment,
    helm_values,
    plugin_manifest,
    tuner_manifest,
    workload_patch,
)
from fathom.attach.startup import (
    expected_report,
    first_problem,
    graphs_before_and_after,
    startup_of,
)
from fathom.cli.attach import kind_and_name, labels_in
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.depth_set import depths_in
from fathom.engine.report import asked_by
from fathom.manifests.strategic_merge import merged
from fathom.resource import SpeculationTuner, parse_tuner
from fathom_vllm.bundle import SCHEDULER_CLASS, bundle_zip
from support import hosts
from support.hosts import argv
from support.pod_security import below_restricted

WORKLOADS = {
    "args": hosts.ARGS,
    "command": hosts.COMMAND,
    "script": hosts.SCRIPT,
    "variable": hosts.VARIABLE,
    "keys": hosts.KEYS,
    "statefulset": hosts.STATEFUL_SET,
    "production-stack": hosts.PRODUCTION_STACK,
    "lws": hosts.LWS,
    "kserve": hosts.KSERVE,
    "kserve by arguments": hosts.KSERVE_ARGS,
    "kserve by a script read once": hosts.KSERVE_PLAIN,
}
OPTIONS = ("--speculative-config", "--speculative_config")
DEPTHS = frozenset({0, 1, 3, 7})
RELEASE = Version("0.32.0")


def host(manifest: Mapping[str, Any], pod: Mapping[str, Any] | None = None) -> Host:
    kind, _ = kind_and_name(f"{manifest['kind']}/qwen")
    return host_of(kind, dict(manifest), pod)


def attachment(manifest: Mapping[str, Any]) -> Attachment:
    found = host(manifest)
    return Attachment(
        host=found, startup=startup_of(found.engine), tuner="qwen", plugin="fathom-plugin-abc"
    )


def patched(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The workload with the printed patch."""
    printed = yaml.safe_load(to_yaml([workload_patch(attachment(manifest))]))
    return cast("dict[str, Any]", merged(manifest, printed))


def pod_spec(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What its pods have."""
    found: Any = manifest["spec"]
    for key in path_to(manifest):
        found = found[key]
    result: dict[str, Any] = found
    return result


def container(manifest: Mapping[str, Any], *path: str) -> dict[str, Any]:
    found: Any = manifest["spec"]
    for key in path:
        found = found[key]
    result: dict[str, Any] = found["containers"][0]
    return result


def script_of(manifest: Mapping[str, Any]) -> str:
    return hosts.KSERVE_SCRIPT if manifest["kind"] == "LLMInferenceService" else ""


def path_to(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    paths = {
        "LeaderWorkerSet": ("leaderWorkerTemplate", "leaderTemplate", "spec"),
        "LLMInferenceService": ("template",),
    }
    return paths.get(manifest["kind"], ("template", "spec"))


@pytest.mark.parametrize("form", WORKLOADS)
def test_merged_onto_its_workload_it_starts_vllm_at_the_hosts_own_depth(form: str) -> None:
    manifest = WORKLOADS[form]
    engine = container(patched(manifest), *path_to(manifest))
    arguments = EngineArguments.of(argv(engine, script_of(manifest)))

    config = arguments.object("--speculative-config")
    ranges = cast("list[list[int]]", config["num_speculative_tokens_per_batch_size"])
    assert ranges[0][::2] == [1, 3]
    assert (config["method"], config["model"]) == ("eagle3", "draft")
    assert config["num_speculative_tokens"] == 7
    assert depths_in(arguments) == DEPTHS
    most = asked_by(arguments).max_num_seqs
    assert ranges[-1][1] == most
    scheduler = [each.value for each in arguments.beginning("--scheduler-cls")]
    assert scheduler == [SCHEDULER_CLASS]
    env = {each["name"]: each for each in engine["env"]}
    assert env["PYTHONPATH"]["value"].split(":")[0] == PLUGIN_PATH
    assert env["FATHOM_POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert "FATHOM_STARTUP" not in env


@pytest.mark.parametrize("form", WORKLOADS)
def test_its_own_arguments_variables_and_mounts_stay(form: str) -> None:
    manifest = WORKLOADS[form]
    before = container(manifest, *path_to(manifest))
    after = container(patched(manifest), *path_to(manifest))

    config = hosts.CONFIG
    gone = {config, *(f"{each}={config}" for each in OPTIONS), *OPTIONS}
    kept = [
        each
        for each in argv(before, script_of(manifest))
        if each not in gone and "-sc." not in each and each not in hosts.DRAFT.values()
    ]
    words = argv(after, script_of(manifest))
    assert [each for each in kept if each not in words and each != "3"] == []
    names = {each["name"] for each in after["env"]}
    assert {each["name"] for each in before.get("env", [])} <= names
    assert all(each in after["volumeMounts"] for each in before.get("volumeMounts", []))


@pytest.mark.parametrize("form", WORKLOADS)
def test_what_comes_of_it_is_live(form: str) -> None:
    startup = attachment(WORKLOADS[form]).startup

    assert first_problem(startup, RELEASE) == ""
    assert expected_report(startup, RELEASE).depths == (0, 1, 3, 7)


@pytest.mark.parametrize("form", WORKLOADS)
def test_a_host_that_is_restricted_stays_so(form: str) -> None:
    manifest = copy.deepcopy(WORKLOADS[form])
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = pod_spec(manifest)
    for each in spec["containers"]:
        each["securityContext"] = own
    spec["securityContext"] = {
        "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    spec.setdefault("volumes", [])
    assert below_restricted(spec) == []
    assert below_restricted(pod_spec(patched(manifest))) == []


@pytest.mark.parametrize("form", WORKLOADS)
def test_to_take_the_patch_twice_changes_nothing(form: str) -> None:
    once = patched(WORKLOADS[form])

    assert patched(once) == once


def test_variables_that_both_write_to_hold_both() -> None:
    engine = container(patched(hosts.COMMAND), "template", "spec")
    env = {each["name"]: each.get("value") for each in engine["env"]}

    assert env["PYTHONPATH"] == f"{PLUGIN_PATH}:/app"
    assert env["VLLM_PLUGINS"] == "fathom,theirs"


def test_in_a_group_every_rank_reads_the_same_and_the_leader_alone_has_a_document() -> None:
    templates = patched(hosts.LWS)["spec"]["leaderWorkerTemplate"]
    leader, worker = (templates[each]["spec"] for each in ("leaderTemplate", "workerTemplate"))

    assert argv(worker["containers"][0])[-2:] == argv(leader["containers"][0])[-2:]
    volumes = [{each["name"] for each in spec["volumes"]} for spec in (leader, worker)]
    assert volumes == [{"fathom-plugin", "fathom-depth"}, {"fathom-plugin"}]
    assert "FATHOM_POD_NAME" not in {each["name"] for each in worker["containers"][0]["env"]}
    assert templates["size"] == 2


def test_a_merge_that_knows_no_keys_loses_nothing_of_a_custom_resource() -> None:
    """As `kubectl patch --type merge` does it: lists are replaced."""

    def replaced(before: Any, patch: Any) -> Any:
        if not isinstance(before, dict) or not isinstance(patch, dict):
            return patch
        return before | {key: replaced(before.get(key), each) for key, each in patch.items()}

    for manifest in (hosts.LWS, hosts.KSERVE):
        printed = workload_patch(attachment(manifest))
        assert replaced(manifest, printed) == merged(manifest, printed)


def test_kserve_has_its_labels_beside_the_template() -> None:
    spec = patched(hosts.KSERVE)["spec"]

    assert spec["labels"] == {"fathom.dev/tuned-by": "qwen"}
    assert spec["model"] == hosts.KSERVE["spec"]["model"]


def test_what_kserve_runs_is_read_of_its_pods() -> None:
    without = copy.deepcopy(hosts.KSERVE)
    without["spec"]["template"] = {}
    pod = hosts.kserve_pod(hosts.KSERVE_SCRIPT, hosts.KSERVE)
    pod["containers"][0]["env"].append({"name": "PYTHONPATH", "value": "/theirs"})

    assert host(without).engine.max_num_seqs is None
    engine = host(without, pod).engine
    # Options that its script itself has, too: a sidecar serves at 8000 then.
    assert (engine.max_num_seqs, engine.port) == (256, 8001)
    assert startup_of(engine).to_do == ()
    # What a controller merged in under the same name is kept.
    assert engine.value_of("PYTHONPATH") == "/theirs"


def test_what_is_behind_kserves_variable_counts_and_is_written_to() -> None:
    service, pod = hosts.KSERVE_ARGS, hosts.kserve_pod(hosts.KSERVE_SCRIPT, hosts.KSERVE_ARGS)
    found = host(service, pod)
    printed = workload_patch(
        Attachment(host=found, startup=startup_of(found.engine), tuner="qwen", plugin="p")
    )

    (engine,) = printed["spec"]["template"]["containers"]  # type: ignore[index, call-overload] # JSON
    assert found.engine.max_num_seqs == 256
    assert "VLLM_ADDITIONAL_ARGS" not in str(engine)
    assert [each.partition("=")[0] for each in engine["args"]] == [  # type: ignore[index, call-overload, union-attr] # JSON
        "--max-num-seqs",
        "--scheduler-cls",
        "--speculative-config",
    ]


def test_a_script_of_a_config_that_reads_no_variable_is_left_to_its_owner() -> None:
    service = copy.deepcopy(hosts.KSERVE)
    service["spec"]["template"] = {}
    found = host(service, hosts.kserve_pod(hosts.OTHER_SCRIPT, service | hosts.KSERVE))
    attached = Attachment(host=found, startup=startup_of(found.engine), tuner="qwen", plugin="p")

    (to_do,) = attached.to_do
    assert "is in an LLMInferenceServiceConfig and does not read VLLM_ADDITIONAL_ARGS" in to_do
    assert "--scheduler-cls" not in str(workload_patch(attached))


def test_kserve_over_several_nodes_has_no_patch_yet() -> None:
    manifest = copy.deepcopy(hosts.KSERVE)
    manifest["spec"]["worker"] = {"containers": []}
    with pytest.raises(HostError, match="there is no patch yet: read its pods by -l"):
        host(manifest)


# -- what cannot be read


def test_without_a_number_of_requests_the_schedule_is_left_to_whoever_knows_it() -> None:
    found = attachment(hosts.deployment(args=["--speculative-config", hosts.CONFIG]))
    config = json.loads(found.startup.config)

    assert config["num_speculative_tokens_per_batch_size"] == (
        "REPLACE THIS: [[1,M-3,3],[M-2,M-2,7],[M-1,M-1,1],[M,M,0]], where M is --max-num-seqs"
    )
    (to_do,) = found.to_do
    assert "no argument says it, and vLLM's own depends on the GPU" in to_do
    assert graphs_before_and_after(found.startup) is None


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "no --speculative-config that can be read is among its arguments"),
        (["--config", "/etc/vllm.yaml"], "its options are in the file of --config"),
        (["--speculative-config=$(SPEC)"], "is in a variable whose value is elsewhere"),
        (["--speculative-config={"], "no --speculative-config that can be read"),
        (['-sc={"method":"eagle3"}'], "its --speculative-config has no num_speculative_tokens"),
        (['-sc={"num_speculative_tokens":99}'], "99 is no depth from 1 to 64"),
        (["--spec-tokens", "3"], "--spec-tokens says what belongs into --speculative-config"),
    ],
)
def test_a_depth_that_is_not_said_is_not_guessed(args: Sequence[str], why: str) -> None:
    found = attachment(hosts.deployment(args=[*args, "--max-num-seqs=256"]))

    assert found.startup.config.startswith("REPLACE THIS: ")
    assert found.startup.schedule == ()
    (to_do,) = found.to_do
    assert why in to_do


@pytest.mark.parametrize(
    "script",
    [
        f"vllm serve m --max-num-seqs 256 --speculative-config '{hosts.CONFIG}' | tee log",
        f"vllm serve m --max-num-seqs 256 --speculative-config '{hosts.CONFIG}' &\nwait",
    ],
)
def test_a_script_that_does_not_end_with_vllm_is_left_as_it_is(script: str) -> None:
    manifest = hosts.deployment(command=["sh", "-c", script])
    found = attachment(manifest)

    assert container(patched(manifest), "template", "spec")["command"][2] == script
    assert found.startup.schedule
    (to_do,) = found.to_do
    assert "to its script, which does not end with the command of vLLM" in to_do


def test_a_variable_whose_value_is_elsewhere_is_left_as_it_is() -> None:
    elsewhere = {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
    manifest = hosts.deployment(args=["m"], env=[elsewhere])

    assert elsewhere in container(patched(manifest), "template", "spec")["env"]
    assert "Add Fathom's part to variable PYTHONPATH" in attachment(manifest).to_do[-1]


# -- a host's own schedule


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([[1, 8, 3], [9, 256, 1]], [[1, 8, 3], [9, 254, 1], [255, 255, 7], [256, 256, 0]]),
        # The last range carries on, and what is beyond --max-num-seqs is never in force.
        ([[1, 8, 5], [9, 64, 2]], None),
        ([[1, 128, 3], [129, 512, 1], [513, 1024, 0]], None),
    ],
)
def test_a_hosts_own_schedule_stays_and_lacks_no_depth(
    own: list[list[int]], expected: list[list[int]] | None
) -> None:
    config = json.dumps({**hosts.DRAFT, "num_speculative_tokens_per_batch_size": own})
    manifest = hosts.deployment(args=["-sc", config, "--max-num-seqs", "256"])
    startup = attachment(manifest).startup

    assert startup.keeps_own
    ranges = [[each.first, each.last, each.depth] for each in startup.schedule]
    assert expected in (None, ranges)
    assert ranges[0] == own[0]
    assert ranges[-1][1] == 256
    assert {0, 1, *(each[2] for each in own[:2])} <= {each[2] for each in ranges}
    assert has_own_schedule(startup.schedule, 256)
    env = {each["name"]: each for each in container(patched(manifest), "template", "spec")["env"]}
    assert env["FATHOM_STARTUP"]["value"] == "engine"
    assert "write spec.tokens" in first_problem(startup, RELEASE)


# -- what stands against it


@pytest.mark.parametrize(
    ("args", "env", "version", "why"),
    [
        ([], {}, "0.31.1", "and this is 0.31.1"),
        (["-dp", "2"], {}, "0.32.0", "data parallelism"),
        ([], {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "0.32.0", "Model Runner V1"),
        ([], {"VLLM_USE_RUST_FRONTEND": "1"}, "0.32.0", "Rust frontend"),
        (["--scheduler-cls=theirs.Own"], {}, "0.32.0", "scheduler is theirs.Own"),
        (["--disable-log-stats"], {}, "0.32.0", "--disable-log-stats turns off"),
        (["--cudagraph-capture-sizes", "1", "2", "12", "16"], {}, "0.32.0", "would replay"),
    ],
)
def test_what_keeps_it_from_live_is_known_before_anything_restarts(
    args: Sequence[str], env: Mapping[str, str], version: str, why: str
) -> None:
    manifest = hosts.deployment(
        args=["-sc", hosts.CONFIG, "--max-num-seqs=8", *args],
        env=[{"name": name, "value": value} for name, value in env.items()],
    )

    assert why in first_problem(attachment(manifest).startup, Version(version))


def test_a_method_that_is_not_known_to_follow_is_named() -> None:
    config = '-sc={"method":"medusa","num_speculative_tokens":3}'
    startup = attachment(hosts.deployment(args=[config, "--max-num-seqs=8"])).startup

    assert "method medusa is not known" in first_problem(startup, RELEASE)
    assert graphs_before_and_after(startup) is None


def test_the_price_is_in_graphs() -> None:
    assert graphs_before_and_after(attachment(hosts.ARGS).startup) == (251, 600)
    assert graphs_before_and_after(attachment(hosts.COMMAND).startup) == (235, 540)
    eager = hosts.deployment(args=["-sc", hosts.CONFIG, "--max-num-seqs=8", "--enforce-eager"])
    assert graphs_before_and_after(attachment(eager).startup) == (0, 0)


# -- the other objects


def test_the_tuner_is_one_that_the_operator_takes() -> None:
    printed = yaml.safe_load(to_yaml([tuner_manifest(host(hosts.COMMAND), "qwen")]))
    tuner = parse_tuner(printed)

    assert isinstance(tuner, SpeculationTuner)
    assert (str(tuner.spec.selector), tuner.spec.metrics.port) == ("app=qwen", 8200)
    assert "metrics" not in tuner_manifest(host(hosts.ARGS), "qwen")["spec"]  # type: ignore[operator] # JSON


def test_the_plugin_is_the_zip_and_nobodys() -> None:
    printed = yaml.safe_load(to_yaml([plugin_manifest("llm", "fathom-plugin-abc", bundle_zip())]))

    assert printed["immutable"] is True
    assert "ownerReferences" not in printed["metadata"]
    assert [*printed["binaryData"]] == ["fathom.zip"]
    assert len(printed["binaryData"]["fathom.zip"]) < 1 << 20


def test_a_chart_gets_what_it_has_fields_for() -> None:
    values = yaml.safe_load(to_yaml([helm_values(attachment(hosts.PRODUCTION_STACK))]))
    (model,) = values["servingEngineSpec"]["modelSpec"]

    assert model["name"] == "qwen"
    rendered = {"command": ["vllm", "serve", "m", *model["vllmConfig"]["extraArgs"]]}
    assert depths_in(EngineArguments.of(argv(rendered))) == DEPTHS
    assert [each["name"] for each in model["env"]] == ["PYTHONPATH", "FATHOM_POD_NAME"]
    assert [each["name"] for each in model["extraVolumes"]] == ["fathom-plugin", "fathom-depth"]


# -- what is found


@pytest.mark.parametrize(
    "word", ["deployment", "Deployment", "deployments.apps", "deploy", "sts", "lws", "llmisvc"]
)
def test_a_workload_is_named_as_for_kubectl(word: str) -> None:
    assert kind_and_name(f"{word}/qwen")[1] == "qwen"


@pytest.mark.parametrize("workload", ["qwen", "pod/qwen", "deployment/", "deployment"])
def test_what_is_none_is_refused_with_what_is(workload: str) -> None:
    with pytest.raises(HostError, match="write deployment/NAME, statefulset/NAME"):
        kind_and_name(workload)


def test_labels_are_read_and_nothing_else() -> None:
    assert labels_in("app=qwen,role==decode") == {"app": "qwen", "role": "decode"}
    for other in ("app!=a", "app in (a,b)", "app", "=a", ""):
        with pytest.raises(HostError, match="write labels"):
            labels_in(other)


def test_a_container_that_nobody_knows_has_to_be_named() -> None:
    pod = hosts.pod_of({"name": "a"}, {"name": "b"})
    manifest = hosts.workload("apps/v1", "Deployment", pod)
    with pytest.raises(HostError, match="there is a, b: name it by --container"):
        host(manifest)
    kind, _ = kind_and_name("deployment/qwen")
    assert host_of(kind, manifest, None, "b").engine.name == "b"
    only = {"metadata": {"name": "x", "namespace": "llm"}, **hosts.pod_of({"name": "odd"})}
    only["metadata"] = {"name": "x", "namespace": "llm"}
    assert host_of_pods("llm", {"app": "a"}, only, "").engine.name == "odd"


@pytest.mark.parametrize(
    ("metadata", "who"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "Helm"),
        ({"labels": {"app.kubernetes.io/managed-by": "helm"}}, "Helm"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "a"}}, "Argo CD"),
        ({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}}, "Flux"),
        ({}, ""),
    ],
)
def test_who_manages_it_is_said(metadata: Mapping[str, Any], who: str) -> None:
    manifest = copy.deepcopy(hosts.ARGS)
    manifest["metadata"] |= metadata

    assert host(manifest).managed_by == who
