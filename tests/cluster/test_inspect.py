"""The commands that ask a cluster against a real API server, as their users run them."""

import asyncio
import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

import jsonschema
import pytest
import yaml

from fathom.api import names
from fathom.engine.plugin import plugin_bundle
from fathom.measurement.bench_result import RESULT_KEY, DepthBench
from fathom.measurement.counters import PodCounters
from fathom.replay.recording import looks_in
from local_cluster.kube import Object
from support.engine_page import FakeEngine
from support.help_examples import every_example, examples
from support.local_cluster import TestNamespace, shell_pod
from support.operated import SPEC, Resource
from support.operator_process import install_crd
from support.waiting import guarded, until
from unit.tuning.plant import EASY, Fleet

pytestmark = pytest.mark.cluster

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
CLUSTER_EXAMPLES = (
    *("status", "top", "explain", "advise", "history", "report"),
    *("pause", "resume", "retry", "rollout", "version", "traffic"),
)
"""In an order in which each finds what it needs."""
FATHOM = str(Path(sys.executable).with_name("fathom"))
COLUMNS = {"COLUMNS": "160"}


@pytest.fixture
async def resource(namespace: TestNamespace) -> Resource:
    """A resource whose tuner has been at work; nobody operates it at present."""
    await install_crd(namespace)
    resource = Resource(namespace)
    await resource.apply({**SPEC, "speculation": {"tokens": 3}})
    fleet = Fleet(acceptance=EASY, replicas=3, now_s=time.time() - 300).run(300)
    assert fleet.document is not None
    kept = {"depth": {"depth.json": fleet.document.to_json()}}
    kept["tuning"] = {"state.json": fleet.state.to_json()}
    for component, data in kept.items():
        name = f"{resource.name}-{component}"
        await namespace.create({"kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    return resource


async def of_account(namespace: TestNamespace, folder: Path) -> Path:
    """A kubeconfig of the ServiceAccount `anyone`."""
    account = namespace.path("ServiceAccount", "anyone")
    asked = await namespace.api.request("POST", f"{account}/token", body={"spec": {}})
    config = yaml.safe_load(namespace.cluster.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": asked["status"]["token"]}
    kubeconfig = folder / "anyone.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    return kubeconfig


def pod_with_plugin(name: str, content: str) -> Object:
    """One that is of a SpeculativeDeployment, and waits for ever for its volume."""
    volume = {"name": "fathom-plugin", "configMap": {"name": f"sd-plugin-{content}"}}
    pod = shell_pod(name, "sleep 600", volumes=[volume])
    pod["metadata"]["labels"] = {names.LABEL_NAME: "sd", names.LABEL_ROLE: names.ROLE_LEADER}
    return pod


async def fathom(
    namespace: TestNamespace, *arguments: str, kubeconfig: Path | None = None
) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        FATHOM,
        *arguments,
        f"--kubeconfig={kubeconfig or namespace.cluster.kubeconfig}",
        env={**os.environ, **COLUMNS},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with guarded(f"fathom {arguments[0]} ends"):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_explain_shows_what_the_tuner_has_measured(
    namespace: TestNamespace, resource: Resource
) -> None:
    code, out, err = await fathom(namespace, "explain", resource.name, "-n", namespace.name)

    assert (code, err) == (0, "")
    assert "Tokens per second by batch and depth, over depth 3" in out
    assert "Why each batch has its depth" in out
    assert "▶+" in out


async def test_report_writes_one_file_that_shows_the_same(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    bench = DepthBench(name=resource.name, image="vllm:1", at="2026-11-25T16:00:00Z", rows=())
    await namespace.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": names.bench(resource.name)},
            "data": {RESULT_KEY: bench.to_json()},
        }
    )
    file = tmp_path / "sd.html"
    asked = ("report", resource.name, "-n", namespace.name, "-o")
    code, out, err = await fathom(namespace, *asked, str(file))
    nowhere = tmp_path / "none" / "sd.html"
    refused = await fathom(namespace, *asked, str(nowhere))

    assert (code, out, err) == (0, f"Written: {file}\n", "")
    page = file.read_text(encoding="utf-8")
    assert f"{namespace.name}/{resource.name} – Fathom</title>" in page
    assert "in force: " in page
    assert "No charts: a cluster keeps no history" in page
    assert "The last bench" in page
    assert refused == (2, "", f"{nowhere}: cannot be written: No such file or directory.\n")


async def test_one_is_paused_looked_at_and_resumed(
    namespace: TestNamespace, resource: Resource
) -> None:
    """Nobody operates it at present, so what is asked for stands there and is not answered."""
    name, at = resource.name, ("-n", namespace.name)
    reason = ("--reason", "incident 42")

    paused = await fathom(namespace, "pause", name, *at, *reason)
    found = await resource.get()
    status = await fathom(namespace, "status", name, *at)
    resumed = await fathom(namespace, "resume", name, *at)
    again = await fathom(namespace, "resume", name, *at)
    after = await resource.get()

    assert paused[0] == 0, paused
    assert found["metadata"]["annotations"]["fathom.dev/paused"] == "incident 42"
    assert status[0] == 1
    assert status[1].startswith(
        f"{namespace.name}/{name} is not known to be well: No operator has reported"
    )
    assert resumed == (0, f"{namespace.name}/{name} continues where it was.\n", "")
    assert again[0] == 2
    assert "is not paused by annotation" in again[2]
    assert "fathom.dev/paused" not in after["metadata"].get("annotations", {})
    assert after["metadata"]["generation"] == found["metadata"]["generation"]
    assert after["spec"] == found["spec"]


async def test_advice_history_and_retry(namespace: TestNamespace, resource: Resource) -> None:
    name, at = resource.name, ("-n", namespace.name)

    advised = await fathom(namespace, "advise", name, *at)
    past = await fathom(namespace, "history", name, *at)
    retried = await fathom(namespace, "retry", name, *at)

    assert (advised[0], advised[2]) == (0, "")
    assert "spec.speculation.tokens: " in advised[1]
    assert past == (0, f"Nothing is known of {namespace.name}/{name} yet.\n", "")
    assert retried[0] == 2
    assert "there is nothing to try again" in retried[2]


async def test_what_is_offered_is_asked_for(namespace: TestNamespace, resource: Resource) -> None:
    name, at = resource.name, ("-n", namespace.name)
    refused = await fathom(namespace, "rollout", name, *at)
    offered = {"stage": "Offered", "revision": "bbbbbbbb", "stable": "aaaaaaaa", "why": "image"}
    await resource.report({"rollout": offered})
    asked = await fathom(namespace, "rollout", name, *at)

    assert refused[0] == 2
    assert f"Nothing is offered for {namespace.name}/{name}" in refused[2]
    assert (asked[0], asked[2]) == (0, "")
    assert "revision bbbbbbbb replaces aaaaaaaa, one canary first: image." in asked[1]
    found = await resource.get()
    assert found["metadata"]["annotations"] == {"fathom.dev/rollout": "bbbbbbbb"}


async def test_version_says_what_runs_and_what_may_not_be_seen(
    namespace: TestNamespace, tmp_path: Path
) -> None:
    ours = plugin_bundle().content
    labels = {"app.kubernetes.io/name": "fathom", "app.kubernetes.io/version": "0.0.9"}
    await namespace.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "its-operator", "labels": labels},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "operator", "image": "r/fathom:0.0.9"}]},
                },
            },
        },
        *(pod_with_plugin(name, content) for name, content in (("a", ours), ("b", "0" * 12))),
        {"kind": "ServiceAccount", "metadata": {"name": "anyone"}},
    )

    at = ("version", "-n", namespace.name)
    code, out, err = await fathom(namespace, *at)
    refused = await fathom(namespace, *at, kubeconfig=await of_account(namespace, tmp_path))

    assert (code, err) == (0, "")
    first, *lines = out.splitlines()
    operator = f"0.0.9, {namespace.name}/its-operator, 0 of 0 replicas ready, image r/fathom:0.0.9"
    assert f"operator  {operator}" in lines
    assert "plugins   1 pod has this client's plugin, 1 pod has another one" in lines
    assert [line.split()[2:] for line in lines[-2:]] == [
        ["a", ours, "as", "this", "client"],
        ["b", "0" * 12, "another"],
    ]
    assert refused[:2] == (0, f"{first}\n")
    assert "The operators are not known. The API server does not let you do this" in refused[2]
    assert "The plugins in the pods are not known. The API server does not let you" in refused[2]


