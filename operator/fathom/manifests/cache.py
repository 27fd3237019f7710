"""What a spec wants to lie in its cache, and where."""

import hashlib
import re
from typing import Final

from fathom.api import names
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.argument_parser import Loading, loading, names_other_repositories
from fathom.engine.profile import EngineProfile
from fathom.fetch.state import Fetch, commits_in
from fathom.model_refs import ModelRef, draft_ref, target_ref
from fathom.resource import SpeculativeDeployment

CACHE_DIRECTORY: Final = "/cache"
HUB_HOME: Final = f"{CACHE_DIRECTORY}/huggingface"

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
HUB_PLACES: Final = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
HUB_OFF: Final = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_NOT_FROM_THE_HUB: Final = (*HUB_OFF, "VLLM_USE_MODELSCOPE")
HUB_VARIABLES: Final = (*HUB_PLACES, *_NOT_FROM_THE_HUB)
"""Variables that say whether what is fetched is what the engine looks for."""
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})


def claim_of(sd: SpeculativeDeployment) -> str:
    """The claim that pods mount; empty: none."""
    cache = sd.spec.cache
    return cache.claim_name or (names.cache_claim(sd.metadata.name) if cache.size else "")


def wanted_fetch(sd: SpeculativeDeployment) -> Fetch | None:
    """What is to be fetched before pods start; None: nothing.

    Only what vLLM would look for in the cache: not where `engine.args` or `engine.env` have it look
    elsewhere, and no model that is given by a path.
    """
    return _fetch_into(claim_of(sd), sd.engine)


def offline(engine: EngineProfile) -> bool:
    """Whether the engine finds all it needs in the cache, and need not ask a hub."""
    fetch = _fetch_into("", engine)
    pinned = fetch is not None and commits_in(fetch) is not None
    return pinned and not names_other_repositories(engine.arguments)


def fetched_by(sd: SpeculativeDeployment) -> str:
    """The commits that the pods load, as their workload says it; empty: left to the pods."""
    fetch = wanted_fetch(sd)
    commits = commits_in(fetch) if fetch else None
    return commits.to_json() if commits else ""


def compile_cache(spec: SpeculativeDeploymentSpec) -> str:
    """The directory for what the engine compiles.

    One for each image and node type: what was compiled by another release, or for another
    processor, is never so much as looked at. Not by `engine.version`, which may be corrected while
    pods run.
    """
    image, accelerator = spec.engine.image, spec.node_pool.accelerator.value
    digest = hashlib.sha256(f"{image} {accelerator}".encode()).hexdigest()[:8]
    return f"{CACHE_DIRECTORY}/vllm/{accelerator.lower()}-{digest}"


def _fetch_into(claim: str, engine: EngineProfile) -> Fetch | None:
    spec, how = engine.spec, loading(engine.arguments)
    cache = spec.cache
    if not (cache.exists and cache.prefetch) or how is Loading.ELSEWHERE:
        return None
    model, draft = (_hub_model(ref) for ref in (target_ref(spec), draft_ref(spec)))
    if (model is None and draft is None) or not _from_the_hub(spec):
        return None
    return Fetch(claim=claim, model=model, draft=draft, whole=how is Loading.ALL)


def is_hub_id(name: str) -> bool:
    """Whether a model is looked for on the hub, and not at a path."""
    return _HUB_ID.fullmatch(name) is not None


def is_on(value: str | None) -> bool:
    """Whether a switch of the hub's client is on."""
    return (value or "").lower() not in _FALSE


def _hub_model(ref: ModelRef) -> ModelRef | None:
    return ref if is_hub_id(ref.id) else None


def _from_the_hub(spec: SpeculativeDeploymentSpec) -> bool:
    env = {each.name: each.value or "" for each in spec.engine.env}
    places = (env[name] for name in HUB_PLACES if name in env)
    return all(f"{place}/".startswith(f"{CACHE_DIRECTORY}/") for place in places) and all(
        not is_on(env.get(name)) for name in _NOT_FROM_THE_HUB
    )
