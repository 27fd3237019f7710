"""The whole loop on a fake cluster, with a clock of the test's own. Nothing here sleeps."""

from support.bench import bench, quiet_logs

__all__ = ["bench", "quiet_logs"]
