"""Kubeconfigs for tests."""

from pathlib import Path

import yaml

ELSEWHERE = "http://api.of-the-cluster.invalid"
"""A server that only a proxy knows."""


def kubeconfig(folder: Path, **cluster: str) -> Path:
    """One with a context, of a cluster with these fields."""
    file = folder / "kubeconfig"
    content = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": "any"}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file
