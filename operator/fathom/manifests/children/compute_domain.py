from collections.abc import Iterable

from pydantic import JsonValue

from fathom.api import names
from fathom.core.cluster.kinds import COMPUTE_DOMAIN, POD
from fathom.core.cluster.manifest import Manifest
from fathom.core.cluster.observed_pods import ObservedPod
from fathom.manifests.metadata import child_metadata
from fathom.resource import SpeculativeDeployment


def compute_domain(sd: SpeculativeDeployment, pods: Iterable[ObservedPod] = ()) -> Manifest:
    """What lets the nodes of one replica reach each other's GPUs over NVLink.

    One for all replicas and revisions: its spec can never be changed, and a node takes the channel
    of one domain at a time, so a rollout from one domain to another would have to wait for it. Its
    driver makes the claim template.

    The driver takes it away from under running pods as soon as it is deleted. So the pods own it as
    well: garbage collection deletes nothing before its last owner is gone.

    Args:
        sd: whose.
        pods: those that hold a claim to it.
    """
    metadata = child_metadata(sd, sd.metadata.name)
    if sd.metadata.uid:
        owner = metadata["ownerReferences"]
        assert isinstance(owner, list)  # noqa: S101  # child_metadata has just written it
        metadata["ownerReferences"] = [*owner, *map(_owner, pods)]
    return {
        "apiVersion": COMPUTE_DOMAIN.api_version,
        "kind": COMPUTE_DOMAIN.kind,
        "metadata": metadata,
        "spec": {
            # Not the number of nodes: another value only delays a status that nobody waits for.
            "numNodes": 0,
            "channel": {
                "resourceClaimTemplate": {"name": names.channel_claim_template(sd.metadata.name)}
            },
        },
    }


def _owner(pod: ObservedPod) -> dict[str, JsonValue]:
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "name": pod.name,
        "uid": pod.metadata.uid,
    }
