"""What a loop logs is not what these tests are about."""

from support.loop_harness import quiet_logs

__all__ = ["quiet_logs"]
