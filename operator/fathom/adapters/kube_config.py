"""How to reach the API server, and as whom."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from aiohttp import TraceConfig, TraceRequestRedirectParams
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from yaml import YAMLError

from fathom.adapters.http import BadAnswerError, refusal

IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_OWN_NAMESPACE: Final = IN_CLUSTER.with_name("namespace")
_DEFAULT: Final = "~/.kube/config"
_UNUSABLE: Final = (config.ConfigException, OSError, YAMLError, TypeError)
"""What the library raises of a kubeconfig; the last of one that is empty."""
_RENEWED_BEFORE: Final = timedelta(minutes=5)
"""A token expires: as the library has it, for clocks that differ."""


class NoClusterError(Exception):
    """There is neither a kubeconfig nor a service account that can be used."""


async def load(
    kubeconfig: Path | None, context: str = "", *, as_operator: bool = False
) -> Configuration:
    """Read a kubeconfig, or else the service account of the pod, as kubectl does.

    Args:
        kubeconfig: None: what $KUBECONFIG names, else ~/.kube/config, else the service account of
            the pod. Whoever names a cluster in a pod means that one.
        context: of the kubeconfig; empty: its current one.
        as_operator: whether the service account comes before any kubeconfig that is not named
            here, and HTTPS_PROXY and the like do not count, as they are meant for others. A proxy
            that the kubeconfig names always does.

    Raises:
        NoClusterError: with a sentence that says what was looked for.
    """
    configuration = Configuration(client_session_kwargs={"trust_env": not as_operator})
    try:
        if _in_cluster(kubeconfig if as_operator else _file(kubeconfig), context):
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=_file(kubeconfig),
                context=context or None,
                client_configuration=configuration,
            )
            _renew_by(loader, configuration)
    except _UNUSABLE as error:
        where = _file(kubeconfig) or "a service account and the default kubeconfig"
        raise NoClusterError(f"no cluster to talk to: tried {where}: {error}.") from error
    return configuration


def _renew_by(loader: Any, configuration: Configuration) -> None:
    """Ask an exec plugin for another token when its last one expires.

    That of EKS lasts for a quarter of an hour, and a bench for hours. The library does so for
    service accounts only.
    """
    if not hasattr(loader, "exec_plugin_expiry"):
        return
    expires: datetime = loader.exec_plugin_expiry

    async def renew(configuration: Configuration) -> None:
        nonlocal expires
        if datetime.now(UTC) < expires - _RENEWED_BEFORE:
            return
        # Without it the plugin runs. With it the library looks first whether the token has expired,
        # by `utcnow`, which Python deprecates from 3.12 on.
        vars(loader).pop("exec_plugin_expiry", None)
        await loader.load_from_exec_plugin()  # it logs what goes wrong
        expires = getattr(loader, "exec_plugin_expiry", expires)
        configuration.api_key["BearerToken"] = loader.token

    configuration.refresh_api_key_hook = renew  # type: ignore[assignment]


def namespace(kubeconfig: Path | None, context: str = "") -> str:
    """The namespace that kubectl would take: the context's, the pod's own, or `default`.

    Raises:
        NoClusterError: there is no such kubeconfig or context.
    """
    if _in_cluster(_file(kubeconfig), context):
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    try:
        contexts, current = config.list_kube_config_contexts(  # type: ignore[no-untyped-call]
            _file(kubeconfig)
        )
    except _UNUSABLE as error:
        raise NoClusterError(f"no cluster to talk to: {error}.") from error
    named = {each["name"]: each["context"] for each in contexts}
    chosen = named.get(context) if context else current["context"]
    if chosen is None:
        known = ", ".join(sorted(named))
        raise NoClusterError(f"there is no context {context!r} in the kubeconfig, only {known}.")
    return str(chosen.get("namespace") or "default")


def _in_cluster(named: Path | str | None, context: str) -> bool:
    return not (named or context) and IN_CLUSTER.exists()


def _file(kubeconfig: Path | None) -> str | None:
    """Its name, or several as in $KUBECONFIG; None: there is none."""
    if kubeconfig is not None:
        return str(kubeconfig)
    # Not Path's, which raises where a user has no name and no HOME, as in some pods.
    default = os.path.expanduser(_DEFAULT)  # noqa: PTH111
    return os.environ.get("KUBECONFIG") or (default if Path(default).exists() else None)


def client(configuration: Configuration, *, redirected: bool = True) -> ApiClient:
    """An API client of its own; nothing global. The caller closes it.

    Args:
        configuration: of the API server.
        redirected: whether it follows redirects: not where pods answer through the API server, as
            one could lead to any server that this machine reaches.
    """
    if not redirected:
        staying = TraceConfig()
        staying.on_request_redirect.append(_refuse_redirect)
        configuration.client_session_kwargs = {
            **(configuration.client_session_kwargs or {}),
            "trace_configs": [staying],
        }
    return ApiClient(configuration)


async def _refuse_redirect(_: object, __: object, redirect: TraceRequestRedirectParams) -> None:
    raise BadAnswerError(refusal(redirect.response.status))
