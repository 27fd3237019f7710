"""All children of one resource, in the order in which they are applied."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import Final

from pydantic import JsonValue

from fathom.cluster.kinds import (
    ALL,
    OPTIONAL_KINDS,
    POD_DISRUPTION_BUDGET,
    POD_MONITOR,
    Kind,
    ServedApis,
    wanted_optional,
)
from fathom.cluster.manifest import Manifest
from fathom.engine.depth import DepthDocument, flat
from fathom.engine.plugin import PluginBundle
from fathom.engine.replica_layout import Role
from fathom.fetch.state import FetchProgram
from fathom.manifests.cache import wanted_fetch
from fathom.manifests.config_maps import depth_config_map, fetch_config_map, plugin_config_map
from fathom.manifests.fetch_job import cache_claim, fetch_job
from fathom.manifests.services import pod_monitor, service, service_account
from fathom.manifests.template_parts import part
from fathom.manifests.workloads import compute_domain, pod_disruption_budget, workload
from fathom.resource import SpeculativeDeployment
from fathom.rollout.plan import first_steps
from fathom.rollout.replicas import arm_of, beside_arm, why_no_arm
from fathom.rollout.revision import revision_of

_OPTIONAL: Final[Mapping[Kind, Callable[[SpeculativeDeployment, ServedApis], Manifest]]] = {
    POD_DISRUPTION_BUDGET: pod_disruption_budget,
    POD_MONITOR: lambda sd, _: pod_monitor(sd),
}


def initial_depth(sd: SpeculativeDeployment) -> DepthDocument:
    """The first depth document: the user's `tokens` at every batch."""
    tokens = flat(sd.spec.speculation.tokens, sd.engine.max_num_seqs)
    return DepthDocument(generation=1, schedule=tokens, tokens=tokens)


def optional_children(
    sd: SpeculativeDeployment, usable: Collection[Kind], served: ServedApis
) -> tuple[Manifest, ...]:
    """What is made only where the cluster has the API for it.

    Args:
        sd: whose.
        usable: the optional kinds that can be made.
        served: what the cluster has.
    """
    wanted = wanted_optional(sd.spec)
    return tuple(
        build(sd, served) for kind, build in _OPTIONAL.items() if kind in wanted and kind in usable
    )


def children(
    sd: SpeculativeDeployment, bundle: PluginBundle, program: FetchProgram
) -> tuple[Manifest, ...]:
    """What a new resource gets where all APIs are served. What a pod mounts comes before it.

    The tuning ConfigMap is not among them: it appears with the first thing worth keeping.

    Raises:
        MergeError: `podTemplate` or `workerTemplate` does not fit; `problems_of` says so before.
    """
    configuration: tuple[Manifest, ...] = (cache_claim(sd),) if sd.spec.cache.size else ()
    if (fetch := wanted_fetch(sd)) is not None:
        configuration += (fetch_config_map(sd, program), fetch_job(sd, fetch, program))
    if sd.engine.has_plugin:
        configuration += (plugin_config_map(sd, bundle),)
    if sd.engine.live:
        configuration += (depth_config_map(sd, initial_depth(sd)),)
    return (
        service_account(sd),
        *configuration,
        service(sd),
        *optional_children(sd, OPTIONAL_KINDS, ALL),
        *((compute_domain(sd),) if sd.engine.layout.needs_compute_domain else ()),
        *chain.from_iterable(_workloads(each, replicas, bundle) for each, replicas in fleets(sd)),
    )


def single_pods(sd: SpeculativeDeployment, workload: Manifest) -> tuple[Manifest, ...]:
    """A pod of each template of a workload, as a dry run can ask for it.

    Webhooks, quotas and Pod Security judge pods alone, and nobody judges what is in a
    LeaderWorkerSet. Fathom's account is not there yet, and a pod without its account is refused.
    """
    spec = part(workload, "spec")
    groups = [part(spec, "leaderWorkerTemplate", f"{role}Template") for role in Role]
    found: list[Manifest] = []
    for template in (each for each in (part(spec, "template"), *groups) if each):
        pod = dict(part(template, "spec"))
        if pod.get("serviceAccountName") == sd.metadata.name:
            del pod["serviceAccountName"]
        metadata: dict[str, JsonValue] = {
            **part(template, "metadata"),
            "name": f"{sd.metadata.name}-dry-run",
            "namespace": sd.metadata.namespace,
        }
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    return tuple(found)


def _workloads(
    sd: SpeculativeDeployment, replicas: int, bundle: PluginBundle
) -> Iterator[Manifest]:
    revision = revision_of(sd)
    for step in first_steps(sd, revision, replicas):
        yield workload(
            step.kind,
            sd,
            name=step.name,
            revision=revision,
            replicas=step.replicas,
            bundle=bundle,
        )


def fleets(sd: SpeculativeDeployment) -> tuple[tuple[SpeculativeDeployment, int], ...]:
    """What the replicas are made from, and how many of each, once all that is asked for is there.

    Of two, the second is the one replica that is compared with the others.
    """
    arm = arm_of(sd.spec)
    if arm is None or why_no_arm(sd.spec):
        return ((sd, sd.spec.replicas),)
    return ((sd, beside_arm(sd.spec)), (sd.with_spec(arm), 1))
