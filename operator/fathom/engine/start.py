"""How an engine starts: what its image, arguments and variables ask for. Pure.

**Model runner.** vLLM has two. Only V2 has full CUDA graphs for more than one depth: V1
gives them up for all steps as soon as a depth schedule is set, where a static engine keeps them.
Source: `use_v2_model_runner` and `_maybe_override_dynamic_sd_cudagraph_mode` in
vllm/config/vllm.py.

**Asynchronous scheduling.** A step is scheduled while the one before it still runs. Depth is live
without it, too; only each step waits for its scheduling. But drafts that break a request's grammar
are then dropped before the next step is scheduled, where they are otherwise scheduled anyway
(`update_draft_token_ids` and `..._in_output` in vllm/v1/core/sched/scheduler.py, 0.32): so requests
of one step have different depths, and the plugin counts no such step. Source: `__post_init__` in
vllm/config/vllm.py. tests/engine/test_graphs_equal_vllms.py asks it, and which runner it is.

**Without GPUs.** vLLM's platform for processors captures no graphs, and schedules no step beside
another, whatever the arguments say (`check_and_update_config` in vllm/platforms/cpu.py, 0.32).
Which runner it takes depends on whether the image has Triton: Fathom asks for V1, which was run.
tests/engine/test_graphs_equal_vllms.py asks vLLM.

**Frontend.** The server that also answers `/metrics`. The one in Rust loads no plugin for
statistics (`vllm.stat_logger_plugins`), so that the plugin's counters are made and never shown.
Source: `VLLM_USE_RUST_FRONTEND` in vllm/envs.py and vllm/entrypoints/cli/serve.py, read in 0.32 and
0.33.

Source: `VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN` in vllm/envs.py (0.32).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict

from fathom.api.accelerators import preset_for
from fathom.api.bounded_json import is_true
from fathom.api.methods import Method
from fathom.api.spec import EngineSpec, SpeculativeDeploymentSpec
from fathom.engine.argument_parser import EngineArguments, max_num_seqs, token_budget
from fathom.engine.capability_table import ASYNCHRONOUS_ON_V2, Capability
from fathom.engine.cuda_graphs import StatedMode, stated_mode
from fathom.engine.known_options import Names, release_for

_VERSION: Final = r"v?(\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+|\.dev\d+)?)"
# `rocm7.0_vllm_0.26.0_20260812`, `2026.11-vllm0.32.0`: whoever's image it is.
_VLLM_IN_TAG: Final = re.compile(rf"(?<![a-z])vllm[-_]?{_VERSION}(?![a-z0-9.])")
# `v0.32.0`, `0.32.0-cu130`, `v0.32.0rc1`; not `latest`, `nightly-...`, or a commit.
_VERSION_TAG: Final = re.compile(rf"{_VERSION}(?![\w.])")
_OTHER_NUMBERS: Final = re.compile(r"(^|/)(lmcache/vllm-openai|ai-dynamo/vllm-runtime|llm-d[^/]*)$")
"""Images that hold a vLLM and are tagged with the versions of something else."""
_RELEASE_REPOSITORY: Final = re.compile(r"(^|/)vllm/vllm-openai(-[a-z0-9]+)?$")
_RELEASE_TAG: Final = re.compile(r"v?\d+\.\d+\.\d+([-+].*)?")
GATES_FILE: Final = "release_gates.json"
MODEL_RUNNER_VARIABLE: Final = "VLLM_USE_V2_MODEL_RUNNER"
FRONTEND_VARIABLE: Final = "VLLM_USE_RUST_FRONTEND"
_ONLY_ON_V1: Final[Mapping[str, Callable[[Method], bool]]] = MappingProxyType(
    {
        # DFlash and DSpark draft in parallel by nature, on V2 too.
        "parallel_drafting": lambda method: not method.row.parallel_by_nature,
        "use_heterogeneous_vocab": lambda _method: True,
    }
)
"""Keys of `draft.options` that V2 lacks, and for which methods."""
_UNPADDED: Final = "disable_padded_drafter_batch"
_GRAMMARS: Final = ("--structured-o", "--tool-call-p", "--enable-au", "--reasoning-p")
"""Beginnings of options of an engine whose requests are likely to have grammars:
--structured-outputs-config, --tool-call-parser, --enable-auto-tool-choice, --reasoning-parser."""
PROFILED_CONTEXT: Final = "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN"
"""The variable that says it, in tokens."""
PROFILED_BY_DEFAULT: Final = 8192
"""Tokens, where it is not set."""


class ReleaseGates(BaseModel):
    """What each release that was asked reads, and what it refuses at start."""

    model_config = ConfigDict(frozen=True)

    releases: tuple[str, ...]
    """Ascending."""
    environment: tuple[Names, ...]
    """Variables that begin with VLLM_ and are read."""
    environment_numbers: tuple[Names, ...]
    """Those that are read as a number: a word ends vLLM at start (`enable_envs_cache` in
    vllm/envs.py)."""
    no_adaptive_verification_nvidia: tuple[Names, ...]
    """Architectures of targets that cannot have adaptive verification on NVIDIA's GPUs, by the
    backends of their layers (`maybe_create_adaptive_verification_manager` in
    vllm/v1/worker/gpu/spec_decode/adaptive_verification.py)."""
    no_adaptive_verification_amd: tuple[Names, ...]

    def asked_as(self, version: Version | None) -> str | None:
        """The release that stands for a version; None: none was asked."""
        return release_for(self.releases, version)


@lru_cache(maxsize=1)
def release_gates() -> ReleaseGates:
    """What `generators.release_gates` wrote."""
    text = files(__package__).joinpath(GATES_FILE).read_text(encoding="utf-8")
    return ReleaseGates.model_validate_json(text)


def engine_version(engine: EngineSpec) -> Version | None:
    """The version as far as the spec tells; `engine.version` wins over the image's tag.

    None: nobody can know without running the image. Nothing may be refused for that.
    """
    return parsed_version(engine.version) if engine.version else tagged_version(engine.image)


def tagged_version(image: str) -> Version | None:
    """The version that an image's tag shows; None: it shows none of vLLM's."""
    repository, tag = _repository_and_tag(image)
    if match := _VLLM_IN_TAG.search(tag):
        return Version(match[1])
    if _OTHER_NUMBERS.search(repository) or not _names_vllm(repository):
        return None
    match = _VERSION_TAG.match(tag)
    # Products named after vLLM count from 1 up, or by years: 3.2.1, 26.05.
    return Version(match[1]) if match and match[1].startswith("0.") else None


def _names_vllm(repository: str) -> bool:
    """Whether an image is called after vLLM, whoever keeps a copy of it.

    Others count their own releases, and some of them from 0 up as well: SGLang's 0.5 is no vLLM.
    """
    first, *others = repository.lower().split("/")
    registry = bool(others) and ("." in first or ":" in first or first == "localhost")
    return any("vllm" in part for part in (others if registry else (first, *others)))


def number_in_tag(image: str) -> Version | None:
    """What the image's tag begins with, be it vLLM's version or its product's own; None: no number.

    Earlier releases of Fathom took it for vLLM's, whoever's image it was.
    """
    match = _VERSION_TAG.match(_repository_and_tag(image)[1])
    return Version(match[1]) if match else None


def parsed_version(text: str) -> Version | None:
    """A version as people write it, with or without the `v`; None: not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def is_release_image(image: str) -> bool:
    """Whether an image is one that vLLM publishes of a release, from its own place or a mirror.

    Any other may know more than the release that it was built from.
    """
    repository, tag = _repository_and_tag(image)
    return bool(_RELEASE_REPOSITORY.search(repository) and _RELEASE_TAG.fullmatch(tag))


