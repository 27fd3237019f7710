"""All children of one resource, in the order in which they are applied."""

from fathom.api.resource import SpeculativeDeployment
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.core.capability import live_depth
from fathom.core.depth import DepthDocument, flat
from fathom.core.manifest import Manifest
from fathom.core.plugin import PluginBundle
from fathom.core.revision import revision_of
from fathom.manifests import vllm_args
from fathom.manifests.deployment import deployment
from fathom.manifests.depth_config_map import depth_config_map
from fathom.manifests.plugin_config_map import plugin_config_map
from fathom.manifests.service import service
from fathom.manifests.service_account import service_account


def max_batch(spec: SpeculativeDeploymentSpec) -> int:
    """The last batch of every schedule: `--max-num-seqs` of an engine whose depth is live."""
    return vllm_args.max_batch(spec)


def initial_depth(sd: SpeculativeDeployment) -> DepthDocument:
    """The first depth document: the user's `tokens` at every batch."""
    return DepthDocument(
        generation=1, schedule=flat(sd.spec.speculation.tokens, max_batch(sd.spec))
    )


def children(sd: SpeculativeDeployment, bundle: PluginBundle) -> tuple[Manifest, ...]:
    """What a new resource gets. What a pod mounts comes before the Deployment.

    The tuning ConfigMap is not among them: it appears with the first thing worth keeping.

    Raises:
        MergeError: `podTemplate` does not fit; `problems_of` says so before.
    """
    configuration: tuple[Manifest, ...] = ()
    if live_depth(sd.spec):
        configuration = (
            plugin_config_map(sd, bundle),
            depth_config_map(sd, initial_depth(sd)),
        )
    return (
        service_account(sd),
        *configuration,
        service(sd),
        deployment(
            sd,
            revision=revision_of(sd.spec),
            replicas=sd.spec.replicas,
            bundle=bundle,
        ),
    )
