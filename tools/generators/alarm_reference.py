"""Writes docs/alarms.md from the table of alarms."""

import sys
from typing import Final

from fathom.api.conditions import Reason
from fathom.tuning.alarms.table import ALARMS, OVER_AFTER_S, AlarmRow, RestsOn

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600

_HEAD = f"""# Alarms

Generated from the code by `make regenerate`.

An alarm is something that a person should check. Each is a condition in `status.conditions` that
is absent until it was raised once, and says what was seen, in numbers, and what to do. It is also a
Warning event (and a Normal one, `...Over`, when it ends), a column of `fathom top`, and the metric
[`fathom_alarm`](metrics.md).

No alarm changes depth, which follows what is [measured](tuning.md) in any case. One is over when
its cause was gone for {OVER_AFTER_S / _MINUTE_S:.0f} minutes; without metrics it stays active.
`OnePodDiffers` ends with its pod's engine, too: when the pod is deleted, or starts again. Why they
are conditions: [0008](design/0008-alarms-are-conditions.md).

| reason | condition | raised when | for | what to do |
|---|---|---|---|---|
"""
_FOOT = f"""| `{Reason.CLEARED}` | each, False | its cause is gone | | nothing |

\\* Not with [adaptive verification](adaptive-verification.md), where it is not known which drafts
were verified. † Not where [depth is not live](tuning.md#where-depth-is-not-live): there none was
asked for, and only `tokens` runs.

While AcceptanceDecay is active, its message ends with what
[`rollout.refresh`](rollouts.md#refresh) does. What `drafting: Disabled` saves:
[tuning](tuning.md#without-drafting).
"""

_MARKS: Final = {RestsOn.ACCEPTANCE: r"\*", RestsOn.LIVE_DEPTH: "†"}


def reference() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, ALARMS)) + _FOOT


def _row(row: AlarmRow) -> str:
    mark = _MARKS[row.rests_on]
    return f"| `{row.reason}` | {row.kind} {mark} | {row.when} | {_time(row)} | {row.advice} |\n"


def _time(row: AlarmRow) -> str:
    if row.lasts_s < _HOUR_S:
        return f"{row.lasts_s / _MINUTE_S:.0f} min"
    return f"{row.lasts_s / _HOUR_S:.0f} h"


if __name__ == "__main__":
    sys.stdout.write(reference())
