"""`python -m fathom_fetch`: the program of a fetch's pod."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from socket import has_dualstack_ipv6
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server

from fathom_fetch.fetch import NotFetchedError, Resolved, Wanted, fetch
from fathom_fetch.metrics import BYTES, COMMIT, DRAFT, MODEL, PORT, FetchCollector

_TERMINATED: Final = 128 + signal.SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch, and leave a message: what was fetched as JSON, or why nothing was as a sentence.

    Returns:
        Exit code: 0, or 1 when something could not be fetched.
    """
    parser = argparse.ArgumentParser(prog="fathom_fetch", allow_abbrev=False)
    for role in (MODEL, DRAFT):
        parser.add_argument(f"--{role}", default="", help="Hugging Face id")
        parser.add_argument(f"--{role}-revision", default="", help="branch, tag or commit")
    parser.add_argument("--whole", action="store_true", help="all files of the target's weights")
    parser.add_argument("--port", type=int, default=PORT, help="of /metrics")
    parser.add_argument("--message", type=Path, default=Path("/dev/termination-log"))
    options = vars(parser.parse_args(arguments))
    models = [
        # Offline, vLLM wants to see all of a draft's weights; drafts are small.
        Wanted(
            role=role,
            id=options[role],
            revision=options[f"{role}_revision"],
            whole=options["whole"] or role == DRAFT,
        )
        for role in (MODEL, DRAFT)
        if options[role]
    ]
    registry, collector = CollectorRegistry(), FetchCollector()
    registry.register(collector)
    # The pod may have IPv4 alone, or IPv6 alone.
    every = "::" if has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - a pod's own addresses
    start_http_server(options["port"], every, registry=registry)
    message: Path = options["message"]
    try:
        fetched = fetch(models, collector.show)
    except NotFetchedError as error:
        sys.stderr.write(f"{error}\n")
        message.write_text(str(error), encoding="utf-8")
        return 1
    message.write_text(_result(fetched), encoding="utf-8")
    return 0


def _result(fetched: Sequence[Resolved]) -> str:
    return json.dumps(
        {each.wanted.role: {COMMIT: each.commit, BYTES: each.total_bytes} for each in fetched}
    )


def _leave_on_sigterm() -> None:
    """Process 1 of a pod ignores what it has no handler for, and would be killed a minute later.

    At once, without waiting for the threads that download: what they leave is gone on with.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(_TERMINATED))


if __name__ == "__main__":
    _leave_on_sigterm()
    sys.exit(main())
