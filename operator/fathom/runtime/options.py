"""Options of `fathom run`, and the log they ask for."""

import logging
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from fathom.cluster.kinds import RESOURCE_KINDS, SPECULATION_TUNER, Kind
from fathom.text import scrubbed


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How `fathom run` runs."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty: all of them."""
    tuners_only: bool = False
    """Reconcile SpeculationTuners alone, which needs few rights."""
    leader_elect: bool = True
    """Hold a lease, so that a second replica may stand by."""
    lease_name: str = "fathom-operator"
    lease_namespace: str = "fathom-system"
    health_port: int = 8080
    """Port of /healthz and /readyz; 0: none."""
    metrics_port: int = 9090
    """Port of the operator's own /metrics; 0: none."""
    page_port: int = 8081
    """Port of the page that people look at; 0: none."""
    page_host: str = "127.0.0.1"
    """The address that it listens on; empty: every one. It asks nobody who they are."""
    prometheus_sources: Path | None = None
    """JSON: Prometheus servers with a login; None: there are none."""
    log_format: LogFormat = LogFormat.JSON
    kubeconfig: Path | None = None
    """None: the pod's service account, or else the user's default kubeconfig."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What this operator reconciles."""
        return (SPECULATION_TUNER,) if self.tuners_only else RESOURCE_KINDS


def without_secrets(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Hide secrets in all that is logged, however deep it is."""
    return {key: _clean(value) for key, value in event.items()}


def _clean(value: object) -> object:
    match value:
        case str():
            return scrubbed(value)
        case dict():
            return {key: _clean(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_clean(each) for each in value]
        case _:
            return value


def _text_without_secrets(_: object, __: str, line: structlog.typing.EventDict | str) -> str:
    """Last of all, where a traceback is written into the line by what renders it."""
    return scrubbed(str(line))


def configure_logs(log_format: LogFormat) -> None:
    """Send structlog and the standard library's loggers (Kopf's, say) to stderr, in one form."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.PositionalArgumentsFormatter(),
        without_secrets,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    rendered: list[structlog.typing.Processor] = (
        [structlog.processors.dict_tracebacks, without_secrets, renderer]
        if log_format is LogFormat.JSON
        else [renderer, _text_without_secrets]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *rendered,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    # That a request was made or served, or that an event was seen, is no news.
    for noisy in ("aiohttp.access", "httpx", "httpx2", "kopf.objects", "kopf.activities"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
