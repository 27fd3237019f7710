"""The ConfigMaps of a resource: code, depths, and what the tuner keeps."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from fathom.api import names
from fathom.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument
from fathom.engine.plugin import DeliveredCode, PluginBundle
from fathom.fetch.state import COMPONENT, FetchProgram
from fathom.manifests.metadata import MANAGED_BY, child_metadata, controlled_by
from fathom.resource import SpeculationTuner, SpeculativeDeployment
from fathom_vllm.environment import DEPTH_KEY

PLUGIN_COMPONENT: Final = "plugin"
DEPTH_COMPONENT: Final = "depth"
TUNING_COMPONENT: Final = "tuning"
STATE_KEY: Final = "state.json"
"""Holds the tuner's state."""


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


def plugin_config_map(sd: SpeculativeDeployment, bundle: PluginBundle) -> Manifest:
    """The engine plugin.

    Immutable and named by its content: an upgrade of the operator adds another one beside it, and
    running pods keep theirs.
    """
    name = names.plugin_config_map(sd.metadata.name, bundle.content)
    return code_config_map(sd, name, PLUGIN_COMPONENT, bundle)


def fetch_config_map(sd: SpeculativeDeployment, program: FetchProgram) -> Manifest:
    """The program of a fetch; immutable and named by its content, as the plugin's."""
    name = names.fetch_config_map(sd.metadata.name, program.content)
    return code_config_map(sd, name, COMPONENT, program)


def depth_config_map(sd: SpeculativeDeployment, document: DepthDocument) -> Manifest:
    """The depth document that every engine of this resource reads."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.depth_config_map(sd.metadata.name),
            labels={names.LABEL_COMPONENT: DEPTH_COMPONENT},
        ),
        "data": {DEPTH_KEY: document.to_json()},
    }


def tuner_config_map(tuner: SpeculationTuner, name: str, data: Mapping[str, str]) -> Manifest:
    """One of the two that a SpeculationTuner has: its depth document, or what it has learned.

    Without the label of a SpeculativeDeployment, which may have the same name.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": tuner.metadata.namespace,
            "labels": {
                names.LABEL_MANAGED_BY: MANAGED_BY,
                names.LABEL_TUNER: tuner.metadata.name,
            },
            "ownerReferences": [controlled_by(names.TUNER_KIND, tuner.metadata)],
        },
        "data": dict(data),
    }


def tuning_config_map(sd: SpeculativeDeployment, data: Mapping[str, str]) -> Manifest:
    """What must survive a restart of the operator."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.tuning_config_map(sd.metadata.name),
            labels={names.LABEL_COMPONENT: TUNING_COMPONENT},
        ),
        "data": dict(data),
    }
