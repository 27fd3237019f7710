"""The whole loop on a fake cluster, with a clock of the test's own. Nothing here sleeps."""

from support.loop_harness import harness, quiet_logs

__all__ = ["harness", "quiet_logs"]
