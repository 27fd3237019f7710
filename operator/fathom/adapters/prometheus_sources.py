"""Prometheus servers that ask for a login, as whoever installed the operator has configured them.

A login belongs to one address: it is sent there and nowhere else. Which namespaces may have the
operator ask there, and as which tenants, is configured beside it. Logins are files, which may
change at any time.
"""

import asyncio
import re
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, ValidationError, model_validator

from fathom.adapters.ports import Clock, SystemClock
from fathom.adapters.prometheus_query import Credentials, NoLoginError
from fathom.api.base import ApiModel, Texts
from fathom.api.cel_rules import PLAIN_URL
from fathom.api.spec import PrometheusSpec
from fathom.times import is_over

ANY: Final = "*"
"""In place of a namespace: each of them."""
FRESH_S: Final = 10.0
"""So long a login that was read is taken for the present one: the kubelet takes a minute to bring
another one anyway."""
_LARGEST_FILE_BYTES: Final = 1 << 20
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TEXT: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,8190}[\x21-\x7e])?")
_OURS: Final = frozenset(
    {
        *("accept-encoding", "authorization", "connection", "content-length", "cookie", "host"),
        *("proxy-authorization", "transfer-encoding"),
    }
)
"""Headers that are not configured: they are set by what asks, or hold a login."""
_Names = Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]


class SourcesError(Exception):
    """The configuration cannot be read; the message is a sentence."""


class NotGrantedError(Exception):
    """A resource names a source that its namespace may not use; the message is half a sentence."""


class PrometheusSource(ApiModel):
    """One of them."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    """By which resources name it."""
    url: Annotated[str, Field(pattern=PLAIN_URL, max_length=2048)]
    """Its base URL, without a login."""
    namespaces: _Names
    """Whose resources may name it; `*`: any."""
    token_file: str = ""
    """A file with a bearer token."""
    username_file: str = ""
    password_file: str = ""
    ca_file: str = ""
    """A file with the certificates (PEM) that sign its own; empty: those that this machine
    trusts."""
    headers: Texts = Field(default_factory=dict)
    """Headers to send besides; none of them secret."""
    tenant_header: str = "X-Scope-OrgID"
    """Says as which tenant it is asked."""
    tenants: dict[str, _Names] = Field(default_factory=dict)
    """By namespace, or `*`: the tenants that it may be; empty: no tenant is said."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.username_file) is not bool(self.password_file):
            raise ValueError("usernameFile and passwordFile go together")
        if self.token_file and self.username_file:
            raise ValueError("one login is sent: set tokenFile, or usernameFile and passwordFile")
        for name, value in {**self.headers, self.tenant_header: "any"}.items():
            if not _HEADER.fullmatch(name) or name.lower() in _OURS:
                raise ValueError(f"{name!r} is no header that can be set here")
            if not _TEXT.fullmatch(value):
                raise ValueError(f"the value of {name} is none that a header can have")
        if self.tenant_header.lower() in {name.lower() for name in self.headers}:
            raise ValueError(f"{self.tenant_header} is set by tenants: take it out of headers")
        if not all(map(_TEXT.fullmatch, (name for each in self.tenants.values() for name in each))):
            raise ValueError("a tenant is none that a header can have")
        return self

    def may_use(self, namespace: str) -> bool:
        """Whether resources in that namespace may name it."""
        return not {namespace, ANY}.isdisjoint(self.namespaces)


class _Configuration(ApiModel):
    sources: tuple[PrometheusSource, ...] = ()


class PrometheusSources:
    """All of them, and who may use them."""

    def __init__(self, sources: tuple[PrometheusSource, ...], clock: Clock) -> None:
        self._clock = clock
        self._by_name = {each.name: each for each in sources}
        self._logins: dict[tuple[str, str], SourceLogin] = {}
        """By source and tenant, no more than are configured: each keeps its connections."""

    def login(self, wanted: PrometheusSpec, namespace: str) -> "SourceLogin":
        """The login for what a resource names.

        Raises:
            NotGrantedError: its namespace may not use that source, or not as that tenant.
        """
        source = self._source(wanted, namespace)
        tenant = _tenant(source, wanted, namespace)
        where = (source.name, tenant)
        if where not in self._logins:
            self._logins[where] = SourceLogin(source, tenant, self._clock)
        return self._logins[where]

    def _source(self, wanted: PrometheusSpec, namespace: str) -> PrometheusSource:
        source = self._by_name.get(wanted.source)
        if source is None or not source.may_use(namespace):
            # Whether there is one that others may use is nobody's business.
            usable = [each.name for each in self._by_name.values() if each.may_use(namespace)]
            raise NotGrantedError(
                f"namespace {namespace} may use no source {wanted.source!r} (it may use: "
                f"{', '.join(sorted(usable)) or 'none'}); correct metrics.prometheus.source, or "
                "have prometheus.sources of the operator's chart changed"
            )
        return source


def _tenant(source: PrometheusSource, wanted: PrometheusSpec, namespace: str) -> str:
    """As whom it is asked; empty: no tenant is said."""
    tenants = source.tenants.get(namespace, source.tenants.get(ANY, ()))
    if not source.tenants and not wanted.tenant:
        return ""
    if wanted.tenant in tenants:
        return wanted.tenant
    if len(tenants) == 1 and not wanted.tenant:
        return tenants[0]
    raise NotGrantedError(
        f"namespace {namespace} has to name a tenant of source {source.name} that it may be "
        f"({', '.join(sorted(tenants)) or 'none'}); correct metrics.prometheus.tenant"
    )


def read_sources(file: Path | None, clock: Clock) -> PrometheusSources:
    """Read the operator's configuration (JSON); without a file there are none.

    Raises:
        SourcesError: it cannot be read.
    """
    if file is None:
        return NO_SOURCES
    try:
        found = _Configuration.model_validate_json(file.read_bytes()).sources
    except OSError as error:
        raise SourcesError(f"{file} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise SourcesError(
            f"{file}: {where}: {first['msg'].removeprefix('Value error, ')}."
        ) from error
    if len({each.name for each in found}) < len(found):
        raise SourcesError(f"{file}: two sources have one name: give each its own.")
    return PrometheusSources(found, clock)


class SourceLogin:
    """What a source is asked with. A `Login`: read anew when it may have changed."""

    where: Final = "prometheus.sources of the operator's chart"

    def __init__(self, source: PrometheusSource, tenant: str, clock: Clock) -> None:
        self.url = source.url
        self.whose = f"the login of source {source.name}"
        if tenant:
            self.whose += f" as tenant {tenant}"
        self._source = source
        self._tenant = tenant
        self._clock = clock
        self._read: tuple[float, Credentials] | None = None
        self._trusted: tuple[str, ssl.SSLContext] | None = None
        """The certificates that are trusted, and what a connection is made with: one for all that
        are made, so that connections are used again."""

    async def credentials(self) -> Credentials:
        """As they are now, at most some seconds ago.

        Raises:
            NoLoginError: a file is not there, or holds none.
        """
        now_s = self._clock.now_s()
        if self._read is None or is_over(self._read[0], FRESH_S, now_s):
            self._read = None
            self._read = (now_s, await asyncio.to_thread(self._credentials))
        return self._read[1]

    def refused(self) -> None:
        """They were not taken: others may be there by now."""
        self._read = None

    def _credentials(self) -> Credentials:
        source = self._source
        headers: dict[str, str] = dict(source.headers)
        if self._tenant:
            headers[source.tenant_header] = self._tenant
        if source.token_file:
            headers["Authorization"] = f"Bearer {self._text(source.token_file)}"
        if source.username_file:
            pair = f"{self._text(source.username_file)}:{self._text(source.password_file)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return Credentials(headers, self._tls(source.ca_file) if source.ca_file else None)

    def _text(self, file: str) -> str:
        text = self._content(file).strip()
        if not _TEXT.fullmatch(text):
            raise NoLoginError(
                f"{file} holds no login, of {self.whose}: one line of printable ASCII; correct the "
                f"Secret that {self.where} names"
            )
        return text

    def _content(self, file: str) -> str:
        try:
            with Path(file).open("rb") as opened:
                return opened.read(_LARGEST_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise NoLoginError(
                f"{self.whose} is not there: {file} cannot be read; see that the Secret or "
                f"ConfigMap that {self.where} names exists and has that key"
            ) from error

    def _tls(self, file: str) -> ssl.SSLContext:
        certificates = self._content(file)
        if self._trusted is None or self._trusted[0] != certificates:
            try:
                context = ssl.create_default_context(cadata=certificates)
            except (ssl.SSLError, ValueError) as error:
                raise NoLoginError(
                    f"{file} holds no certificates (PEM); correct the ca that {self.where} names"
                ) from error
            self._trusted = (certificates, context)
        return self._trusted[1]


NO_SOURCES: Final = PrometheusSources((), SystemClock())
