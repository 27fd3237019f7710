"""What is wrong with the GPUs that a container asks for. Pure."""

from collections.abc import Collection, Iterator

from fathom.api.accelerators import VENDORS
from fathom.api.problem import Problem


def gpus_sentence(needed: object) -> str:
    """Why another number of GPUs is refused."""
    return (
        f"a pod of this spec gets {needed}: set spec.engine.tensorParallelSize, "
        "pipelineParallelSize and dataParallelSize, and leave this out."
    )


def foreign_gpu_problems(asked: Collection[str], ours: str, field: str) -> Iterator[Problem]:
    """GPUs of another vendor beside those that the accelerator has: no node offers both.

    Args:
        asked: names of the resources.
        ours: the accelerator's.
        field: path of the resources.
    """
    for vendor in VENDORS:
        if vendor.resource != ours and vendor.resource in asked:
            yield Problem(
                f"{field}.{vendor.resource}",
                f"spec.nodePool.accelerator asks for {ours}, and no node has both: name the "
                f"{vendor.name} accelerator there, and leave this out.",
            )
