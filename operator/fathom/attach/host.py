"""What a host's workload says of the vLLM that it runs, to make a patch for it. Pure.

Its arguments come as a list, as a script, or in a variable; what cannot be read is not guessed.
Nothing that the operator does goes by them: it goes by the engine's own report
(`fathom.attach.evidence`).
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from fathom.cluster.kinds import LEADER_WORKER_SET, LLM_INFERENCE_SERVICE, Kind
from fathom.cluster.manifest import Manifest, place_of
from fathom.cluster.observed_pods import LABEL_GROUP_SET
from fathom.engine.argument_parser import (
    MAX_NUM_SEQS,
    EngineArguments,
    is_count,
    whole_number,
)
from fathom.engine.flags import HTTP_PORT
from fathom.manifests.template_parts import Part, by, part, parts, texts

ADDITIONAL: Final = "VLLM_ADDITIONAL_ARGS"
"""KServe's scripts put it behind `vllm serve`, and its own lets the shell read it (`eval`)."""
_SCRIPT_OF_KSERVE: Final = f'eval "vllm serve ${{{ADDITIONAL}}} $@"'
"""How its own script ends, where no pod shows which one it is."""
_ENGINES: Final = ("vllm", "main", "modelserver", "vllm-openai")
"""How containers are called that run vLLM: production-stack's, KServe's, llm-d's, AIBrix's."""
_LABEL_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_SHELLS: Final = frozenset({"sh", "bash", "ash", "dash"})
_BY_KUBELET: Final = re.compile(r"\$\(([^()]+)\)")
_BY_SHELL: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_BEHIND_SCRIPT: Final = re.compile(r"\$(?:\{[@*]\}|[@*])")
_EVAL: Final = re.compile(r"(?:^|[;&|])\s*eval\s", re.MULTILINE)
_TAKES_PLACE: Final = ("--speculative-config", "-sc", "--scheduler-cls")
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_ARGO: Final = "argocd.argoproj.io/"
_FLUX: Final = ("kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/")


class HostError(ValueError):
    """A workload that no patch can be made for; the message is a sentence."""


