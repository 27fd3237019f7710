"""The Job that takes in what a trainer left, as docs/design/0076 says."""

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

import fathom_intake
from fathom.api import names
from fathom.api.pod_fields import amount_of
from fathom.api.training import TrainingSpec
from fathom.cluster.manifest import Manifest
from fathom.engine.plugin import DeliveredCode, source_files
from fathom.manifests.cache import claim_of
from fathom.manifests.config_maps import code_config_map
from fathom.manifests.program_job import Program, program_job
from fathom.manifests.template_parts import user_env
from fathom.model_refs import STORED_DRAFTS
from fathom.resource import SpeculativeDeployment
from fathom.training.intake import CONTAINER
from fathom_vllm.plugin_version import content_hash

COMPONENT: Final = CONTAINER
OUTPUT: Final = "/fathom/output"
"""Where the trainer writes to, and the intake reads from."""
_PROGRAM_DIRECTORY: Final = "/etc/fathom/intake"
_LONGEST_S: Final = 3600
_ATTEMPTS: Final = 3
"""After so many pods that were lost Kubernetes gives up. A refusal is not tried again."""


class IntakeProgram(DeliveredCode):
    """One version of it."""

    __slots__ = ()


def intake_program() -> IntakeProgram:
    """The one that comes with this Fathom."""
    files = source_files(fathom_intake)
    return IntakeProgram(files, content_hash(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeTarget:
    """What the draft is for, as the program is told it."""

    eagle3: bool
    hidden_size: int | None
    vocab_size: int | None
    table_unread: bool
    """Whether this vLLM has no place for `d2t` where all tokens are proposed."""
    known: tuple[str, ...]
    """Names of classes and types that a config.json may have."""


def output_path(run: str) -> str:
    """Where in the cache's claim the output of a run is."""
    return f"fathom/training/{run}"


def intake_config_map(sd: SpeculativeDeployment, program: IntakeProgram) -> Manifest:
    """The program; immutable and named by its content, as the plugin's."""
    name = names.intake_config_map(sd.metadata.name, program.content)
    return code_config_map(sd, name, COMPONENT, program)


def intake_job(
    sd: SpeculativeDeployment,
    run: str,
    training: TrainingSpec,
    *,
    target: IntakeTarget,
    program: IntakeProgram,
) -> Manifest:
    """Never patched: another run is another Job.

    Args:
        sd: the spec in force.
        run: whose output is taken in.
        training: how much may be taken.
        target: what the draft is for.
        program: that takes it in.
    """
    user = sd.spec.engine.user
    env: list[JsonValue] = [
        {"name": name, "value": value}
        for name, value in {**user_env(user), "PYTHONPATH": _PROGRAM_DIRECTORY}.items()
    ]
    return program_job(
        sd,
        Program(
            component=COMPONENT,
            job=names.intake_job(sd.metadata.name, run),
            config_map=names.intake_config_map(sd.metadata.name, program.content),
            directory=_PROGRAM_DIRECTORY,
            code=program,
            claim=claim_of(sd),
            restart_policy="Never",
            policy={
                "backoffLimit": _ATTEMPTS,
                "activeDeadlineSeconds": _LONGEST_S,
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "FailJob",
                            "onExitCodes": {
                                "containerName": COMPONENT,
                                "operator": "In",
                                "values": [1],
                            },
                        },
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                        },
                    ]
                },
            },
            container={
                "command": ["python3", "-m", "fathom_intake", *_arguments(training, target)],
                "env": env,
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}},
            },
            mounts=(
                {
                    "name": "cache",
                    "mountPath": OUTPUT,
                    "subPath": output_path(run),
                    "readOnly": True,
                },
            ),
        ),
    )


def _arguments(training: TrainingSpec, target: IntakeTarget) -> list[JsonValue]:
    most = int(amount_of(training.max_draft_size) or 0)
    arguments: list[JsonValue] = [
        "--output",
        OUTPUT,
        "--store",
        STORED_DRAFTS,
        "--max-bytes",
        f"{most}",
    ]
    if target.eagle3:
        arguments.append("--eagle3")
    if target.hidden_size is not None:
        arguments += ["--target-hidden-size", str(target.hidden_size)]
    if target.vocab_size is not None:
        arguments += ["--target-vocab-size", str(target.vocab_size)]
    if target.table_unread:
        arguments.append("--table-unread")
    return [*arguments, "--known", *target.known]
