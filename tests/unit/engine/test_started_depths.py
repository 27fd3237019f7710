"""Which depths an engine was told of, as its arguments say."""

import pytest

from fathom.engine.argument_parser import EngineArguments
from fathom.engine.depth_set import depths_in
from fathom.engine.flags import engine_args
from manifest_samples import resource, started_with


@pytest.mark.parametrize("tokens", [1, 4, 6])
def test_what_is_rendered_is_read_back(tokens: int) -> None:
    engine = resource({"speculation": {"tokens": tokens}}).engine
    assert depths_in(EngineArguments.of(engine_args(engine))) == frozenset(engine.depths)


def test_the_last_one_wins_as_in_vllm() -> None:
    args = (*started_with((0, 1)), "--speculative_config=" + started_with((0, 3))[1])
    assert depths_in(EngineArguments.of(args)) == {0, 3}


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--speculative-config",),
        ("--speculative-config", "{"),
        ("--speculative-config", "[]"),
        ("--speculative-config", '{"num_speculative_tokens": 3}'),
        tuple(started_with(())),
        ("--speculative-config", '{"num_speculative_tokens_per_batch_size": [[1, 2]]}'),
        ("--speculative-config", '{"num_speculative_tokens_per_batch_size": []}'),
        ("--speculative-config", '{"num_speculative_tokens_per_batch_size": null}'),
        ("--speculative-config", '{"num_speculative_tokens_per_batch_size": [[1,9,99999999]]}'),
        # As many depths as batches: others may have found no place.
        ("--speculative-config", '{"num_speculative_tokens_per_batch_size": [[1,1,3],[2,2,1]]}'),
    ],
    ids=str,
)
def test_an_engine_without_a_schedule_was_told_of_none(args: tuple[str, ...]) -> None:
    assert depths_in(EngineArguments.of(args)) is None
