"""Names of labels, as PromQL takes them without quotes. Pure."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Source: https://prometheus.io/docs/concepts/data_model/#metric-names-and-labels. Prometheus 3
takes any text, quoted; what answers like a Prometheus may not."""


def pod_labels(labels: Mapping[str, str]) -> str:
    """What series of a pod have to have, in words.

    Args:
        labels: that all series of the cluster have.
    """
    return " and ".join(("namespace", "pod", *map("=".join, sorted(labels.items()))))


def bad_label_names(names: Iterable[str]) -> tuple[str, ...]:
    """Those that are no name of a label, in order."""
    return tuple(sorted(name for name in names if not _NAME.fullmatch(name)))
