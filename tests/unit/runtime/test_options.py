"""What `fathom run` does where nobody says otherwise."""

import re
from pathlib import Path

from fathom.runtime.options import RunOptions

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
