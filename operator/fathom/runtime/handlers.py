"""The only place that knows Kopf. It watches and pokes; it never writes to an object."""

from collections.abc import Mapping
from typing import Any, Final

import kopf
from kubernetes.aio.client import Configuration

from fathom.api import names
from fathom.core.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    POD,
    SPECULATIVE_DEPLOYMENT,
    Kind,
    ObjectKey,
)
from fathom.runtime.loops import Loops

WATCHED_CHILDREN: Final = (DEPLOYMENT, POD, CONFIG_MAP, JOB)
"""Services, ServiceAccounts and claims hardly ever move: the loops look at them once a minute."""


def kopf_settings() -> kopf.OperatorSettings:
    """Settings under which Kopf needs few rights and writes nothing."""
    settings = kopf.OperatorSettings()
    # No watching of CRDs and namespaces: fewer rules, and no 403 where they are not granted.
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.queueing.worker_limit = None
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.process.ultimate_exiting_timeout = 10
    # Server-side filters: on a busy cluster nobody else's pods reach this process.
    for kind in WATCHED_CHILDREN:
        settings.watching.label_selectors[kind.plural] = names.LABEL_NAME
    return settings


def registered(loops: Loops, configuration: Configuration) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own: nothing is global."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(id="credentials", registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(configuration)

    @kopf.on.event(*_resource(SPECULATIVE_DEPLOYMENT), id="resource", registry=registry)
    async def resource(namespace: str | None, name: str | None, **_: Any) -> None:
        # A loop whose resource is gone finds that out, and ends by itself.
        loops.seen(ObjectKey(namespace or "", name or ""))

    for kind in WATCHED_CHILDREN:

        @kopf.on.event(*_resource(kind), id=kind.plural, registry=registry)
        async def child(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
            loops.poke(ObjectKey(namespace or "", labels.get(names.LABEL_NAME, "")))

    @kopf.on.cleanup(id="stop-loops", registry=registry)
    async def stop(**_: Any) -> None:
        await loops.stop()

    return registry


def _resource(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.plural


async def _connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """The client library's credentials in Kopf's terms; read anew, as tokens rotate."""
    header = await configuration.get_api_key_with_prefix("BearerToken")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme="Bearer" if header else None,
        token=header.split(" ", 1)[-1] if header else None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )
