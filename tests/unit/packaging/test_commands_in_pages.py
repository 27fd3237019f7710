"""Every command that a page shows can be typed as it stands there.

What needs no cluster, no engine and no network is run; of all else it is checked that the program
knows its words: subcommands, flags, targets, files, kinds, and fields of ours. A program that is
new here belongs into `CHECKS`, and a subcommand of `fathom` that needs nothing into `runs_here`.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from packaging.version import Version
from typer.core import TyperGroup
from typer.testing import CliRunner

from fathom.api import names
from fathom.api.conditions import ConditionType
from fathom.cli.main import app
from fathom.engine.capability_table import LIVE_DEPTH
from support.dockerfiles import arguments
from support.pages import PAGES, REPOSITORY, ShownCommand, commands, resources
from support.waiting import GUARD_S
from support.wrapped import unwrapped
from unit.replay.recorded import record, write
from unit.tuning.plant import Fleet

CRD = yaml.safe_load((REPOSITORY / "crds/fathom.dev_speculativedeployments.yaml").read_text())
NAMES = CRD["spec"]["names"]
CHART_VALUES = yaml.safe_load((REPOSITORY / "charts/fathom/values.yaml").read_text())
CHART = yaml.safe_load((REPOSITORY / "charts/fathom/Chart.yaml").read_text())
OPERATOR_IMAGE = f"{CHART_VALUES['image']['repository']}:{CHART['appVersion']}"
VERSION = CHART["version"]
CRDS = {f"{plural}.{names.GROUP}" for plural in (names.PLURAL, names.TUNER_PLURAL)}
OURS = {
    *(NAMES["plural"], NAMES["singular"], *NAMES["shortNames"]),
    *(names.TUNER_PLURAL, names.TUNER_SINGULAR, *names.TUNER_SHORT_NAMES),
}
OTHERS = {
    *("pod", "pods", "namespace", "configmap", "pvc", "crd", "deployment", "service", "lease"),
    *("job", "clusterrole,clusterrolebinding", "secret"),
}
ON_A_KIND = {
    *("annotate", "delete", "describe", "explain", "get", "patch", "port-forward", "scale", "wait"),
}
ON_THE_OPERATOR = {"logs", "rollout"}
VERBS = ON_A_KIND | ON_THE_OPERATOR | {"apply", "create", "exec", "replace"}
FLAGS = {
    **dict.fromkeys(("--watch", "--overwrite", "--recursive", "--server-side"), False),
    **dict.fromkeys(("--all", "--all-namespaces"), False),
    **dict.fromkeys(("--namespace", "-n", "-f", "-k", "-l", "-o", "--type", "-p"), True),
    **dict.fromkeys(("--patch-file", "--raw", "--replicas"), True),
    **dict.fromkeys(("--for", "--from-literal", "--from-file", "--timeout"), True),
}
"""Flags of kubectl that are shown, and whether a value follows."""
LABELS = {value for name, value in vars(names).items() if name.startswith("LABEL_")}
LABELS.add("app.kubernetes.io/instance")  # the chart's
ANNOTATIONS = {value for name, value in vars(names).items() if name.startswith("ANNOTATION_")}
CHECKOUT = ("Makefile", "charts", "crds", "deploy", "examples", "images", "tests", "tools")
TOLD_BY_A_HUB = ("✔", "draft", "target model", "draft model", "memory of one GPU")
"""Lines of `fathom check` that follow from what is in the models' files."""


def runs_here(command: ShownCommand) -> bool:
    """Whether it needs no cluster, no engine and no network."""
    match next(command.programs):
        case ("make",):
            return True
        case ("fathom", "check" | "render" | "replay", *rest):
            return not {"--live", "--prometheus", "--server", "--engine", "--image"} & {*rest}
        case ("fathom", "report", *rest):
            return "--recording" in rest
        case _:
            return False


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has what the commands name: the checkout's files, and recordings."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in CHECKOUT:
        (folder / name).symlink_to(REPOSITORY / name)
    write(folder / "day.jsonl.gz", record(Fleet(), 120))
    return folder


