"""Asks a vLLM which models cannot have adaptive verification, and which variables it reads.

Run by the Python of an engine's environment, never by the operator's. Reads a JSON list of
architectures, or null for all of them; writes JSON on the last line.

Which layers a model has is read in its source, since most models import CUDA libraries: from the
shapes of states that its class declares (`get_mamba_state_shape_from_config`), and from the layers
that its module names. What such a layer's backend takes, its class says: the two questions are
those of `maybe_create_adaptive_verification_manager` in
vllm/v1/worker/gpu/spec_decode/adaptive_verification.py.
"""

import ast
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

STATES = {
    "mamba1_state_shape": "MAMBA1",
    "mamba2_state_shape": "MAMBA2",
    "short_conv_state_shape": "SHORT_CONV",
    "linear_attention_state_shape": "LINEAR",
    "gated_delta_net_state_shape": "GDN_ATTN",
    "kda_state_shape": "GDN_ATTN",
}
"""Members of vLLM's MambaAttentionBackendEnum, by the function that shapes such a layer's state."""
DECLARES = "get_mamba_state_shape_from_config"
HARD_WIRED = {"vllm.models.inkling": "sconv_swa_attn.InklingSconvBackend"}
"""Backends of models that keep such a state as something else, by their package."""
VENDORS = {"nvidia": "amd", "amd": "nvidia"}
"""Whose GPUs a folder of a model is for, and the folder that is not read then."""
VARIABLE = re.compile(r"""["'](VLLM_[A-Z0-9_]+)["']""")


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module of vLLM, as its source says."""

    classes: dict[str, ast.ClassDef]
    functions: dict[str, ast.FunctionDef]
    imports: dict[str, list[tuple[str, str]]]
    """Where a name may come from, and what it is called there."""
    called: set[str]
    """Names that are called, such as those of layers."""


def root() -> Path:
    """The folder of vLLM."""
    return Path(importlib.import_module("vllm").__path__[0])


@cache
def module_of(name: str) -> Module:
    """A module, without running it; an empty one: there is none of this name."""
    path = root().joinpath(*name.split(".")[1:])
    package = path / "__init__.py"
    is_package = package.is_file()
    file = package if is_package else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8") if file.is_file() else "")
    parents = name.split(".") if is_package else name.split(".")[:-1]
    imports: dict[str, list[tuple[str, str]]] = {}
    called: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called.add(node.func.id)
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            place = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                imports.setdefault(alias.asname or alias.name, []).append((place, alias.name))
    return Module(
        classes={each.name: each for each in tree.body if isinstance(each, ast.ClassDef)},
        functions=functions_of(tree),
        imports=imports,
        called=called,
    )


def functions_of(node: ast.Module | ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Functions of a module, or methods of a class."""
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def defined(module: str, name: str, vendor: str) -> tuple[str, ast.ClassDef] | None:
    """A class, and the module that defines it; None: vLLM has none of this name there."""
    for _ in range(5):
        known = module_of(module)
        if name in known.classes:
            return module, known.classes[name]
        place = next(
            (
                each
                for each in known.imports.get(name, ())
                if each[0].startswith("vllm.") and VENDORS[vendor] not in each[0].split(".")
            ),
            None,
        )
        if place is None:
            return None
        module, name = place
    return None


def bases(node: ast.ClassDef) -> list[str]:
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def declaring(module: str, name: str, vendor: str) -> tuple[str, ast.ClassDef] | None:
    """The class, of a model's own and those above it, that declares the states; None: none does."""
    found = defined(module, name, vendor)
    if found is None or DECLARES in functions_of(found[1]):
        return found
    above = (declaring(found[0], base, vendor) for base in bases(found[1]))
    return next((each for each in above if each), None)


def states(module: str, name: str, vendor: str) -> dict[str, set[str]]:
    """Kinds of states that a model declares, each with the modules that do."""
    found = declaring(module, name, vendor)
    if found is None or DECLARES not in functions_of(found[1]):
        return {}
    module, own = found
    kinds: dict[str, set[str]] = {}
    for called_on, called in calls(module, own):
        if called in STATES:
            kinds.setdefault(STATES[called], set()).add(module)
        elif called == DECLARES and called_on not in {"", "cls", own.name}:
            for kind, modules in states(module, called_on, vendor).items():
                kinds.setdefault(kind, set()).update(modules)
    return kinds


