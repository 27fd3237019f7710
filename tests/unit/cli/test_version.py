"""`fathom version`: the client always, and of a cluster what can be read."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fathom import __version__
from fathom.adapters.ports import KubeError
from fathom.cli.main import app
from fathom.cli.version import Compared, InCluster, cluster_lines, read_cluster
from fathom.cluster.kinds import DEPLOYMENT, POD, Kind
from fathom.engine.plugin import plugin_bundle
from fathom.fetch.state import fetch_program
from fathom.manifests.render import children
from manifest_samples import resource
from support.fake_kube import FakeKube

OURS = plugin_bundle().content
OTHER = "0123456789ab"


def operator(**labels: str) -> dict[str, Any]:
    containers = [{"name": "mesh", "image": "mesh:1"}, {"name": "operator", "image": "r/fathom:2"}]
    return {
        "metadata": {
            "namespace": "fathom-system",
            "name": "fathom",
            "labels": {"app.kubernetes.io/name": "fathom", **labels},
        },
        "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}},
        "status": {"readyReplicas": 1},
    }


def pod(name: str, *config_maps: str, namespace: str = "llm", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": {"fathom.dev/name": "kimi", "fathom.dev/role": "leader"},
        },
        "spec": {"volumes": [{"name": each, "configMap": {"name": each}} for each in config_maps]},
        "status": status,
    }


def cluster(*pods: dict[str, Any]) -> FakeKube:
    kube = FakeKube()
    kube.put(DEPLOYMENT, operator(**{"app.kubernetes.io/version": "0.1.0"}))
    for each in pods:
        kube.put(POD, each)
    return kube


def lines(found: InCluster, where: str = "llm") -> list[str]:
    return list(cluster_lines(found, where))


async def test_each_pods_plugin_is_compared_with_this_clients() -> None:
    kube = cluster(
        pod("a", "kimi-depth", f"kimi-plugin-{OURS}"),
        pod("b", f"kimi-plugin-{OTHER}", f"a-kimi-plugin-{OURS}"),
        pod("c", "kimi-plugin-of-mine"),
        pod("ended", f"kimi-plugin-{OURS}", phase="Failed"),
        pod("d", f"kimi-plugin-{OURS}", namespace="other"),
    )

    found = await read_cluster(kube, "llm", OURS)
    everywhere = await read_cluster(kube, "", OURS)

    assert found.pods is not None
    assert [(each.pod, each.plugin, each.compared) for each in found.pods] == [
        ("a", OURS, Compared.SAME),
        ("b", OTHER, Compared.ANOTHER),
        ("c", None, Compared.UNKNOWN),
    ]
    assert lines(found) == [
        "operator  0.1.0, fathom-system/fathom, 1 of 2 replicas ready, image r/fathom:2",
        "plugins   1 pod has this client's plugin, 1 pod has another one, 1 pod mounts none",
    ]
    assert [each.namespace for each in everywhere.pods or ()] == ["llm", "llm", "llm", "other"]


async def test_a_pod_as_this_build_renders_it_is_as_this_client() -> None:
    """Whatever the volumes and labels of a pod are: these are what is read."""
    rendered = children(resource(), plugin_bundle(), fetch_program())
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")
    template: Any = deployment["spec"]["template"]  # type: ignore[call-overload,index]
    named = {**template["metadata"], "name": "x", "namespace": "llm"}

    found = await read_cluster(cluster({**template, "metadata": named}), "", OURS)

    assert [each.compared for each in found.pods or ()] == [Compared.SAME]


async def test_nothing_there_is_a_sentence_and_not_an_unknown() -> None:
    found = await read_cluster(FakeKube(), "llm", OURS)

    assert found == InCluster((), (), ())
    assert lines(found) == [
        "operator  none: no Deployment has the label app.kubernetes.io/name=fathom",
        "plugins   no pod of a SpeculativeDeployment in namespace llm",
    ]
    assert lines(found, "")[1].endswith("in any namespace")


@pytest.mark.parametrize(
    ("kind", "operators", "pods"), [(DEPLOYMENT, None, 1), (POD, 1, None)], ids=["first", "second"]
)
async def test_a_right_that_is_lacking_takes_away_what_it_is_for(
    kind: Kind, operators: int | None, pods: int | None
) -> None:
    kube = cluster(pod("a"))
    kube.fail = lambda _, asked: KubeError(403, "no.") if asked == kind else None

    found = await read_cluster(kube, "llm", OURS)

    known = [None if each is None else len(each) for each in (found.operators, found.pods)]
    assert known == [operators, pods]
    (sentence,) = found.unknown
    assert sentence.endswith("The API server does not let you do this: no.")
    assert len(lines(found)) == 1


async def test_what_an_operator_does_not_say_is_not_made_up() -> None:
    kube = FakeKube()
    bare = operator()
    bare["spec"], bare["status"] = {"replicas": 0}, {}
    kube.put(DEPLOYMENT, bare)

    first, _ = lines(await read_cluster(kube, "llm", OURS))

    assert first == (
        "operator  version not known, fathom-system/fathom, 0 of 0 replicas ready, image not known"
    )


def test_without_a_cluster_the_client_is_known(tmp_path: Path) -> None:
    nowhere = ["--kubeconfig", str(tmp_path / "none")]

    asked = CliRunner().invoke(app, ["version", *nowhere])
    alone = CliRunner().invoke(app, ["version", "--client", *nowhere])

    assert asked.exit_code == alone.exit_code == 0
    assert asked.stdout == alone.stdout
    assert asked.stdout.startswith(f"client    {__version__}")
    assert asked.stdout.endswith(f"plugin {OURS}\n")
    assert "What runs in a cluster is not known: --kubeconfig names " in asked.stderr
    assert alone.stderr == ""


def test_the_document_has_null_for_what_is_not_known() -> None:
    found = CliRunner().invoke(app, ["version", "--client", "-o", "json"])
    as_yaml = CliRunner().invoke(app, ["version", "--client", "-o", "yaml"])

    document = json.loads(found.stdout)
    assert document == yaml.safe_load(as_yaml.stdout)
    assert document["kind"] == "VersionReport"
    assert document["client"]["version"] == __version__
    assert document["client"]["plugin"] == OURS
    assert (document["operators"], document["pods"]) == (None, None)
