"""What comes of a patch on the platforms, as vLLM's own parser and configuration take it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fathom.resource import SpeculationTuner, parse_tuner
from fathom_vllm.bundle import SCHEDULER_CLASS
from local_cluster.engine.model_pair import ModelPair
from support.asked_vllm import AskVllm
from support.hosts import argv
from support.pages import DOCS, manifests, plain_blocks
from support.platforms import FOLDER, OWN, Patched, all_of

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE = Path(__file__).with_name("command_probe.py")
PAGE = DOCS / "attach.md"
ROW = re.compile(r"^\| ([\w, -]+) \| [^|]+ \| (\d+) \| 8 \| 1 \|$", re.MULTILINE)
MOST_LINES = 17
NAMES = ("production-stack", "AIBrix", "AIBrix, StormService", "llm-d", "KServe")


@pytest.fixture(scope="module")
def platforms(pair: ModelPair, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Patched]:
    drafting = {"method": "eagle3", "model": str(pair.draft), "num_speculative_tokens": 3}
    compact = json.dumps(drafting, separators=(",", ":"))
    return all_of(tmp_path_factory.mktemp("platforms"), compact)


@pytest.fixture(scope="module")
def configured(
    platforms: Mapping[str, Patched], pair: ModelPair, ask_vllm: AskVllm
) -> Mapping[str, Any]:
    """What vLLM says of each before, and after."""
    asked = [
        served(container, pair)
        for each in platforms.values()
        for container in (each.before, each.after)
    ]
    answers = iter(ask_vllm(PROBE, asked))
    return {name: (next(answers), next(answers)) for name in platforms}


def served(container: Mapping[str, Any], pair: ModelPair) -> list[str]:
    """What is behind `vllm serve`, with a model that is here."""
    words = list(argv(container))
    words = words[words.index("serve") + 1 :]
    if words[0].startswith("-"):
        words[words.index("--model") + 1] = str(pair.target)
    else:
        words[0] = str(pair.target)
    if "--max-model-len" in words:
        words[words.index("--max-model-len") + 1] = "1024"
    return words


@pytest.mark.parametrize("name", NAMES)
def test_vllm_takes_what_comes_of_it_and_starts_at_the_hosts_own_depth(
    name: str, platforms: Mapping[str, Patched], configured: Mapping[str, Any]
) -> None:
    startup = platforms[name].attachment.startup
    before, after = configured[name]

    assert (before["refused_by"], after["refused_by"]) == (None, None), (before, after)
    config = after["config"]
    assert startup.to_do == ()
    assert (config["scheduler_cls"], config["method"]) == (SCHEDULER_CLASS, "eagle3")
    assert config["schedule"] == [[each.first, each.last, each.depth] for each in startup.schedule]
    assert config["schedule"][0] == [1, 253, before["config"]["depth"]]
    assert (config["depth"], before["config"]["schedule"]) == (7, None)
    changed = {key for key in config if config[key] != before["config"][key]}
    assert changed == {"depth", "schedule", "scheduler_cls"}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_few_lines(name: str, platforms: Mapping[str, Patched]) -> None:
    rows = dict(ROW.findall(PAGE.read_text()))
    assert rows.keys() == {*NAMES}
    assert platforms[name].lines <= MOST_LINES
    # The platforms' own files may have a key less, or more.
    assert FOLDER != OWN or platforms[name].lines == int(rows[name])


def test_without_a_restart_it_is_eight_lines_of_ours() -> None:
    (shown,) = (each for each in manifests(PAGE) if each["kind"] == "SpeculationTuner")
    assert isinstance(
        parse_tuner(shown | {"metadata": {"name": "a", "namespace": "b"}}), SpeculationTuner
    )
    block = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert yaml.safe_load(block) == shown
    assert len(block.splitlines()) == 8


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_it_in_full(
    name: str, platforms: Mapping[str, Patched], pair: ModelPair
) -> None:
    blocks = [
        yaml.safe_load(each.replace("AngelSlim/Qwen3-8B_eagle3", str(pair.draft)))
        for each in plain_blocks(PAGE)
    ]

    assert FOLDER != OWN or _plain(platforms[name].printed) in [_plain(each) for each in blocks]


def _plain(value: Any) -> Any:
    """With a patch within a text read, and without the ends of texts."""
    if isinstance(value, dict):
        return {
            key: _plain(yaml.safe_load(each) if key == "patch" else each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.rstrip() if isinstance(value, str) else value
