from local_cluster.errors import LocalClusterError


class WorldError(LocalClusterError):
    """A world that cannot be simulated; the message says which part and why."""
