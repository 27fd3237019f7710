"""What vLLM takes for the name of a model. Pure."""

import re
from typing import Final

_HUB_ID: Final = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(:\w[\w.-]*)?", re.ASCII)
"""`organisation/name` or `name`; after a colon, the quantisation of a GGUF file."""
_STREAMED: Final = ("s3://", "gs://", "az://")
"""`SUPPORTED_SCHEMES` in vllm/transformers_utils/runai_utils.py."""


def is_model_name(name: str) -> bool:
    """Whether vLLM would look for a model under this name, be there one or not.

    `$(NAME)` is what a variable of the container holds, which nobody knows here.
    """
    if not name.isprintable():
        return False
    if name.startswith(("/", *_STREAMED)) or "$(" in name:
        return True
    return _HUB_ID.fullmatch(name) is not None
