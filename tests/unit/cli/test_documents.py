"""What `-o json` and `-o yaml` have in common."""

import json
from math import inf, nan

import pytest
import yaml

from fathom.cli.documents import Output, written
from fathom.cli.traffic import TrafficReport


@pytest.mark.parametrize("value", [1.5, inf, -inf, nan])
def test_what_is_no_number_of_json_is_null_in_yaml_too(value: float) -> None:
    given = TrafficReport(
        namespace="llm",
        name="kimi",
        seconds=60.0,
        requests=8,
        failed=0,
        first_error=None,
        tokens=1024,
        tokens_per_second=17.1,
        median_request_seconds=value,
    )
    as_yaml = yaml.safe_load(written(given, Output.YAML))
    assert as_yaml == json.loads(written(given, Output.JSON))
    assert as_yaml["medianRequestSeconds"] == (1.5 if value == 1.5 else None)
