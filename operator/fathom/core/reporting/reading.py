"""What a status says to whoever reads it: commands and the page. Pure."""

from typing import Final

from fathom.api.conditions import AlarmKind, ConditionStatus, ConditionType
from fathom.api.status import GainedStatus, SpeculativeDeploymentStatus
from fathom.resource import SpeculativeDeployment

UNKNOWN: Final = "–"
"""In a table: it is not zero."""
NOT_MEASURED: Final = "not measured"


def standing(status: SpeculativeDeploymentStatus) -> tuple[str, ...]:
    """Conditions that somebody should look at, each with its reason: `Degraded/PodFailing`."""
    return tuple(
        f"{each.type}/{each.reason}"
        for each in status.conditions
        if each.status is ConditionStatus.TRUE
        and (each.type is ConditionType.DEGRADED or isinstance(each.type, AlarmKind))
    )


def why_not_live(resource: SpeculativeDeployment, status: SpeculativeDeploymentStatus) -> str:
    """Why depth is not live; empty: it is.

    The operator sees how its pods were started; the spec alone tells less.
    """
    actuation = status.engine.actuation
    if actuation:
        said = status.engine.reason or f"status.engine.actuation is {actuation}."
        return "" if actuation == "Live" else said
    refusal = resource.engine.not_live
    return refusal.sentence if refusal else ""


def gained_in_words(gained: GainedStatus) -> str:
    """What following the traffic brought, and over which hours that is known."""
    hours = (
        f"{gained.measured_gpu_hours} busy GPU hours measured, {gained.unmeasured_gpu_hours} not"
    )
    if not gained.percent:
        return f"{NOT_MEASURED} since {gained.since} ({hours})"
    return (
        f"{signed(gained.percent)} % ± {gained.error_percent}, {signed(gained.gpu_hours)} ± "
        f"{gained.error_gpu_hours} GPU hours since {gained.since} ({hours})"
    )


def signed(number: str) -> str:
    """A number of the status with its sign, as it stands there."""
    return number if number.startswith("-") else f"+{number}"
