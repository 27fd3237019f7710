"""Batch buckets, as the engine counts by them and the operator decides by them."""

from hypothesis import given
from hypothesis import strategies as st

from fathom_vllm.buckets import bucket_count, bucket_index, first_batch, last_batch


def test_each_doubling_is_cut_in_four() -> None:
    assert [(first_batch(index), last_batch(index)) for index in range(bucket_count(64))] == [
        (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8),
        (9, 10), (11, 12), (13, 14), (15, 16), (17, 20), (21, 24), (25, 28), (29, 32),
        (33, 40), (41, 48), (49, 56), (57, 64),
    ]  # fmt: skip


@given(st.integers(1, 1 << 20))
def test_every_batch_falls_into_one_bucket_and_into_one_doubling(batch: int) -> None:
    index = bucket_index(batch)
    assert first_batch(index) <= batch <= last_batch(index)
    doubling = (batch - 1).bit_length()
    assert (first_batch(index) - 1).bit_length() == doubling
    assert (last_batch(index) - 1).bit_length() == doubling


@given(st.integers(1, 1 << 20))
def test_as_many_buckets_as_reach_the_largest_batch(batch: int) -> None:
    assert bucket_count(batch) == bucket_index(batch) + 1
    assert last_batch(bucket_count(batch) - 1) >= batch
