"""The command that starts an engine."""

from collections.abc import Iterable, Iterator
from typing import Final

from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.engine.capability import engine_has
from fathom.engine.flags import AFTER_ARGS, BEFORE_ARGS, Flag
from fathom.engine.ranks import Role

COMMAND: Final = ("vllm", "serve")


def engine_args(spec: SpeculativeDeploymentSpec, role: Role = Role.LEADER) -> tuple[str, ...]:
    """What follows `vllm serve`.

    Nothing stands here that the user did not set, but for what serving in a pod needs (host, port,
    drain) and, where depth is live, what the hooks need.
    """
    return (
        spec.model.id,
        *_passed(BEFORE_ARGS, spec, role),
        *spec.engine.args,
        *_passed(AFTER_ARGS, spec, role),
    )


def _passed(flags: Iterable[Flag], spec: SpeculativeDeploymentSpec, role: Role) -> Iterator[str]:
    for flag in flags:
        value = flag.value(spec, role) if flag.value else False
        if value is False or not engine_has(spec.engine, flag.since):
            continue
        yield flag.name
        if value is not True:
            yield value
