"""The flags of vLLM that the operator passes, and those that it keeps for itself: one table.

A field of the spec that becomes a flag is one row: what is passed, what is refused in
`spec.engine.args` and with which words, and what a release lacks all follow from it. How
those are spelled whose value is read in `spec.engine.args` stands in
`fathom.engine.options.SHORTEST`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability import has_plugin, live_depth
from fathom.engine.capability_table import EVERY_RELEASE, SHUTDOWN_TIMEOUT, Capability
from fathom.engine.capture_sizes import added_sizes
from fathom.engine.host import EVERY_ADDRESS, EVERY_IPV4, HOST_FLAG
from fathom.engine.nodes_per_replica import nodes_per_replica, spans_nodes
from fathom.engine.options import last_value, stated_object
from fathom.engine.ranks import LEADER_ADDRESS, MASTER_PORT, WORKER_INDEX, Role
from fathom.engine.speculative_config import speculative_config
from fathom.engine.stated_args import max_batch, stated_max_num_seqs
from fathom_vllm.bundle import SCHEDULER_CLASS

HTTP_PORT: Final = 8000

Value = Callable[[SpeculativeDeploymentSpec, Role], str | bool]
"""What follows a flag. True: nothing does; False: the flag is left out."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that the operator passes, or refuses in `spec.engine.args`, or both."""

    names: tuple[str, ...]
    """All its names, first the one that is passed; a long one that ends in `-*` stands for
    everything that begins so."""
    value: Value | None = None
    """None: it is never passed."""
    field: str = ""
    """The field below `spec` that is set instead of it; empty: there is none."""
    instead: str = ""
    """What to do where no field stands for it, as the second half of a sentence; empty, and no
    field: `spec.engine.args` may have it."""
    but_for: frozenset[str] = frozenset()
    """Values that `spec.engine.args` may have all the same, behind the flag's own name."""
    plugin_only: bool = False
    """Refused only where the pods get the plugin: any other engine may have it."""
    since: Capability = EVERY_RELEASE
    """The releases that know it; elsewhere it is left out."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def refusal(self) -> str:
        """What to do instead of passing it in `spec.engine.args`; empty: it may be passed."""
        return f"set spec.{self.field} instead" if self.field else self.instead


def _above_one(size: int) -> str | bool:
    return str(size) if size > 1 else False


def _compact(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _max_num_seqs(spec: SpeculativeDeploymentSpec, _role: Role) -> str | bool:
    """The schedules have to end where the engine's batches end."""
    said = not live_depth(spec) or stated_max_num_seqs(spec) is not None
    return False if said else str(max_batch(spec))


def _compilation_config(spec: SpeculativeDeploymentSpec, _role: Role) -> str | bool:
    """What `engine.args` say in it, too: vLLM takes the last one."""
    sizes = added_sizes(spec, max_batch(spec)) if live_depth(spec) else ()
    stated = stated_object(spec.engine.args, "--compilation-config")
    return _compact({**stated, "cudagraph_capture_sizes": sizes}) if sizes else False


def _where_nodes_meet(value: Callable[[SpeculativeDeploymentSpec, Role], str]) -> Value:
    """Of a replica over several nodes; Kubernetes fills in LeaderWorkerSet's variables."""
    return lambda spec, role: value(spec, role) if spans_nodes(spec) else False


def _where_clients_ask(value: Callable[[SpeculativeDeploymentSpec], str | bool]) -> Value:
    return lambda spec, role: value(spec) if role is Role.LEADER else False


def _host(spec: SpeculativeDeploymentSpec) -> str | bool:
    return EVERY_IPV4 if last_value(spec.engine.args, HOST_FLAG) is None else False


_DRAFTING: Final = "set spec.draft and spec.speculation instead"
_BY_OPERATOR: Final = "the operator sets it, and clients reach the model through the Service"
_ONE_NODE: Final = "the operator lays out the nodes of a replica"