def calls(module: str, own: ast.ClassDef) -> list[tuple[str, str]]:
    """What a class calls to declare its states, itself or through others of the same module.

    Each with the name that it is called on; empty: a function.
    """
    known = {**module_of(module).functions, **functions_of(own)}
    found: list[tuple[str, str]] = []
    waiting, seen = [DECLARES], {DECLARES}
    while waiting:
        for node in ast.walk(known[waiting.pop()]):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=called_on), attr=called)):
                    inner = called_on in {"cls", own.name}
                case ast.Call(func=ast.Name(id=called)):
                    called_on, inner = "", True
                case _:
                    continue
            found.append((called_on, called))
            if inner and called in known and called not in seen:
                seen.add(called)
                waiting.append(called)
    return found


def own_backends(module: str, vendor: str) -> set[str]:
    """Backends that layers of a model bring along, by their paths; empty: it has vLLM's common one.

    `GDN_ATTN`, the common one, is among them where another layer of the same module has that.
    """
    found: set[str] = set()
    for name in module_of(module).called:
        layer = defined(module, name, vendor)
        if layer is None or "GatedDeltaNetAttention" not in bases(layer[1]):
            continue
        method = functions_of(layer[1]).get("get_attn_backend")
        answers = ast.walk(method) if method else ()
        chosen = [
            each.value.id
            for each in answers
            if isinstance(each, ast.Return) and isinstance(each.value, ast.Name)
        ]
        backend = defined(layer[0], chosen[0], vendor) if chosen else None
        found.add(f"{backend[0]}.{backend[1].name}" if backend else "GDN_ATTN")
    return found


@cache
def refuses(path: str) -> bool:
    """Whether a backend cannot have requests whose drafts were cut on the GPU."""
    common = importlib.import_module("vllm.v1.attention.backend")
    module, _, name = path.rpartition(".")
    backend = getattr(importlib.import_module(module), name)
    if not backend.supports_device_cpu_query_lens_mismatch():
        return True
    builder = backend.get_builder_cls()
    # Since 0.31; before, only ALWAYS would do.
    asked = "get_varlen_cudagraph_max_query_len"
    bounded = getattr(common.AttentionMetadataBuilder, asked, None)
    own = getattr(getattr(builder, asked, None), "__func__", None)
    if bounded is not None and own is not bounded.__func__:
        return False
    return builder._cudagraph_support is not common.AttentionCGSupport.ALWAYS  # noqa: SLF001


def backends(module: str, name: str, vendor: str) -> Iterator[set[str]]:
    """Paths of backends, of which a model has at least one of each set."""
    enum = importlib.import_module("vllm.v1.attention.backends.registry").MambaAttentionBackendEnum
    for kind, modules in states(module, name, vendor).items():
        own = set().union(*(own_backends(each, vendor) for each in modules))
        paths = (own if kind == "GDN_ATTN" else set()) or {kind}
        yield {enum[each].get_path() if "." not in each else each for each in paths}
    if module in HARD_WIRED and defined(module, name, vendor):
        yield {f"{module}.{vendor}.{HARD_WIRED[module]}"}


def refused(vendor: str, asked: list[str] | None) -> list[str]:
    """Architectures that cannot have adaptive verification on GPUs of a vendor, whatever else.

    Args:
        vendor: a key of `VENDORS`.
        asked: architectures; None: all that this vLLM has.
    """
    registry = importlib.import_module("vllm.model_executor.models.registry").ModelRegistry
    return sorted(
        architecture
        for architecture, model in registry.models.items()
        if (asked is None or architecture in asked)
        and any(
            all(map(refuses, paths))
            for paths in backends(model.module_name, model.class_name, vendor)
        )
    )


def variables() -> list[str]:
    """Variables that begin with VLLM_ and are read: those that vLLM lists, and others in quotes."""
    listed = importlib.import_module("vllm.envs").environment_variables
    quoted = {
        name
        for path in root().rglob("*.py")
        for name in VARIABLE.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    return sorted(quoted | {name for name in listed if name.startswith("VLLM_")})


def numbers() -> list[str]:
    """Variables that vLLM reads as a number: a word such as `true` ends it at start."""
    read = importlib.import_module("vllm.envs").environment_variables
    return sorted(
        name
        for name, value in read.items()
        if name.startswith("VLLM_") and ends(name, value, "true") and not ends(name, value, "1")
    )


def ends(name: str, read: Callable[[], object], value: str) -> bool:
    """Whether a value of a variable is an error."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        read()
    except ValueError:
        return True
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
    return False


def main() -> None:
    """Answer."""
    asked = json.load(sys.stdin)
    answer = {
        "environment": variables(),
        "environment_numbers": numbers(),
        **{f"no_adaptive_verification_{vendor}": refused(vendor, asked) for vendor in VENDORS},
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
