"""Rules across the fields of `metrics`, in the form of `fathom.api.cel_rules`."""

import re
from typing import Final, Protocol

from fathom.api.choices import MetricsSource
from fathom.api.problem import Rule
from fathom.api.spec import PrometheusSpec, SourceSpec


class Measured(Protocol):
    """A spec that says where measurements come from."""

    @property
    def metrics(self) -> SourceSpec:
        """Where."""
        ...


PLAIN_URL: Final = r"^https?://([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~!$&()*+,;=:@%/-]*)?$"
_NOT_A_PLAIN_URL: Final = (
    "this is not the plain base URL of a Prometheus: write http:// or https://, a host, and a port "
    "and a path where they are needed, without user or password, ? and #."
)


def _is_plain(url: str) -> bool:
    """Whether it may be asked; none at all is another rule's matter."""
    return not url or re.fullmatch(PLAIN_URL, url) is not None


def _one_login(prometheus: PrometheusSpec) -> bool:
    own = (prometheus.bearer_token_secret_ref, prometheus.basic_auth_secret_ref)
    if prometheus.source:
        return not (prometheus.url or any(own) or prometheus.ca_config_map_ref)
    return bool(prometheus.url) and not (prometheus.tenant or all(own))


METRICS_RULES: Final[tuple[Rule[Measured], ...]] = (
    Rule(
        field="metrics.prometheusURL",
        message=_NOT_A_PLAIN_URL,
        cel=f"self.metrics.prometheusURL == '' "
        f"|| self.metrics.prometheusURL.matches(r'{PLAIN_URL}')",
        holds=lambda spec: _is_plain(spec.metrics.prometheus_url),
    ),
    Rule(
        field="metrics.prometheus",
        message="it has its own URL and labels: leave out prometheusURL and prometheusLabels, and "
        "write url and labels below prometheus.",
        cel="!has(self.metrics.prometheus) || (self.metrics.prometheusURL == '' "
        "&& (!has(self.metrics.prometheusLabels) || size(self.metrics.prometheusLabels) == 0))",
        holds=lambda spec: (
            spec.metrics.prometheus is None
            or not (spec.metrics.prometheus_url or spec.metrics.prometheus_labels)
        ),
    ),
    Rule(
        field="metrics.prometheus.source",
        message="name a source, and its tenant where it has several; or write a url, with one of "
        "bearerTokenSecretRef and basicAuthSecretRef at most, and caConfigMapRef.",
        cel="!has(self.metrics.prometheus) || (self.metrics.prometheus.source != '' "
        "? self.metrics.prometheus.url == '' && !has(self.metrics.prometheus.bearerTokenSecretRef) "
        "&& !has(self.metrics.prometheus.basicAuthSecretRef) "
        "&& !has(self.metrics.prometheus.caConfigMapRef) "
        ": self.metrics.prometheus.url != '' && self.metrics.prometheus.tenant == '' "
        "&& !(has(self.metrics.prometheus.bearerTokenSecretRef) "
        "&& has(self.metrics.prometheus.basicAuthSecretRef)))",
        holds=lambda spec: spec.metrics.prometheus is None or _one_login(spec.metrics.prometheus),
    ),
    Rule(
        field="metrics.prometheus.url",
        message=_NOT_A_PLAIN_URL,
        cel="!has(self.metrics.prometheus) || self.metrics.prometheus.url == '' "
        f"|| self.metrics.prometheus.url.matches(r'{PLAIN_URL}')",
        holds=lambda spec: (
            spec.metrics.prometheus is None or _is_plain(spec.metrics.prometheus.url)
        ),
    ),
    Rule(
        field="metrics.source",
        message="Prometheus needs an address: set prometheus.url, or prometheus.source.",
        cel="self.metrics.source != 'Prometheus' || self.metrics.prometheusURL != '' "
        "|| has(self.metrics.prometheus)",
        holds=lambda spec: (
            spec.metrics.source is not MetricsSource.PROMETHEUS
            or bool(spec.metrics.prometheus_url or spec.metrics.prometheus)
        ),
    ),
)
