"""The chart by real Helm: what it creates, and what it grants."""

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.adapters.ports import SystemClock
from fathom.adapters.prometheus_sources import NotGrantedError, SourcesError, read_sources
from fathom.api import names
from fathom.api.spec import PrometheusSpec
from fathom.runtime.options import RunOptions
from local_cluster.helm import Helm, HelmError, Release
from structural_schema import nodes
from support.monitoring import DASHBOARDS, RULES, alerts, dashboard
from support.pages import DOCS, REPOSITORY
from support.pod_security import below_restricted

Render = Callable[[Mapping[str, Any]], dict[tuple[str, str], Any]]
"""Values in, manifests by kind and name out."""

OPERATOR_RULES = [
    (["fathom.dev"], ["speculativedeployments", "speculationtuners"], ["get", "list", "watch"]),
    (["fathom.dev"], ["speculativedeployments/status", "speculationtuners/status"], ["patch"]),
    (["apps"], ["deployments"], ["list", "watch", "create", "patch", "delete"]),
    ([""], ["configmaps"], ["list", "watch", "create", "patch", "delete"]),
    ([""], ["services", "serviceaccounts"], ["list", "watch", "create", "patch"]),
    (["batch"], ["jobs"], ["list", "watch", "create", "patch", "delete"]),
    ([""], ["persistentvolumeclaims"], ["list", "watch", "create", "patch"]),
    (["policy"], ["poddisruptionbudgets"], ["list", "watch", "create", "patch", "delete"]),
    (["monitoring.coreos.com"], ["podmonitors"], ["list", "watch", "create", "patch", "delete"]),
    (
        ["leaderworkerset.x-k8s.io"],
        ["leaderworkersets"],
        ["list", "watch", "create", "patch", "delete"],
    ),
    (["resource.nvidia.com"], ["computedomains"], ["list", "watch", "create", "patch", "delete"]),
    ([""], ["pods"], ["list", "watch", "patch", "delete"]),
    ([""], ["events"], ["list", "create"]),
]
LEASE_RULES = [(["coordination.k8s.io"], ["leases"], ["get", "create", "update"])]


def rules_of(role: Any) -> list[tuple[list[str], list[str], list[str]]]:
    return [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]


