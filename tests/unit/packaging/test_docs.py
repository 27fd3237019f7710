"""What the documentation promises about the code is checked against the code."""

import os
import re
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client import models
from pydantic import BaseModel

from fathom.api import names
from fathom.api.accelerators import PRESETS
from fathom.api.choices import TuningMode
from fathom.api.conditions import Reason
from fathom.api.crd import custom_resource_definition
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.kinds import LEADER_WORKER_SET, ServedApis, left_out
from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template
from fathom.manifests.workloads import pod_disruption_budget
from fathom.resource import Metadata, SpeculationTuner, SpeculativeDeployment, parse, parse_tuner
from fathom.rollout.revision import revision_of
from fathom.validation.candidate import Cluster, candidate_of
from fathom.validation.chain import errors_of
from fathom.validation.pod_template_errors import READ_IN_ENGINE_ENV
from generators import alarm_reference, api_reference
from manifest_samples import resource
from support.validated import errors, warnings
from support.waiting import GUARD_S

REPOSITORY = Path(__file__).parents[3]
DOCS = REPOSITORY / "docs"
PAGES = sorted(
    [
        *DOCS.glob("*.md"),
        *DOCS.glob("runbooks/*.md"),
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "CHANGELOG.md",
    ]
)
AROUND = DOCS / "around-the-pods.md"
STANDARD: dict[str, Any] = {
    "HorizontalPodAutoscaler": models.V2HorizontalPodAutoscaler,
    "NetworkPolicy": models.V1NetworkPolicy,
}
FOREIGN = {"InferencePool", "Kustomization", "ScaledObject"}
"""Shown as their documentation has them; no schema of theirs is here."""


