"""Why no node takes a pod, as far as the nodes' labels, taints and sizes tell. Pure.

The scheduler says how many nodes fail at what ("3 node(s) didn't match Pod's node affinity"), and
not what they have instead, which is what has to be known to mend it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fathom.api.accelerators import Vendor
from fathom.core.cluster.observed import ObservedNode
from fathom.core.cluster.observed_pods import ObservedToleration, PodSpec, Taint
from fathom.core.counted import counted

_HARD: Final = frozenset({"NoSchedule", "NoExecute"})
_MOST_NAMED: Final = 4


def why_no_node(spec: PodSpec, nodes: Sequence[ObservedNode]) -> str:
    """The first thing that no node has, in a sentence; empty: labels, taints and sizes would do.

    Affinity counts as far as `PodSpec.asked_labels` reads it.

    Args:
        spec: the pod's.
        nodes: all of the cluster; none: they are not known.
    """
    if not nodes:
        return ""
    asked = spec.asked_labels
    alike = [node for node in nodes if _carries(node, asked)]
    if not alike:
        return _no_label(asked, nodes, spec.vendor)
    open_ = [node for node in alike if not _repelled(node, spec.tolerations)]
    if not open_:
        return _no_toleration(spec, alike)
    largest = max(node.gpus(spec.vendor) for node in open_)
    if largest < spec.gpus:
        return _no_size(spec, largest, len(open_))
    return ""


def _carries(node: ObservedNode, asked: Mapping[str, frozenset[str]]) -> bool:
    return all(node.metadata.labels.get(key) in values for key, values in asked.items())


def _no_label(
    asked: Mapping[str, frozenset[str]], nodes: Sequence[ObservedNode], vendor: Vendor
) -> str:
    # The accelerator first: it is what most often is another one.
    ordered = sorted(asked.items(), key=lambda label: label[0] != vendor.product_label)
    for key, values in ordered:
        if not any(_carries(node, {key: values}) for node in nodes):
            return _no_single_label(key, _any_of(values), nodes, vendor)
    wanted = " and ".join(f"{key}={_any_of(values)}" for key, values in ordered)
    return f"no node carries {wanted} at once: correct nodePool.nodeSelector."


def _any_of(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _no_single_label(key: str, value: str, nodes: Sequence[ObservedNode], vendor: Vendor) -> str:
    product = key == vendor.product_label
    found = Counter(node.metadata.labels.get(key, "") for node in nodes)
    if set(found) == {""}:
        advice = (
            f"install {vendor.labelled_by}, which sets it, or set nodePool.products: []."
            if product
            else "correct nodePool.nodeSelector."
        )
        return f"of {counted(len(nodes), 'node')} none carries {key}: {advice}"
    others = _named(
        (f"{count} {'carries' if count == 1 else 'carry'} {each or 'none'}", count)
        for each, count in found.items()
    )
    field = "accelerator or nodePool.products" if product else "nodeSelector"
    return f"0 nodes carry {key}={value}; {others}: correct nodePool.{field}, or add such nodes."


def _repelled(node: ObservedNode, tolerations: Sequence[ObservedToleration]) -> Taint | None:
    """The first of a node's taints that keeps the pod away."""
    hard = (taint for taint in node.spec.taints if taint.effect in _HARD)
    return next((t for t in hard if not any(each.tolerates(t) for each in tolerations)), None)


def _no_toleration(spec: PodSpec, nodes: Sequence[ObservedNode]) -> str:
    taints = (_repelled(node, spec.tolerations) for node in nodes)
    found = Counter(str(taint) for taint in taints)
    listed = _named((f"{taint} on {count}", count) for taint, count in found.items())
    some = "the node that matches repels" if len(nodes) == 1 else f"all {len(nodes)} nodes repel"
    return (
        f"{some} the pod by taints: {listed}. Add what is meant for such pods to "
        "nodePool.tolerations; node.kubernetes.io/ taints tell of cordoned or failing nodes."
    )


def _no_size(spec: PodSpec, largest: int, nodes: int) -> str:
    have = f"the largest of {nodes} nodes that match has {largest}" if nodes > 1 else (
        f"the node that matches has {largest}"
    )  # fmt: skip
    advice = (
        f"check {spec.vendor.name}'s device plugin there."
        if not largest
        else "lower engine.tensorParallelSize × pipelineParallelSize, or correct nodePool."
    )
    return f"a replica needs {spec.gpus} {spec.vendor.resource}, and {have}: {advice}"


def _named(kinds: Iterable[tuple[str, int]]) -> str:
    """The most frequent ones, and how many kinds more there are."""
    ordered = [text for text, _ in sorted(kinds, key=lambda each: (-each[1], each[0]))]
    left = len(ordered) - _MOST_NAMED
    more = f" and {counted(left, 'more kind')}" if left > 0 else ""
    return ", ".join(ordered[:_MOST_NAMED]) + more
