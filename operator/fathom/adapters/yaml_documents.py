"""Manifests as YAML text: read from files, written for people and `kubectl apply`."""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import JsonValue

from fathom.api.bounded_json import DEEPEST
from fathom.api.names import LIST_KIND

STDIN: Final = "-"
_LISTS: Final = ("List", LIST_KIND)
_LONGEST_NUMBER: Final = 100
"""Characters; a 64-bit integer has 20, or 66 in binary."""


class UnreadableManifestError(Exception):
    """A file that cannot be read as YAML manifests; the message is a sentence."""


def read_documents(file: str) -> tuple[Mapping[str, JsonValue], ...]:
    """Every object in a file, the items of `kind: List` among them; `-` is stdin.

    Raises:
        UnreadableManifestError: there is no such file, or it is not YAML.
    """
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, _Loader))
    except OSError as error:
        raise UnreadableManifestError(f"cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnreadableManifestError(f"not YAML: {' '.join(str(error).split())}.") from error
    return tuple(_objects(documents))


def to_yaml(documents: Iterable[Mapping[str, JsonValue]]) -> str:
    """Documents as one YAML stream: keys in their own order, long text as blocks."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=4096
    )


def _objects(documents: Iterable[object]) -> Iterable[Mapping[str, JsonValue]]:
    for document in documents:
        if not isinstance(document, dict):
            continue
        if document.get("kind") in _LISTS and isinstance(items := document.get("items"), list):
            yield from _objects(items)
        else:
            yield document


class _Loader(yaml.SafeLoader):
    """YAML as far as it is JSON in another dress, which is all that Kubernetes takes.

    A key that stands twice is refused: YAML says so, and PyYAML would take the last.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._open: list[str | None] = []
        """The anchors of the nodes that are being read, outermost first; None: it has none."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.NodeEvent = self.peek_event()  # type: ignore[no-untyped-call] # PyYAML's
        if isinstance(event, yaml.AliasEvent) and event.anchor in self._open:
            raise _refused(f"*{event.anchor} is within what it names", event.start_mark)
        if len(self._open) > DEEPEST:
            raise _refused(f"nested more than {DEEPEST} deep", event.start_mark)
        self._open.append(event.anchor)
        node = super().compose_node(parent, index)
        self._open.pop()
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 - PyYAML's signature
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError) as error:
            # `!!int a`, `!!bool maybe`, `0x_`: PyYAML leaves them to Python.
            kind = str(node.tag).rsplit(":", 1)[-1]
            raise _refused(f"this is no {kind}", node.start_mark) from error

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > _LONGEST_NUMBER:
            length = len(node.value)
            raise _refused(f"a number of {length} characters is too long", node.start_mark)
        return super().construct_yaml_int(node)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        number = super().construct_yaml_float(node)
        if not math.isfinite(number):
            raise _refused(f"{node.value} is no number in JSON", node.start_mark)
        return number

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[object] = set()
        for key, _ in node.value:
            name = key.value
            if isinstance(key, yaml.ScalarNode) and name in seen and name != "<<":
                raise _refused(f"the key {name!r} occurs twice", key.start_mark)
            seen.add(name if isinstance(key, yaml.ScalarNode) else id(key))
        mapping = super().construct_mapping(node, deep)
        if None in mapping:
            raise _refused("a key is empty", node.start_mark)
        return {_key(key): value for key, value in mapping.items()}


def _key(key: object) -> object:
    """Numbers and truth values as text, as kubectl makes it of them: JSON has no other keys."""
    return json.dumps(key) if isinstance(key, bool | int | float) else key


def _refused(what: str, where: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=where)


_CONSTRUCTORS: Final[dict[str | None, Any]] = {
    f"tag:yaml.org,2002:{tag}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{tag}"]
    for tag in ("null", "bool", "str", "seq", "map")
}
_Loader.yaml_constructors = {
    **_CONSTRUCTORS,
    "tag:yaml.org,2002:int": _Loader.construct_yaml_int,
    "tag:yaml.org,2002:float": _Loader.construct_yaml_float,
    None: yaml.SafeLoader.construct_undefined,
}
# A date is text, as it is for kubectl.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """No anchors: people read this."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
