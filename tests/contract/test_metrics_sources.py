"""Both metrics sources against the same exporters: pods' own pages, and a real Prometheus."""

import asyncio
import ipaddress
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import JsonValue
from yarl import URL

from fathom.adapters.exposition import counters
from fathom.adapters.http import http_session
from fathom.adapters.pod_metrics import PodMetrics
from fathom.adapters.ports import MetricsPort, PodEndpoint, Sample, SystemClock
from fathom.adapters.prometheus_history import Access, PrometheusHistory, Scrape
from fathom.adapters.prometheus_metrics import PrometheusMetrics
from fathom.adapters.prometheus_query import PrometheusUnreadableError
from fathom.adapters.prometheus_sources import FRESH_S, SourceLogin, read_sources
from fathom.api.spec import MetricsSpec, PrometheusSpec
from fathom.cluster.kinds import ObjectKey
from fathom.measurement.counters import PodCounters
from fathom.measurement.deltas import delta
from fathom.runtime.ports import MetricsSources
from local_cluster.control_plane.credentials import Credentials, create_credentials
from local_cluster.prometheus import prometheus_process
from support.engine_page import FakeEngine
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock
from support.prometheus import running_prometheus
from support.waiting import GUARD_S, until

PODS = ("pod-a", "pod-b")
NAMESPACE = "llm"
LOOKBACK_S = 4
SCRAPED_EVERY_S = 0.25
"""By `running_prometheus`."""


@dataclass
class Exporters:
    """Pods that are one loopback server each."""

    engines: dict[str, FakeEngine] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """Pages shown instead of the engine's."""
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, nobody gets a page."""
    runners: dict[str, web.AppRunner] = field(default_factory=dict)

    async def start(self, pod: str) -> None:
        async def page(_: web.Request) -> web.Response:
            await self.answers.wait()
            return web.Response(text=self.texts.get(pod) or self.engines[pod].page())

        app = web.Application()
        app.router.add_get("/metrics", page)
        self.engines[pod] = FakeEngine()
        self.runners[pod] = web.AppRunner(app)
        await self.runners[pod].setup()
        site = web.TCPSite(self.runners[pod], "127.0.0.1", 0)
        await site.start()
        address = self.runners[pod].addresses[0]
        self.ports[pod] = int(address[1])

    async def stop(self, pod: str) -> None:
        await self.runners.pop(pod).cleanup()

    def endpoints(self) -> list[PodEndpoint]:
        return [
            PodEndpoint(namespace=NAMESPACE, pod=pod, ip="127.0.0.1", port=self.ports[pod])
            for pod in PODS
        ]


@pytest.fixture
async def exporters() -> AsyncIterator[Exporters]:
    made = Exporters()
    made.answers.set()
    for pod in PODS:
        await made.start(pod)
    yield made
    made.answers.set()
    for pod in tuple(made.runners):
        await made.stop(pod)


def jobs(exporters: Exporters) -> list[Mapping[str, JsonValue]]:
    """How a Prometheus scrapes the exporters, with Kubernetes' labels."""
    return [
        {
            "job_name": "vllm",
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{exporters.ports[pod]}"],
                    "labels": {
                        # As the Prometheus operator labels, and as annotations do.
                        **(
                            {"pod": pod, "namespace": NAMESPACE}
                            if pod == PODS[0]
                            else {
                                "kubernetes_pod_name": pod,
                                "kubernetes_namespace": NAMESPACE,
                            }
                        )
                    },
                }
                for pod in exporters.ports
            ],
        }
    ]


@pytest.fixture(params=["pods", "prometheus"])
async def source(
    request: pytest.FixtureRequest, exporters: Exporters, tmp_path: Path
) -> AsyncIterator[MetricsPort]:
    if request.param == "prometheus":
        async with running_prometheus(jobs(exporters), tmp_path) as url, http_session(8) as session:
            yield PrometheusMetrics(session, url, timeout_s=GUARD_S, lookback_s=LOOKBACK_S)
    else:
        async with http_session(8) as session:
            yield PodMetrics(session, SystemClock(), timeout_s=GUARD_S, connect_s=GUARD_S)