class Form(StrEnum):
    """How a container is given vLLM's arguments."""

    LIST = "list"
    SCRIPT = "script"
    VARIABLE = ADDITIONAL
    """A script puts that variable behind vLLM's arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A container that runs vLLM, within its pod."""

    pod: Part
    """The spec of the pod or of its template."""
    container: Part
    form: Form
    field: str
    """The list that holds the arguments or the script: `command` or `args`."""
    words: tuple[str, ...]
    """vLLM's arguments as it gets them, as far as they can be read; more may be among them."""
    script: str = ""
    """Empty: a shell does not start it."""
    running: Part
    """It in a pod, with what a controller merged into it; it itself, where there is none."""

    @property
    def evaluated(self) -> bool:
        """Whether its script lets the shell read the arguments once more."""
        return _EVAL.search(self.script) is not None

    @property
    def owns_script(self) -> bool:
        """Whether its script is in the workload, and not in what a controller merges into it."""
        return self.script in texts(self.container, self.field)

    @property
    def name(self) -> str:
        return str(self.container.get("name", ""))

    @property
    def arguments(self) -> EngineArguments:
        return EngineArguments.of(self.words)

    def variable(self, name: str) -> Part:
        """A variable as its pod has it; empty: it has none."""
        own, running = (by("name", parts(each, "env")) for each in (self.container, self.running))
        return own.get(name) or running.get(name, {})

    def value_of(self, name: str) -> str:
        """Value of a variable; empty, too: it comes from elsewhere."""
        return str(self.variable(name).get("value") or "")

    @property
    def port(self) -> int:
        """Where it shows its metrics: vLLM's own port, unless its arguments say another."""
        stated = [each.value or "" for each in self.arguments.beginning("--port")]
        return int(stated[-1]) if stated and is_count(stated[-1]) else HTTP_PORT

    @property
    def max_num_seqs(self) -> int | None:
        """None: its arguments leave that to vLLM, which goes by the GPU."""
        return whole_number(self.arguments.value(MAX_NUM_SEQS) or "") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A workload that Fathom did not make, or pods whose workload is not known."""

    kind: Kind | None
    """None: only pods are known."""
    namespace: str
    name: str
    """Empty: as above."""
    labels: Mapping[str, str]
    """That select its pods which serve."""
    managed_by: str
    """Helm, Argo CD or Flux; empty: it names none."""
    engine: Engine
    """In the pods that serve."""
    worker: Engine | None = None
    """In those that serve within a group of theirs, where their template is another one."""

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}" if self.kind else selector_of(self.labels)

    @property
    def engines(self) -> tuple[Engine, ...]:
        """One for each template."""
        return (self.engine,) if self.worker is None else (self.engine, self.worker)


def selector_of(labels: Mapping[str, str]) -> str:
    """As an API server takes it."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def host_of(kind: Kind, manifest: Manifest, pod: Part | None, container: str = "") -> Host:
    """Read a workload.

    Args:
        kind: its.
        manifest: of it.
        pod: the spec of one of its pods; None: there is none.
        container: that runs vLLM; empty: find it.

    Raises:
        HostError: no container can be found that runs vLLM, or no labels that select its pods.
    """
    spec, (namespace, name) = part(manifest, "spec"), place_of(manifest)
    worker, labels = None, dict[str, str]()
    if kind == LLM_INFERENCE_SERVICE:
        if spec.get("worker"):
            raise HostError(
                f"{kind.kind} {name} has replicas over several nodes (spec.worker), for which "
                "there is no patch yet: read its pods by -l."
            )
        # Its controller merges other objects into it: what runs is what its pods say.
        main: Part = {"name": container or "main"}
        given = _containers(part(spec, "template"))
        own = next((each for each in given if each["name"] == main["name"]), main)
        running = engine_of(pod, container) if pod is not None else None
        script = _script(own) or ("args", running.script if running else _SCRIPT_OF_KSERVE)
        engine = _engine(part(spec, "template"), own, script, running)
        labels = {"app.kubernetes.io/name": name, "kserve.io/component": "workload"}
        labels |= {"llm-d.ai/role": "decode"} if spec.get("prefill") else {}
    elif kind == LEADER_WORKER_SET:
        templates = part(spec, "leaderWorkerTemplate")
        leader, others = part(templates, "leaderTemplate"), part(templates, "workerTemplate")
        engine = engine_of(part(leader or others, "spec"), container)
        worker = engine_of(part(others, "spec"), container) if leader else None
        labels = {LABEL_GROUP_SET: name, _LABEL_WORKER: "0"}
    else:
        engine = engine_of(part(part(spec, "template"), "spec"), container)
        labels = _strings(part(part(spec, "selector"), "matchLabels"))
        if not labels:
            raise HostError(f"{kind.kind} {name} selects its pods by no label: use -l SELECTOR.")
    return Host(
        kind=kind,
        namespace=namespace,
        name=name,
        labels=labels,
        managed_by=_managed_by(part(manifest, "metadata")),
        engine=engine,
        worker=worker,
    )


def host_of_pods(namespace: str, labels: Mapping[str, str], pod: Manifest, container: str) -> Host:
    """Read a pod whose workload is not known.

    Raises:
        HostError: no container can be found that runs vLLM.
    """
    return Host(
        kind=None,
        namespace=namespace,
        name="",
        labels=labels,
        managed_by=_managed_by(part(pod, "metadata")),
        engine=engine_of(part(pod, "spec"), container),
    )


def engine_of(pod: Part, container: str = "") -> Engine:
    """The container of a pod that runs vLLM.

    Args:
        pod: its spec.
        container: its name; empty: find it.

    Raises:
        HostError: none can be found.
    """
    found = {str(each["name"]): each for each in _containers(pod)}
    wanted = (container,) if container else (*_ENGINES, *(found if len(found) == 1 else ()))
    named = next((each for each in wanted if each in found), None)
    if named is None:
        what = f"is called {container}" if container else "is known to run vLLM"
        listed = ", ".join(found) or "none"
        raise HostError(f"No container {what}; there is {listed}: name it by --container.")
    return _engine(pod, found[named], _script(found[named]))


