from collections.abc import Mapping
from typing import Final

from fathom.api import names
from fathom.core.cluster.manifest import Manifest
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment

COMPONENT: Final = "tuning"
STATE_KEY: Final = "state.json"
"""Holds the tuner's state."""


def tuning_config_map(sd: SpeculativeDeployment, data: Mapping[str, str]) -> Manifest:
    """What must survive a restart of the operator."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": child_metadata(
            sd,
            names.tuning_config_map(sd.metadata.name),
            labels={names.LABEL_COMPONENT: COMPONENT},
        ),
        "data": dict(data),
    }
