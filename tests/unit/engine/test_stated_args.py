"""What `engine.args` say is read however it is spelled."""

import pytest

from fathom.engine.flags import engine_args
from manifest_samples import resource


@pytest.mark.parametrize(
    ("args", "batch"),
    [
        ([], 1024),
        (["--max-num-seqs", "16"], 16),
        (["--max-num-seqs=16"], 16),
        (["--max_num_seqs", "16"], 16),
        (["--max-num-se", "16"], 16),
        (["--max-num-seqs", "16", "--max_num_seqs=32"], 32),
        (["--max-num-batched-tokens", "16"], 16),
        (["--max-num-batched-tokens", "4096"], 1024),
        (["--max-num-batched-tokens", "many"], 1024),
        (["--max-num-batched-tokens=-1"], 1024),
        (["--max-num-batched-tokens", "0.5k"], 500),
        (["--max-num-batched-tokens", "1K"], 1024),
        (["--max-num-batched-tokens", "1_000"], 1000),
        (["--max-num-batched-tokens", "1.5K"], 1024),
        (["--performance-mode", "throughput"], 2048),
        (["--performance-mode=balanced"], 1024),
        (["--max", "16"], 1024),
        (["--max-num-seqs-per-node", "16"], 1024),
        (["--max-num-seqs.key", "16"], 1024),
    ],
    ids=str,
)
def test_the_largest_batch_is_read_in_every_spelling(args: list[str], batch: int) -> None:
    engine = resource({"engine.args": args}).engine

    assert engine.max_num_seqs == batch
    ours = [part for part in engine_args(engine) if part == "--max-num-seqs"]
    added = engine.arguments.value("--max-num-seqs") is None
    assert len(ours) == args.count("--max-num-seqs") + added


def test_of_gpus_that_nobody_named_the_smaller_default_is_taken() -> None:
    pool = {"accelerator": "Custom", "gpusPerNode": 4}
    assert resource({"nodePool": pool}).engine.max_num_seqs == 256
