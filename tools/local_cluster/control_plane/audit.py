"""The API server's audit log: who did what, as the API server itself saw it."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

READS = frozenset({"get", "list", "watch"})


class AuditEvent(BaseModel):
    """One finished request."""

    model_config = ConfigDict(frozen=True)

    user: str
    verb: str
    resource: str
    """Plural name; empty for a request that names none, such as `/version`."""
    subresource: str
    api_group: str
    namespace: str
    name: str
    code: int
    """HTTP status of the response."""
    at: dt.datetime

    @property
    def is_write(self) -> bool:
        return self.verb not in READS


def read_events(path: Path) -> Iterator[AuditEvent]:
    """The finished requests in a log, oldest first; a half-written last line is left out."""
    try:
        log = path.open(encoding="utf-8")
    except FileNotFoundError:
        return
    with log:
        for line in log:
            if not line.endswith("\n"):
                return
            yield _parse(json.loads(line))


def _parse(event: dict[str, Any]) -> AuditEvent:
    target = event.get("objectRef", {})
    return AuditEvent(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        api_group=target.get("apiGroup", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        at=event["stageTimestamp"],
    )


def write_policy(path: Path, *, quiet_users: list[str]) -> None:
    """Writes an audit policy: every request once, when it is done, without bodies.

    Args:
        path: where to.
        quiet_users: the cluster's own parts, whose reads nobody asks about.
    """
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": quiet_users, "verbs": sorted(READS)},
            {"level": "None", "nonResourceURLs": ["/readyz*", "/healthz*", "/livez*"]},
            {"level": "Metadata"},
        ],
    }
    path.write_text(yaml.safe_dump(policy, sort_keys=False))
