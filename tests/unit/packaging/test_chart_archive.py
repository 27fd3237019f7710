"""The chart as it is published: one archive, in an OCI registry."""

import asyncio
import tarfile
from pathlib import Path

import pytest
import yaml

from generators import chart_values
from local_cluster.helm import Helm, Release
from support.oci_registry import oci_registry


@pytest.fixture(scope="module")
def archive(helm: Helm, chart: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helm.package(chart, tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def version(chart: Path) -> str:
    found: str = yaml.safe_load((chart / "Chart.yaml").read_text())["version"]
    return found


def test_holds_the_chart_and_nothing_else(archive: Path, chart: Path, version: str) -> None:
    with tarfile.open(archive) as packed:
        members = {Path(each.name) for each in packed.getmembers() if each.isfile()}

    files = {each.relative_to(chart.parent) for each in chart.rglob("*") if each.is_file()}
    assert archive.name == f"fathom-{version}.tgz"
    # Helm keeps its own list of what to leave out, or leaves it out.
    assert members | {Path("fathom/.helmignore")} == files


def test_installs_what_the_folder_does(helm: Helm, archive: Path, chart: Path) -> None:
    values = {"metrics": {"dashboards": {"enabled": True}, "rules": {"enabled": True}}}
    packed, lying = (
        helm.template(Release(each, "fathom", "fathom-system", values)) for each in (archive, chart)
    )

    assert [*yaml.safe_load_all(packed)] == [*yaml.safe_load_all(lying)]


async def test_a_registry_takes_it_and_gives_it_back(
    helm: Helm, archive: Path, version: str, tmp_path: Path
) -> None:
    async with oci_registry() as registry:
        charts = f"oci://{registry.address}/charts"
        await asyncio.to_thread(helm.push, archive, charts)
        await asyncio.to_thread(helm.pull, f"{charts}/fathom", version, tmp_path)

    manifest = registry.manifest("charts/fathom", version)
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert [layer["mediaType"] for layer in manifest["layers"]] == [
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    ]
    given_back = await asyncio.to_thread((tmp_path / archive.name).read_bytes)
    assert given_back == await asyncio.to_thread(archive.read_bytes)


def test_its_readme_lists_every_value(chart: Path) -> None:
    assert (chart / "README.md").read_text() == chart_values.reference(), "Run: make regenerate"
    page = chart_values.reference()
    for value in ("replicas", "image.digest", "metrics.podMonitor.labels", "resources.limits"):
        assert f"| `{value}` | " in page
