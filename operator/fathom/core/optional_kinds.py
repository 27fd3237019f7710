"""What a spec would use and this cluster does not serve, in sentences."""

from collections.abc import Iterator

from fathom.api.spec import AutoOrNever, SpeculativeDeploymentSpec
from fathom.core.served import ServedApis

_POD_MONITOR = ("monitoring.coreos.com/v1", "PodMonitor")


def skipped(spec: SpeculativeDeploymentSpec, served: ServedApis) -> tuple[str, ...]:
    """One sentence for each thing that is left out; empty: nothing is."""
    return tuple(_skipped(spec, served))


def _skipped(spec: SpeculativeDeploymentSpec, served: ServedApis) -> Iterator[str]:
    if spec.metrics.pod_monitor is AutoOrNever.AUTO:
        scrape = "a Prometheus has to be told to scrape port http of the pods."
        if served.has(*_POD_MONITOR):
            yield f"PodMonitors are not made yet: {scrape}"
        else:
            yield f"No PodMonitor, as this cluster does not serve {_POD_MONITOR[0]}: {scrape}"
