"""What builders return: one Kubernetes object as plain JSON, ready to be applied or printed."""

from pydantic import JsonValue

Manifest = dict[str, JsonValue]
