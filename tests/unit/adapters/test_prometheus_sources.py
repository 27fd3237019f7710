"""Prometheus servers with a login: who may use one, what is sent, and to nobody else."""

import asyncio
import ipaddress
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fathom.adapters import prometheus_sources
from fathom.adapters.http import http_session
from fathom.adapters.ports import KubeError, PodEndpoint
from fathom.adapters.prometheus_metrics import PrometheusMetrics
from fathom.adapters.prometheus_query import LARGEST_CERTIFICATES, Login, NoLoginError
from fathom.adapters.prometheus_sources import (
    FRESH_S,
    NotGrantedError,
    PrometheusSources,
    SecretLogin,
    SourceLogin,
    SourcesError,
    read_sources,
)
from fathom.api.names import ANNOTATION_PROMETHEUS_URL
from fathom.api.spec import PrometheusSpec
from fathom.cluster.kinds import CONFIG_MAP, SECRET
from local_cluster.control_plane.credentials import create_credentials
from support import bad_server
from support.bad_server import SECRET as WORDS
from support.bad_server import Answer, BadServer, answering
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock

POD = PodEndpoint(namespace="llm", pod="p", ip="127.0.0.1", port=1)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with http_session(4) as made:
        yield made


def configured(folder: Path, *sources: Mapping[str, Any]) -> Path:
    file = folder / "sources.json"
    one = {"name": "central", "url": "https://p.example.com/x", "namespaces": ["llm"]}
    file.write_text(json.dumps({"sources": [{**one, **each} for each in sources]}))
    return file


def read(folder: Path, *sources: Mapping[str, Any]) -> PrometheusSources:
    return read_sources(configured(folder, *sources), ManualClock())


def written(folder: Path, name: str, text: str) -> str:
    file = folder / name
    file.write_text(text)
    return str(file)


def named(source: str = "central", tenant: str = "") -> PrometheusSpec:
    return PrometheusSpec(source=source, tenant=tenant)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"url": "https://user:password@p.example.com"}, "sources.0.url"),
        ({"namespaces": []}, "sources.0.namespaces"),
        ({"usernameFile": "/u"}, "usernameFile and passwordFile go together"),
        ({"tokenFile": "/t", "usernameFile": "/u", "passwordFile": "/p"}, "one login is sent"),
        ({"headers": {"Authorization": f"Bearer {WORDS}"}}, "'Authorization' is no header"),
        ({"headers": {"X-A": f"{WORDS}\r\nX-B: b"}}, "the value of X-A is none"),
        ({"headers": {"x-scope-orgid": "a"}}, "X-Scope-OrgID says the tenant"),
        ({"tenants": {"llm": ["a\nb"]}}, "a tenant is none"),
        ({"token": WORDS}, "sources.0.token"),
    ],
)
def test_a_mistake_is_refused_at_the_start_and_no_secret_is_repeated(
    tmp_path: Path, source: Mapping[str, Any], words: str
) -> None:
    with pytest.raises(SourcesError) as refused:
        read(tmp_path, source)
    assert words in str(refused.value)
    assert WORDS not in str(refused.value)


def test_names_are_unique_and_the_file_is_there(tmp_path: Path) -> None:
    with pytest.raises(SourcesError, match="two sources have one name"):
        read(tmp_path, {}, {})
    with pytest.raises(SourcesError, match="No such file"):
        read_sources(tmp_path / "none.json", ManualClock())


def test_only_its_namespaces_may_use_a_source_and_others_do_not_learn_of_it(
    tmp_path: Path,
) -> None:
    sources = read(tmp_path, {}, {"name": "open", "namespaces": ["*"]})
    assert sources.login(named(), "llm").url == "https://p.example.com/x"
    assert sources.login(named("open"), "web").url == "https://p.example.com/x"
    refused = []
    for source in ("central", "missing"):
        with pytest.raises(NotGrantedError) as error:
            sources.login(named(source), "web")
        refused.append(str(error.value).replace(source, "NAME"))
    assert refused[0] == refused[1]
    assert "it may use: open" in refused[0]


