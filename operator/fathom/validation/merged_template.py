"""A pod template before and after what a user merges in, and whether it starts the engine. Pure.

The arguments follow the command, the model first. `vllm serve` takes the model from there; vLLM's
other servers do not, and begin to load its default model (`model_tag` is read in
vllm/entrypoints/cli/serve.py alone).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from fathom.api import names
from fathom.api.accelerators import vendor_of
from fathom.engine.plugin import PluginBundle
from fathom.engine.replica_layout import Role
from fathom.manifests.pod_template import built_template, with_overlays
from fathom.manifests.template_parts import Overlay, Part, by, overlays, parts
from fathom.resource import SpeculativeDeployment

WRAPPER: Final = 'a wrapper that ends in `exec vllm serve "$@"`'

_OTHER_SERVER: Final = re.compile(r"\bvllm\.entrypoints\.(?!cli\b)[\w.]+")
_SERVERS: Final = frozenset({"vllm", "vllm.entrypoints.cli.main"})
"""What stands before `serve`, without its directory."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SCRIPT_FOLLOWS: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_ARGUMENTS: Final = re.compile(r"\$@|\$\*|\$\{@|\$\{\*")
CONTAINER_KINDS: Final = ("containers", "initContainers")
_NO_BUNDLE: Final = PluginBundle(files={}, content="")


def why_not_started(command: Sequence[str]) -> str:
    """Why the engine would not be the one that the spec asks for; empty: it may be.

    Args:
        command: of the container; empty: the image's entrypoint starts the engine.
    """
    other = _OTHER_SERVER.search(" ".join(command))
    if other:
        return (
            f"{other[0]} takes no model from its arguments, so vLLM's default model would be "
            f"loaded: write [vllm, serve], or {WRAPPER}."
        )
    serves = _serve(command)
    if serves is not None and command[serves + 1 :]:
        return "options after vllm serve may not be set here: set spec.engine.args instead."
    return _why_lost_in_script(command)


def what_to_see_to(command: Sequence[str]) -> str:
    """What nobody here can see of a command that may start the engine; empty: nothing."""
    if not command:
        return f"the image's own entrypoint starts the engine: it must be {WRAPPER}."
    seen = _serve(command) is not None or _script(command) is not None
    return "" if seen else f"{command[0]} starts the engine: it must be {WRAPPER}."


def _serve(command: Sequence[str]) -> int | None:
    """Where `serve` stands behind the program that knows it; None: nowhere."""
    pairs = enumerate(pairwise(command), start=1)
    return next(
        (at for at, (program, word) in pairs if _program(program) in _SERVERS and word == "serve"),
        None,
    )


def _why_lost_in_script(command: Sequence[str]) -> str:
    """Why a shell's script does not hand on the arguments."""
    script = _script(command)
    if script is None:
        return ""
    text, *after = script
    if not _ARGUMENTS.search(text):
        return (
            'the script does not name "$@", which holds the model and all arguments: end it in '
            '`exec vllm serve "$@"`.'
        )
    if not after:
        return (
            "what follows a script is its $0 first, so the model would be lost: add a word after "
            "the script, such as vllm."
        )
    return ""


def _script(command: Sequence[str]) -> Sequence[str] | None:
    """A shell's script and what stands behind it; None: there is none in the command."""
    shell = next((at for at, each in enumerate(command) if _program(each) in _SHELLS), None)
    if shell is None:
        return None
    options = command[shell + 1 :]
    for at, option in enumerate(options):
        if _SCRIPT_FOLLOWS.fullmatch(option):
            return options[at + 1 :] or None
        if not option.startswith(("-", "+")) and options[at - 1] != "-o":
            return None
    return None


def _program(path: str) -> str:
    return PurePosixPath(path).name


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTemplate:
    role: Role
    built: Part
    """Before anything was merged in."""
    before: Part
    """Before the overlay was."""
    merged: Part
    overlay: Overlay
    """That is judged: for such pods alone, as its user wrote it."""
    gpus: str
    """Name of the resource that GPUs are asked for by."""

    @property
    def engine(self) -> Part:
        """The engine's container; empty: it is gone."""
        return _engine(self.merged)

    @property
    def built_engine(self) -> Part:
        return _engine(self.built)

    @property
    def containers(self) -> str:
        """Path of the overlay's containers."""
        return f"{self.overlay.field}.spec.containers"

    @property
    def field(self) -> str:
        """Path of the engine's container, as far as the overlay names it."""
        named = [each.get("name") for each in parts(self.overlay.given, "spec", "containers")]
        name = names.ENGINE_CONTAINER
        return f"{self.containers}[{named.index(name)}]" if name in named else self.containers

    @property
    def without_overlay(self) -> "MergedTemplate":
        """As if it had never been written."""
        return replace(self, merged=self.before, overlay=replace(self.overlay, given={}))


def merged_template(sd: SpeculativeDeployment, role: Role = Role.LEADER) -> MergedTemplate:
    """A template with neither revision nor plugin.

    Raises:
        MergeError: what is merged in does not fit.
    """
    built = built_template(sd, role, revision="", bundle=_NO_BUNDLE)
    *earlier, last = overlays(sd.spec, role)
    before = with_overlays(sd.engine, built, earlier)
    merged = with_overlays(sd.engine, built, (*earlier, last))
    gpus = vendor_of(sd.spec.node_pool).resource
    return MergedTemplate(
        role=role, built=built, before=before, merged=merged, overlay=last, gpus=gpus
    )


def _engine(template: Part) -> Part:
    containers = by("name", parts(template, "spec", "containers"))
    return containers.get(names.ENGINE_CONTAINER, {})
