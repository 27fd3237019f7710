"""Manifests as YAML text: read from files, written for people and `kubectl apply`."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import JsonValue

STDIN: Final = "-"


class UnreadableManifestError(Exception):
    """A file that cannot be read as YAML manifests; the message is a sentence."""


def read_documents(file: str) -> tuple[Mapping[str, JsonValue], ...]:
    """Every object in a file, the items of `kind: List` among them; `-` is stdin.

    Raises:
        UnreadableManifestError: there is no such file, or it is not YAML.
    """
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, _UniqueKeyLoader))
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
        if document.get("kind") == "List" and isinstance(items := document.get("items"), list):
            yield from _objects(items)
        else:
            yield document


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that stands twice; YAML says so, and PyYAML would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[object] = set()
        for key, _ in node.value:
            name = key.value
            if isinstance(key, yaml.ScalarNode) and name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {name!r} stands twice", key.start_mark
                )
            seen.add(name if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """No anchors: people read this."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
