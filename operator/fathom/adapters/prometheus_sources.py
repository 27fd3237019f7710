"""Prometheus servers that ask for a login, which belongs to one address and is sent nowhere else.

Sources are configured by whoever installs the operator: their logins are files, and beside them is
configured which namespaces may have the operator ask there, and as which tenants. A login of a
namespace's own is in a Secret that says for which URL it is.
"""

import asyncio
import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, ValidationError, model_validator

from fathom.adapters.http import HEADER_TEXT, BadAnswerError, basic, bearer
from fathom.adapters.ports import Clock, KubeError, KubePort, SystemClock
from fathom.adapters.prometheus_query import Credentials, Login, NoLoginError
from fathom.api.base import ApiModel, LeanModel, Texts
from fathom.api.metrics_rules import PLAIN_URL
from fathom.api.names import ANNOTATION_PROMETHEUS_URL
from fathom.api.spec import PrometheusSpec
from fathom.cluster.kinds import CONFIG_MAP, SECRET, Kind
from fathom.cluster.manifest import Manifest

ANY: Final = "*"
"""In place of a namespace: each of them."""
FRESH_S: Final = 10.0
"""So long a login that was read is taken for the present one: the kubelet takes a minute to bring
another one anyway."""
SECRET_FRESH_S: Final = 300.0
"""So long for one that the API server is asked for."""
READ_S: Final = 4.0
"""For a Secret or a ConfigMap. Both fit into a look, so that it says which of them did not come."""
_ACCOUNT: Final = re.compile(r'"system:serviceaccount:([^:"]+):([^:"]+)"')
"""Who is refused, as an API server says it."""
_LARGEST_FILE_BYTES: Final = 1 << 20
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
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
            if not HEADER_TEXT.fullmatch(value):
                raise ValueError(f"the value of {name} is none that a header can have")
        if self.tenant_header.lower() in {name.lower() for name in self.headers}:
            raise ValueError(
                f"{self.tenant_header} says the tenant: write its value into tenants, not into "
                "headers"
            )
        if not all(
            map(HEADER_TEXT.fullmatch, (name for each in self.tenants.values() for name in each))
        ):
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