def _engine(
    pod: Part, given: Part, script: tuple[str, str] | None, running: Engine | None = None
) -> Engine:
    """Read a container.

    Args:
        pod: the spec that it is in.
        given: it.
        script: which of its lists holds the script, and the script; None: there is none.
        running: it in a pod, with what a controller merged into it; None: not known, or no other.
    """
    field = "args" if given.get("args") or not given.get("command") else "command"
    form, text = Form.LIST, ""
    if script is not None:
        field, text = script
        form = Form.VARIABLE if ADDITIONAL in text else Form.SCRIPT
    behind = _behind_script(given, text)
    if form is Form.VARIABLE and EngineArguments.of(behind).beginning(*_TAKES_PLACE):
        # They come behind the variable, and of two the last counts.
        form, field = Form.LIST, "args"
    return Engine(
        pod=pod,
        container=given,
        form=form,
        field=field,
        words=running.words if running is not None else _words(given, text),
        script=text,
        running=running.container if running is not None else given,
    )


def _containers(pod: Part) -> list[Part]:
    return [each for each in parts(pod, "containers") if each.get("name")]


def _script(container: Part) -> tuple[str, str] | None:
    """Which list holds its script, and the script; None: a shell does not start it."""
    listed = [(field, each) for field in ("command", "args") for each in texts(container, field)]
    if not listed or listed[0][1].rpartition("/")[2] not in _SHELLS:
        return None
    flags = (found for (_, flag), found in pairwise(listed) if re.fullmatch(r"-\w*c", flag))
    return next(flags, None)


def _behind_script(container: Part, script: str) -> tuple[str, ...]:
    """What a script has as `$@`; none: it does not use that, or there is no script."""
    if not _BEHIND_SCRIPT.search(script):
        return ()
    given = [each for field in ("command", "args") for each in texts(container, field)]
    # The first behind a script is its name.
    own = given[given.index(script) + 2 :] if script in given else texts(container, "args")
    return tuple(own)


def _words(container: Part, script: str = "") -> tuple[str, ...]:
    variables = by("name", parts(container, "env"))
    values = {name: str(each["value"]) for name, each in variables.items() if each.get("value")}

    def by_kubelet(text: str) -> str:
        return _BY_KUBELET.sub(lambda found: values.get(found[1], found[0]), text)

    if script:
        read = {name: by_kubelet(value) for name, value in values.items()}
        behind = [by_kubelet(each) for each in _behind_script(container, script)]
        return tuple(_by_shell(by_kubelet(script), read, behind))
    given = [each for field in ("command", "args") for each in texts(container, field)]
    return tuple(by_kubelet(each) for each in given)


def _by_shell(script: str, values: Mapping[str, str], behind: Sequence[str]) -> Sequence[str]:
    """Words of a script, with the pod's variables in them; none where it is no shell's."""

    def filled(text: str) -> str:
        return _BY_SHELL.sub(lambda found: values.get(found[1] or found[2], found[0]), text)

    words, found = _split(script), list[str]()
    for at, word in enumerate(words):
        text = filled(word)
        if word == "eval":
            read = filled(" ".join(words[at + 1 :]))
            return _split(_BEHIND_SCRIPT.sub(lambda _: " ".join(behind), read))
        if _BEHIND_SCRIPT.fullmatch(word):
            found += behind
        else:
            # A variable alone may hold several words.
            alone = _BY_SHELL.fullmatch(word) and (word.strip("${}") == ADDITIONAL or " --" in text)
            found += text.split() if alone else (text,)
    return found


def _split(script: str) -> Sequence[str]:
    try:
        return shlex.split(script.replace("\\\n", " "), comments=True)
    except ValueError:
        return ()


def _managed_by(metadata: Part) -> str:
    annotations, labels = part(metadata, "annotations"), part(metadata, "labels")
    known = {*annotations, *labels}
    if any(each.startswith(_ARGO) for each in known):
        return "Argo CD"
    if any(each.startswith(_FLUX) for each in known):
        return "Flux"
    stated = str(labels.get(_MANAGED_BY) or "")
    # Helm writes it with a capital; charts that write it themselves need not.
    return "Helm" if stated.lower() == "helm" else stated


def _strings(found: Part) -> dict[str, str]:
    return {key: str(value) for key, value in found.items()}