@pytest.fixture
def here(checkout: Path, page: Path) -> Path:
    """That folder, with the resources that the page shows, or else the README."""
    shown = resources(page) or resources(PAGES[0])
    for name, manifest in shown.items():
        (checkout / f"{name}.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    first = checkout / f"{next(iter(shown))}.yaml"
    (checkout / "kimi.yaml").write_bytes(first.read_bytes())
    return checkout


@dataclass(frozen=True)
class Typed:
    """One program with its arguments, in the folder where it is typed."""

    words: tuple[str, ...]
    folder: Path
    inline: bool = False
    """A sentence may name a command without what it needs."""


# What each program knows.


def of_fathom(typed: Typed) -> None:
    group, path = typer.main.get_command(app), ["fathom"]
    rest = list(typed.words[1:])
    while isinstance(group, TyperGroup) and rest:
        context = group.make_context(path[-1], [], resilient_parsing=True)
        known = group.get_command(context, rest[0])
        assert known is not None, f"{' '.join(path)} has no command {rest[0]}"
        group = known
        path.append(rest.pop(0))
    if rest or not typed.inline:
        group.make_context(path[-1], rest)


def of_make(typed: Typed) -> None:
    planned = plan_of(typed.words[1:])
    values = [word.partition("=")[2] for word in typed.words if "=" in word]
    assert [each for each in values if each not in planned] == [], "no such variable"
    for line in re.findall(r"^\.venv/bin/(fathom .*)$", planned, re.MULTILINE):
        for program in ShownCommand(line).programs:
            of_fathom(replace(typed, words=program))


@cache
def plan_of(words: tuple[str, ...]) -> str:
    """What make would do."""
    made = started(["make", "--dry-run", *words], REPOSITORY)
    assert made.returncode == 0, made.stderr
    return made.stdout


def started(
    arguments: Sequence[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """As from a shell that no make has started."""
    usual = {
        name: value for name, value in os.environ.items() if "MAKE" not in name and name != "ARGS"
    }
    return subprocess.run(
        arguments,
        cwd=folder,
        env=usual | variables,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )


def of_kubectl(typed: Typed) -> None:
    if typed.words[1] == "fathom":
        of_fathom(replace(typed, words=typed.words[1:]))
        return
    (verb, *named), values = kubectl_words(typed.words[1:])
    assert verb in VERBS
    for flag in {"-f", "--patch-file", "--from-file"} & values.keys():
        assert (typed.folder / values[flag]).is_file(), values[flag]
    if "-k" in values:
        assert (typed.folder / values["-k"] / "kustomization.yaml").is_file(), values["-k"]
    if verb in ON_THE_OPERATOR and named:
        assert named[-1] in {"deployment/fathom", "POD"}
    if "-l" in values:
        assert values["-l"].partition("=")[0] in LABELS
    if verb in ON_A_KIND and named:
        kind = named[0].partition("/")[0]
        if verb == "explain":
            kind, _, path = kind.partition(".")
            schema_at(path.split(".") if path else [])
        assert kind in OURS | OTHERS, f"no kind {kind}"
        assert kind != "crd" or CRDS.issuperset(named[1:])
        if kind in OURS:
            knows_fields(values)
    knows_names(verb, named, values)
    assert named or typed.inline or {"-f", "-k", "--raw"} & values.keys()


@cache
def secrets_that_are_named() -> set[tuple[str, str]]:
    """By the resources of all pages: name and key."""
    found = set()
    for page in PAGES:
        for manifest in resources(page).values():
            text = json.dumps(manifest)
            found |= set(re.findall(r'Ref": {"name": "([^"]+)", "key": "([^"]+)"}', text))
    return found


def knows_names(verb: str, named: Sequence[str], values: Mapping[str, str]) -> None:
    """Check names of annotations, conditions and secrets."""
    if verb == "annotate":
        assert {re.split(r"=|-$", each)[0] for each in named[2:]} <= ANNOTATIONS
    if "--for" in values:
        assert values["--for"].removeprefix("condition=") in {*ConditionType}
    if verb == "create" and named[:2] == ["secret", "generic"]:
        key = values["--from-literal"].partition("=")[0]
        assert (named[2], key) in secrets_that_are_named(), f"no page names {named[2]}/{key}"


def knows_fields(values: Mapping[str, str]) -> None:
    """Those of a SpeculativeDeployment that flags of kubectl name."""
    if values.get("-o", "wide") != "wide":
        asked = re.fullmatch(r"jsonpath=\{\.([\w.]+)\}", values["-o"])
        assert asked is not None
        schema_at(asked[1].split("."))
    for path, value in leaves(json.loads(values.get("-p", "{}"))):
        assert value in schema_at(path).get("enum", [value]), f"{value} is no {'.'.join(path)}"


def kubectl_words(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What is no flag, and the flags with their values."""
    plain: list[str] = []
    values: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        if not word.startswith("-"):
            plain.append(word)
            continue
        flag, joined, value = word.partition("=")
        assert flag in FLAGS, f"kubectl {flag}: is it a flag?"
        values[flag] = value if joined else next(rest) if FLAGS[flag] else ""
    return plain, values


def schema_at(path: Sequence[str]) -> Mapping[str, Any]:
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path:
        assert name in schema["properties"], f"there is no {'.'.join(path)}"
        schema = schema["properties"][name]
    return schema


def leaves(value: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if not isinstance(value, dict):
        return [(path, value)] if path else []
    return [leaf for name, each in value.items() for leaf in leaves(each, (*path, name))]


def of_helm(typed: Typed) -> None:
    match typed.words[1:]:
        case (
            ("install", "fathom", chart, "--namespace", _, "--create-namespace")
            | ("upgrade", "fathom", chart, "--namespace", _)
            | ("package", chart)
        ):
            assert (typed.folder / chart / "Chart.yaml").is_file()
        case ("install", "fathom", chart, "--namespace", _, "--create-namespace", "--set", value):
            assert value.partition("=")[0] in paths_in_values(typed.folder / chart)
        case ("install", "fathom", chart, "--version", version, "--namespace", _, _) | (
            "push",
            version,
            chart,
        ):
            assert chart.startswith("oci://")
            assert VERSION in version
        case ("uninstall", "fathom", "--namespace", _):
            pass
        case ("rollback", "fathom", revision, "--namespace", _):
            assert revision.isdecimal()
        case ("template",):
            assert typed.inline
        case ("upgrade",) | ("upgrade", "--force"):
            assert typed.inline
        case _:
            pytest.fail("what does it do?")


def paths_in_values(chart: Path) -> set[str]:
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    return {".".join(path) for path, _ in leaves(values)}


def of_python(typed: Typed) -> None:
    assert typed.words[1] == "-m"
    assert importlib.util.find_spec(typed.words[2]) is not None


def of_pip(typed: Typed) -> None:
    asked = re.fullmatch(r"install vllm==([\d.]+)", " ".join(typed.words[1:]))
    assert asked is not None
    assert LIVE_DEPTH.in_version(Version(asked[1]))


def of_pre_commit(typed: Typed) -> None:
    assert typed.words[1:] == ("install",)
    assert (REPOSITORY / ".pre-commit-config.yaml").is_file()
    assert '"pre-commit' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")


def of_anyone(_: Typed) -> None:
    """Not ours, and on most machines."""


def of_docker(typed: Typed) -> None:
    """An image of the operator, as the chart asks for it, of a file that takes these arguments."""
    asked = dict(zip(typed.words[2:-1:2], typed.words[3:-1:2], strict=True))
    assert typed.words[1] == "build"
    assert asked.keys() <= {"--file", "--tag", "--build-arg"}
    file = typed.folder / asked["--file"]
    taken = [each.partition("=")[0] for each in arguments(file, "ARG")]
    assert asked.get("--build-arg", "BUILD").partition("=")[0] in taken
    assert asked["--tag"] == OPERATOR_IMAGE
    assert typed.words[-1] == "."


def of_kind(typed: Typed) -> None:
    match typed.words[1:]:
        case ("create" | "delete", "cluster"):
            pass
        case ("load", "docker-image", image):
            assert image == OPERATOR_IMAGE
        case others:
            raise AssertionError(f"not known here: {others}")


CHECKS: Mapping[str, Callable[[Typed], None]] = {
    "fathom": of_fathom,
    "make": of_make,
    "kubectl": of_kubectl,
    "helm": of_helm,
    "python": of_python,
    "python3": of_python,
    "pip": of_pip,
    "pre-commit": of_pre_commit,
    "docker": of_docker,
    "kind": of_kind,
    "sleep": of_anyone,
    "jq": of_anyone,
    "export": of_anyone,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_program_knows_its_words(here: Path, page: Path) -> None:
    for command in commands(page):
        for words in command.programs:
            program = Path(words[0]).name
            assert program in CHECKS, f"{page.name}: {command}: what is to be checked of {program}?"
            try:
                CHECKS[program](Typed(words, here, command.inline))
            except Exception as error:
                raise AssertionError(f"{page.name}: {command}: {error}") from error


TO_BE_RUN = [
    (page, command)
    for page in PAGES
    for command in commands(page)
    if not command.inline and runs_here(command)
]


@pytest.mark.parametrize(
    ("page", "command"),
    TO_BE_RUN,
    ids=[f"{page.name}: {each}" for page, each in TO_BE_RUN],
)
def test_what_needs_nothing_runs_and_prints_what_is_shown(
    here: Path, page: Path, command: ShownCommand
) -> None:
    ran = started(
        ["bash", "-c", command.text],
        here,
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        HF_HUB_OFFLINE="1",
        HF_HOME=str(here / "hub"),
    )
    assert (ran.returncode, ran.stderr) == (0, ""), page.name
    output, printed = unwrapped("\n".join(command.output)), unwrapped(ran.stdout)
    shown = [line for line in output if not line.lstrip().startswith(TOLD_BY_A_HUB)]
    assert [line for line in shown if line not in printed] == []
    assert ran.stdout


def test_what_needs_nothing_is_there_to_be_run() -> None:
    assert {next(command.programs)[:2] for _, command in TO_BE_RUN} == {
        ("make",),
        ("fathom", "check"),
        ("fathom", "render"),
        ("fathom", "replay"),
        ("fathom", "report"),
    }


@pytest.mark.parametrize(
    "page", [page for page in PAGES if resources(page)], ids=lambda page: page.name
)
def test_each_resource_that_is_shown_passes_the_check(tmp_path: Path, page: Path) -> None:
    for name, manifest in resources(page).items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(manifest), encoding="utf-8")
        result = CliRunner().invoke(app, ["check", "--offline", "-f", str(file)])
        assert (result.exit_code, result.stderr) == (0, ""), f"{page.name}: {name}"
