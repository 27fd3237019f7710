"""Which depths an engine was told of at its start, as its arguments say. Pure.

A pod keeps what it was started with, whatever a later spec or a later Fathom would start it with.
"""

from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from fathom.api.spec import MAX_TOKENS_LIMIT
from fathom.engine.arguments import EngineArguments

_OPTION: Final = "--speculative-config"


_Depth = Annotated[int, Field(ge=0, le=MAX_TOKENS_LIMIT)]


class _SpeculativeConfig(BaseModel):
    schedule: Annotated[
        tuple[tuple[int, int, _Depth], ...],
        Field(alias="num_speculative_tokens_per_batch_size", min_length=1),
    ]


def depths_in(arguments: EngineArguments) -> frozenset[int] | None:
    """The depths of the schedule in these arguments.

    None: they hold none, or one with so few batches that some depths may have found no place.
    """
    try:
        config = _SpeculativeConfig.model_validate_json(arguments.value(_OPTION) or "")
    except ValidationError:
        return None
    depths = frozenset(depth for _, _, depth in config.schedule)
    _, batches, _ = config.schedule[-1]
    return depths if len(depths) < batches else None