async def sampled(
    source: MetricsPort, exporters: Exporters, accept: Callable[[Sample], bool], what: str
) -> Sample:
    """The first sample that is as it should be."""

    async def look() -> Sample | None:
        sample = await source.sample(exporters.endpoints())
        return sample if accept(sample) else None

    return await until(look, what)


def of(sample: Sample, pod: str) -> PodCounters | None:
    return next((each for each in sample.counters if each.pod == pod), None)


def shows_all(exporters: Exporters) -> Callable[[Sample], bool]:
    def accept(sample: Sample) -> bool:
        by_pod = {each.pod: each for each in sample.counters}
        return set(by_pod) == set(PODS) and all(
            exporters.engines[pod].is_shown_by(by_pod[pod]) for pod in PODS
        )

    return accept


async def test_counters_are_those_of_the_pods_with_the_time_at_which_they_were(
    source: MetricsPort, exporters: Exporters
) -> None:
    changed_at_s = time.time()
    exporters.engines["pod-a"].tokens = 6.0
    exporters.engines["pod-b"].tokens = 7.0
    exporters.engines["pod-b"].engines = 2

    sample = await sampled(source, exporters, shows_all(exporters), "both pods' counters")

    assert sample.failures == ()
    for each in sample.counters:
        # A scrape counts from where it begins, and takes no longer than from one to the next.
        assert changed_at_s - SCRAPED_EVERY_S <= each.at_s <= time.time()


async def test_progress_is_a_delta_and_a_restart_is_not(
    source: MetricsPort, exporters: Exporters
) -> None:
    before = await sampled(source, exporters, shows_all(exporters), "the first counters")
    exporters.engines["pod-a"].tokens += 50
    exporters.engines["pod-b"] = FakeEngine(started_at_s=1_700_000_100.0, tokens=1000.0)
    after = await sampled(source, exporters, shows_all(exporters), "the counters that moved")

    a = delta(_some(before, "pod-a"), _some(after, "pod-a"))
    assert a is not None
    assert a.engine.generation_tokens == 50
    assert a.seconds > 0
    assert delta(_some(before, "pod-b"), _some(after, "pod-b")) is None


async def test_series_of_a_pods_earlier_life_are_gone(
    source: MetricsPort, exporters: Exporters
) -> None:
    await sampled(source, exporters, shows_all(exporters), "the first counters")
    exporters.engines["pod-a"] = FakeEngine(started_at_s=1_700_000_100.0, cells={}, drafts={})
    await sampled(source, exporters, shows_all(exporters), "counters without the old cells")


async def test_a_vanished_pod_is_absent_and_its_last_sample_is_seen_to_age(
    source: MetricsPort, exporters: Exporters
) -> None:
    await sampled(source, exporters, shows_all(exporters), "the first counters")
    await exporters.stop("pod-b")
    gone_at = time.time()
    seen: list[float] = []

    def absent(sample: Sample) -> bool:
        counters = of(sample, "pod-b")
        if counters is not None:
            seen.append(counters.at_s)
        return counters is None

    sample = await sampled(source, exporters, absent, "pod-b to be absent")

    # Whatever was still reported of it carried the time at which it was true.
    assert all(at_s <= gone_at + 0.1 for at_s in seen)
    assert of(sample, "pod-a") is not None
    assert any(failure.pod == "pod-b" for failure in sample.failures)


async def test_a_malformed_page_is_a_failure_with_a_sentence(
    source: MetricsPort, exporters: Exporters
) -> None:
    await sampled(source, exporters, shows_all(exporters), "the first counters")
    exporters.texts["pod-a"] = "this is { not a metrics page\n"

    sample = await sampled(
        source, exporters, lambda sample: of(sample, "pod-a") is None, "pod-a to be refused"
    )

    assert of(sample, "pod-b") is not None
    assert [failure.pod for failure in sample.failures] == ["pod-a"]


