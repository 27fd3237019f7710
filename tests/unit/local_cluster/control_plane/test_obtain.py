"""Where the programs of a control plane come from."""

import functools
import hashlib
import http.server
import os
import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

from local_cluster.cli import app
from local_cluster.control_plane.binaries import (
    ASSETS,
    COMPLETE_MARK,
    CONTROL_PLANE,
    KUBERNETES,
    RECIPE,
    Binaries,
    publish,
)
from local_cluster.control_plane.debian_source import DebianSource
from local_cluster.control_plane.obtain import (
    check_obtainable,
    ensure_binaries,
    present_binaries,
)
from local_cluster.control_plane.release import ARCHITECTURES, VERSION, ReleaseError
from local_cluster.errors import LocalClusterError

OTHER = "1.34.1"


def program(version: str) -> str:
    """A program that says which Kubernetes it is of."""
    return f"#!/bin/sh\necho Kubernetes v{version}\n"


@dataclass(frozen=True)
class Releases:
    """A server that has releases of Kubernetes."""

    folder: Path
    address: str

    def of(self, version: str) -> Path:
        return self.folder / f"v{version}/bin/linux/{ARCHITECTURES[platform.machine()]}"

    def release(self, version: str) -> None:
        folder = self.of(version)
        folder.mkdir(parents=True)
        for name in KUBERNETES:
            content = program(version).encode()
            (folder / name).write_bytes(content)
            # As the project publishes them: the sum alone.
            (folder / f"{name}.sha256").write_text(hashlib.sha256(content).hexdigest())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def releases(tmp_path: Path) -> Iterator[Releases]:
    folder = tmp_path / "releases"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Releases(folder, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, on a machine that has an etcd."""
    machine = tmp_path / "machine"
    machine.mkdir()
    (machine / "etcd").write_text("#!/bin/sh\n")
    (machine / "etcd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{machine}:{os.environ['PATH']}")
    monkeypatch.setenv("FATHOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(ASSETS, raising=False)
    return tmp_path / "cache" / "control-plane"


@pytest.fixture
def shown() -> Progress:
    """Progress that can be read."""
    return Progress(console=Console(record=True, width=500))


class Compiled(DebianSource):
    """Plays the compiler, and Debian's etcd."""

    def build(self, root: Path) -> Binaries:
        self.output.mkdir()
        (self.output / "kube-apiserver").write_text(program("1.20.2"))
        (self.output / "kube-apiserver").chmod(0o755)
        return publish(self.output, root, "1.20.2-1")

    def etcd(self) -> Path:
        debians = self.workspace / "usr-bin-etcd"
        debians.write_text("Debian's")
        return debians


class NotAsked(DebianSource):
    """What must not be built."""

    def build(self, root: Path) -> Binaries:
        raise AssertionError(root)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on whose PATH there is nothing, etcd included."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def test_the_projects_own_release_is_preferred(
    releases: Releases, shown: Progress, cache: Path
) -> None:
    releases.release(VERSION)
    binaries = ensure_binaries(shown, address=releases.address, debian=NotAsked)
    assert binaries.version() == VERSION
    assert all(os.access(binaries.path(name), os.X_OK) for name in (*CONTROL_PLANE, "kubectl"))
    assert binaries.directory.parent == cache
    assert present_binaries() == binaries


def test_what_is_cached_is_not_fetched_again(releases: Releases, shown: Progress) -> None:
    releases.release(VERSION)
    binaries = ensure_binaries(shown, address=releases.address)
    assert ensure_binaries(shown, address="http://127.0.0.1:1") == binaries


def test_where_no_release_can_be_had_debians_source_is_built(shown: Progress, cache: Path) -> None:
    binaries = ensure_binaries(shown, address="http://127.0.0.1:1", debian=Compiled)
    assert binaries.version() == "1.20.2"
    assert ensure_binaries(shown, debian=NotAsked) == binaries
    said = shown.console.export_text()
    assert "http://127.0.0.1:1" in said
    assert "Building from Debian's source package instead." in said
    assert [each.name for each in cache.iterdir() if each.name.startswith(".build")] == []


def test_what_its_sum_does_not_fit_is_never_used(releases: Releases, shown: Progress) -> None:
    releases.release(VERSION)
    (releases.of(VERSION) / "kube-scheduler").write_text("#!/bin/sh\nrm -rf /tmp/nothing\n")
    binaries = ensure_binaries(shown, address=releases.address, debian=Compiled)
    assert binaries.version() == "1.20.2"
    said = shown.console.export_text()
    assert "kube-scheduler came with the SHA-256 sum" in said
    assert "It was not used." in said


def test_a_version_that_was_asked_for_is_had_or_nothing_is(
    releases: Releases, shown: Progress
) -> None:
    had = functools.partial(ensure_binaries, shown, debian=NotAsked)
    releases.release(VERSION)
    had(address=releases.address)
    with pytest.raises(ReleaseError, match=rf"v{OTHER}/.*kube-apiserver cannot be fetched: .*404"):
        had(version=OTHER, address=releases.address)
    releases.release(OTHER)
    other = had(version=OTHER, address=releases.address)
    assert other.version() == OTHER
    # The last that was asked for is what clusters are made of from now on.
    assert present_binaries() == other
    # So is one that is there already.
    before = had(version=VERSION, address="http://127.0.0.1:1")
    assert present_binaries() == before != other


