"""The event that says, before the first pod goes, that a change needs new pods, and why."""

from fathom.api.resource import SpeculativeDeployment
from fathom.core.events import Happening, Severity
from fathom.core.revision import changed_restart_fields
from fathom.core.snapshot import Objects
from fathom.runtime.intent import LAST_GOOD_SPEC_KEY, earlier_spec


def rolling_notice(
    wanted: SpeculativeDeployment, objects: Objects, revision: str
) -> Happening | None:
    """What to say of this rollout; None: there is none, or it has been told before.

    Told before means: the last good spec already is the wanted one, so an earlier operator
    announced the rollout that this one continues.
    """
    others = [each.revision for each in objects.deployments if each.revision != revision]
    if not others or wanted.spec.rollout.paused:
        return None
    earlier = earlier_spec(objects.resource, objects.tuning.get(LAST_GOOD_SPEC_KEY))
    fields = changed_restart_fields(earlier.spec, wanted.spec) if earlier else ()
    if earlier is not None and not fields:
        return None
    because = f"{fields[0]} changed" if fields else "the spec changed"
    if len(fields) > 1:
        because += f" (and {', '.join(fields[1:])})"
    rollout = wanted.spec.rollout
    return Happening(
        Severity.NORMAL,
        "Rolling",
        f"{because}, which needs new pods: revision {', '.join(others)} is replaced by "
        f"{revision}, with at most {rollout.max_unavailable} replicas missing and "
        f"{rollout.max_surge} added at a time.",
    )
