"""What docs/kubernetes-fields.md says of fields, probes and merging is what the code does."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes.aio.client import models
from pydantic.alias_generators import to_camel

from fathom.api.base import model_at, names_of
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.api.suggestions import FAMILIAR, OF_CONTAINERS, OF_PODS, Familiar, plain
from fathom.engine.argument_parser import EngineArguments
from fathom.engine.flags import FLAGS
from fathom.engine.plugin import PluginBundle
from fathom.manifests.pod_template import pod_template
from fathom.resource import SpeculativeDeployment, parse
from fathom.validation.argument_checks import owned_flag_problems
from support.validated import errors

PAGE: Final = (Path(__file__).parents[3] / "docs" / "kubernetes-fields.md").read_text("utf-8")
MANIFESTS: Final[list[dict[str, Any]]] = [
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
]
OPTIONS, PROBES, REMOVED, DEVICES = MANIFESTS
SPEC: Final = "spec."


def rows(heading: str) -> dict[str, str]:
    """What stands beside each name in the tables under headings that begin so."""
    sections = re.findall(rf"^## {heading}.*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for each in sections for line in re.findall(r"^\| `.*", each, re.MULTILINE)]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {name: where for names, where in cells for name in re.findall(r"`([^`]+)`", names)}


def stated(row: Familiar) -> str:
    if row.below:
        return f"`{row.below}`, under the same name"
    return f"`{row.field}`" if row.field else row.instead.format(name="…")


def container(manifest: Mapping[str, Any]) -> dict[str, Any]:
    sd = parse(manifest)
    assert isinstance(sd, SpeculativeDeployment)
    assert errors(sd) == ()
    pod = pod_template(sd, revision="abcd0123", bundle=PluginBundle({}, "abc"))["spec"]
    return {**pod["containers"][0], "pod": pod}  # type: ignore[index, call-overload]


def own_field(path: str) -> bool:
    """Whether a path below `spec` is one of ours."""
    *above, name = path.split(".")
    return name in names_of(model_at(SpeculativeDeploymentSpec, above))


def test_the_tables_are_those_of_the_code() -> None:
    listed = {name: stated(row) for row in FAMILIAR if not row.beside for name in row.names}

    assert rows("Of ") == listed


def test_fields_that_are_named_are_there() -> None:
    known = rows("Fields that you know")
    paths = [
        f"{where.split('`')[1]}.{name}" if "same name" in where else where.strip("`")
        for name, where in known.items()
    ]
    others = [row.field for row in FAMILIAR if row.field and "podTemplate." not in row.field]

    assert len(paths) > 10
    assert [path for path in paths + others if not own_field(path.removeprefix(SPEC))] == []


@pytest.mark.parametrize(
    ("row", "model"), [(OF_PODS[0], models.V1PodSpec), (OF_CONTAINERS[0], models.V1Container)]
)
def test_what_goes_to_a_pod_is_kubernetes_own(row: Familiar, model: Any) -> None:
    real = {plain(to_camel(name)) for name in model.model_fields}

    assert [name for name in row.names if plain(name) not in real] == []


def test_no_name_goes_to_two_places() -> None:
    names = [plain(name) for row in FAMILIAR if not row.beside for name in row.names]

    assert sorted(names) == sorted(set(names))


def test_options_for_the_arguments_may_stand_there_and_others_have_their_field() -> None:
    (options,) = (row for row in FAMILIAR if row.instead.endswith("into spec.engine.args"))
    fields = {flag.name.removeprefix("--"): flag.field for flag in FLAGS if flag.field}
    known = {plain(name): row.field for row in FAMILIAR for name in row.names}

    assert owned_flag_problems(EngineArguments.of(list(options.names))) == ()
    for name, field in fields.items():
        assert known.get(plain(name), f"{SPEC}{field}") in (f"{SPEC}{field}", "spec.model.id"), name


def test_the_options_are_passed() -> None:
    args = container(OPTIONS)["args"]

    assert args[args.index("--max-model-len") + 1] == "131072"
    assert "--gpu-memory-utilization=0.92" in args


def test_probes_are_as_the_page_has_them() -> None:
    engine = container(OPTIONS)
    row = r"^\| `(\w+Probe)` \| `(\S+)` \| (\d+) s \| (\d+) s \| (\d+)"
    shown = re.findall(row, PAGE, re.MULTILINE)

    assert shown == [
        (
            name,
            engine[name]["httpGet"]["path"],
            str(engine[name]["periodSeconds"]),
            str(engine[name]["timeoutSeconds"]),
            str(engine[name]["failureThreshold"]),
        )
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    ]
    assert engine["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "5"]
    assert engine["pod"]["terminationGracePeriodSeconds"] == 5 + 120 + 15


def test_one_field_of_a_probe_leaves_the_others() -> None:
    before, after = container(OPTIONS)["livenessProbe"], container(PROBES)["livenessProbe"]

    assert after == {**before, "failureThreshold": 60}


def test_what_is_removed_is_gone() -> None:
    engine = container(REMOVED)

    assert "terminationMessagePolicy" in container(OPTIONS)
    assert "terminationMessagePolicy" not in engine
    assert "VLLM_ENGINE_READY_TIMEOUT_S" in {each["name"] for each in container(OPTIONS)["env"]}
    assert "VLLM_ENGINE_READY_TIMEOUT_S" not in {each["name"] for each in engine["env"]}
    assert engine["livenessProbe"] == {"tcpSocket": {"port": 8000}, "periodSeconds": 60}


def test_a_device_is_claimed_beside_the_gpus() -> None:
    engine = container(DEVICES)

    assert engine["resources"]["claims"] == [{"name": "nic"}]
    assert engine["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert [claim["name"] for claim in engine["pod"]["resourceClaims"]] == ["nic"]
