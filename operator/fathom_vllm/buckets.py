"""Batch buckets: 1 to 8 each, 9-10, 11-12 and so on, each doubling cut in four. Pure.

A bucket is what is kept of a batch, less one, when it is rounded to its three highest bits.

And ranges of contexts: one below 2,048 tokens, which many drafts are trained with, then whole
doublings, and one from 131,072 on.
"""

_KEPT_BITS = 3
_PARTS = 1 << (_KEPT_BITS - 1)
"""Parts of each doubling."""
CONTEXT_RANGES = 8
_FIRST_CONTEXT_BITS = 11


def bucket_index(batch: int) -> int:
    """Which bucket a batch falls in, counted from 0."""
    below = max(0, (batch - 1).bit_length() - _KEPT_BITS)
    return _PARTS * below + ((batch - 1) >> below)


def bucket_count(max_batch: int) -> int:
    """How many buckets cover batches up to `max_batch`."""
    return bucket_index(max_batch) + 1


def last_batch(index: int) -> int:
    """The largest batch of a bucket: it is what the bucket is named by."""
    below = max(0, index // _PARTS - 1)
    return (index - _PARTS * below + 1) << below


def first_batch(index: int) -> int:
    """The smallest batch of a bucket."""
    return last_batch(index - 1) + 1 if index else 1


def context_range(tokens: int) -> int:
    """Which range a context falls in, counted from 0."""
    return min(max(tokens.bit_length() - _FIRST_CONTEXT_BITS, 0), CONTEXT_RANGES - 1)


def first_context(index: int) -> int:
    """The shortest context of a range: it is what the range is named by."""
    return 1 << (_FIRST_CONTEXT_BITS + index - 1) if index else 0


def last_context(index: int) -> int | None:
    """The longest context of a range; None: it has no end."""
    return first_context(index + 1) - 1 if index < CONTEXT_RANGES - 1 else None