class SourceLogin(Login):
    """What a source is asked with."""

    def __init__(self, source: PrometheusSource, tenant: str, clock: Clock) -> None:
        """Read nothing yet.

        Args:
            source: as it is configured.
            tenant: as whom it is asked; empty: none is said.
            clock: says when to read it again.
        """
        super().__init__(
            source.url,
            whose=f"the login of source {source.name}{f' as tenant {tenant}' if tenant else ''}",
            where="prometheus.sources of the operator's chart",
            clock=clock,
            fresh_s=FRESH_S,
        )
        self._source = source
        self._tenant = tenant

    async def _now(self) -> Credentials:
        return await asyncio.to_thread(self._credentials)

    def _credentials(self) -> Credentials:
        source = self._source
        headers: dict[str, str] = dict(source.headers)
        if self._tenant:
            headers[source.tenant_header] = self._tenant
        if source.token_file:
            headers |= bearer(self._line(source.token_file))
        if source.username_file:
            headers |= basic(self._line(source.username_file), self._line(source.password_file))
        if not source.ca_file:
            return Credentials(headers)
        return Credentials(headers, self._tls(self._content(source.ca_file), source.ca_file))

    def _line(self, file: str) -> str:
        return self._text(self._content(file), file)

    def _content(self, file: str) -> str:
        try:
            with Path(file).open("rb") as opened:
                return opened.read(_LARGEST_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise NoLoginError(
                f"{self.whose} is not there: {file} cannot be read; see that the Secret or "
                f"ConfigMap that {self.where} names exists and has that key"
            ) from error


class _Metadata(LeanModel):
    annotations: dict[str, str] = Field(default_factory=dict)


class _Keys(LeanModel):
    """A Secret, in base64, or a ConfigMap."""

    metadata: _Metadata = Field(default_factory=_Metadata)
    data: dict[str, str] = Field(default_factory=dict)


class SecretLogin(Login):
    """What a resource's own URL is asked with: a Secret beside the resource, for that URL alone."""

    def __init__(self, spec: PrometheusSpec, namespace: str, kube: KubePort, clock: Clock) -> None:
        """Read nothing yet.

        Args:
            spec: with a URL.
            namespace: the resource's.
            kube: reads the Secret, where a Role lets it.
            clock: says when to read it again.
        """
        super().__init__(
            spec.url.rstrip("/"),
            whose="its login",
            where="metrics.prometheus",
            clock=clock,
            fresh_s=SECRET_FRESH_S,
        )
        self._spec, self._namespace, self._kube = spec, namespace, kube

    async def _now(self) -> Credentials:
        headers: dict[str, str] = {}
        token, user, ca = (
            self._spec.bearer_token_secret_ref,
            self._spec.basic_auth_secret_ref,
            self._spec.ca_config_map_ref,
        )
        if token is not None:
            data = await self._secret(token.name)
            headers = bearer(self._part(data, token.name, token.key))
        elif user is not None:
            data = await self._secret(user.name)
            pair = (self._part(data, user.name, key) for key in ("username", "password"))
            headers = basic(*pair)
        if ca is None:
            return Credentials(headers)
        found = _Keys.model_validate(await self._read_object(CONFIG_MAP, ca.name))
        place = f"key {ca.key} of ConfigMap {ca.name}"
        return Credentials(headers, self._tls(found.data.get(ca.key, ""), place))

    def _part(self, data: Mapping[str, str], secret: str, key: str) -> str:
        place = f"key {key} of Secret {secret}"
        try:
            return self._text(b64decode(data.get(key, ""), validate=True).decode(), place)
        except ValueError as error:
            raise NoLoginError(f"{place} is no text: correct it") from error

    async def _secret(self, name: str) -> Mapping[str, str]:
        """Its data, where it says that it is for this URL."""
        found = _Keys.model_validate(await self._read_object(SECRET, name))
        if found.metadata.annotations.get(ANNOTATION_PROMETHEUS_URL, "").rstrip("/") != self.url:
            raise NoLoginError(
                f"Secret {name} does not say that it is for this URL; whoever owns it annotates it "
                f"with {ANNOTATION_PROMETHEUS_URL}: {self.url}"
            )
        return found.data

    async def _read_object(self, kind: Kind, name: str) -> Manifest:
        read = self._kube.get if kind is SECRET else self._kube.named
        try:
            async with asyncio.timeout(READ_S):
                found = await read(kind, self._namespace, name)
        except TimeoutError as error:
            why = f"the API server does not answer within {READ_S:g} s"
            raise BadAnswerError(f"{kind.kind} {name} cannot be read: {why}") from error
        except KubeError as error:
            if error.forbidden and kind is SECRET:
                raise NoLoginError(_role(self._namespace, name, error.message)) from error
            why = f"{kind.kind} {name} cannot be read: {error.message}"
            raise (BadAnswerError if error.transient else NoLoginError)(why) from error
        if found is None:
            raise NoLoginError(f"there is no {kind.kind} {name} in {self._namespace}: create it")
        return found


def _role(namespace: str, name: str, refusal: str) -> str:
    """How to let the operator read one Secret, as whoever owns that namespace may."""
    found = _ACCOUNT.search(refusal)
    account = f"{found[1]}:{found[2]}" if found else "OPERATOR_NAMESPACE:fathom"
    role = f"fathom-reads-{name}"
    return (
        f"the operator may not read Secret {name}; let it read this one: kubectl -n "
        f"{namespace} create role {role} --verb=get --resource=secrets "
        f"--resource-name={name} && kubectl -n {namespace} create rolebinding {role} "
        f"--role={role} --serviceaccount={account}"
    )


NO_SOURCES: Final = PrometheusSources((), SystemClock())