async def test_a_page_of_something_else_is_a_failure(
    source: MetricsPort, exporters: Exporters
) -> None:
    exporters.texts["pod-a"] = "process_start_time_seconds 5\n"

    sample = await sampled(
        source,
        exporters,
        lambda sample: any("no vllm: metrics" in failure.cause for failure in sample.failures),
        "pod-a to be refused",
    )

    assert of(sample, "pod-a") is None


async def test_clusters_behind_one_prometheus_are_told_apart_by_their_labels(
    exporters: Exporters, tmp_path: Path
) -> None:
    name = "kimi-0a1b2c3d-0"
    scraped = [
        {
            "job_name": cluster,
            "static_configs": [
                {
                    "targets": [f"127.0.0.1:{exporters.ports[pod]}"],
                    "labels": {"pod": name, "namespace": NAMESPACE, "cluster": cluster},
                }
            ],
        }
        for cluster, pod in zip(("eu.1", "eu-1"), PODS, strict=True)
    ]
    for tokens, pod in enumerate(PODS, start=1):
        exporters.engines[pod].tokens = tokens
    here = PodEndpoint(namespace=NAMESPACE, pod=name, ip="10.0.0.1", port=8000)
    async with running_prometheus(scraped, tmp_path) as url, http_session(1) as session:
        for tokens, cluster in enumerate(("eu.1", "eu-1"), start=1):
            labels = {"cluster": cluster}
            reader = PrometheusMetrics(session, url, timeout_s=GUARD_S, labels=labels)
            history = PrometheusHistory(url, timeout_s=GUARD_S, labels=labels)

            async def read(reader: MetricsPort = reader) -> bool:
                return bool((await reader.sample([here])).counters)

            await until(read, f"a scrape of {cluster}")
            now_s, key = time.time(), ObjectKey(NAMESPACE, "kimi")
            past = [
                counters(each.points, pod=each.pod, at_s=each.at_s)
                async for chunk in history.chunks(key, now_s - 60, now_s, step_s=0.0)
                for each in chunk.scrapes
            ]
            history.close()
            (now,) = (await reader.sample([here])).counters
            assert {each.engine.generation_tokens for each in (now, *past)} == {tokens}


async def test_the_past_is_told_scrape_by_scrape(exporters: Exporters, tmp_path: Path) -> None:
    pod = "kimi-0a1b2c3d-5f6g7-x8z9q"
    await exporters.start(pod)
    started_s = time.time()
    async with running_prometheus(jobs(exporters), tmp_path) as url:
        history = PrometheusHistory(url, timeout_s=GUARD_S)

        async def told() -> list[Scrape]:
            key, now_s = ObjectKey(NAMESPACE, "kimi"), time.time()
            chunks = history.chunks(key, started_s, now_s, step_s=0.0)
            return [scrape async for chunk in chunks for scrape in chunk.scrapes]

        async def enough() -> bool:
            exporters.engines[pod].tokens += 10
            return len(await told()) > 3

        await until(enough, "four scrapes")
        found = await told()
        history.close()
    looks = [counters(each.points, pod=each.pod, at_s=each.at_s) for each in found]

    assert {look.pod for look in looks} == {pod}
    moments = [look.at_s for look in looks]
    assert moments == sorted(set(moments))
    assert started_s - 1 < moments[0] < moments[-1] < time.time() + 1
    tokens = [look.engine.generation_tokens for look in looks]
    assert tokens == sorted(tokens)
    assert tokens[0] < tokens[-1]
    assert looks[-1].cells.keys() == exporters.engines[pod].cells.keys()


FIRST, SECOND = "first-password", "second-password"
HASHES = {
    FIRST: "$2b$04$Knim6yre0mv.uNiX/dIM8.PymKs9RNUBezm.GhI8LxHPSIIwlmmRu",
    SECOND: "$2b$04$WOVd6XIDa.w2xWyJnuytCeygNOb7pCWIeFPGrITHMGhv24a4K0KPO",
}
"""By bcrypt, at its cheapest."""


