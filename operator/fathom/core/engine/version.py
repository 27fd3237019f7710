"""Which vLLM runs: said by `engine.version`, or by the image's tag."""

import re
from functools import lru_cache
from typing import Final

from packaging.version import InvalidVersion, Version

from fathom.api.spec import EngineSpec

# `v0.32.0`, `0.32.0-cu130`, `v0.32.0rc1`; not `latest`, `nightly-...`, or a commit.
_VERSION_TAG: Final = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:rc\d+|\.post\d+|\.dev\d+)?)(?![\w.])")


def engine_version(engine: EngineSpec) -> Version | None:
    """The version as far as the spec tells; `engine.version` wins over the image's tag.

    None: nobody can know without running the image. Nothing may be refused for that.
    """
    return parsed_version(engine.version) if engine.version else _tagged_version(engine.image)


@lru_cache(maxsize=256)  # asked dozens of times in a pass
def _tagged_version(image: str) -> Version | None:
    match = _VERSION_TAG.match(image_tag(image))
    return Version(match[1]) if match else None


@lru_cache(maxsize=256)
def parsed_version(text: str) -> Version | None:
    """A version as people write it, with or without the `v`; None: not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def image_tag(image: str) -> str:
    """The tag of an image reference, without a digest; empty: none.

    A colon before the last slash belongs to the registry's port.
    """
    name = image.partition("@")[0].rpartition("/")[2]
    return name.partition(":")[2]
