"""What ends a bench whose place a replica needs. Pure.

A bench is made by who asks for it, with rights of their own. No priority tells its pod from a
replica's, so Kubernetes would let it keep its place.
"""

from fathom.api import names
from fathom.core.cluster.kinds import JOB
from fathom.core.cluster.manifest import Seen
from fathom.core.cluster.observed import ObservedJob
from fathom.core.cluster.place import lacks_place
from fathom.core.cluster.snapshot import Objects
from fathom.reconcile.writing.operations import Delete


def bench_ended(objects: Objects) -> Delete | None:
    """The deletion of a bench's Job that holds, or waits for, what a replica needs."""
    if objects.bench is None or (trouble := lacks_place(objects)) is None:
        return None
    job = ObservedJob.model_validate(objects.bench)
    ends = job.complete or job.failed is not None or job.metadata.deletion_timestamp is not None
    ours = job.metadata.labels.get(names.LABEL_BENCH) == objects.key.name and any(
        each.uid == objects.metadata.uid for each in job.metadata.owner_references
    )
    if ends or not ours:
        return None
    why = f"a replica goes before a bench: {trouble.message}"
    return Delete(JOB, job.name, Seen.of(objects.bench), why)
