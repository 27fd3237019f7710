"""Where the ranks of one replica meet, and which of its pods serves."""

from enum import StrEnum
from typing import Final

from fathom.api import names

LEADER_ADDRESS: Final = "LWS_LEADER_ADDRESS"
"""Variable with the leader's host name, in every container of a group."""
WORKER_INDEX: Final = "LWS_WORKER_INDEX"
"""Variable with the pod's number in its group; the leader's is 0."""
MASTER_PORT: Final = 29501
"""vLLM's default of --master-port, where the ranks of all nodes meet."""


class Role(StrEnum):
    """Of a pod in its replica."""

    LEADER = names.ROLE_LEADER
    WORKER = names.ROLE_WORKER
