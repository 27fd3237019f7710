"""Code by ConfigMap: its object, and the volume that lays it out on `PYTHONPATH`."""

from pydantic import JsonValue

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.core.delivered_code import DeliveredCode
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment


def code_config_map(
    sd: SpeculativeDeployment, name: str, component: str, code: DeliveredCode
) -> Manifest:
    """Immutable, so that its name has to change with its content.

    Args:
        sd: whose.
        name: of the ConfigMap.
        component: what it is, for its label.
        code: what it holds.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(sd, name, labels={names.LABEL_COMPONENT: component}),
        "immutable": True,
        "data": code_data(code),
    }


def code_data(code: DeliveredCode) -> dict[str, JsonValue]:
    """Its files as a ConfigMap holds them."""
    return {_key(path): text for path, text in sorted(code.files.items())}


def code_volume(volume: str, config_map: str, code: DeliveredCode) -> dict[str, JsonValue]:
    """The same files under the paths that they had."""
    items: list[JsonValue] = [{"key": _key(path), "path": path} for path in sorted(code.files)]
    return {"name": volume, "configMap": {"name": config_map, "items": items}}


def _key(path: str) -> str:
    """Key of a file in a ConfigMap, where a slash is not allowed."""
    return path.replace("/", "--")
