"""Pages that promise something of each other, of tests, and of others."""

import ast
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from fathom.page.draft_life import WHO
from support.pages import DOCS, REPOSITORY

SECURITY = (DOCS / "security.md").read_text(encoding="utf-8")
THREATS = SECURITY.partition("\n## Threats\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| (`tests/[^|]+) \|$", THREATS, re.MULTILINE)
"""Threat, what holds it, and the tests."""


@cache
def functions_of(file: str) -> set[str]:
    """What a file of tests defines; without the file nothing."""
    path = REPOSITORY / file
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_page_is_found_from_the_first() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", index)}
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert pages - linked == set(), "docs/index.md does not link them"


def test_each_threat_names_what_holds_it_and_tests_that_are_there() -> None:
    rows = [line for line in THREATS.splitlines() if line.startswith("| ")]
    assert len(rows) == len(ROWS) + 1, "a row without tests, but for the head"
    for threat, holds, named in ROWS:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", named)
        assert holds.strip()
        assert named == ", ".join(f"`{file}::{test}`" for file, test in tests), threat
        gone = [f"{file}::{test}" for file, test in tests if test not in functions_of(file)]
        assert gone == [], f"{threat}: there is no such test"


def test_what_is_supported_is_what_the_other_pages_say() -> None:
    support = (DOCS / "support.md").read_text(encoding="utf-8")
    requirements = (DOCS / "requirements.md").read_text(encoding="utf-8")
    (kubernetes,) = re.findall(r"^Supported are (1\.\d+ to 1\.\d+)\.", requirements, re.MULTILINE)
    assert f"| Kubernetes | {kubernetes} " in support
    rows = re.findall(r"^\| (Helm|Python)[^|]* \| (\d\.\d+) or later", support, re.MULTILINE)
    oldest = dict(rows)
    assert oldest.keys() == {"Helm", "Python"}
    for version in oldest.values():
        assert f"{version} or later" in requirements
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={oldest["Python"]}"' in project
    crd = yaml.safe_load((REPOSITORY / "crds/fathom.dev_speculativedeployments.yaml").read_text())
    served = [each["name"] for each in crd["spec"]["versions"] if each["served"]]
    assert [f"Today there is one version, `fathom.dev/{each}`." in support for each in served] == [
        True
    ]


@pytest.mark.parametrize("heading", ["In the engine", "Around the engine"])
def test_what_is_said_of_others_says_where_they_say_it(heading: str) -> None:
    page = (DOCS / "comparison.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    _, ours, *others = re.findall(r"^\| (?!-)(.*?) \|", section, re.MULTILINE)
    assert ours == "**Fathom**"
    assert len(others) > 2
    assert [each for each in others if not re.match(r"\[[^]]+\]\(https://", each)] == []


def test_the_readme_says_that_nothing_is_published_yet() -> None:
    """Until a release says so itself: take this out with the sentence."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "**Nothing is published yet**" in readme.partition("## What does not work yet")[2]
    assert (DOCS / "releases.md").read_text(encoding="utf-8").count("**Nothing is published yet**")


def test_the_readme_is_read_in_three_minutes() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)
    assert len([word for word in prose.split() if re.search(r"\w", word)]) <= 800
    assert len(re.findall(r"\d[\d.,]*", prose)) <= 25
    assert "![" in readme.partition("\n## ")[0]


def test_the_picture_of_a_draft_s_life_has_the_steps_of_the_page_and_who_takes_them() -> None:
    svg = "{http://www.w3.org/2000/svg}"
    picture = ET.parse(DOCS / "draft-life.svg").getroot()
    steps = {
        str(step.findtext(f"{svg}text[@class='name']")): (
            str(step.get("class")),
            " ".join(each.text or "" for each in step.iter(f"{svg}text")),
        )
        for step in picture.iter(f"{svg}g")
    }
    kinds = {"operator": "operator", "a person": "person"}
    assert {name: kind for name, (kind, _) in steps.items()} == {
        step.value: kinds.get(who, "job") for step, who in WHO.items()
    }
    for step, who in WHO.items():
        kind, words = steps[step.value]
        assert kind != "job" or f"the {who}" in words
    # What is heard has the same words, and nothing comes from elsewhere.
    assert picture.get("aria-labelledby") == "title desc"
    assert "prefers-color-scheme: dark" in (picture.findtext(f"{svg}style") or "")
    assert not re.search(r"href|url\((?!#)", (DOCS / "draft-life.svg").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/comparison.md", "docs/tuning.md", "docs/page.md"]
)
def test_a_draft_s_life_is_one_picture_wherever_it_is_shown(page: str) -> None:
    assert "draft-life.svg)" in (REPOSITORY / page).read_text(encoding="utf-8")


def test_workflows_that_a_page_names_are_there() -> None:
    for page in DOCS.glob("*.md"):
        for named in re.findall(r"`(\.github/[\w./-]+)`", page.read_text(encoding="utf-8")):
            assert Path(REPOSITORY / named).exists(), page.name