SHOWING = {
    "ports": [{"name": "http", "containerPort": 8000}],
    "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}, "periodSeconds": 1},
}


def pod_with_page(name: str) -> Object:
    """One that serves what an engine shows on /metrics."""
    page = base64.b64encode(FakeEngine().page().encode()).decode()
    script = f"cd /srv; echo {page} | base64 -d > metrics; exec python3 -m http.server 8000"
    pod = shell_pod(name, script, container=SHOWING)
    pod["metadata"]["labels"] = {names.LABEL_NAME: "sd", names.LABEL_ROLE: names.ROLE_LEADER}
    return pod


async def test_what_record_wrote_is_replayed(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    file = tmp_path / "sd.jsonl.gz"
    here = {"kimi-k2": resource.name, "llm": namespace.name, "10m": "1s"}
    as_in_help = [here.get(word, word) for word in examples()["record"]]
    asked = (*as_in_help, "-o", str(file))
    await namespace.create(pod_with_page("a"), pod_with_page("b"))
    await namespace.wait_ready("a", "b")

    recorded = await fathom(namespace, *asked)
    kept = await fathom(namespace, *asked)
    again = await fathom(namespace, *asked, "--force")
    full = await fathom(namespace, *asked, "--force", "-o", "/dev/full")

    assert recorded[0] == again[0] == 0
    assert recorded[1].startswith(f"Written: {file} (2 pods, 2 lines, ")
    assert recorded[2] == again[2] == ""
    assert kept[0] == 2
    assert f"{file} exists: name another one by -o, or overwrite it by --force." in kept[2]
    assert full == (2, "", "/dev/full: cannot be written: No space left on device.\n")
    with file.open("rb") as stream:
        looks = list(looks_in(stream, file.name))
    assert {each.pod for each in looks if isinstance(each, PodCounters)} == {"a", "b"}
    assert all(isinstance(each, PodCounters) and FakeEngine().is_shown_by(each) for each in looks)


async def test_record_names_the_right_that_is_lacking(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    file = tmp_path / "sd.jsonl"
    role = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["get"]},
    ]
    await namespace.create(
        {"kind": "ServiceAccount", "metadata": {"name": "anyone"}},
        {"kind": "Role", "metadata": {"name": "reader"}, "rules": rules},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": role, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "anyone"}],
        },
        pod_with_page("a"),
    )
    await namespace.wait_ready("a")

    asked = ("record", resource.name, "-n", namespace.name, "-o", str(file))
    kubeconfig = await of_account(namespace, tmp_path)
    code, out, err = await fathom(namespace, *asked, kubeconfig=kubeconfig)

    assert (code, out) == (2, "")
    assert "it takes the right to `get` `pods/proxy` in namespace" in err
    assert not file.exists()


