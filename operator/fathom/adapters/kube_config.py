"""How to reach the API server, and as whom."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import TraceConfig, TraceRequestRedirectParams
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from fathom.adapters.http import BadAnswerError, refusal

IN_CLUSTER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_OWN_NAMESPACE: Final = IN_CLUSTER.with_name("namespace")
_DEFAULT: Final = "~/.kube/config"
_UNUSABLE: Final = (config.ConfigException, OSError, TypeError, ValueError)
"""What the library raises of a user or a cluster, the last of base64 that is none."""
_ANOTHER: Final = "correct it, or name another file by KUBECONFIG or --kubeconfig"
_LOCAL: Final = "local_cluster"
"""What a checkout has besides the operator."""
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
        NoClusterError: with a sentence that says why, what was looked for, and what to do.
    """
    configuration = Configuration(client_session_kwargs={"trust_env": not as_operator})
    if _in_cluster(kubeconfig if as_operator else _file(kubeconfig), context):
        try:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except _UNUSABLE as error:
            raise NoClusterError(f"The pod's service account cannot be used: {error}.") from error
        return configuration
    chosen = _chosen(kubeconfig, context, as_operator=as_operator)
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=chosen.file,
            # The library takes the last current-context of several files, and kubectl the first.
            context=chosen.name,
            client_configuration=configuration,
        )
    except _UNUSABLE as error:
        raise NoClusterError(
            f"Context {chosen.name!r} of the kubeconfig {chosen.file} cannot be used: {error}: "
            f"{_ANOTHER}."
        ) from error
    # The library logs that the plugin failed, and goes on as nobody in particular.
    if chosen.plugin and not any(vars(loader).get(each) for each in ("token", "cert_file")):
        raise NoClusterError(
            f"{chosen.plugin}, by which the user of context {chosen.name!r} logs in, gave neither "
            f"a token nor a certificate: install it, or run it to see why. It is named by the "
            f"kubeconfig {chosen.file}."
        )
    _renew_by(loader, configuration)
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
        NoClusterError: there is no such kubeconfig or context, or it names no cluster.
    """
    if _in_cluster(_file(kubeconfig), context):
        return _OWN_NAMESPACE.read_text(encoding="utf-8").strip()
    return _chosen(kubeconfig, context).namespace or "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A context that names a cluster, and a user or none."""

    file: str
    """Or several as in $KUBECONFIG."""
    name: str
    namespace: str
    """Empty: it names none."""
    plugin: str
    """The command by which its user logs in; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kubeconfig:
    """What a file has, by name; or what several have together, of which the first one counts."""

    current: str
    """Empty: it has no current context."""
    contexts: Mapping[str, Mapping[str, Any]]
    clusters: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]


def _chosen(kubeconfig: Path | None, context: str, *, as_operator: bool = False) -> _Chosen:
    """The context to use.

    Raises:
        NoClusterError: there is none that names a cluster.
    """
    file = _file(kubeconfig)
    if file is None:
        raise NoClusterError(
            f"{'There is no service account of a pod, ' if as_operator else ''}KUBECONFIG is not "
            f"set, and {_DEFAULT} does not exist: set KUBECONFIG, or give --kubeconfig "
            f"FILE.{_local_cluster()}"
        )
    paths = [os.path.expanduser(each) for each in file.split(os.pathsep) if each]  # noqa: PTH111
    there = [each for each in paths if Path(each).exists()]
    if not there:
        by_option = kubeconfig is not None and file != os.environ.get("KUBECONFIG")
        raise NoClusterError(
            f"{'--kubeconfig' if by_option else 'KUBECONFIG'} names {' and '.join(paths)}, which "
            f"{'do' if len(paths) > 1 else 'does'} not exist: correct the path.{_local_cluster()}"
        )
    return _checked(_together([_read(each) for each in there]), file, context)


def _checked(found: _Kubeconfig, file: str, context: str) -> _Chosen:
    """The context to use, of a kubeconfig that was read.

    Raises:
        NoClusterError: it has none, or not what that one names.
    """
    name, known = context or found.current, _known(found.contexts)
    if not found.contexts:
        raise NoClusterError(f"The kubeconfig {file} has no contexts: {_ANOTHER}.")
    if not name:
        raise NoClusterError(
            f"The kubeconfig {file} has no current-context: give --context NAME, or run `kubectl "
            f"config use-context NAME`. {known}"
        )
    if name not in found.contexts:
        by, do = ("--context", "name another") if context else ("current-context", "give --context")
        raise NoClusterError(
            f"{by} is {name!r}, which the kubeconfig {file} does not have: {do}. {known}"
        )
    chosen = found.contexts[name]
    cluster, user = (str(chosen.get(each) or "") for each in ("cluster", "user"))
    for kind, named, there in (("cluster", cluster, found.clusters), ("user", user, found.users)):
        # As with kubectl, a context may name no user.
        if named not in there and (named or kind == "cluster"):
            which = f"{kind} {named!r}, which is not there" if named else f"no {kind}"
            raise NoClusterError(
                f"Context {name!r} of the kubeconfig {file} names {which}: {_ANOTHER}. "
                f"{_known(there)}"
            )
    server = str(found.clusters[cluster].get("server") or "")
    if not server:
        raise NoClusterError(
            f"Cluster {cluster!r} of the kubeconfig {file} has no server: {_ANOTHER}."
        )
    if not user and server.lower().startswith("https:"):
        # The library cannot ask there without a user.
        raise NoClusterError(
            f"Context {name!r} of the kubeconfig {file} names no user, and {server} asks for one: "
            f"{_ANOTHER}. {_known(found.users)}"
        )
    plugin = found.users.get(user, {}).get("exec")
    command = str(plugin.get("command") or "") if isinstance(plugin, dict) else ""
    namespace = str(chosen.get("namespace") or "")
    return _Chosen(file=file, name=name, namespace=namespace, plugin=command)


def _read(path: str) -> _Kubeconfig:
    """What one file has.

    Raises:
        NoClusterError: it cannot be read, or is no kubeconfig.
    """
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        if found is None:
            raise NoClusterError(f"The kubeconfig {path} is empty: {_ANOTHER}.")
        return _Kubeconfig(
            current=str(found.get("current-context") or ""),
            contexts=_entries(found, "context"),
            clusters=_entries(found, "cluster"),
            users=_entries(found, "user"),
        )
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        why = f"is not YAML ({' '.join(str(error).split())})"
    except (AttributeError, KeyError, TypeError, ValueError):
        why = "is none: contexts, clusters and users are lists, each entry with a name"
    raise NoClusterError(f"The kubeconfig {path} {why}: {_ANOTHER}.")


def _entries(found: Mapping[str, Any], kind: str) -> dict[str, Mapping[str, Any]]:
    listed = list(found.get(f"{kind}s") or ())
    # The first one of a name counts.
    return {str(each["name"]): dict(each.get(kind) or {}) for each in reversed(listed)}


def _together(files: Sequence[_Kubeconfig]) -> _Kubeconfig:
    return _Kubeconfig(
        current=next((each.current for each in files if each.current), ""),
        contexts=_first_of([each.contexts for each in files]),
        clusters=_first_of([each.clusters for each in files]),
        users=_first_of([each.users for each in files]),
    )


def _first_of(files: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Mapping[str, Any]]:
    return {name: entry for each in reversed(files) for name, entry in each.items()}


def _known(names: Iterable[str]) -> str:
    return f"It has {', '.join(sorted(names)) or 'none'}."


def _local_cluster() -> str:
    """How to name the cluster of `fathom local`; empty: this is no checkout, and there is none."""
    if find_spec(_LOCAL) is None:
        return ""
    return " For the local cluster: type the line `export KUBECONFIG=…` of `fathom local up`."


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

    Raises:
        NoClusterError: a certificate or key of the configuration is none.
    """
    if not redirected:
        staying = TraceConfig()
        staying.on_request_redirect.append(_refuse_redirect)
        configuration.client_session_kwargs = {
            **(configuration.client_session_kwargs or {}),
            "trace_configs": [staying],
        }
    try:
        return ApiClient(configuration)
    except OSError as error:
        why = "a certificate or key for it cannot be used"
        raise NoClusterError(f"{configuration.host}: {why}: {error}: {_ANOTHER}.") from error


async def _refuse_redirect(_: object, __: object, redirect: TraceRequestRedirectParams) -> None:
    raise BadAnswerError(refusal(redirect.response.status))