def first_column(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", (DOCS / page).read_text(), re.MULTILINE)


def test_api_reference_is_fresh() -> None:
    for kind, page in ((names.KIND, "api.md"), (names.TUNER_KIND, "api-tuner.md")):
        assert (DOCS / page).read_text() == api_reference.reference(kind), "Run: make regenerate"


def test_alarms_on_the_page_are_those_of_the_table() -> None:
    assert (DOCS / "alarms.md").read_text() == alarm_reference.reference(), "Run: make regenerate"


def test_every_reason_is_explained_once() -> None:
    explained = first_column("troubleshooting.md") + first_column("alarms.md")
    unlike = {*explained} ^ {*Reason}
    assert sorted(explained) == sorted(Reason), f"Correct docs/troubleshooting.md: {unlike}"


def test_the_runbook_of_degraded_says_what_the_page_says() -> None:
    runbook = (DOCS / "runbooks/FathomDegraded.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", runbook, re.MULTILINE)
    assert rows
    for reason, advice in rows:
        assert advice == Reason(reason).advice


def test_every_column_of_kubectl_get_is_explained() -> None:
    columns = custom_resource_definition()["spec"]["versions"][0]["additionalPrinterColumns"]  # type: ignore[call-overload,index]
    shown = [
        (each["name"].upper(), "priority" in each) for each in columns if each["name"] != "Age"
    ]
    rows = re.findall(
        r"^\| ([A-Z/]+) \| (with `-o wide`)?",
        (DOCS / "getting-started.md").read_text(),
        re.MULTILINE,
    )
    explained = [(name, bool(wide)) for name, wide in rows]
    assert sorted(explained) == sorted(shown), "Correct the table in docs/getting-started.md"


def test_every_accelerator_stands_with_what_it_asks_of_nodes() -> None:
    rows = re.findall(
        r"^\| (\w+) \| (\S+) \| (\d+) \| (\w+) \|$",
        (DOCS / "requirements.md").read_text(),
        re.MULTILINE,
    )

    assert rows == [
        (name.value, preset.product, str(preset.gpus_per_node), preset.architecture)
        for name, preset in PRESETS.items()
        if preset.has_gpus
    ]


def test_every_file_that_a_page_names_is_there() -> None:
    for page in (*PAGES, REPOSITORY / "README.md"):
        text = page.read_text(encoding="utf-8")
        named = re.findall(r"`((?:operator|tests|tools|charts|images|examples)/[\w./-]+)`", text)
        assert [each for each in named if not (REPOSITORY / each).exists()] == [], page.name
        tests = re.findall(r"`((?:\w+/)*test_\w+\.py)`", text)
        folders = [REPOSITORY, REPOSITORY / "tests", REPOSITORY / "tests" / "unit"]
        gone = [each for each in tests if not any((folder / each).exists() for folder in folders)]
        assert gone == [], page.name


def test_every_metric_is_explained() -> None:
    sources = [
        "fathom_vllm/exposition.py",
        "fathom/runtime/telemetry.py",
        "fathom_fetch/metrics.py",
    ]
    text = "".join((REPOSITORY / "operator" / source).read_text() for source in sources)
    exported = {name.removesuffix("_total") for name in re.findall(r'"(fathom_[a-z_]+)"', text)}
    explained = {name.removesuffix("_total") for name in first_column("metrics.md")}
    assert explained == exported, f"Correct docs/metrics.md: {explained ^ exported}"


def test_every_reason_to_give_up_a_canary_stands_beside_what_is_measured() -> None:
    rollout = REPOSITORY / "operator" / "fathom" / "rollout"
    sources = "".join(
        (rollout / f"{each}.py").read_text() for each in ("canary_verdict", "canary_health")
    )
    given = set(re.findall(r"\bReason\.(\w+)", sources)) - {"CANARY_AS_GOOD", "CANARY_BAKING"}
    named = set(re.findall(r"`(\w+)`", (DOCS / "rollouts.md").read_text()))
    missing = {Reason[each].value for each in given} - named
    assert not missing, f"docs/rollouts.md, What is compared, does not name {missing}"


# The base sets what has no default, so that each field can be changed by itself.
BASE: dict[str, Any] = {
    "model": {"id": "target", "tokenSecretRef": {"name": "hf-token", "key": "token"}},
    "draft": {"id": "draft", "tensorParallelSize": 1},
    "speculation": {"tokens": 3, "maxTokens": 7, "tuning": {"tpotMilliseconds": 25}},
    "engine": {
        "image": "vllm/vllm-openai:v0.32.0",
        "version": "0.32.0",
        "tensorParallelSize": 4,
        "user": 2000,
    },
    "nodePool": {"gpusPerNode": 4, "products": ["NVIDIA-GB200"]},
}


def fields(model: BaseModel, path: str = "") -> Iterator[tuple[str, object]]:
    """Every field that holds a value of its own, as users write its path."""
    for name, field in type(model).model_fields.items():
        where, value = f"{path}{field.alias}", getattr(model, name)
        if isinstance(value, BaseModel):
            yield from fields(value, f"{where}.")
        else:
            yield where, value


def another(value: object) -> object:
    """A value of the same kind that is not this one."""
    match value:
        case StrEnum():
            return next(member.value for member in type(value) if member is not value)
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return "0.33.0" if re.fullmatch(r"[\d.]+", value) else f"{value}x"
        case tuple():
            return [f"{each}x" for each in value] or [{"name": "A"}]
        case None:
            raise ValueError("a field without a default: give it a value in BASE, or in OTHERS")
        case _:
            return {"a": "1"}


def of_spec(spec: SpeculativeDeploymentSpec) -> SpeculativeDeployment:
    return SpeculativeDeployment(Metadata(name="kimi"), spec)


def revision(path: str | None = None, value: object = None, mode: str = "Auto") -> str:
    document = deepcopy(BASE)
    document["speculation"]["tuning"]["mode"] = mode
    if path is not None:
        *parents, last = path.split(".")
        inner = document
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return revision_of(of_spec(SpeculativeDeploymentSpec.model_validate(document)))


ROWS = dict(
    re.findall(
        r"^\| `([\w.]+)` \| (live|restart) \|",
        (DOCS / "live-or-restart.md").read_text(),
        re.MULTILINE,
    )
)
FIELDS = dict(fields(SpeculativeDeploymentSpec.model_validate(BASE)))
# Lists whose members are not environment variables, and text with a form.
OTHERS = {
    "draft.trial": {"id": "someone/another"},
    "draft.training": {"gpus": 4, "deadlineMinutes": 60, "gpuHoursPerWeek": 4, "template": {}},
    "speculation.depths": [1, 3],
    "engine.args": ["--seed"],
    "engine.sharedMemory": "64Gi",
    "nodePool.tolerations": [{"key": "a"}],
    "cache.accessModes": ["ReadWriteOnce"],
    "cache.size": "1Ti",
    "metrics.prometheus": {"source": "central"},
    "speculation.tokens": 7,
}


@pytest.mark.parametrize("path", FIELDS)
def test_live_or_restart(path: str) -> None:
    parts = path.split(".")
    rows = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    stated = next((ROWS[row] for row in rows if row in ROWS), None)
    assert stated is not None, f"docs/live-or-restart.md has no row for {path}"
    changed = revision(path, OTHERS[path] if path in OTHERS else another(FIELDS[path]))
    assert ("live" if changed == revision() else "restart") == stated


def test_live_or_restart_names_no_field_that_is_not_there() -> None:
    assert all(any(f"{path}.".startswith(f"{row}.") for path in FIELDS) for row in ROWS)


def test_live_or_restart_exceptions() -> None:
    static = TuningMode.STATIC.value
    assert revision(mode=TuningMode.ADVISE.value) == revision()
    assert revision(mode=static) != revision()
    assert revision("speculation.tokens", 4) != revision()
    over = SpeculativeDeploymentSpec.model_validate(
        {**BASE, "engine": {**BASE["engine"], "tensorParallelSize": 8}}
    )
    merged = over.model_copy(update={"worker_template": {"spec": {"hostPID": True}}})
    assert revision_of(of_spec(over)) != revision_of(of_spec(merged))
    assert revision("speculation.tokens", 5, mode=static) != revision(mode=static)
    assert revision("speculation.maxTokens", 5, mode=static) == revision(mode=static)
    assert revision("engine.version", "0.31.0") != revision()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue  # of others, who move their pages without asking
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}


