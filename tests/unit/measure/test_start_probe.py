"""What `start_probe` makes of what a vLLM says; a real one is asked in tests/engine."""

from collections.abc import Callable

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from fathom_measure.start_probe import LONGEST, cannot_tell, flat, last_line, plain


def raised(statement: str, file: str = "/lib/vllm/config/model.py") -> Exception:
    """What a statement raises in a file."""
    try:
        exec(compile(statement, file, "exec"), {})
    except Exception as error:  # noqa: BLE001 - that is what is asked for
        return error
    raise AssertionError(statement)


class Config(BaseModel):
    seqs: int = Field(default=1, ge=1)
    model: str = ""

    @field_validator("model")
    @classmethod
    def _readable(cls, model: str) -> str:
        if model:
            raise raised(f"raise ValueError({model!r})", "/lib/vllm/transformers_utils/config.py")
        return model


def refusal(make: Callable[[], object]) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        make()
    return refused.value


@pytest.mark.parametrize(
    "error",
    [
        raised("raise ValueError('max_num_batched_tokens is too low')"),
        raised("assert False, 'no such method'"),
        raised("raise NotImplementedError('not with pipeline parallelism')"),
        # Advice may speak of anything.
        raised("raise ValueError('max_model_len is too long. Beyond it CUDA fails.')"),
        refusal(lambda: Config(seqs=0)),
    ],
    ids=str,
)
def test_what_vllm_refuses_it_refuses_on_any_machine(error: Exception) -> None:
    assert cannot_tell(error) == ""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            raised("raise ValueError('no config.json')", "/lib/vllm/transformers_utils/config.py"),
            "a model's files cannot be read here: no config.json",
        ),
        (
            raised("try: open('/nowhere')\nexcept OSError as e: raise ValueError('bad') from e"),
            "a model's files cannot be read here: bad",
        ),
        (refusal(lambda: Config(model="gated")), "a model's files cannot be read here: gated"),
        (
            raised("import no_such_module"),
            "it ends with ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (raised("raise RuntimeError('no')"), "it ends with RuntimeError: no"),
        (
            raised("raise ValueError('only supported on CUDA devices')"),
            "another machine may say otherwise: only supported on CUDA devices",
        ),
        (
            raised("raise ValueError('Model architectures failed to be inspected')"),
            "another machine may say otherwise: Model architectures failed to be inspected",
        ),
    ],
    ids=str,
)
def test_what_this_machine_lacks_is_no_refusal(error: Exception, why: str) -> None:
    assert cannot_tell(error) == why


def test_a_field_is_named_where_vllm_does_not_name_it() -> None:
    assert plain(refusal(lambda: Config(seqs=0))).startswith("seqs: Input should be greater")
    assert plain(refusal(lambda: Config(model="gated"))) == "gated"
    assert plain(ValueError()) == "ValueError"


def test_of_argparse_the_last_line_counts() -> None:
    said = "usage: vllm serve [model]\n  --x\nvllm serve: error: unrecognized arguments: --y\n"
    assert last_line(said) == "unrecognized arguments: --y"
    assert last_line("") == "it says no more"


def test_what_is_said_is_one_line_and_bounded() -> None:
    assert flat("a\n  b") == "a b"
    assert len(flat("x" * 5000)) == LONGEST