@dataclass
class Guarded:
    """The files of a Prometheus behind TLS and a password, and of who knows them."""

    folder: Path

    def certify(self, name: str) -> Credentials:
        here = ipaddress.IPv4Address("127.0.0.1")
        return create_credentials(
            self.folder / name, cluster=name, address=here, port=1, service=here
        )

    def asks_for(self, password: str, certificate: Credentials) -> Path:
        """Prometheus reads it again at each request."""
        web = self.folder / "web.json"
        tls = {
            "cert_file": str(certificate.server_certificate),
            "key_file": str(certificate.server_key),
        }
        users = {"fathom": HASHES[password]}
        new = web.with_suffix(".new")
        new.write_text(json.dumps({"tls_server_config": tls, "basic_auth_users": users}))
        return new.replace(web)

    def sends(self, password: str, certificate: Credentials) -> None:
        (self.folder / "username").write_text("fathom\n")
        (self.folder / "password").write_text(f"{password}\n")
        (self.folder / "ca.crt").write_text(certificate.ca_certificate.read_text())

    def login(self, url: str, clock: ManualClock) -> SourceLogin:
        file = self.folder / "sources.json"
        files = {
            f"{key}File": str(self.folder / name)
            for key, name in (("username", "username"), ("password", "password"), ("ca", "ca.crt"))
        }
        one = {"name": "central", "url": url, "namespaces": [NAMESPACE], **files}
        file.write_text(json.dumps({"sources": [one]}))
        return read_sources(file, clock).login(PrometheusSpec(source="central"), NAMESPACE)

    async def past(self, url: str, password: str) -> list[str]:
        """The pods that a person finds there."""
        login = b64encode(f"fathom:{password}".encode()).decode()
        access = Access(headers={"Authorization": f"Basic {login}"}, ca_file=self.folder / "ca.crt")
        history, now_s = PrometheusHistory(url, access, timeout_s=GUARD_S), time.time()
        chunks = history.chunks(ObjectKey(NAMESPACE, "kimi"), now_s - 60, now_s, step_s=0.0)
        return [scrape.pod async for chunk in chunks for scrape in chunk.scrapes]


async def test_a_guarded_prometheus_is_read_while_its_login_and_certificate_change(
    exporters: Exporters, tmp_path: Path
) -> None:
    guarded, clock = Guarded(tmp_path), ManualClock()
    old, new = guarded.certify("old"), guarded.certify("new")
    web = guarded.asks_for(FIRST, old)
    guarded.sends(FIRST, old)
    await exporters.start("kimi-0a1b2c3d-0")
    with prometheus_process(250, jobs(exporters), tmp_path, web=web) as url:
        async with http_session(8) as session:
            login = guarded.login(url, clock)
            source = PrometheusMetrics(
                session, url, timeout_s=GUARD_S, lookback_s=LOOKBACK_S, login=login
            )

            async def cause() -> str:
                found = {
                    each.cause for each in (await source.sample(exporters.endpoints())).failures
                }
                return ", ".join(sorted(found))

            await sampled(source, exporters, shows_all(exporters), "the counters")
            await until(lambda: guarded.past(url, FIRST), "the past is read")

            # Who knows nothing of it.
            plain = PrometheusMetrics(session, url, timeout_s=GUARD_S)
            (unread, _) = (await plain.sample(exporters.endpoints())).failures
            assert "its certificate is not trusted" in unread.cause

            guarded.asks_for(SECOND, old)
            with pytest.raises(PrometheusUnreadableError, match="give one that it takes"):
                await guarded.past(url, FIRST)
            assert "it does not take the login of source central (HTTP status 401)" in await cause()
            guarded.sends(SECOND, old)
            await sampled(source, exporters, shows_all(exporters), "the second login is taken")

            guarded.asks_for(SECOND, new)
            guarded.sends(SECOND, new)
            clock.at_s += FRESH_S
            await sampled(source, exporters, shows_all(exporters), "the new certificate is trusted")


