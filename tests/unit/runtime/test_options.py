"""What `fathom run` does where nobody says otherwise."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fathom.runtime.options import LogFormat, RunOptions

CHART = Path(__file__).parents[3] / "charts" / "fathom" / "templates" / "deployment.yaml"


def test_it_listens_where_the_chart_looks_for_it() -> None:
    """The chart names no port to the operator; its probes and its Services go to these."""
    template = CHART.read_text()
    assert "-port" not in template.replace("--page-port=0", "")
    ports = dict(re.findall(r"- name: (\w+)\n\s+containerPort: (\d+)\n", template))
    options = RunOptions()
    assert ports == {
        "health": str(options.health_port),
        "metrics": str(options.metrics_port),
        "page": str(options.page_port),
    }


LOGS = """
import logging, sys
import structlog
from fathom.runtime.options import LogFormat, configure_logs

configure_logs(LogFormat(sys.argv[1]))
URL = "https://robot:neverShowThis@policy.acme"
structlog.get_logger("a").warning("refused", refusals=(f"asked {URL}.",), body={"why": [URL]})
try:
    raise RuntimeError(f"asked {URL}")
except RuntimeError:
    structlog.get_logger("a").exception("failed")
    logging.getLogger("kopf").exception("failed at %s", URL)
for library in ("aiohttp.access", "httpx", "kopf.objects"):
    logging.getLogger(library).info("what it does all the time")
"""


@pytest.mark.parametrize("log_format", LogFormat)
def test_no_secret_is_logged_however_deep_it_is(log_format: LogFormat) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOGS, log_format], capture_output=True, text=True, check=True
    )
    assert "policy.acme" in ran.stderr
    assert ran.stderr.count("failed") >= 2
    assert "neverShowThis" not in ran.stderr
    assert "all the time" not in ran.stderr
    if log_format is LogFormat.JSON:
        assert len([json.loads(line) for line in ran.stderr.splitlines()]) == 3
