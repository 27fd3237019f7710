"""The command that starts an engine."""

from collections.abc import Iterable, Iterator
from typing import Final

from fathom.engine.flags import AFTER_ARGS, BEFORE_ARGS, Flag
from fathom.engine.profile import EngineProfile
from fathom.engine.ranks import Role

COMMAND: Final = ("vllm", "serve")


def engine_args(engine: EngineProfile, role: Role = Role.LEADER) -> tuple[str, ...]:
    """What follows `vllm serve`.

    Nothing stands here that the user did not set, but for what serving in a pod needs (host, port,
    drain) and, where depth is live, what the hooks need.
    """
    return (
        engine.spec.model.id,
        *_passed(BEFORE_ARGS, engine, role),
        *engine.arguments.words,
        *_passed(AFTER_ARGS, engine, role),
    )


def _passed(flags: Iterable[Flag], engine: EngineProfile, role: Role) -> Iterator[str]:
    for flag in flags:
        value = flag.value(engine, role) if flag.value else False
        if value is False or not engine.start.has(flag.since):
            continue
        yield flag.name
        if value is not True:
            yield value
