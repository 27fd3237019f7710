"""What an API server of today checks in a pod, and what an old one has in place of new fields.

Templates are not checked for most of this, pods are: a workload is taken, and none of its pods is.
Source: `mutatePodAffinity` in pkg/registry/core/pod/strategy.go, and `ValidatePodSpec` with
`validateMatchLabelKeysAndMismatchLabelKeys` in pkg/apis/core/validation, of Kubernetes 1.31 and
later.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final

Object = dict[str, Any]

_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}


def refusals(pod: Object) -> list[str]:
    """Why a server of today refuses a pod that an old one would take; empty: it does not."""
    found = []
    for path, term in _terms(pod["spec"]):
        found += [f"{path}: {each}" for each in _of_label_keys(term)]
    claimed = {claim["name"] for claim in pod["spec"].get("resourceClaims", [])}
    for container in pod["spec"]["containers"]:
        for claim in container.get("resources", {}).get("claims", []):
            if claim["name"] not in claimed:
                found.append(f"{container['name']}: claims {claim['name']}, and the pod does not")
    return found


def as_older(pod: Object) -> Object:
    """The pod with the same meaning in the words of a server that knows none of the new fields.

    Keys of labels become what a newer server itself makes of them. Claims to devices, which have
    no older words, go: `refusals` looks at them.
    """
    older = copy.deepcopy(pod)
    for _, term in _terms(older["spec"]):
        for field, operator in _OPERATORS.items():
            for key in term.pop(field, []):
                # A key that the pod does not carry counts for nothing.
                if (value := pod["metadata"].get("labels", {}).get(key)) is not None:
                    expression = {"key": key, "operator": operator, "values": [value]}
                    term["labelSelector"].setdefault("matchExpressions", []).append(expression)
    older["spec"].pop("resourceClaims", None)
    for container in older["spec"]["containers"]:
        container.get("resources", {}).pop("claims", None)
    return older


def _of_label_keys(term: Object) -> Iterator[str]:
    stated: dict[str, list[str]] = {field: term.get(field, []) for field in _OPERATORS}
    selector = term.get("labelSelector")
    selected = set()
    if selector is not None:
        selected = {each["key"] for each in selector.get("matchExpressions", [])}
        selected |= set(selector.get("matchLabels", {}))
    for field, keys in stated.items():
        if keys and selector is None:
            yield f"{field} must not be specified when labelSelector is not set"
        # With mismatchLabelKeys a server lets it pass, and it can mean nothing.
        yield from (f"{key} exists in both {field} and labelSelector" for key in keys
                    if key in selected)  # fmt: skip
    both = set(stated["matchLabelKeys"]) & set(stated["mismatchLabelKeys"])
    yield from (f"{key} exists in both matchLabelKeys and mismatchLabelKeys" for key in both)


def _terms(spec: Object) -> Iterator[tuple[str, Object]]:
    """Everything in a pod that selects other pods by the values of its own labels."""
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = spec.get("affinity", {}).get(kind, {})
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            yield kind, term
        for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", []):
            yield kind, term["podAffinityTerm"]
    for constraint in spec.get("topologySpreadConstraints", []):
        yield "topologySpreadConstraints", constraint