def pod_of(manifests: Mapping[tuple[str, str], Any]) -> Any:
    return manifests["Deployment", "fathom"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("enabled", [True, False])
def test_lint_finds_no_fault(helm: Helm, chart: Path, *, enabled: bool) -> None:
    optional = {each: {"enabled": enabled} for each in ("podMonitor", "dashboards", "rules")}
    said = helm.lint(chart, {"metrics": optional})
    assert "failed" not in said.replace("0 chart(s) failed", "")


def test_creates_these_objects_and_no_others(render: Render) -> None:
    assert set(render({})) == {
        ("CustomResourceDefinition", "speculativedeployments.fathom.dev"),
        ("CustomResourceDefinition", "speculationtuners.fathom.dev"),
        ("ServiceAccount", "fathom"),
        ("ClusterRole", "fathom"),
        ("ClusterRole", "fathom-view"),
        ("ClusterRole", "fathom-edit"),
        ("ClusterRole", "fathom-edit-tuners"),
        ("ClusterRoleBinding", "fathom"),
        ("Role", "fathom"),
        ("RoleBinding", "fathom"),
        ("Service", "fathom-metrics"),
        ("Deployment", "fathom"),
    }


def test_operator_is_granted_exactly_what_it_uses(render: Render) -> None:
    manifests = render({})
    nodes = ([""], ["nodes"], ["list"])
    assert rules_of(manifests["ClusterRole", "fathom"]) == [*OPERATOR_RULES, nodes]
    assert rules_of(manifests["Role", "fathom"]) == LEASE_RULES


@pytest.mark.parametrize("namespaces", [[], ["llm"]])
def test_no_rule_is_a_wildcard_reads_secrets_or_gives_more_rights(
    render: Render, namespaces: list[str]
) -> None:
    for (kind, _), manifest in render({"namespaces": namespaces}).items():
        if kind in {"ClusterRole", "Role"}:
            for groups, resources, verbs in rules_of(manifest):
                assert "*" not in [*groups, *resources, *verbs]
                assert "secrets" not in resources
                assert not {"escalate", "bind", "impersonate"} & {*verbs}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_hub_can_be_left_alone(render: Render, *, enabled: bool) -> None:
    (container,) = pod_of(render({"hub": {"enabled": enabled}}))["containers"]

    offline = {"name": "HF_HUB_OFFLINE", "value": "1"}
    assert (offline in container["env"]) == (not enabled)


SUBJECTS = [{"kind": "ServiceAccount", "name": "fathom", "namespace": "fathom-system"}]


@pytest.mark.parametrize("binding", ["ClusterRoleBinding", "RoleBinding"])
def test_bindings_name_the_operators_service_account(render: Render, binding: str) -> None:
    manifest = render({})[binding, "fathom"]
    assert manifest["roleRef"]["name"] == "fathom"
    assert manifest["subjects"] == SUBJECTS


def test_served_namespaces_can_be_limited_and_so_are_the_rights(render: Render) -> None:
    manifests = render({"namespaces": ["llm"]})
    (container,) = pod_of(manifests)["containers"]
    role = manifests["Role", "fathom-models"]
    binding = manifests["RoleBinding", "fathom-models"]
    assert "--namespace=llm" in container["args"]
    assert ("ClusterRoleBinding", "fathom") not in manifests
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "llm"
    assert rules_of(role) == OPERATOR_RULES
    assert binding["subjects"] == SUBJECTS


def test_an_operator_for_tuners_alone_starts_no_pods(render: Render) -> None:
    manifests = render({"tunersOnly": True})
    (container,) = pod_of(manifests)["containers"]
    assert "--tuners-only" in container["args"]
    role = manifests["ClusterRole", "fathom"]
    assert rules_of(role) == [
        ([names.GROUP], [names.TUNER_PLURAL], ["get", "list", "watch"]),
        ([names.GROUP], [f"{names.TUNER_PLURAL}/status"], ["patch"]),
        ([""], ["configmaps"], ["list", "create", "patch"]),
        ([""], ["pods"], ["list", "patch"]),
        ([""], ["events"], ["create"]),
    ]
    kinds = "CustomResourceDefinition"
    assert {name for kind, name in manifests if kind == kinds} == {
        f"{names.TUNER_PLURAL}.{names.GROUP}"
    }
    users = [manifests["ClusterRole", f"fathom-{each}"] for each in ("view", "edit-tuners")]
    asked = {each for role in users for _, found, _ in rules_of(role) for each in found}
    assert asked == {names.TUNER_PLURAL, f"{names.TUNER_PLURAL}/status"}
    assert ("ClusterRole", "fathom-edit") not in manifests


def test_users_roles_are_aggregated(render: Render) -> None:
    manifests = render({})
    tuners = manifests["ClusterRole", "fathom-edit-tuners"]
    assert [found for _, found, _ in rules_of(tuners)] == [[names.TUNER_PLURAL]]
    view = manifests["ClusterRole", "fathom-view"]
    edit = manifests["ClusterRole", "fathom-edit"]
    aggregate = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{aggregate}view"] == "true"
    assert edit["metadata"]["labels"][f"{aggregate}edit"] == "true"
    assert edit["metadata"]["labels"][f"{aggregate}admin"] == "true"
    written = [resource for _, resources, _ in rules_of(edit) for resource in resources]
    assert f"{names.PLURAL}/status" not in written


def test_pod_meets_the_restricted_standard(render: Render) -> None:
    pod = pod_of(render({}))
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) <= {"name", "emptyDir"} for volume in pod["volumes"])


def test_the_user_can_be_left_to_the_cluster(render: Render) -> None:
    """OpenShift admits none by default but those of the namespace's own range."""
    named = {"runAsUser", "runAsGroup", "fsGroup"}
    fixed, left = (pod_of(render({"fixedUser": value})) for value in (True, False))

    assert fixed["securityContext"].keys() >= named
    for each in (left, *left["containers"]):
        assert not named & each["securityContext"].keys()
    assert below_restricted(fixed) == below_restricted(left) == []


def test_runs_the_operator_with_leader_election_and_probes(render: Render) -> None:
    (container,) = pod_of(render({}))["containers"]
    ports = {port["name"] for port in container["ports"]}
    assert container["args"][:2] == ["run", "--leader-elect"]
    probes = {"livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in probes.items():
        asked = container[probe]["httpGet"]
        assert (asked["path"], asked["port"] in ports) == (path, True)
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}