BEFORE_ARGS: Final = (
    Flag(("--model",), field="model.id"),
    Flag(("--revision",), lambda spec, _: spec.model.revision or False, "model.revision"),
    Flag(
        ("--served-model-name",),
        lambda spec, _: spec.model.served_name or False,
        "model.servedName",
    ),
    Flag(
        ("--trust-remote-code", "--no-trust-remote-code"),
        lambda spec, _: spec.model.trust_remote_code,
        "model.trustRemoteCode",
    ),
    Flag(("--hf-token",), field="model.tokenSecretRef"),
    Flag(
        ("--tensor-parallel-size", "-tp"),
        lambda spec, _: str(spec.engine.tensor_parallel_size),
        "engine.tensorParallelSize",
    ),
    Flag(
        ("--pipeline-parallel-size", "-pp"),
        lambda spec, _: _above_one(spec.engine.pipeline_parallel_size),
        "engine.pipelineParallelSize",
    ),
    Flag(
        ("--data-parallel-size", "-dp"),
        lambda spec, _: _above_one(spec.engine.data_parallel_size),
        "engine.dataParallelSize",
    ),
    Flag(
        (
            "--data-parallel-*",
            "--no-data-parallel-*",
            *("-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe", "-dpm"),
        ),
        field="engine.dataParallelSize",
    ),
    Flag(
        ("--prefill-context-parallel-size", "-pcp"),
        instead="it takes more GPUs than the pod gets, and is not supported yet",
    ),
    Flag(
        ("--attention-backend",),
        lambda spec, _: spec.engine.attention_backend or False,
        "engine.attentionBackend",
    ),
    Flag(
        ("--speculative-config", "-sc"),
        lambda spec, _: _compact(speculative_config(spec)) if spec.drafts else False,
        instead=_DRAFTING,
    ),
    Flag(("--spec-method",), field="draft.method"),
    Flag(("--spec-model",), field="draft.id"),
    Flag(("--spec-tokens",), field="speculation.tokens"),
    Flag(("--spec-*",), instead=_DRAFTING),
)
"""In the order in which they are passed, before `spec.engine.args`."""

AFTER_ARGS: Final = (
    Flag(
        ("--scheduler-cls",),
        lambda spec, _: SCHEDULER_CLASS if has_plugin(spec) else False,
        instead="the plugin brings its own scheduler; without it use tuning mode Static",
        plugin_only=True,
    ),
    Flag(("--max-num-seqs",), _max_num_seqs),
    Flag(("--compilation-config",), _compilation_config),
    Flag(
        ("--config",), instead="write its options into spec.engine.args and the fields of the spec"
    ),
    Flag(
        ("--nnodes", "-n"),
        _where_nodes_meet(lambda spec, _: str(nodes_per_replica(spec))),
        instead=_ONE_NODE,
    ),
    Flag(
        ("--node-rank", "-r"),
        _where_nodes_meet(lambda _, role: "0" if role is Role.LEADER else f"$({WORKER_INDEX})"),
        instead=_ONE_NODE,
    ),
    Flag(
        ("--master-addr",),
        _where_nodes_meet(lambda _, __: f"$({LEADER_ADDRESS})"),
        instead=_ONE_NODE,
    ),
    Flag(
        ("--master-port",),
        _where_nodes_meet(lambda _, __: str(MASTER_PORT)),
        instead=_ONE_NODE,
    ),
    Flag(
        (HOST_FLAG,),
        _where_clients_ask(_host),
        instead="the operator sets it to 0.0.0.0; for pods that have IPv6 write --host ::",
        but_for=frozenset({EVERY_IPV4, EVERY_ADDRESS}),
    ),
    Flag(("--port",), _where_clients_ask(lambda _: str(HTTP_PORT)), instead=_BY_OPERATOR),
    Flag(("--uds",), instead=_BY_OPERATOR),
    Flag(("--grpc", "--grpc-port"), instead=_BY_OPERATOR),
    Flag(
        ("--shutdown-timeout",),
        _where_clients_ask(lambda spec: str(spec.engine.drain_seconds)),
        "engine.drainSeconds",
        since=SHUTDOWN_TIMEOUT,
    ),
    Flag(("--headless",), lambda _, role: role is Role.WORKER, instead=_ONE_NODE),
    Flag(("--api-server-count", "-asc"), instead="one server per pod shows all of its metrics"),
    Flag(
        ("--api-key",),
        instead="arguments are for all to read; put the key into a Secret, and set VLLM_API_KEY "
        "from it in spec.engine.env",
    ),
    Flag(
        ("--ssl-*", "--enable-ssl-refresh", "--no-enable-ssl-refresh"),
        instead="probes and metrics use plain HTTP in the pod; end TLS in front of the Service",
    ),
    Flag(
        ("--disable-log-stats",),
        instead="tuning reads those statistics; without them use tuning mode Static",
        plugin_only=True,
    ),
)
"""In the order in which they are passed, behind `spec.engine.args`."""

FLAGS: Final = (*BEFORE_ARGS, *AFTER_ARGS)
