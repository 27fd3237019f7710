"""A pod template before and after what a user merges in, and whether it starts the engine. Pure.

The arguments follow the command, the model first. `vllm serve` takes the model from there; vLLM's
other servers do not, and begin to load its default model (`model_tag` is read in
vllm/entrypoints/cli/serve.py alone).
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from fathom.api import names
from fathom.api.accelerators import Vendor, vendor_of
from fathom.api.problem import Problem
from fathom.engine.flags import HTTP_PORT
from fathom.engine.plugin import PluginBundle
from fathom.engine.replica_layout import Role
from fathom.manifests.pod_template import built_template, with_overlays
from fathom.manifests.template_parts import Overlay, Part, by, overlays, part, parts, texts
from fathom.resource import SpeculativeDeployment

WRAPPER: Final = 'a wrapper that ends in `exec vllm serve "$@"`'

_OTHER_SERVER: Final = re.compile(r"\bvllm\.entrypoints\.(?!cli\b)[\w.]+")
_SERVERS: Final = frozenset({"vllm", "vllm.entrypoints.cli.main"})
"""What stands before `serve`, without its directory."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SCRIPT_FOLLOWS: Final = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_ARGUMENTS: Final = re.compile(r"\$@|\$\*|\$\{@|\$\{\*")
CONTAINER_KINDS: Final = ("containers", "initContainers")
PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_CONNECTORS: Final = "--kv-transfer-config"
"""Some connectors answer at a port of their own."""
_NO_BUNDLE: Final = PluginBundle(files={}, content="")
_LABEL: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
QUALIFIED_NAME: Final = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL}")
"""`IsQualifiedName` in k8s.io/apimachinery, pkg/util/validation."""


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
    vendor: Vendor | None
    """Whose GPUs it asks for; None: it asks for none."""

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
    def engine_overlay(self) -> Part:
        """What the overlay says of the engine's container; empty: nothing."""
        return by("name", parts(self.overlay.given, "spec", "containers")).get(
            names.ENGINE_CONTAINER, {}
        )

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
    vendor = vendor_of(sd.spec.node_pool)
    return MergedTemplate(
        role=role, built=built, before=before, merged=merged, overlay=last, vendor=vendor
    )


def overlay_problems(overlay: Overlay) -> Iterator[Problem]:
    """What the API server refuses however it is merged, and what would be lost in merging.

    Source: `ValidateTolerations`, `validateEnvVarValueFrom` and, for names, `ValidatePodSpec` and
    `ValidateVolumes` in pkg/apis/core/validation/validation.go of Kubernetes.
    """
    field = f"{overlay.field}.spec"
    asked = parts(overlay.given, "spec", "tolerations")
    yield from toleration_problems(asked, f"{field}.tolerations")
    yield from _of_one_name(overlay, "volumes", "volume", ())
    yield from _of_one_name(overlay, "containers", "container", ())
    used = [names.ENGINE_CONTAINER, *by("name", parts(overlay.given, "spec", "containers"))]
    yield from _of_one_name(overlay, "initContainers", "container", used)
    for kind in CONTAINER_KINDS:
        for at, container in enumerate(parts(overlay.given, "spec", kind)):
            for index, variable in enumerate(parts(container, "env")):
                if sentence := two_values(variable):
                    yield Problem(field=f"{field}.{kind}[{at}].env[{index}]", message=sentence)


def toleration_problems(asked: Sequence[Part], field: str) -> Iterator[Problem]:
    """Tolerations that the API server refuses. Source: `ValidateTolerations`.

    Args:
        asked: as in a pod.
        field: path of the list.
    """
    for index, each in enumerate(asked):
        key, value = str(each.get("key") or ""), str(each.get("value") or "")
        operator = each.get("operator") or "Equal"
        exists = operator == "Exists"
        where = f"{field}[{index}]"
        if exists and value:
            yield Problem(
                field=f"{where}.value",
                message="operator Exists takes any value, and Kubernetes refuses one next to it: "
                "remove value, or set operator to Equal.",
            )
        if not key and not exists:
            yield Problem(
                field=f"{where}.key",
                message="without a key the operator must be Exists, which tolerates every taint: "
                "write the taint's key.",
            )
        if key and not QUALIFIED_NAME.fullmatch(key):
            yield Problem(
                field=f"{where}.key",
                message=f"{key!r} is no key of a taint: write it as kubectl describe node shows "
                "it, without value and effect.",
            )
        if value and operator == "Equal" and not re.fullmatch(_LABEL, value):
            yield Problem(
                field=f"{where}.value",
                message=f"{value!r} is no value of a taint, which has letters, digits, -, _ and . "
                "only: correct it.",
            )
        if each.get("tolerationSeconds") is not None and each.get("effect") != "NoExecute":
            yield Problem(
                field=f"{where}.tolerationSeconds",
                message="Kubernetes takes it with effect NoExecute alone: set that effect, or "
                "remove this.",
            )


def _of_one_name(
    overlay: Overlay, kind: str, what: str, used: Collection[str]
) -> Iterator[Problem]:
    """Members of a list that are called like another one; merging would make them one."""
    taken = set(used)
    for at, each in enumerate(parts(overlay.given, "spec", kind)):
        name = str(each.get("name"))
        if "$patch" in each:
            continue
        if name in taken:
            yield Problem(
                field=f"{overlay.field}.spec.{kind}[{at}].name",
                message=f"another {what} of the pod is called {name}: give this one another name, "
                "or make them one.",
            )
        taken.add(name)


def two_values(variable: Part) -> str:
    """Why a variable is refused that has its value from two places; empty: it has not."""
    source = part(variable, "valueFrom")
    sources = [key for key, each in source.items() if each is not None]
    if "valueFrom" in variable and variable["valueFrom"] is not None and not sources:
        return "valueFrom names no source: write secretKeyRef, configMapKeyRef or fieldRef in it."
    if source and variable.get("value"):
        return "Kubernetes refuses value next to valueFrom: remove one of them."
    if len(sources) > 1:
        return f"valueFrom takes one source (found {', '.join(sources)}): remove the others."
    return ""


def unheard_probes(template: MergedTemplate, *, certainly: bool) -> Iterator[tuple[str, str]]:
    """Probes of the engine that ask a port where nothing listens, each with a sentence.

    vLLM answers HTTP at the one port that Fathom gives it, and a worker at none (`run_headless` in
    vllm/entrypoints/cli/serve.py). What else may answer says so in `ports`, or is not known here:
    another container, a program around the engine, a connector of the KV cache.

    Args:
        template: with the overlay merged in.
        certainly: those for which nothing else may answer; else those for which it may.
    """
    spec, engine = part(template.merged, "spec"), template.engine
    containers = [each for kind in CONTAINER_KINDS for each in parts(spec, kind)]
    stated = {port.get("containerPort") for each in containers for port in parts(each, "ports")}
    if template.role is Role.LEADER:
        stated.add(HTTP_PORT)
    others = (
        len(containers) > 1
        or engine.get("command") != template.built_engine.get("command")
        or any(str(each).startswith(_CONNECTORS) for each in texts(engine, "args"))
    )
    advice = (
        f"ask {HTTP_PORT}, where the engine answers /health"
        if template.role is Role.LEADER
        else "leave the probe out, for a worker answers no HTTP"
    )
    for probe in PROBES:
        for how in ("httpGet", "tcpSocket", "grpc"):
            asked = part(engine, probe, how)
            port = asked.get("port")
            if certainly and (sentence := _unanswered(template, how, asked)):
                yield probe, sentence
                continue
            if not isinstance(port, int) or port in stated or asked.get("host"):
                continue
            if certainly is (how == "httpGet" and not others):
                sentence = f"nothing is known to listen at port {port}: {advice}, or state the port"
                yield probe, f"{sentence} in ports if something does."


def _unanswered(template: MergedTemplate, how: str, asked: Part) -> str:
    """Why the engine cannot answer a probe at its own port; empty: it may.

    It serves plain HTTP there: Fathom keeps --ssl-* for itself.
    """
    if not asks_engine(template, asked):
        return ""
    if how == "grpc":
        return f"the engine speaks HTTP at port {HTTP_PORT}: ask /health there by httpGet."
    if how == "httpGet" and asked.get("scheme") == "HTTPS":
        return f"the engine speaks plain HTTP at port {HTTP_PORT}: leave scheme out."
    return ""


def asks_engine(template: MergedTemplate, asked: Part) -> bool:
    """Whether it is vLLM that a probe asks for sure: at its port, with nothing before it."""
    named = {port.get("name") for port in parts(template.built_engine, "ports")} - {None}
    ours = asked.get("port") == HTTP_PORT or asked.get("port") in named
    replaced = template.engine.get("command") != template.built_engine.get("command")
    return ours and not (replaced or asked.get("host")) and template.role is Role.LEADER


def _engine(template: Part) -> Part:
    containers = by("name", parts(template, "spec", "containers"))
    return containers.get(names.ENGINE_CONTAINER, {})