async def test_ctrl_c_ends_a_recording_and_keeps_it(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    file = tmp_path / "sd.jsonl"
    await namespace.create(pod_with_page("a"))
    await namespace.wait_ready("a")
    process = await asyncio.create_subprocess_exec(
        *("env", "--default-signal=INT", FATHOM),
        *("record", resource.name, "-n", namespace.name, "-o", str(file)),
        f"--kubeconfig={namespace.cluster.kubeconfig}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    async def has_a_line() -> bool:
        return file.exists() and file.stat().st_size > 0

    await until(has_a_line, "the first line is written")
    process.send_signal(signal.SIGINT)
    async with guarded("it ends"):
        out, err = await process.communicate()

    assert (process.returncode, err) == (0, b"")
    assert out.decode().startswith(f"Written: {file} (1 pod, 1 line, ")
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1


async def test_names_are_completed(namespace: TestNamespace, resource: Resource) -> None:
    words = ("status", f"--kubeconfig={namespace.cluster.kubeconfig}", "-n", namespace.name, "s")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c"),
        "from fathom.__main__ import kubectl_complete_fathom as it; it()",
        *words,
        stdout=asyncio.subprocess.PIPE,
    )
    async with guarded("the names are there"):
        out, _ = await process.communicate()

    assert out.decode().splitlines() == [resource.name, ":4"]


async def test_what_is_not_there_is_told(namespace: TestNamespace) -> None:
    await install_crd(namespace)

    explained = await fathom(namespace, "explain", "none", "-n", namespace.name)
    report = await fathom(namespace, "report", "none", "-n", namespace.name)
    record = await fathom(namespace, "record", "none", "-n", namespace.name)
    top = await fathom(namespace, "top", "-n", namespace.name)
    elsewhere = await fathom(namespace, "top", "--context", "elsewhere")

    assert explained == (2, "", f"There is no SpeculativeDeployment {namespace.name}/none.\n")
    assert report == record == explained
    assert top == (0, f"There is no SpeculativeDeployment in namespace {namespace.name}.\n", "")
    assert elsewhere[0] == 2
    assert "--context is 'elsewhere', which the kubeconfig " in elsewhere[2]


async def test_top_lists_one_namespace_or_all(namespace: TestNamespace, resource: Resource) -> None:
    status = {"ready": "2/2", "depth": {"summary": "5 at 1-8, 3 beyond"}}
    await resource.report(status)

    _, here, _ = await fathom(namespace, "top", "-n", namespace.name)
    _, everywhere, _ = await fathom(namespace, "top", "-A")

    assert here.splitlines()[1].split()[:3] == [resource.name, "–", "2/2"]
    assert " 5 at 1-8, 3 beyond " in here.splitlines()[1]
    rows = [line.split()[:4] for line in everywhere.splitlines()]
    assert [namespace.name, resource.name, "–", "2/2"] in rows


async def test_ctrl_c_ends_watching_without_a_word(
    namespace: TestNamespace, resource: Resource
) -> None:
    ours, theirs = os.openpty()
    # Shells let what runs in the background ignore it, and children inherit that.
    process = await asyncio.create_subprocess_exec(
        *("env", "--default-signal=INT", FATHOM),
        *("top", "--watch", "-n", namespace.name),
        f"--kubeconfig={namespace.cluster.kubeconfig}",
        env={**os.environ, **COLUMNS, "TERM": "xterm"},
        stdout=theirs,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    async with guarded("it watches, and ends"):
        while resource.name.encode() not in shown:
            shown += await asyncio.to_thread(os.read, ours, 4096)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    os.close(ours)

    assert (process.returncode, err) == (0, b"")


async def test_documents_are_as_their_published_schemas_say(
    namespace: TestNamespace, resource: Resource
) -> None:
    names_here = {"top": (), "version": ()}
    for command in ("status", "top", "history", "explain", "version"):
        words = (command, *names_here.get(command, (resource.name,)), "-n", namespace.name)
        _, out, err = await fathom(namespace, *words, "-o", "json")

        assert err == "", command
        document = json.loads(out)
        schema = json.loads((SCHEMAS / f"{document['kind']}.json").read_text(encoding="utf-8"))
        jsonschema.validate(document, schema, jsonschema.Draft202012Validator)
        # No pod of this resource runs, so the versions name none.
        of_one = (document.get("items") or [document])[0]
        assert command == "version" or of_one["name"] == resource.name


async def test_the_examples_in_the_help_run(
    namespace: TestNamespace, resource: Resource, tmp_path: Path
) -> None:
    """With this test's names; nobody operates the resource, so some have nothing to do."""
    names_here = {"kimi-k2": resource.name, "llm": namespace.name, "kimi.html": str(tmp_path / "k")}
    codes = {"status": 1, "retry": 2, "rollout": 2, "traffic": 2}
    ran = {}
    for command in CLUSTER_EXAMPLES:
        words = [names_here.get(word, word) for word in examples()[command]]
        ran[command] = await fathom(namespace, *words)

    assert {command: code for command, (code, _, _) in ran.items()} == {
        command: codes.get(command, 0) for command in CLUSTER_EXAMPLES
    }, ran

    (live,) = (words for _, words in every_example() if "--live" in words)
    as_in_help = [names_here.get(word, word) for word in live]
    code, _, err = await fathom(namespace, *as_in_help, "--wait", "1")
    assert (code, "has not answered within 1 s" in err) == (2, True), err