@pytest.mark.usefixtures("no_programs")
def test_etcd_is_debians_where_the_machine_has_none(releases: Releases, shown: Progress) -> None:
    releases.release(VERSION)
    binaries = ensure_binaries(shown, address=releases.address, debian=Compiled)
    assert binaries.path("etcd").read_text() == "Debian's"


@pytest.mark.usefixtures("no_programs")
def test_without_any_etcd_it_says_what_to_install_and_no_program_is_fetched(
    releases: Releases, shown: Progress, cache: Path
) -> None:
    releases.release(VERSION)
    with pytest.raises(
        LocalClusterError, match=r"install etcd, and try again\. Not on PATH: apt-get"
    ):
        ensure_binaries(shown, address=releases.address)
    assert list(cache.rglob("kube*")) == [cache / ".downloads" / f"kubernetes-{VERSION}"]


def test_what_was_fetched_is_kept_for_the_next_attempt(
    releases: Releases, shown: Progress, cache: Path
) -> None:
    releases.release(VERSION)
    last = releases.of(VERSION) / KUBERNETES[-1]
    content = last.read_bytes()
    last.unlink()
    with pytest.raises(ReleaseError, match=r"kubectl cannot be fetched: .*404"):
        ensure_binaries(shown, version=VERSION, address=releases.address)

    last.write_bytes(content)
    for fetched in KUBERNETES[:-1]:
        # It cannot be fetched again.
        (releases.of(VERSION) / fetched).unlink()
    binaries = ensure_binaries(shown, version=VERSION, address=releases.address)

    assert binaries.version() == VERSION
    assert not (cache / ".downloads").exists()


def test_what_a_killed_build_left_is_removed(shown: Progress, cache: Path) -> None:
    left = cache / ".build-x" / "go"
    left.mkdir(parents=True)
    ensure_binaries(shown, address="http://127.0.0.1:1", debian=Compiled)
    assert not left.parent.exists()


class TestBeforeAnythingIsFetched:
    """What a machine has to have where there is no control plane yet."""

    @pytest.mark.usefixtures("no_programs")
    def test_debian_needs_what_compiles_its_source(self) -> None:
        with pytest.raises(LocalClusterError, match=r"Not on PATH: .*dpkg-source.*apt-get install"):
            check_obtainable(debian=True)

    @pytest.mark.usefixtures("no_programs")
    def test_another_system_needs_an_etcd(self) -> None:
        with pytest.raises(LocalClusterError, match=rf"this is not Debian.* set {ASSETS} to a"):
            check_obtainable(debian=False)

    def test_an_etcd_on_path_is_enough(self) -> None:
        check_obtainable(debian=False)

    @pytest.mark.usefixtures("no_programs")
    def test_a_control_plane_that_is_there_needs_nothing(self, cache: Path) -> None:
        plane = cache / f"{VERSION}-r{RECIPE}-any"
        plane.mkdir(parents=True)
        (plane / COMPLETE_MARK).touch()
        check_obtainable(debian=False)


class TestOwnFolder:
    """What `KUBEBUILDER_ASSETS` names."""

    @pytest.fixture
    def folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        folder = tmp_path / "assets"
        folder.mkdir()
        monkeypatch.setenv(ASSETS, str(folder))
        for name in CONTROL_PLANE:
            (folder / name).write_text(program(OTHER))
            (folder / name).chmod(0o755)
        return folder

    def test_it_wins_over_the_cache(
        self, folder: Path, shown: Progress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(ASSETS)
        built = ensure_binaries(shown, address="http://127.0.0.1:1", debian=Compiled)
        assert built.version() == "1.20.2"
        monkeypatch.setenv(ASSETS, str(folder))
        assert ensure_binaries(shown).directory == folder
        assert ensure_binaries(shown).version() == OTHER

    def test_what_is_built_beside_it_is_not_what_clusters_are_made_of(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
    ) -> None:
        plane = cache / f"{VERSION}-r{RECIPE}-any"
        plane.mkdir(parents=True)
        (plane / COMPLETE_MARK).touch()
        (plane / "kube-apiserver").write_text(program(VERSION))
        (plane / "kube-apiserver").chmod(0o755)
        said = CliRunner().invoke(app, ["build", "--version", VERSION]).stdout
        assert f"Kubernetes {VERSION}: {plane}" in said
        assert f"Clusters are made of {folder}, which {ASSETS} names: unset it" in said
        monkeypatch.delenv(ASSETS)
        assert "made of" not in CliRunner().invoke(app, ["build", "--version", VERSION]).stdout

    def test_an_api_server_alone_makes_no_cluster(self, folder: Path, shown: Progress) -> None:
        (folder / "kube-scheduler").unlink()
        assert ensure_binaries(shown, programs=("etcd", "kube-apiserver")).directory == folder
        with pytest.raises(LocalClusterError, match="setup-envtest brings an API server alone"):
            ensure_binaries(shown)

    def test_what_is_no_program_is_a_sentence(self, folder: Path) -> None:
        (folder / "kube-apiserver").write_text("#!/bin/sh\necho hello\n")
        with pytest.raises(LocalClusterError, match="says 'hello', no version"):
            Binaries(folder).version()
        (folder / "kube-apiserver").write_text("#!/nowhere\n")
        with pytest.raises(LocalClusterError, match="does not run on this machine"):
            Binaries(folder).version()
