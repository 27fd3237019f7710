"""Which vLLM runs: said by `engine.version`, or by the image's tag."""

import re
from typing import Final

from packaging.version import InvalidVersion, Version

from fathom.api.spec import EngineSpec

_VERSION: Final = r"v?(\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+|\.dev\d+)?)"
# `rocm7.0_vllm_0.26.0_20260812`, `2026.11-vllm0.32.0`: whoever's image it is.
_VLLM_IN_TAG: Final = re.compile(rf"(?<![a-z])vllm[-_]?{_VERSION}(?![a-z0-9.])")
# `v0.32.0`, `0.32.0-cu130`, `v0.32.0rc1`; not `latest`, `nightly-...`, or a commit.
_VERSION_TAG: Final = re.compile(rf"{_VERSION}(?![\w.])")
_OTHER_NUMBERS: Final = re.compile(r"(^|/)(lmcache/vllm-openai|ai-dynamo/vllm-runtime|llm-d[^/]*)$")
"""Images that hold a vLLM and are tagged with the versions of something else."""


def engine_version(engine: EngineSpec) -> Version | None:
    """The version as far as the spec tells; `engine.version` wins over the image's tag.

    None: nobody can know without running the image. Nothing may be refused for that.
    """
    return parsed_version(engine.version) if engine.version else _tagged_version(engine.image)


def _tagged_version(image: str) -> Version | None:
    repository, tag = _repository_and_tag(image)
    if match := _VLLM_IN_TAG.search(tag):
        return Version(match[1])
    if _OTHER_NUMBERS.search(repository):
        return None
    match = _VERSION_TAG.match(tag)
    # Products that hold a vLLM count from 1 up, or by years: 3.2.1, 26.05.
    return Version(match[1]) if match and match[1].startswith("0.") else None


def number_in_tag(image: str) -> Version | None:
    """What the image's tag begins with, be it vLLM's version or its product's own; None: no number.

    Earlier releases of Fathom took it for vLLM's, whoever's image it was.
    """
    match = _VERSION_TAG.match(_repository_and_tag(image)[1])
    return Version(match[1]) if match else None


def parsed_version(text: str) -> Version | None:
    """A version as people write it, with or without the `v`; None: not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _repository_and_tag(image: str) -> tuple[str, str]:
    """Both parts of an image reference, without a digest; the tag is empty if there is none.

    A colon before the last slash belongs to the registry's port.
    """
    path, slash, last = image.partition("@")[0].rpartition("/")
    name, _, tag = last.partition(":")
    return f"{path}{slash}{name}", tag