def _repository_and_tag(image: str) -> tuple[str, str]:
    """Both parts of an image reference, without a digest; the tag is empty if there is none.

    A colon before the last slash belongs to the registry's port.
    """
    path, slash, last = image.partition("@")[0].rpartition("/")
    name, _, tag = last.partition(":")
    return f"{path}{slash}{name}", tag


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStart:
    """A cause is what the user wrote, such as `--enable-dbo in spec.engine.args`."""

    arguments: EngineArguments
    """`spec.engine.args`."""
    version: Version | None
    """vLLM's, as far as the spec tells. None: nothing may be refused for that."""
    model_runner_v1: str
    """What selects Model Runner V1; empty: it is V2."""
    synchronous: str
    """What turns asynchronous scheduling off; empty: it is on."""
    grammars: str
    """What prepares it for structured output; empty: nothing. A request may ask for it all the
    same."""
    rust_frontend: str
    """What selects the frontend in Rust; empty: it is Python's."""
    captures_graphs: bool
    """Whether CUDA graphs are captured, as far as GPUs and `--enforce-eager` tell."""
    graph_mode: StatedMode
    max_num_seqs: int
    """The most requests in one step, where depth is live."""
    token_budget: int | None
    """The most tokens of one step; None: not stated, or no number."""

    def has(self, capability: Capability) -> bool:
        """Whether this release has it, whatever the method. One that is not known has all."""
        return self.version is None or capability.in_version(self.version)

    @property
    def remedy_of_synchronous(self) -> str:
        """What to do to have asynchronous scheduling, where it is off."""
        if self.synchronous.startswith("accelerator "):
            return "name an accelerator with GPUs"
        if self.synchronous.startswith("method "):
            return f"choose another method, such as {Method.NGRAM_GPU}"
        return f"remove {self.synchronous.partition(' in ')[0]}"