def test_each_release_holds_a_lease_of_its_own(helm: Helm, chart: Path) -> None:
    """So that several in one namespace share the cluster's namespaces among them."""
    default = helm.template(Release(chart, "fathom", "fathom-system", {}))
    assert f"--lease-name={RunOptions().lease_name}" in default
    other = helm.template(Release(chart, "east", "fathom-system", {"namespaces": ["east"]}))
    assert "--lease-name=east-fathom-operator" in other


def test_releases_of_one_name_share_a_cluster_as_the_page_says(helm: Helm, chart: Path) -> None:
    _, _, section = (DOCS / "scale.md").read_text(encoding="utf-8").partition("# More than one op")
    off = re.findall(r"`(\w+)\.(\w+): false`", section.partition("\n#")[0])

    def of_the_cluster(namespace: str, values: Mapping[str, Any]) -> set[tuple[str, str]]:
        text = helm.template(Release(chart, "fathom", namespace, values))
        return {
            (each["kind"], each["metadata"]["name"])
            for each in yaml.safe_load_all(text)
            if each and "namespace" not in each["metadata"]
        }

    one = of_the_cluster("east", {"namespaces": ["llm-east"]})
    other = {"namespaces": ["llm-west"], **{part: {value: False} for part, value in off}}
    assert {kind for kind, _ in one} == {"CustomResourceDefinition", "ClusterRole"}
    assert one & of_the_cluster("west", other) == set()


def test_image_is_the_chart_version_unless_pinned(render: Render, chart: Path) -> None:
    version = yaml.safe_load((chart / "Chart.yaml").read_text())["appVersion"]
    repository = "ghcr.io/fathom-dev/operator"
    digest = f"sha256:{'0' * 64}"
    for image, expected in [
        ({}, f"{repository}:{version}"),
        ({"tag": "1.2.3"}, f"{repository}:1.2.3"),
        ({"tag": "1.2.3", "digest": digest}, f"{repository}@{digest}"),
    ]:
        assert pod_of(render({"image": image}))["containers"][0]["image"] == expected


