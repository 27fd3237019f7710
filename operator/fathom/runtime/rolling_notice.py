"""The event that says, before the first pod goes, that a change needs new pods, and why."""

from fathom.api.resource import SpeculativeDeployment
from fathom.core.counted import counted
from fathom.core.events import Happening, Severity
from fathom.core.manifest import Manifest
from fathom.core.revision import changed_restart_fields
from fathom.rollout.rollout import Rollout
from fathom.runtime.intent import earlier_spec
from fathom.runtime.kept import Kept


def rolling_notice(
    wanted: SpeculativeDeployment, resource: Manifest, kept: Kept, rollout: Rollout
) -> Happening:
    """What to say of a rollout that begins.

    Args:
        wanted: the spec that asks for it.
        resource: the SpeculativeDeployment as it was read.
        kept: what is known of the specs before.
        rollout: the one that begins.
    """
    earlier = earlier_spec(resource, kept.spec_of(rollout.stable))
    fields = changed_restart_fields(earlier.spec, wanted.spec) if earlier else ()
    because = f"{fields[0]} changed" if fields else "the spec changed"
    if len(fields) > 1:
        because += f" (and {', '.join(fields[1:])})"
    wishes = wanted.spec.rollout
    held = " It waits while rollout.paused is set." if wishes.paused else ""
    return Happening(
        Severity.NORMAL,
        "Rolling",
        f"{because}, which needs new pods: revision {rollout.stable} is replaced by "
        f"{rollout.revision}, one canary first, with at most "
        f"{counted(wishes.max_unavailable, 'replica')} missing and {wishes.max_surge} added at a "
        f"time.{held}",
    )
