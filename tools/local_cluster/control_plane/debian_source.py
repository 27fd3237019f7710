"""Builds a Kubernetes control plane from the source package of Debian 12.

The source package holds the whole upstream tree with its vendored dependencies, so a build needs
nothing but the machine's own apt sources: it reads them with an apt state of its own, downloads
packages without installing any, and leaves the system as it was.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress, TaskID

from local_cluster.control_plane.apt_sources import write_private_sources
from local_cluster.control_plane.binaries import KUBERNETES, Binaries, publish
from local_cluster.errors import LocalClusterError
from local_cluster.prerequisites import require_programs

ETCD_PACKAGE = "etcd-server"
PACKAGES = (
    "golang-1.19-go",
    "golang-1.19-src",
    "golang-github-modern-go-reflect2-dev",
    ETCD_PACKAGE,
)
PREREQUISITES = {
    "apt-get": "apt",
    "dpkg": "dpkg",
    "dpkg-source": "dpkg-dev",
    "xz": "xz-utils",
    "patch": "patch",
}
IMPORT_PATH = "k8s.io/kubernetes"
VERSION_PACKAGES = (
    f"{IMPORT_PATH}/vendor/k8s.io/component-base/version",
    f"{IMPORT_PATH}/vendor/k8s.io/client-go/pkg/version",
)
DOWNLOAD_SECONDS = 900.0
UNPACK_SECONDS = 300.0
COMPILE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class DebianSource:
    """What Debian's packages give, in a workspace that is empty at first."""

    workspace: Path
    downloads: Path
    """Where packages are kept; one that an earlier attempt fetched is not fetched again."""
    progress: Progress

    @property
    def tree(self) -> Path:
        return self.workspace / "go" / "src" / IMPORT_PATH

    @property
    def packages(self) -> Path:
        return self.workspace / "packages"

    @property
    def output(self) -> Path:
        return self.workspace / "bin"

    def build(self, root: Path) -> Binaries:
        """Compiles the control plane into the cache: about 5 minutes on two cores.

        Raises:
            LocalClusterError: a prerequisite is missing or a step failed.
        """
        require_programs(PREREQUISITES)
        version = self._download()
        self._unpack()
        self._generate_openapi()
        self._compile(version)
        shutil.copy2(self._etcd_program, self.output / "etcd")
        return publish(self.output, root, version)

    def etcd(self) -> Path:
        """Downloads etcd alone.

        Raises:
            LocalClusterError: a prerequisite is missing, or the download failed.
        """
        require_programs({name: PREREQUISITES[name] for name in ("apt-get", "dpkg")})
        apt = self._read_lists()
        task = self._start("Kubernetes: downloading etcd (Debian's package)")
        self._apt(apt, "download", ETCD_PACKAGE)
        self._unpack_packages()
        self._finish(task)
        return self._etcd_program

    @property
    def _etcd_program(self) -> Path:
        return self.packages / "usr/bin/etcd"

    def _download(self) -> str:
        apt = self._read_lists()
        task = self._start("Kubernetes: downloading its source, Go and etcd (125 MB)")
        self._apt(apt, "download", *PACKAGES)
        self._apt(apt, "--download-only", "source", "kubernetes")
        self._finish(task)
        description = self._description()
        found = re.fullmatch(r"kubernetes_(.+)\.dsc", description.name)
        if found is None:
            raise LocalClusterError("apt-get fetched no kubernetes source package description.")
        return found[1]

    def _description(self) -> Path:
        """The newest source package: an older one may be an earlier attempt's."""
        found = self.downloads.glob("kubernetes_*.dsc")
        return max(found, key=lambda file: file.stat().st_mtime)

    def _read_lists(self) -> list[str]:
        """The `apt-get` that knows this machine's packages, those of sources too."""
        task = self._start("Kubernetes: reading package lists")
        apt = write_private_sources(self.workspace / "apt")
        self.downloads.mkdir(exist_ok=True)
        self._apt(apt, "update")
        self._finish(task)
        return apt

    def _apt(self, apt: list[str], *arguments: str) -> None:
        self._call([*apt, *arguments], timeout=DOWNLOAD_SECONDS, cwd=self.downloads)

    def _unpack_packages(self) -> None:
        for package in sorted(self.downloads.glob("*.deb")):
            self._call(["dpkg", "-x", package, self.packages], timeout=UNPACK_SECONDS)

    def _unpack(self) -> None:
        task = self._start("Kubernetes: unpacking")
        self._unpack_packages()
        self.tree.parent.mkdir(parents=True)
        description = self._description()
        self._call(
            ["dpkg-source", "--no-check", "-x", description, self.tree], timeout=UNPACK_SECONDS
        )
        # The vendored reflect2 reaches into runtime internals that Go 1.18 moved.
        vendored = self.tree / "vendor/github.com/modern-go/reflect2"
        for outdated in vendored.glob("*.go"):
            outdated.unlink()
        newer = self.packages / "usr/share/gocode/src/github.com/modern-go/reflect2"
        for source in newer.glob("*.go"):
            shutil.copy2(source, vendored)
        self._accept_empty_strings()
        self._finish(task)

    def _accept_empty_strings(self) -> None:
        """Makes the schema validation tell an empty string from a missing value.

        It compares a value's words with those of a zero value. Since Go 1.19 both can lie in the
        runtime's one zero area, and then every "" in a custom resource is taken for null.
        """
        source = self.tree / "vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go"
        text = source.read_text()
        outdated = (
            "if data == nil || "
            "reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data)) {"
        )
        if outdated not in text:
            raise LocalClusterError(
                f"{source.name} of the Kubernetes source is not as expected: the recipe in "
                "local_cluster/control_plane/debian_source.py has to be adapted to this version."
            )
        source.write_text(text.replace(outdated, "if data == nil {"))

    def _generate_openapi(self) -> None:
        task = self._start("Kubernetes: generating the OpenAPI definitions")
        generator = self.workspace / "openapi-gen"
        self._go("build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        tagged = ",".join(f"{IMPORT_PATH}/{folder}" for folder in _openapi_folders(self.tree))
        self._call(
            [
                generator,
                "--logtostderr",
                "-i",
                tagged,
                "-p",
                f"{IMPORT_PATH}/pkg/generated/openapi",
                "-O",
                "zz_generated.openapi",
                "-h",
                "vendor/k8s.io/code-generator/hack/boilerplate.go.txt",
                "-r",
                self.workspace / "api-violations.txt",
            ],
            timeout=COMPILE_SECONDS,
            cwd=self.tree,
            env=self._go_environment(),
        )
        self._finish(task)

    def _compile(self, version: str) -> None:
        # 1.20.5+really1.20.2-1.1: Debian went back to a release it had already passed.
        upstream = version.partition("-")[0].rpartition("really")[2]
        major, minor = upstream.split(".")[:2]
        flags = ["-s", "-w"]
        for package in VERSION_PACKAGES:
            flags += ["-X", f"{package}.gitVersion=v{upstream}"]
            flags += ["-X", f"{package}.gitMajor={major}", "-X", f"{package}.gitMinor={minor}"]
        targets = [f"./cmd/{command}" for command in KUBERNETES]
        self.output.mkdir()
        total = len(self._go("list", "-deps", *targets).splitlines())
        task = self.progress.add_task("Kubernetes: compiling", total=total)
        command = [
            str(self._go_program),
            *("build", "-v", "-ldflags", " ".join(flags), "-o", f"{self.output}/"),
            *targets,
        ]
        with subprocess.Popen(
            command,
            cwd=self.tree,
            env=self._go_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            lines: list[str] = []
            for line in process.stderr or ():
                lines.append(line)
                self.progress.advance(task)
        if process.returncode != 0:
            raise LocalClusterError(_failure(command, "".join(lines)))
        self._finish(task)

    @property
    def _go_program(self) -> Path:
        return self.packages / "usr/lib/go-1.19/bin/go"

    def _go(self, *arguments: str) -> str:
        return self._call(
            [self._go_program, *arguments],
            timeout=COMPILE_SECONDS,
            cwd=self.tree,
            env=self._go_environment(),
        )

    def _go_environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.workspace),
            "GOROOT": str(self.packages / "usr/lib/go-1.19"),
            "GOPATH": str(self.workspace / "go"),
            "GOCACHE": str(self.workspace / "go-cache"),
            "GO111MODULE": "off",
            "GOPROXY": "off",
            "CGO_ENABLED": "0",
        }

    def _start(self, description: str) -> TaskID:
        return self.progress.add_task(description, total=None)

    def _finish(self, task: TaskID) -> None:
        self.progress.update(task, total=1, completed=1)

    @staticmethod
    def _call(
        command: Sequence[str | Path],
        *,
        timeout: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=cwd,
                env=env,
                timeout=timeout,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LocalClusterError(
                f"`{command[0]}` did not finish within {timeout:.0f} s. Run the build again."
            ) from error
        if done.returncode != 0:
            raise LocalClusterError(_failure(command, done.stderr))
        return done.stdout


def _openapi_folders(tree: Path) -> list[str]:
    """The packages that ask for OpenAPI definitions, as upstream's makefile chooses them."""
    skipped = ("vendor/k8s.io/code-generator/", "vendor/k8s.io/sample-apiserver/")
    folders = set()
    for top in ("vendor/k8s.io", "pkg", "cmd", "plugin"):
        # vendor/k8s.io consists of links into staging/, which a plain glob does not follow.
        for parent, _, names in os.walk(tree / top, followlinks=True):
            folder = Path(parent).relative_to(tree).as_posix()
            if f"{folder}/".startswith(skipped):
                continue
            sources = (n for n in names if n.endswith(".go") and not n.endswith("_test.go"))
            if any(b"+k8s:openapi-gen=" in Path(parent, n).read_bytes() for n in sources):
                folders.add(folder)
    return sorted(folders)


def _failure(command: Sequence[str | Path], errors: str) -> str:
    tail = "\n".join(f"    {line}" for line in errors.strip().splitlines()[-12:])
    shown = " ".join(str(part) for part in command)
    return f"Building the control plane failed at `{shown[:200]}`:\n{tail}"
