"""What a spec would use and this cluster does not serve, in sentences."""

from collections.abc import Iterator

from fathom.api.spec import AutoOrNever, SpeculativeDeploymentSpec
from fathom.core.served import ServedApis

_POD_MONITOR = ("monitoring.coreos.com/v1", "PodMonitor")


def skipped(spec: SpeculativeDeploymentSpec, served: ServedApis) -> tuple[str, ...]:
    """One sentence for each thing that is left out; empty: nothing is."""
    return tuple(_skipped(spec, served))


def _skipped(spec: SpeculativeDeploymentSpec, served: ServedApis) -> Iterator[str]:
    if spec.metrics.pod_monitor is AutoOrNever.AUTO and not served.has(*_POD_MONITOR):
        yield (
            "No PodMonitor: this cluster does not serve monitoring.coreos.com/v1; install the "
            "Prometheus operator, or set metrics.podMonitor to Never."
        )