async def test_a_token_and_a_tenant_pass_a_gate_in_front_of_a_prometheus(
    exporters: Exporters, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("one")
    limited = asyncio.Event()

    async def gate(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer one":
            return web.Response(status=401)
        if request.headers.get("X-Scope-OrgID") != "ml":
            return web.Response(status=403)
        if limited.is_set():
            return web.Response(status=429)
        path = f"{behind}{request.path_qs.removeprefix('/prometheus')}"
        async with session.get(URL(path, encoded=True), headers=request.headers) as answer:
            return web.Response(body=await answer.read(), status=answer.status)

    app = web.Application()
    app.router.add_get("/prometheus/api/v1/query", gate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    file = tmp_path / "sources.json"
    one = {
        "name": "central",
        "url": f"http://127.0.0.1:{runner.addresses[0][1]}/prometheus/",
        "namespaces": ["*"],
        "tokenFile": str(tmp_path / "token"),
        "tenants": {NAMESPACE: ["ml"], "web": ["web"]},
    }
    file.write_text(json.dumps({"sources": [one]}))
    clock = ManualClock()
    async with running_prometheus(jobs(exporters), tmp_path) as behind, http_session(8) as session:
        found = MetricsSources(
            pods=session,
            prometheus=session,
            clock=clock,
            kube=FakeKube(),
            sources=read_sources(file, clock),
        )
        spec = MetricsSpec.model_validate({"prometheus": {"source": "central"}})

        async def cause(namespace: str) -> str:
            return (await found.of(spec, namespace).sample(exporters.endpoints())).failures[0].cause

        ours = found.of(spec, NAMESPACE)
        await sampled(ours, exporters, shows_all(exporters), "the counters")
        assert "may not query it (HTTP status 403)" in await cause("web")
        limited.set()
        assert "asked more often than it allows (HTTP status 429)" in await cause(NAMESPACE)
        (tmp_path / "token").write_text("another")
        clock.at_s += FRESH_S
        assert "it does not take the login of source central" in await cause(NAMESPACE)
    await runner.cleanup()


async def test_pods_that_answer_too_late_are_a_failure(exporters: Exporters) -> None:
    exporters.answers.clear()
    async with http_session(8) as session:
        sample = await PodMetrics(session, SystemClock(), timeout_s=0.2).sample(
            exporters.endpoints()
        )
    assert sample.counters == ()
    assert len(sample.failures) == 2
    assert "no answer within 0.2 s" in sample.failures[0].cause


async def test_a_prometheus_that_answers_too_late_is_a_failure() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with http_session(1) as session:
        prometheus = PrometheusMetrics(session, url, timeout_s=0.3)
        sample = await prometheus.sample(
            [PodEndpoint(namespace=NAMESPACE, pod="p", ip="127.0.0.1", port=1)]
        )
    server.close()
    await server.wait_closed()

    assert sample.counters == ()
    assert "no answer within 0.3 s" in sample.failures[0].cause


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, "<html></html>", "metrics.prometheusURL"),
        (200, '{"data": {"result": [{"metric": {}, "values": []}]}}', "metrics.prometheusURL"),
        (503, "busy", "HTTP status 503"),
    ],
)
async def test_an_answer_that_is_no_prometheus_is_a_failure(
    status: int, body: str, words: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_get("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with http_session(1) as session:
        prometheus = PrometheusMetrics(session, f"http://127.0.0.1:{runner.addresses[0][1]}/")
        sample = await prometheus.sample(
            [PodEndpoint(namespace=NAMESPACE, pod="p", ip="127.0.0.1", port=1)]
        )
    await runner.cleanup()

    assert sample.counters == ()
    assert words in sample.failures[0].cause


def _some(sample: Sample, pod: str) -> PodCounters:
    found = of(sample, pod)
    assert found is not None
    return found
