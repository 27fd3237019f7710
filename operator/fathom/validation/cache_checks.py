"""Checks of the cache of weights, and of the memory of the host that weights pass through. Pure."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from fathom.api.pod_fields import AccessMode, amount_of
from fathom.api.problem import Problem, warning
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.manifests.cache import (
    CACHE_DIRECTORY,
    HUB_HOME,
    HUB_OFF,
    HUB_PLACES,
    is_hub_id,
    is_on,
    wanted_fetch,
)
from fathom.manifests.template_parts import parts
from fathom.rollout.replicas import all_replicas
from fathom.validation.candidate import Candidate, Rule
from fathom.validation.gpu_memory_checks import GIB
from fathom.validation.start_checks import engine_variables

_ACCESS_MODES: Final = "spec.cache.accessModes"
_MANY: Final = "write [ReadWriteMany], with a storage class that has it."


def access_modes(candidate: Candidate) -> Iterator[Problem]:
    """Claims that cannot be mounted by all pods, or cannot be filled.

    Source: `ValidatePersistentVolumeClaimSpec` in pkg/apis/core/validation/validation.go, the
    plugin VolumeRestrictions of the scheduler, and `isMultiAttachForbidden` in
    pkg/controller/volume/attachdetach/util. That a node alone may attach is enforced where storage
    is attached: a file system over the network may not care, so that this is a warning.
    """
    spec, layout = candidate.spec, candidate.engine.layout
    cache, modes = spec.cache, frozenset(spec.cache.access_modes)
    if not cache.size:
        return
    if not amount_of(cache.size):
        yield Problem(
            field="spec.cache.size",
            message=f"Kubernetes makes no claim of {cache.size}: write the size that the weights "
            "need, such as 800Gi, or leave cache out.",
        )
        return
    if AccessMode.READ_WRITE_ONCE_POD in modes and len(modes) > 1:
        yield Problem(
            field=_ACCESS_MODES,
            message="Kubernetes refuses ReadWriteOncePod with another mode: write [ReadWriteMany].",
        )
        return
    replicas = all_replicas(spec)
    if modes == {AccessMode.READ_WRITE_ONCE_POD} and replicas * layout.nodes > 1:
        yield Problem(
            field=_ACCESS_MODES,
            message="one pod in the whole cluster may use a ReadWriteOncePod claim, and this spec "
            f"has {replicas * layout.nodes}: {_MANY}",
        )
    elif modes == {AccessMode.READ_WRITE_ONCE_POD} and spec.rollout.max_surge:
        yield warning(
            _ACCESS_MODES,
            "one pod may use a ReadWriteOncePod claim, so that a canary cannot start next to the "
            f"replica: {_MANY[:-1]}, or set rollout.maxSurge to 0.",
        )
    elif modes == {AccessMode.READ_WRITE_ONCE} and replicas * layout.nodes > 1:
        what = (
            f"the {layout.nodes} pods of a replica are on as many nodes"
            if layout.nodes > 1
            else f"{replicas} replicas may be on several nodes"
        )
        yield warning(
            _ACCESS_MODES,
            f"most storage attaches a ReadWriteOnce claim to one node, and {what}. Pods on "
            f"the others never start: {_MANY}",
        )
    elif modes == {AccessMode.READ_ONLY_MANY} and wanted_fetch(candidate.resource) is not None:
        yield Problem(
            field=_ACCESS_MODES,
            message="a new claim is empty, and the fetch cannot write the weights into one that is "
            "ReadOnlyMany: write [ReadWriteMany], or name a claim that is filled in "
            "spec.cache.claimName.",
        )


def size_of_cache(candidate: Candidate) -> Iterator[Problem]:
    """A claim in which the weights do not fit, or a limit above which a pod is evicted."""
    spec, given = candidate.spec, candidate.models
    sizes = [facts.weights.total_bytes for facts in (given.target, given.draft)]
    total = sum(filter(None, sizes))
    size = amount_of(spec.cache.size)
    if size is not None and size < total and wanted_fetch(candidate.resource) is not None:
        yield warning(
            "spec.cache.size",
            f"the weights that are fetched have {total / GIB:.0f} GiB, which is more than this: "
            "make it larger.",
        )
    limit = amount_of(spec.engine.resources.limits.get("ephemeral-storage"))
    fetched = not spec.cache.exists and not spec.model.id.startswith("/")
    if limit is not None and fetched and limit < (given.target.weights.total_bytes or 0):
        yield warning(
            "spec.engine.resources.limits.ephemeral-storage",
            "without a cache each pod fetches the weights, and a pod that writes more than this is "
            "evicted: raise it, or set spec.cache.",
        )


def host_memory(candidate: Candidate) -> Iterator[Problem]:
    """A limit of memory below what is to be kept there.

    Source: `cpu_offload_gb` in vllm/config/offload.py, for each GPU; `kv_offloading_size` in
    vllm/config/cache.py, for all GPUs of an engine, and the file in /dev/shm that holds it:
    vllm/v1/kv_offload/cpu/shared_offload_region.py.
    """
    spec, layout = candidate.spec, candidate.engine.layout
    arguments = candidate.engine.arguments
    limit = amount_of(spec.engine.resources.limits.get("memory"))
    shared = amount_of(spec.engine.shared_memory)
    if limit is not None and shared is not None and limit < shared:
        yield warning(
            "spec.engine.sharedMemory",
            "what is in /dev/shm counts as the container's memory, and limits.memory is below "
            "this: raise that limit, or lower this.",
        )
    weights = _gib(arguments.value("--cpu-offload-gb")) * layout.ranks_per_pod
    cache = _gib(arguments.value("--kv-offloading-size"))
    cache *= Fraction(layout.ranks_per_pod, layout.ranks_per_engine)
    in_shared = arguments.value("--kv-offloading-backend") in {None, "native"}
    for room, kept, what in (
        (limit, weights + cache, "spec.engine.resources.limits.memory"),
        (shared if in_shared else None, cache, "spec.engine.sharedMemory"),
    ):
        if room is not None and room < kept:
            yield warning(
                what,
                "spec.engine.args keep more there than this, "
                f"{float(kept / GIB):.0f} GiB of a pod: raise it, or "
                "lower --cpu-offload-gb or --kv-offloading-size.",
            )


def _gib(text: str | None) -> Fraction:
    try:
        return Fraction(text or 0) * GIB
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


def hub_variables(candidate: Candidate) -> Iterator[Problem]:
    """A claim that its user filled, where the engine may look in another place of it.

    Source: HF_HOME of the engine's container is ours (`fathom.manifests.engine_env`), and the hub's
    client looks below `hub/` of it (huggingface_hub/constants.py).
    """
    spec, found = candidate.spec, engine_variables(candidate)
    off = next((each for each in found if each.name in HUB_OFF and is_on(each.value)), None)
    placed = any(each.name in HUB_PLACES for each in found)
    if off is not None and spec.cache.exists and is_hub_id(spec.model.id) and not placed:
        yield warning(
            off.path,
            f"with {off.name} the engine finds weights in {HUB_HOME}/hub alone: set HF_HOME in "
            "spec.engine.env, to /cache if the claim has hub/ at its root, or to "
            f"{HUB_HOME} if it is there.",
        )
    for each in found:
        elsewhere = each.name in HUB_PLACES and each.value and not _is_mounted(spec, each.value)
        if elsewhere and spec.cache.exists and is_hub_id(spec.model.id):
            yield warning(
                each.path,
                f"the claim of spec.cache is mounted at {CACHE_DIRECTORY}, and {each.name} names "
                "another place, which is empty in each new pod: set it to "
                f"{CACHE_DIRECTORY} or below it.",
            )


def _is_mounted(spec: SpeculativeDeploymentSpec, place: str) -> bool:
    """Whether a directory is in the claim, or in a volume of the user's."""
    containers = parts(spec.pod_template, "spec", "containers")
    mounts = [
        str(each.get("mountPath")) for one in containers for each in parts(one, "volumeMounts")
    ]
    return any(f"{place}/".startswith(f"{at.rstrip('/')}/") for at in (CACHE_DIRECTORY, *mounts))


RULES: Final = (
    Rule(
        id="cache-size",
        check=size_of_cache,
        says="The weights fit in the claim that Fathom makes.",
        source="the hub's sizes of files",
    ),
    Rule(
        id="host-memory",
        check=host_memory,
        says="Limits of memory hold what is kept there.",
        source="vllm/config/offload.py, vllm/config/cache.py",
    ),
)
