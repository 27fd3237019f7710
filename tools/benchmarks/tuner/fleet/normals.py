"""Standard normal numbers, drawn in blocks: one at a time they cost more than all else."""

from collections.abc import Iterator
from typing import Final

import numpy as np

CUT: Final = 2.5
"""Numbers beyond are drawn in, so that what they move stays possible without a bias."""
_BLOCK: Final = 50_000


def normals(draws: np.random.Generator) -> Iterator[float]:
    """Endless; between -CUT and CUT."""
    while True:
        yield from np.clip(draws.standard_normal(_BLOCK), -CUT, CUT).tolist()