@pytest.mark.parametrize(
    ("tenant", "namespace", "expected"),
    [("", "llm", "a"), ("a", "llm", "a"), ("c", "web", "c"), ("b", "web", "b")],
)
async def test_a_tenant_is_one_that_the_namespace_may_be(
    tmp_path: Path, tenant: str, namespace: str, expected: str
) -> None:
    tenants = {"llm": ["a"], "*": ["b", "c"]}
    sources = read(tmp_path, {"namespaces": ["*"], "tenants": tenants})
    sent = await sources.login(named(tenant=tenant), namespace).credentials()
    assert sent.headers == {"X-Scope-OrgID": expected}


@pytest.mark.parametrize(
    ("tenants", "tenant", "namespace"),
    [
        ({"llm": ["a"]}, "b", "llm"),
        ({"llm": ["a"]}, "", "web"),
        ({"llm": ["a", "b"]}, "", "llm"),
        ({}, "a", "llm"),
    ],
    ids=["of another", "of none", "of several, none named", "of a source without tenants"],
)
def test_any_other_tenant_is_refused(
    tmp_path: Path, tenants: dict[str, list[str]], tenant: str, namespace: str
) -> None:
    sources = read(tmp_path, {"namespaces": ["*"], "tenants": tenants})
    with pytest.raises(NotGrantedError, match=r"correct metrics\.prometheus\.tenant"):
        sources.login(named(tenant=tenant), namespace)


async def test_a_token_or_a_user_and_headers_are_sent(tmp_path: Path) -> None:
    token = written(tmp_path, "token", "abc.def\n")
    sent = await (
        read(tmp_path, {"tokenFile": token, "headers": {"X-Team": "ml"}})
        .login(named(), "llm")
        .credentials()
    )
    assert sent.headers == {"Authorization": "Bearer abc.def", "X-Team": "ml"}
    assert sent.tls is None

    user, password = written(tmp_path, "user", "me"), written(tmp_path, "password", "a:b c\n")
    sent = await (
        read(tmp_path, {"usernameFile": user, "passwordFile": password})
        .login(named(), "llm")
        .credentials()
    )
    assert sent.headers == {"Authorization": f"Basic {b64encode(b'me:a:b c').decode()}"}


async def test_a_new_login_is_read_after_some_seconds_or_at_once_where_the_old_is_refused(
    tmp_path: Path,
) -> None:
    clock, token = ManualClock(), written(tmp_path, "token", "one")
    login = read_sources(configured(tmp_path, {"tokenFile": token}), clock).login(named(), "llm")

    async def sent() -> str:
        return (await login.credentials()).headers["Authorization"]

    assert await sent() == "Bearer one"
    written(tmp_path, "token", "two")
    assert await sent() == "Bearer one"
    clock.at_s += FRESH_S
    assert await sent() == "Bearer two"
    written(tmp_path, "token", "three")
    login.refused()
    assert await sent() == "Bearer three"


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("", "holds no part of"), (f"{WORDS}\n{WORDS}", "holds no part of")],
    ids=["no file", "nothing", "two lines"],
)
async def test_without_a_login_nothing_is_asked_and_it_is_said_where_it_should_be(
    tmp_path: Path, session: aiohttp.ClientSession, content: str | None, words: str
) -> None:
    token = str(tmp_path / "token") if content is None else written(tmp_path, "token", content)
    async with answering(bad_server.failing) as server:
        login = read(tmp_path, {"url": server.url, "tokenFile": token}).login(named(), "llm")
        cause, refused = await asked(session, server, login)
    assert (words in cause, refused) == (True, True)
    assert token in cause
    assert WORDS not in cause
    assert server.asked == []