def start_of(spec: SpeculativeDeploymentSpec) -> EngineStart:
    """How pods of a spec start their engine."""
    arguments, version = EngineArguments.of(spec.engine.args), engine_version(spec.engine)
    pool, without_gpus = spec.node_pool, ""
    if not preset_for(pool).has_gpus:
        without_gpus = f"accelerator {pool.accelerator} in spec.nodePool"
    model_runner_v1 = without_gpus or _model_runner_v1(spec, arguments)
    return EngineStart(
        arguments=arguments,
        version=version,
        model_runner_v1=model_runner_v1,
        synchronous=without_gpus or _synchronous(spec, arguments, version, model_runner_v1),
        grammars=_grammars(arguments),
        rust_frontend=_rust_frontend(spec),
        captures_graphs=not without_gpus and captures_graphs(arguments),
        graph_mode=stated_mode(arguments),
        max_num_seqs=max_num_seqs(arguments, pool),
        token_budget=token_budget(arguments),
    )


def stated_model_runner(spec: SpeculativeDeploymentSpec) -> int | None:
    """Which of the two `engine.env` asks for: 1 or 2; None: it leaves that to vLLM."""
    stated = _variable(spec, MODEL_RUNNER_VARIABLE)
    asked = None if stated is None else _whole(stated)
    return None if asked is None else 1 + bool(asked)


def _model_runner_v1(spec: SpeculativeDeploymentSpec, arguments: EngineArguments) -> str:
    if _variable(spec, MODEL_RUNNER_VARIABLE) is not None:
        # It decides alone: where V2 is asked for and lacks something, vLLM refuses to start.
        return (
            f"{MODEL_RUNNER_VARIABLE} in spec.engine.env" if stated_model_runner(spec) == 1 else ""
        )
    for key, lacks in _ONLY_ON_V1.items():
        if is_true(spec.draft.options.get(key, "")) and lacks(spec.draft.method):
            return f"spec.draft.options.{key}"
    if arguments.has("--enable-dbo"):
        return "--enable-dbo in spec.engine.args"
    if arguments.value("--ubatch-size") not in {None, "0", "1"}:
        return "--ubatch-size in spec.engine.args"
    return ""


def _synchronous(
    spec: SpeculativeDeploymentSpec,
    arguments: EngineArguments,
    version: Version | None,
    model_runner_v1: str,
) -> str:
    said = arguments.beginning("--async-s", "--no-async-s")
    if said and said[-1].name.startswith("--no-"):
        return f"{said[-1].spelling} in spec.engine.args"
    method = spec.draft.method
    on_v2 = not method.row.only_on_v1 and not model_runner_v1
    if on_v2 and version is not None and ASYNCHRONOUS_ON_V2.in_version(version):
        return ""
    if method.row.waits_on_v1:
        return f"method {method}"
    if is_true(spec.draft.options.get(_UNPADDED, "")):
        return f"spec.draft.options.{_UNPADDED}"
    return ""


def _grammars(arguments: EngineArguments) -> str:
    found = arguments.beginning(*_GRAMMARS)
    return f"{found[0].spelling.partition('.')[0]} in spec.engine.args" if found else ""


def _rust_frontend(spec: SpeculativeDeploymentSpec) -> str:
    stated = _variable(spec, FRONTEND_VARIABLE)
    return f"{FRONTEND_VARIABLE} in spec.engine.env" if stated and _whole(stated) else ""


def captures_graphs(arguments: EngineArguments) -> bool:
    """Whether CUDA graphs are captured, as far as `--enforce-eager` tells."""
    eager = arguments.beginning("--enforce", "--no-enforce")
    return not eager or eager[-1].name.startswith("--no-")


def _variable(spec: SpeculativeDeploymentSpec, name: str) -> str | None:
    """Its value, empty where that comes from elsewhere; None: it is not set."""
    stated = [each.value or "" for each in spec.engine.env if each.name == name]
    return stated[-1] if stated else None


def _whole(text: str) -> int | None:
    """A switch as vLLM reads it; None: no number, which ends it at start."""
    try:
        return int(text)
    except ValueError:
        return None
