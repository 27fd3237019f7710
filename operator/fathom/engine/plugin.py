"""Code as Fathom delivers it to pods: files, and one name for exactly these files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fathom import __version__
from fathom_vllm.bundle import bundle_files
from fathom_vllm.plugin_version import content_hash


def source_files(package: ModuleType) -> dict[str, str]:
    """A package's source files as they lie here: path relative to the import root → text."""
    directories = [Path(each) for each in package.__path__]
    return {
        f"{directory.name}/{path.name}": path.read_text(encoding="utf-8")
        for directory in directories
        for path in sorted(directory.glob("*.py"))
    }


@dataclass(frozen=True, slots=True)
class DeliveredCode:
    """One version of it."""

    files: Mapping[str, str]
    """Path relative to the directory on `PYTHONPATH`, and its text."""
    content: str
    """Changes whenever any path or text does. It names the ConfigMap, which is immutable."""


@dataclass(frozen=True, slots=True)
class PluginBundle(DeliveredCode):
    """One version of the plugin."""

    version: str = __version__
    """Version of the Fathom that it comes with: people are told, and nothing is decided by it."""


def plugin_bundle() -> PluginBundle:
    """The plugin that comes with this Fathom."""
    files = bundle_files()
    return PluginBundle(files, content_hash(files))
