"""An apt state of its own, that reads source packages from where the system reads binary ones."""

import re
from pathlib import Path

from local_cluster.errors import LocalClusterError

ETC_APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")


def write_private_sources(
    folder: Path, *, etc_apt: Path = ETC_APT, os_release: Path = OS_RELEASE
) -> list[str]:
    """Writes the state and returns the `apt-get` command that uses it.

    Only the distribution's own suites are kept: a third party's sources have nothing to add, and
    may serve no source packages at all.

    Raises:
        LocalClusterError: this is not Debian, or its apt sources name no suite of its release.
    """
    codename = _codename(os_release)
    parts = folder / "sources.list.d"
    for new in ("lists/partial", "cache/archives/partial", "sources.list.d"):
        (folder / new).mkdir(parents=True)
    kept = 0
    for deb822 in sorted((etc_apt / "sources.list.d").glob("*.sources")):
        text = with_source_stanzas(deb822.read_text(), codename)
        (parts / deb822.name).write_text(text)
        kept += bool(text)
    one_line = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*.list"))]
    for listed in one_line:
        if listed.is_file():
            text = with_source_lines(listed.read_text(), codename)
            (parts / listed.name).with_suffix(".list").write_text(text)
            kept += bool(text)
    if not kept:
        raise LocalClusterError(
            f"No apt source under {etc_apt} serves {codename}; the control plane is built from "
            "Debian 12's source packages. Add Debian's own sources, or set KUBEBUILDER_ASSETS."
        )
    (folder / "sources.list").touch()
    (folder / "status").touch()
    options = {
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": parts,
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]


def with_source_stanzas(text: str, codename: str) -> str:
    """The stanzas of a deb822 file that serve `codename`, source packages included."""
    kept = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        suites = next((line for line in lines if line.startswith("Suites:")), "")
        if any(_serves(suite, codename) for suite in suites.split()[1:]):
            kept.append(
                "\n".join(
                    "Types: deb deb-src" if line.startswith("Types:") else line for line in lines
                )
            )
    return "".join(f"{stanza}\n\n" for stanza in kept)


def with_source_lines(text: str, codename: str) -> str:
    """The `deb` lines of a one-line-style file that serve `codename`, each as `deb-src` too."""
    kept = []
    for line in text.splitlines():
        found = re.fullmatch(r"deb(\s+(?:\[[^]]*\]\s+)?\S+\s+(\S+).*)", line.strip())
        if found and _serves(found[2], codename):
            kept += [f"deb{found[1]}", f"deb-src{found[1]}"]
    return "".join(f"{line}\n" for line in kept)


def _serves(suite: str, codename: str) -> bool:
    return suite == codename or suite.startswith(f"{codename}-")


def is_debian(os_release: Path = OS_RELEASE) -> bool:
    """Whether this machine runs a release of Debian."""
    return _release(os_release) is not None


def _release(os_release: Path) -> str | None:
    """The codename of the machine's Debian, such as bookworm."""
    text = os_release.read_text() if os_release.is_file() else ""
    found = re.search(r"^VERSION_CODENAME=\"?(\w+)\"?$", text, re.MULTILINE)
    debian = re.search(r"^ID=\"?debian\"?$", text, re.MULTILINE)
    return found[1] if found and debian else None


def _codename(os_release: Path) -> str:
    found = _release(os_release)
    if found is None:
        raise LocalClusterError(
            "The control plane is built from Debian 12's source packages, and this is not Debian. "
            "Run it in a Debian 12 container or machine, or set KUBEBUILDER_ASSETS to a folder "
            "with etcd, kube-apiserver, kube-controller-manager and kube-scheduler."
        )
    return found
