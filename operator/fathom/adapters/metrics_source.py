from fathom.api.choices import MetricsSource
from fathom.api.spec import MetricsSpec


def choose(metrics: MetricsSpec) -> MetricsSource:
    """Where counters come from, Auto resolved: Prometheus if a URL is given, else the pods."""
    if metrics.source is not MetricsSource.AUTO:
        return metrics.source
    return MetricsSource.PROMETHEUS if metrics.prometheus_url else MetricsSource.PODS
