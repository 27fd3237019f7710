"""What the chart grants the operator, right by right, and which of it a request needs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local_cluster.control_plane.audit import AuditEvent

BASE = Path(__file__).parents[2] / "deploy" / "kustomize"
"""The chart as Helm renders it; `make verify` keeps it so."""
Rule = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource."""

    group: str
    resource: str
    """With its subresource: `speculativedeployments/status`."""
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"

    def is_refused_in(self, event: AuditEvent) -> bool:
        """Whether the API server refused a request for the lack of it."""
        # A server-side apply that would create is one PATCH, and is refused as one.
        verbs = {self.verb, "patch"} if self.verb == "create" else {self.verb}
        return (
            event.code == 403
            and event.verb in verbs
            and (event.api_group, resource_of(event)) == (self.group, self.resource)
        )


def rules_of(file: str, kind: str) -> list[Rule]:
    """The rules of the operator's ClusterRole, or of its Role beside its lease."""
    documents = yaml.safe_load_all((BASE / file).read_text(encoding="utf-8"))
    (role,) = [each for each in documents if each["kind"] == kind]
    rules: list[Rule] = role["rules"]
    return rules


def rights_in(rules: Iterable[Rule]) -> frozenset[Right]:
    """Rules, taken apart."""
    return frozenset(
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def without(rules: Iterable[Rule], right: Right) -> list[dict[str, Any]]:
    """Rules that grant the same, but for one right."""
    left: dict[tuple[str, str], list[str]] = {}
    for each in sorted(rights_in(rules) - {right}):
        left.setdefault((each.group, each.resource), []).append(each.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for (group, resource), verbs in left.items()
    ]


def used_by(event: AuditEvent) -> set[Right]:
    """The rights that a request needed; a server-side apply that creates needs two."""
    verbs = {event.verb, "create"} if event.code == 201 else {event.verb}
    return {Right(event.api_group, resource_of(event), verb) for verb in verbs}


def resource_of(event: AuditEvent) -> str:
    return "/".join(filter(None, (event.resource, event.subresource)))


CLUSTER_RULES = rules_of("rbac-operator.yaml", "ClusterRole")
LEASE_RULES = rules_of("rbac-lease.yaml", "Role")
MODELS_RULES = [rule for rule in CLUSTER_RULES if list(rule["resources"]) != ["nodes"]]
"""What a Role can grant: no nodes, as with the chart's value `namespaces`."""
NODE_RULES = [rule for rule in CLUSTER_RULES if rule not in MODELS_RULES]