def test_versions_agree(root: Path, chart: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert metadata["version"] == metadata["appVersion"] == project


def test_every_port_names_its_protocol(render: Render) -> None:
    """Server-side apply on older servers cannot merge a port without one."""
    manifests = render({})
    (container,) = pod_of(manifests)["containers"]
    ports = container["ports"] + manifests["Service", "fathom-metrics"]["spec"]["ports"]
    assert all(port["protocol"] == "TCP" for port in ports)


def test_placement_reaches_the_pod(render: Render) -> None:
    toleration = {"key": "dedicated", "operator": "Exists"}
    pod = pod_of(
        render(
            {
                "nodeSelector": {"pool": "system"},
                "tolerations": [toleration],
                "priorityClassName": "high",
                "affinity": {"podAntiAffinity": {}},
                "extraArgs": ["--verbose"],
                "env": [{"name": "A", "value": "b"}],
                "imagePullSecrets": [{"name": "mirror"}],
            }
        )
    )
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [toleration]
    assert pod["priorityClassName"] == "high"
    assert pod["affinity"] == {"podAntiAffinity": {}}
    assert pod["imagePullSecrets"] == [{"name": "mirror"}]
    assert pod["containers"][0]["args"][-1] == "--verbose"
    assert pod["containers"][0]["env"][-1] == {"name": "A", "value": "b"}


def test_the_page_is_served_inside_the_pod_unless_a_service_is_asked_for(render: Render) -> None:
    def arguments(manifests: Mapping[tuple[str, str], Any]) -> list[str]:
        (container,) = pod_of(manifests)["containers"]
        return [each for each in container["args"] if each.startswith("--page")]

    inside, outside = render({}), render({"page": {"service": True}})
    off = render({"page": {"enabled": False, "service": True}})
    assert RunOptions().page_host == "127.0.0.1"
    assert (arguments(inside), arguments(outside), arguments(off)) == (
        [],
        ["--page-host="],
        ["--page-port=0"],
    )
    assert outside["Service", "fathom-page"]["spec"]["ports"] == [
        {"name": "page", "port": 80, "targetPort": "page", "protocol": "TCP"}
    ]
    for manifests in (inside, off):
        assert ("Service", "fathom-page") not in manifests

    def page_ip(manifests: Mapping[tuple[str, str], Any]) -> list[str]:
        (container,) = pod_of(manifests)["containers"]
        variables = [each for each in container["env"] if each["name"] == "POD_IP"]
        return [each["valueFrom"]["fieldRef"]["fieldPath"] for each in variables]

    # Others are told of the page only where they reach it.
    assert [page_ip(each) for each in (inside, outside, off)] == [[], ["status.podIP"], []]


def test_pod_monitor_is_made_on_request_only(render: Render) -> None:
    asked = {"metrics": {"podMonitor": {"enabled": True, "labels": {"team": "ml"}}}}
    assert ("PodMonitor", "fathom") not in render({})
    monitor = render(asked)["PodMonitor", "fathom"]
    assert monitor["metadata"]["labels"]["team"] == "ml"
    assert monitor["spec"]["podMetricsEndpoints"] == [
        {"port": "metrics", "interval": "30s", "honorLabels": True}
    ]


def test_values_of_the_page_of_metrics_reach_one_prometheus(render: Render) -> None:
    """Rules without what they read would tell that there is no operator."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```\n(metrics:\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    manifests = render(yaml.safe_load(shown))

    selected_by = [
        manifests[kind, "fathom"]["metadata"]["labels"].get("release")
        for kind in ("PodMonitor", "PrometheusRule")
    ]
    assert selected_by == ["prometheus", "prometheus"]


OPTIONAL = {
    "metrics": {each: {"enabled": True} for each in ("podMonitor", "dashboards", "rules")},
    "page": {"service": True},
}
"""Values that create whatever is not created otherwise."""
VALUES = yaml.safe_load((REPOSITORY / "charts/fathom/values.yaml").read_text(encoding="utf-8"))
PARTS = [name for name, value in VALUES.items() if isinstance(value, dict) and name != "resources"]
"""Values that have others in them. Without `resources` the pod has none, as its user asks."""


@pytest.mark.parametrize("values", [{}, OPTIONAL], ids=["by default", "with all that is optional"])
def test_values_of_an_earlier_chart_are_filled_in(
    render: Render, helm: Helm, chart: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    """`helm upgrade --reuse-values` brings none of values.yaml."""
    earlier = tmp_path / "fathom"
    shutil.copytree(chart, earlier)
    resources = {"resources": VALUES["resources"]}
    (earlier / "values.yaml").write_text(yaml.safe_dump(resources), encoding="utf-8")
    text = helm.template(Release(earlier, "fathom", "fathom-system", values))
    documents = [each for each in yaml.safe_load_all(text) if each]
    assert {(each["kind"], each["metadata"]["name"]): each for each in documents} == render(values)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_values_that_is_null_is_as_by_default(render: Render, name: str) -> None:
    assert render({name: None}) == render({})


def test_a_label_that_is_taken_out_stays_out(render: Render) -> None:
    labels = {"labels": {"grafana_dashboard": None, "team": "ml"}}
    made = render({"metrics": {"dashboards": {"enabled": True, **labels}}})
    (of_one, *_) = (each for (kind, _), each in made.items() if kind == "ConfigMap")
    assert "grafana_dashboard" not in of_one["metadata"]["labels"]
    assert of_one["metadata"]["labels"]["team"] == "ml"


def test_dashboards_are_made_on_request_only(render: Render) -> None:
    assert "ConfigMap" not in {kind for kind, _ in render({})}
    dashboards = {
        "enabled": True,
        "labels": {"team": "ml"},
        "annotations": {"grafana_folder": "LLM"},
    }
    made = {
        name: each
        for (kind, name), each in render({"metrics": {"dashboards": dashboards}}).items()
        if kind == "ConfigMap"
    }

    assert {name.removeprefix("fathom-dashboard-") for name in made} == {
        path.stem for path in DASHBOARDS
    }
    for each in made.values():
        assert each["metadata"]["labels"].items() >= {("grafana_dashboard", "1"), ("team", "ml")}
        assert each["metadata"]["annotations"] == {"grafana_folder": "LLM"}
    files = {name: text for each in made.values() for name, text in each["data"].items()}
    assert {name.removeprefix("fathom-"): json.loads(text) for name, text in files.items()} == {
        path.name: dashboard(path) for path in DASHBOARDS
    }


def test_rules_are_made_on_request_only(render: Render) -> None:
    rules = {"enabled": True, "labels": {"release": "prometheus"}, "runbookURL": "https://w.io/a/"}
    assert ("PrometheusRule", "fathom") not in render({})
    made = render({"metrics": {"rules": rules}})["PrometheusRule", "fathom"]

    assert made["metadata"]["labels"]["release"] == "prometheus"
    assert len({group["name"] for group in made["spec"]["groups"]}) == len(RULES)
    expected = alerts()
    for name, rule in expected.items():
        rule["annotations"]["runbook_url"] = f"https://w.io/a/{name}.md"
    rendered = {rule["alert"]: rule for group in made["spec"]["groups"] for rule in group["rules"]}
    assert rendered == expected


SOURCES = [
    {
        "name": "central",
        "url": "https://mimir.example.com/prometheus",
        "namespaces": ["llm"],
        "tokenFile": {"secretName": "mimir", "key": "token"},
        "ca": {"configMapName": "corporate-ca", "key": "ca.crt"},
        "headers": {"X-Team": "ml"},
        "tenants": {"llm": ["inference"]},
    },
    {
        "name": "basic",
        "url": "http://vm:8427",
        "namespaces": ["*"],
        "basicAuth": {"secretName": "vm", "passwordKey": "pass"},
        "ca": {"secretName": "vm", "key": "ca.crt"},
    },
    {
        "name": "projected",
        "url": "https://thanos:9091",
        "namespaces": ["*"],
        "projectedToken": {"audience": "thanos"},
    },
]


def test_sources_are_files_of_the_operator_s_pod(render: Render, tmp_path: Path) -> None:
    assert "--prometheus-sources" not in str(render({}))
    made = render({"prometheus": {"sources": SOURCES}})
    pod = pod_of(made)
    (container,) = pod["containers"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    file = "/etc/fathom/prometheus/sources.json"
    assert f"--prometheus-sources={file}" in container["args"]
    config = made["ConfigMap", "fathom-prometheus"]["data"]["sources.json"]
    (tmp_path / "sources.json").write_text(config)
    # What the operator reads: names, addresses, users and files, and no login.
    sources = read_sources(tmp_path / "sources.json", SystemClock())
    assert sources.login(PrometheusSpec(source="central"), "llm").url == SOURCES[0]["url"]
    with pytest.raises(NotGrantedError):
        sources.login(PrometheusSpec(source="central"), "web")

    volume = next(each for each in pod["volumes"] if each["name"] == "prometheus")
    parts = volume["projected"]["sources"]
    files = {
        f"{mounted['prometheus']}/{item['path']}"
        for part in parts
        for value in part.values()
        for item in value.get("items", [value] if "path" in value else [])
    }
    named = {
        path
        for source in json.loads(config)["sources"]
        for key, path in source.items()
        if key.endswith("File")
    }
    assert named == files
    assert len(named) == 6
    # One that is missing keeps no operator from starting.
    assert {"optional": True}.items() <= parts[1]["secret"].items()
    assert all(
        value["optional"]
        for part in parts[1:]
        for kind, value in part.items()
        if kind != "serviceAccountToken"
    )


def test_another_source_makes_another_operator(render: Render) -> None:
    def pod(sources: list[Any]) -> Any:
        values = {"prometheus": {"sources": sources}, "podAnnotations": {"a": "b"}}
        return render(values)["Deployment", "fathom"]["spec"]["template"]["metadata"]["annotations"]

    assert pod([]) == {"a": "b"}
    assert pod(SOURCES).keys() == {"a", "checksum/prometheus-sources"}
    assert pod(SOURCES) != pod(SOURCES[:1])


REFUSED_SOURCES = (
    ({"url": "https://exämple.com"}, "sources/0/url"),
    ({"url": "https://p:123456"}, "sources/1/url"),
    ({"headers": {"authorization": "Bearer a"}}, "propertyName 'authorization'"),
    ({"headers": {"X A": "a"}}, "propertyName 'X A'"),
    ({"headers": {"X-A": ""}}, "sources/4/headers/X-A"),
    ({"headers": {"X-A": "a\nb"}}, "sources/5/headers/X-A"),
    ({"tenantHeader": "Cookie"}, "sources/6/tenantHeader"),
    ({"tenants": {"llm": ["köln"]}}, "sources/7/tenants/llm/0"),
    ({"tenants": {"llm": [" a"]}}, "sources/8/tenants/llm/0"),
)


def test_a_source_that_the_operator_refuses_is_refused_by_helm(
    helm: Helm, chart: Path, tmp_path: Path
) -> None:
    sources = [
        {"name": f"a{index}", "url": "https://p", "namespaces": ["llm"], **changes}
        for index, (changes, _) in enumerate(REFUSED_SOURCES)
    ]
    for source in sources:
        assert_the_operator_refuses(tmp_path, source)
    with pytest.raises(HelmError) as refused:
        helm.template(release_with(chart, *sources))
    words = [words for _, words in REFUSED_SOURCES]
    assert [each for each in words if each in str(refused.value)] == words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "two sources are called a"),
        ({"name": "b", "headers": {"x-scope-orgid": "a"}}, "x-scope-orgid says the tenant"),
    ],
)
def test_sources_that_do_not_fit_together_are_refused_by_helm(
    helm: Helm, chart: Path, tmp_path: Path, changes: Mapping[str, Any], words: str
) -> None:
    one = {"name": "a", "url": "https://p", "namespaces": ["llm"]}
    assert_the_operator_refuses(tmp_path, one, {**one, **changes})
    with pytest.raises(HelmError, match=words):
        helm.template(release_with(chart, one, {**one, **changes}))


def assert_the_operator_refuses(folder: Path, *sources: Mapping[str, Any]) -> None:
    file = folder / "sources.json"
    file.write_text(json.dumps({"sources": sources}))
    with pytest.raises(SourcesError):
        read_sources(file, SystemClock())


def release_with(chart: Path, *sources: Mapping[str, Any]) -> Release:
    return Release(chart, "fathom", "fathom-system", {"prometheus": {"sources": list(sources)}})


def test_names_that_look_like_numbers_are_text(render: Render) -> None:
    source = {
        **SOURCES[0],
        "tokenFile": {"secretName": "123", "key": "1"},
        "ca": {"configMapName": "456", "key": "2"},
    }
    values = {"prometheus": {"sources": [source, {**SOURCES[1], "basicAuth": {"secretName": "1"}}]}}
    (volume,) = (each for each in pod_of(render(values))["volumes"] if each["name"] == "prometheus")
    _, *parts = volume["projected"]["sources"]
    names = [value["name"] for part in parts for value in part.values()]
    assert names == ["123", "456", "1", "vm"]


def test_sources_add_no_right(render: Render) -> None:
    with_sources = render({"prometheus": {"sources": SOURCES}})
    for place in (("ClusterRole", "fathom"), ("Role", "fathom")):
        assert with_sources[place] == render({})[place]


def test_existing_service_account_is_used(render: Render) -> None:
    manifests = render({"serviceAccount": {"create": False, "name": "mine"}})
    assert "ServiceAccount" not in {kind for kind, _ in manifests}
    assert pod_of(manifests)["serviceAccountName"] == "mine"
    assert manifests["ClusterRoleBinding", "fathom"]["subjects"][0]["name"] == "mine"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"imge": {"tag": "1"}}, "imge"),
        ({"image": {"tga": "1"}}, "tga"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"replicas": "2"}, "replicas"),
        ({"metrics": {"podMonitor": {"enable": True}}}, "enable"),
        ({"metrics": {"rules": {"runbookUrl": "https://w.io"}}}, "runbookUrl"),
        ({"metrics": {"dashboards": {"labels": {"grafana_dashboard": 1}}}}, "grafana_dashboard"),
        ({"prometheus": {"sources": [{**SOURCES[0], "token": "abc"}]}}, "token"),
        ({"prometheus": {"sources": [{**SOURCES[0], "url": "https://me:pw@p"}]}}, "url"),
        ({"prometheus": {"sources": [{**SOURCES[0], "basicAuth": {"secretName": "a"}}]}}, "not"),
        ({"prometheus": {"sources": [{"name": "a", "url": "http://a"}]}}, "namespaces"),
    ],
)
def test_a_mistake_in_the_values_is_refused_by_name(
    helm: Helm, chart: Path, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(HelmError, match=named):
        helm.template(Release(chart, "fathom", "fathom-system", values))


def test_schema_and_defaults_name_the_same_values(chart: Path) -> None:
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    # Helm adds `global` by itself.
    assert set(defaults) == set(schema["properties"]) - {"global"}


def test_every_value_is_described(chart: Path) -> None:
    """Editors show it where the value is written."""
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    described = {path: node.get("description", "") for path, node in nodes(schema)}

    assert {".image.tag", ".env[items].name"} < described.keys()
    assert [
        path
        for path, text in described.items()
        if path and not path.endswith("]") and not text.endswith(".")
    ] == []
