"""Writes docs/rules.md from the chain of rules."""

import inspect
import sys
from collections.abc import Callable
from typing import Final

from fathom.api.names import ANNOTATION_ENGINE_ARGUMENTS, SILENCE_PREFIX
from fathom.validation.candidate import UNCHECKED, Rule
from fathom.validation.chain import CHAIN
from fathom.validation.model_verdict import CHECKS

_HEAD: Final = f"""# Rules

Generated from the code by `make regenerate`.

A spec goes through these rules, in `fathom check` and in the operator alike. Each finding has the
id of its rule: `error [arguments-owned] spec.engine.args[0]: …`, and `rule` in `-o json`.

- **An error** is certain to fail. `fathom check` ends with exit code 2. The operator does not carry
  the spec out: the condition Degraded says `InvalidSpec`, and what runs keeps running.
- **A warning** is likely to fail, or costs something. The spec is carried out. `status.warnings`
  lists the warnings, and a generation that has some gets an event, SpecWarned. `fathom check
  --strict` ends with exit code 2 then, for a pipeline.
- **Unknown** is what could not be checked, such as a model that was not read. `fathom check`
  says what to do, and `--strict` ends with exit code 2 ([preflight](preflight.md)). In the operator
  the condition DraftCompatible is Unknown.

Rules marked *engine* know what a release of vLLM refuses when it starts. They are errors only where
the image is a release that vLLM publishes (`vllm/vllm-openai:v0.32.0`, from a mirror too): any
other image may know more, so there they are warnings. They are warnings as well

- where the annotation `{ANNOTATION_ENGINE_ARGUMENTS}: {UNCHECKED}` is set, and
- for a spec that was carried out before: an operator with a new rule stops nothing that runs. The
  same holds for rules marked *pods*, which know what keeps a pod from starting.

To silence a warning, or what is unknown, write the reason as an annotation of the resource:
`{SILENCE_PREFIX}option-names: "our fork has this option"`. Errors cannot be silenced.
`fathom check` warns of an annotation without a reason, or of no rule: it silences nothing.

| id | what holds | releases of vLLM | source |
|---|---|---|---|
"""
_MODELS: Final = """
## The models

`draft-fits` is an error where one of these is certain to fail. Otherwise the condition
DraftCompatible is Unknown, and says why ([preflight](preflight.md)).

| check | what vLLM does, and where |
|---|---|
"""


def reference() -> str:
    """The whole page."""
    rows = "".join(_row(rule) for link in CHAIN for rule in link)
    return _HEAD + rows + _MODELS + "".join(map(_model_row, CHECKS))


def _row(rule: Rule) -> str:
    mark = " (*engine*)" if rule.engine else " (*pods*)" if rule.starts else ""
    return f"| `{rule.id}`{mark} | {rule.says} | {rule.releases or 'all'} | {rule.source} |\n"


def _model_row(check: Callable[..., object]) -> str:
    name = check.__name__.replace("_", "-")
    first = (inspect.getdoc(check) or "").partition("\n")[0]
    return f"| `{name}` | {first} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