def anchor_of(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_manifests_of_other_kinds_in_the_pages_are_valid(page: Path) -> None:
    """Manifests of our own kind: test_commands_in_pages.py."""
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        manifest = yaml.safe_load(block)
        kind = manifest.get("kind", names.KIND)
        if kind == names.TUNER_KIND:
            assert isinstance(parse_tuner(manifest), SpeculationTuner)
        elif kind in STANDARD:
            assert STANDARD[kind].model_validate(manifest)
        else:
            assert kind in {names.KIND, *FOREIGN}, f"{page.name} shows a {kind}: nothing knows it"


def around_the_pods() -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifests on that page: all that a pod can have, and a wrapper around vllm."""
    blocks = re.findall(r"```yaml\n(.*?)```", AROUND.read_text(), re.DOTALL)
    every, wrapped = (m for m in map(yaml.safe_load, blocks) if m["kind"] == names.KIND)
    return every, wrapped


def rendered_pod(manifest: dict[str, Any]) -> dict[str, Any]:
    sd = parse(manifest)
    assert isinstance(sd, SpeculativeDeployment)
    assert errors(sd) == ()
    assert warnings(sd) == ()
    return pod_template(sd, revision="abc", bundle=PluginBundle({}, "abc"))["spec"]  # type: ignore[return-value]


def test_the_pod_that_shows_all_it_can_have_is_rendered() -> None:
    manifest, _ = around_the_pods()
    asked = manifest["spec"]["podTemplate"]["spec"]
    pod = rendered_pod(manifest)
    for field in ("priorityClassName", "serviceAccountName", "imagePullSecrets"):
        assert pod[field] == asked[field]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["shm"] == {
        "name": "shm",
        "emptyDir": {"medium": "Memory", "sizeLimit": "200Gi"},
    }
    assert {"scratch", "fathom-plugin", "fathom-depth"} <= volumes.keys()


def test_a_wrapper_hands_on_the_model_and_all_arguments(tmp_path: Path) -> None:
    _, manifest = around_the_pods()
    (container,) = rendered_pod(manifest)["containers"]
    vllm = tmp_path / "vllm"
    vllm.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    vllm.chmod(0o755)

    said = subprocess.run(
        [*container["command"], *container["args"]],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_S,
    ).stdout

    assert said.split("\0")[:-1] == ["serve", *container["args"]]
    assert container["args"][0] == manifest["spec"]["model"]["id"]


def test_what_the_page_says_of_variables_is_refused() -> None:
    (row,) = re.findall(r"^\| (`HF_HOME`.*?) \| `engine.env`", AROUND.read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == READ_IN_ENGINE_ENV


def test_what_selects_pods_selects_those_that_answer() -> None:
    leaders = {names.LABEL_NAME: "kimi-k2", names.LABEL_ROLE: names.ROLE_LEADER}
    page = AROUND.read_text()
    selected = re.findall(r"matchLabels: (\{fathom[^}]*\})", page)
    assert len(selected) == 3
    assert all(yaml.safe_load(each) == leaders for each in selected)
    assert yaml.safe_load(page.split("```")[1]) == leaders


def test_the_policy_between_halves_is_of_the_examples_that_are_a_pair() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "prefill-decode.md").read_text(), re.DOTALL)
    spec = yaml.safe_load(block)["spec"]
    halves = [
        REPOSITORY / f"examples/llama-3.3-70b-{half}-h100.yaml" for half in ("prefill", "decode")
    ]
    pair = [yaml.safe_load(each.read_text())["metadata"]["name"] for each in halves]
    of_both = {"key": names.LABEL_NAME, "operator": "In", "values": pair}

    assert of_both in spec["podSelector"]["matchExpressions"]
    assert spec["ingress"] == [{"from": [{"podSelector": {"matchExpressions": [of_both]}}]}]


@dataclass(frozen=True)
class Since:
    """A row of the table by version of Kubernetes."""

    version: tuple[int, int]
    before: str


def since(used: str) -> Since:
    """The row that names what is used."""
    found = re.findall(
        rf"^\| (\d+)\.(\d+) \| [^|]*{re.escape(used)}[^|]* \| ([^|]+) \|$",
        (DOCS / "requirements.md").read_text(),
        re.MULTILINE,
    )
    ((major, minor, before),) = found
    return Since((int(major), int(minor)), before)


def test_before_the_first_version_the_chart_is_refused() -> None:
    row = since("everything not named below")
    chart = yaml.safe_load((REPOSITORY / "charts/fathom/Chart.yaml").read_text())

    assert chart["kubeVersion"] == ">={}.{}.0-0".format(*row.version)
    assert "`kubeVersion`" in row.before


def test_an_api_that_is_missing_is_said_as_its_page_says() -> None:
    sd = resource({"metrics.podMonitor": "Never"})

    (said,) = left_out(sd.spec, ServedApis(kinds=frozenset()), usable=())

    assert f'"{said}"' in since("`policy/v1`").before


def test_rules_across_fields_are_the_server_s_from_the_version_that_the_chart_names() -> None:
    row = since("(CEL)")

    assert "take effect from {}.{};".format(*row.version) in (
        REPOSITORY / "charts/fathom/Chart.yaml"
    ).read_text(encoding="utf-8")
    assert f"`{Reason.INVALID_SPEC}`" in row.before


def test_pods_that_are_not_ready_may_be_evicted_from_the_version_on_that_is_stated() -> None:
    field = "unhealthyPodEvictionPolicy"
    major, minor = since(f"`{field}`").version

    for version, has in (((major, minor), True), ((major, minor - 1), False)):
        budget = pod_disruption_budget(resource(), ServedApis(version=version))
        assert (field in budget["spec"]) == has  # type: ignore[operator]


def test_groups_share_a_domain_from_the_version_on_that_both_pages_state() -> None:
    (stated,) = re.findall(
        r"^\| Kubernetes (\d+)\.(\d+) \| `matchLabelKeys`.* needs (\d+)\.(\d+) anyway \|",
        (DOCS / "groups.md").read_text(),
        re.MULTILINE,
    )
    major, minor, of_driver, driver = map(int, stated)

    assert since("`matchLabelKeys`").version == (major, minor)
    assert since("NVIDIA's DRA driver").version == (of_driver, driver)


def test_without_the_dra_driver_a_spec_is_refused_as_the_page_says() -> None:
    trays = {"engine.tensorParallelSize": 8}
    before = since("NVIDIA's DRA driver").before

    cluster = Cluster(served=ServedApis(), usable=(LEADER_WORKER_SET,))

    (problem,) = errors_of(candidate_of(resource(trays), {}, cluster=cluster))

    assert f"reason `{problem.reason}`" in before
    assert f"`{problem.field.removeprefix('spec.')}`" in before
    for choice in re.findall(r"is (\w+) or (\w+)$", before)[0]:
        sd = resource({**trays, "nodePool.computeDomain": choice})
        assert errors_of(candidate_of(sd, {}, cluster=cluster)) == ()


def test_rights_on_the_page_are_the_chart_s() -> None:
    page = (DOCS / "requirements.md").read_text()
    rules = (REPOSITORY / "charts/fathom/templates/_rules.tpl").read_text()
    role, _, _ = rules.partition('define "fathom.tunerRules"')
    for resources, verbs in re.findall(r"resources: \[([^\]]+)\]\n\s+verbs: \[([^\]]+)\]", role):
        assert re.search(rf"^\| [^|]*{resources}[^|]* \| {verbs}", page, re.MULTILINE), (
            f"docs/requirements.md does not say: {resources}: {verbs}"
        )