async def test_certificates_are_trusted_in_place_of_the_machine_s(tmp_path: Path) -> None:
    file = written(tmp_path, "ca.crt", "no certificate")
    login = read(tmp_path, {"caFile": file}).login(named(), "llm")

    async def trusted() -> int:
        login.refused()
        tls = (await login.credentials()).tls
        return 0 if tls is None else len(tls.get_ca_certs())

    with pytest.raises(NoLoginError, match="holds no certificates"):
        await trusted()
    here = ipaddress.IPv4Address("127.0.0.1")
    made = create_credentials(tmp_path / "pki", cluster="a", address=here, port=1, service=here)
    pem = made.ca_certificate.read_text()
    written(tmp_path, "ca.crt", f"# Zertifizierungsstelle für München\n{pem}")
    assert await trusted() == 1
    # So many that reading them would hold up everything else.
    written(tmp_path, "ca.crt", pem * (1 + LARGEST_CERTIFICATES // len(pem)))
    with pytest.raises(NoLoginError, match="or more than 512 KiB"):
        await trusted()
    written(tmp_path, "ca.crt", "# für")
    with pytest.raises(NoLoginError, match="holds no certificates"):
        await trusted()


async def test_certificates_that_are_none_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def refuse(cadata: str) -> ssl.SSLContext:
        tried.append(cadata)
        raise ssl.SSLError

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    file = written(tmp_path, "ca.crt", "none")
    login = read(tmp_path, {"caFile": file}).login(named(), "llm")
    for _ in range(2):
        with pytest.raises(NoLoginError):
            await login.credentials()
    assert tried == ["none"]


async def test_a_login_shows_in_no_text_of_its_object(tmp_path: Path) -> None:
    token = written(tmp_path, "token", WORDS)
    sent = await read(tmp_path, {"tokenFile": token}).login(named(), "llm").credentials()
    assert WORDS in str(sent.headers)
    assert WORDS not in repr(sent)


PROMETHEUS = "https://p.example.com/x"
FORBIDDEN = (
    'secrets "login" is forbidden: User "system:serviceaccount:fathom-system:fathom" cannot get '
    'resource "secrets" in API group "" in the namespace "llm"'
)


def secret(kube: FakeKube, url: str = PROMETHEUS, **data: str) -> None:
    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    kube.put(
        SECRET,
        {
            "metadata": {
                "namespace": "llm",
                "name": "login",
                "annotations": {ANNOTATION_PROMETHEUS_URL: url},
            },
            "data": encoded,
        },
    )


def own(**refs: Mapping[str, str]) -> PrometheusSpec:
    return PrometheusSpec.model_validate({"url": f"{PROMETHEUS}/", **refs})


TOKEN = own(bearerTokenSecretRef={"name": "login", "key": "token"})
USER = own(basicAuthSecretRef={"name": "login"})


async def test_a_namespace_s_own_login_is_its_secret_s() -> None:
    kube, clock = FakeKube(), ManualClock()
    secret(kube, token="abc\n", username="me", password="a b")
    token = SecretLogin(TOKEN, "llm", kube, clock)
    assert (await token.credentials()).headers == {"Authorization": "Bearer abc"}
    user = await SecretLogin(USER, "llm", kube, clock).credentials()
    assert user.headers == {"Authorization": f"Basic {b64encode(b'me:a b').decode()}"}
    nothing = await SecretLogin(own(), "llm", kube, clock).credentials()
    assert nothing.headers == {}

    secret(kube, token="new")
    assert (await token.credentials()).headers == {"Authorization": "Bearer abc"}
    token.refused()
    assert (await token.credentials()).headers == {"Authorization": "Bearer new"}


async def why_not(kube: FakeKube, spec: PrometheusSpec = TOKEN) -> str:
    with pytest.raises(NoLoginError) as error:
        await SecretLogin(spec, "llm", kube, ManualClock()).credentials()
    assert WORDS not in str(error.value)
    return str(error.value)


async def test_it_is_sent_nowhere_that_its_secret_does_not_name() -> None:
    kube = FakeKube()
    secret(kube, url="https://another.example.com", token=WORDS)
    assert f"annotates it with {ANNOTATION_PROMETHEUS_URL}: {PROMETHEUS}" in await why_not(kube)


async def test_what_the_operator_may_not_read_is_said_with_the_role_that_lets_it() -> None:
    kube = FakeKube()
    kube.fail = lambda _, kind: KubeError(403, FORBIDDEN) if kind is SECRET else None
    assert (
        "create role fathom-reads-login --verb=get --resource=secrets --resource-name=login"
        in await why_not(kube)
    )
    assert "--serviceaccount=fathom-system:fathom" in await why_not(kube)


async def test_what_is_missing_is_said_by_its_name() -> None:
    kube = FakeKube()
    assert "there is no Secret login in llm: create it" in await why_not(kube)
    secret(kube, token=f"{WORDS}\n{WORDS}")
    assert "key token of Secret login holds no part of its login" in await why_not(kube)
    secret(kube)
    assert "key username of Secret login" in await why_not(kube, USER)
    certificates = own(caConfigMapRef={"name": "ca", "key": "ca.crt"})
    assert "there is no ConfigMap ca in llm" in await why_not(kube, certificates)
    kube.put(CONFIG_MAP, {"metadata": {"namespace": "llm", "name": "ca"}, "data": {}})
    assert "key ca.crt of ConfigMap ca holds no certificates" in await why_not(kube, certificates)


async def test_an_api_server_in_trouble_is_no_refusal_and_is_named(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube = FakeKube()
    kube.fail = lambda _, __: KubeError(503, "it starts")
    async with answering(bad_server.failing) as server:
        login = SecretLogin(TOKEN, "llm", kube, ManualClock())
        cause, refused = await asked(session, server, login)
        assert ("Secret login cannot be read: it starts" in cause, refused) == (True, False)

        monkeypatch.setattr(prometheus_sources, "READ_S", 0)
        monkeypatch.setattr(kube, "get", silent)
        cause, refused = await asked(session, server, login)
    assert "Secret login cannot be read: the API server does not answer within 0 s" in cause
    assert not refused
    assert server.asked == []


async def silent(*_: object) -> None:
    await asyncio.Event().wait()


async def test_who_sends_no_login_is_not_told_to_correct_it(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    async with answering(refusing(401)) as server:
        login = read(tmp_path, {"url": server.url}).login(named(), "llm")
        cause, refused = await asked(session, server, login)
    assert "it asks for a login (HTTP status 401); set one (prometheus.sources of" in cause
    assert refused


async def asked(
    session: aiohttp.ClientSession, server: BadServer, login: Login | None
) -> tuple[str, bool]:
    sample = await PrometheusMetrics(session, server.url, login=login).sample([POD])
    (unread,) = sample.failures
    return unread.cause, unread.refused


def refusing(status: int) -> Answer:
    async def answer(server: BadServer, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} {WORDS}\r\nContent-Length: {len(WORDS)}\r\n\r\n{WORDS}"
        await server.send(writer, head.encode())

    return answer


@pytest.mark.parametrize(
    ("status", "with_login", "words"),
    [
        (401, True, "it does not take the login of source central as tenant a (HTTP status 401)"),
        (403, True, "the login of source central as tenant a may not query it (HTTP status 403)"),
        (429, True, "it is asked more often than it allows (HTTP status 429)"),
        (401, False, "it asks for a login (HTTP status 401); name a source in metrics.prometheus"),
        (403, False, "it asks for a login (HTTP status 403); name a source in metrics.prometheus"),
        (500, True, "HTTP status 500"),
    ],
)
async def test_each_refusal_says_who_has_to_do_what(
    tmp_path: Path, session: aiohttp.ClientSession, status: int, *, with_login: bool, words: str
) -> None:
    token = written(tmp_path, "token", "my-own-token")
    async with answering(refusing(status)) as server:
        source = {"url": server.url, "tokenFile": token, "tenants": {"llm": ["a"]}}
        login = read(tmp_path, source).login(named(), "llm") if with_login else None
        cause, refused = await asked(session, server, login)
    assert words in cause
    assert refused is (status != 500)
    assert WORDS not in cause
    assert "my-own-token" not in cause
    assert ("my-own-token" in server.heads[0]) is with_login


async def test_a_login_goes_to_its_own_address_and_follows_no_redirect(
    tmp_path: Path, session: aiohttp.ClientSession
) -> None:
    token = written(tmp_path, "token", "my-own-token")
    async with (
        answering(bad_server.failing) as other,
        answering(bad_server.leading_to(other)) as server,
    ):
        url = f"{server.url}/prefix/"
        login = read(tmp_path, {"url": url, "tokenFile": token}).login(named(), "llm")
        assert isinstance(login, SourceLogin)
        sample = await PrometheusMetrics(session, login.url, login=login).sample([POD])
        # A resource that writes the very same URL has no part in the login.
        await PrometheusMetrics(session, url).sample([POD])
    assert "redirects are not followed" in sample.failures[0].cause
    assert [each.startswith("/prefix/api/v1/query?") for each in server.asked] == [True, True]
    assert ["my-own-token" in each for each in server.heads] == [True, False]
    assert other.asked == []
