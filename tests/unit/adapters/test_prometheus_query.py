from fathom.adapters.ports import choose
from fathom.adapters.prometheus_query import any_of, selector
from fathom.api.choices import MetricsSource
from fathom.api.spec import MetricsSpec


def test_label_values_are_escaped_for_the_pattern_and_for_the_string() -> None:
    query = selector([("namespace", any_of(["a.b"])), ("pod", any_of(['x"y', "p|q"]))], 60)

    assert 'namespace=~"a\\\\.b"' in query
    assert 'pod=~"x\\"y|p\\\\|q"' in query
    assert query.endswith("[60000ms]")


def test_a_label_value_stays_in_one_piece() -> None:
    """Half a character, as JSON escapes those beyond 16 bits, is none to Prometheus."""
    assert 'cluster=~"köln\U0001f984"' in selector([("cluster", any_of(["köln\U0001f984"]))], 60)


def test_auto_takes_prometheus_only_where_a_url_is_given() -> None:
    assert choose(MetricsSpec()) is MetricsSource.PODS
    assert choose(MetricsSpec(prometheus_url="http://p:9090")) is MetricsSource.PROMETHEUS
    assert (
        choose(MetricsSpec(source=MetricsSource.PODS, prometheus_url="http://p:9090"))
        is MetricsSource.PODS
    )
    assert choose(MetricsSpec(source=MetricsSource.PROMETHEUS)) is MetricsSource.PROMETHEUS
