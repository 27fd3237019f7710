"""Asks vLLM whether it takes the arguments of its server, as far as a machine without a GPU tells.

Run by a Python that has vLLM, as a file: on the machine of whoever asks, or in the engine's image.
Reads JSON, of the file that its command line names or of stdin: argument lists of `vllm serve` by a
name. Writes one line at last: `PREFIX`, then JSON. Each list goes through the parser and through
the whole configuration, up to where a model would be loaded. The platform's own adjustments are
left out and Triton is taken for granted: what is asked is what vLLM says on a GPU, and on a CPU it
would turn CUDA graphs and Model Runner V2 off before it looks.
"""

import contextlib
import importlib
import inspect
import io
import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

PREFIX = "fathom-start-probe: "
LONGEST = 600
"""Characters of what vLLM says that are repeated."""
PARSER, CONFIGURATION = "parser", "configuration"
PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # since 0.33
    "vllm.entrypoints.launchers.cli_args",  # since 0.29
    "vllm.entrypoints.openai.cli_args",
)
_REFUSALS = (ValueError, AssertionError, NotImplementedError)
"""What vLLM raises where it refuses what is asked; all else says that something is missing here."""
_READS_MODELS = ("transformers_utils", "huggingface_hub", "transformers", "modelscope")
"""Folders of code that reads a model's files."""
_OF_THE_MACHINE = re.compile(
    r"\b(?:cuda|rocm|hip|gpus?|cpus?|xpu|triton|nccl|nvlink|libcuda\S*|device type|platform)\b"
    r"|'_C'|failed to be inspected",
    re.IGNORECASE,
)
"""In a refusal that another machine might not make."""


class Answer(NamedTuple):
    """What vLLM makes of one list; all empty: it takes it."""

    refused_by: str = ""
    error: str = ""
    unknown: str = ""
    """Why its configuration is not known; the parser takes the list then."""


class UnknownLayoutError(Exception):
    """This vLLM is not built as the releases are that were asked before."""


def parser_module() -> ModuleType:
    """Where this vLLM has its parser.

    Raises:
        ModuleNotFoundError: in none of the places known.
    """
    for name in PARSER_MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    raise ModuleNotFoundError(f"this vLLM has its parser in none of {', '.join(PARSER_MODULES)}")


def use_cpu_platform() -> None:
    """Let vLLM take this machine for one that it knows.

    Its builds for GPUs find no platform where there is none, and then infer no device type. A GPU
    that is there is left alone.
    """
    platforms = importlib.import_module("vllm.platforms")
    platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform
    if isinstance(platforms.current_platform, platform):
        return
    platforms._current_platform = platform()  # type: ignore[attr-defined] # noqa: SLF001 - no other
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "current_platform" in vars(module):
            module.current_platform = platforms.current_platform  # type: ignore[attr-defined]


def as_on_a_gpu() -> None:
    """Let vLLM's configuration decide as it does where CUDA graphs and Triton are.

    Raises:
        UnknownLayoutError: this vLLM decides elsewhere.
    """
    config = importlib.import_module("vllm.config.vllm")
    if not isinstance(getattr(config, "HAS_TRITON", None), bool):
        raise UnknownLayoutError("this vLLM decides about Triton elsewhere")
    config.HAS_TRITON = True  # type: ignore[attr-defined]
    platform: Any = type(importlib.import_module("vllm.platforms").current_platform)
    replaced: dict[str, Callable[..., Any]] = {
        "check_and_update_config": lambda _cls, _config: None,
        "support_static_graph_mode": lambda _cls: True,
    }
    for method, replacement in replaced.items():
        if not hasattr(platform, method):
            raise UnknownLayoutError(f"this vLLM's platform has no {method}")
        setattr(platform, method, classmethod(replacement))


class Vllm:
    """The parser and the configuration of the vLLM that is here."""

    def __init__(self) -> None:
        """Import them.

        Raises:
            ModuleNotFoundError: they are elsewhere in this vLLM.
        """
        self._module = parser_module()
        utils = importlib.import_module("vllm.utils.argparse_utils")
        self._parser = self._module.make_arg_parser(utils.FlexibleArgumentParser())

    def parsed(self, args: list[str]) -> Namespace | str:
        """What the parser makes of a list; a text: why it refuses it."""
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parsed: Namespace = self._parser.parse_args(args)
                self._module.validate_parsed_serve_args(parsed)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it says is the answer
            # What argparse says, it has written; it exits with a number.
            return last_line(said.getvalue()) if isinstance(error, SystemExit) else plain(error)
        return parsed

    def configured(self, parsed: Namespace) -> Any:
        """The engine's whole configuration; raises whatever vLLM does."""
        parsed.model = parsed.model_tag
        arguments = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
        create = arguments.from_cli_args(parsed).create_engine_config
        able = "headless" in inspect.signature(create).parameters
        headless = bool(getattr(parsed, "headless", False))
        return create(headless=True) if headless and able else create()

    def answer(self, args: list[str], unknown: str = "") -> Answer:
        """What it makes of a list.

        Args:
            args: what follows `vllm serve`.
            unknown: why its configuration cannot be asked at all; empty: it can.
        """
        parsed = self.parsed(args)
        if isinstance(parsed, str):
            return Answer(PARSER, flat(parsed))
        if unknown:
            return Answer(unknown=unknown)
        try:
            self.configured(parsed)
        except Exception as error:  # noqa: BLE001 - whatever it says is the answer
            if missing := cannot_tell(error):
                return Answer(unknown=missing)
            return Answer(CONFIGURATION, flat(plain(error)))
        return Answer()


def cannot_tell(error: BaseException) -> str:
    """What this machine lacks for an answer; empty: it is one, and vLLM refuses what is asked."""
    said = flat(plain(error))
    for each in errors_below(error):
        if reads_models(each.__traceback__) or isinstance(each, OSError):
            return f"a model's files cannot be read here: {said}"
    if not isinstance(error, _REFUSALS):
        return f"it ends with {type(error).__name__}: {said}"
    # What follows it is advice, which may speak of anything.
    first = re.split(r"\.\s", said, maxsplit=1)[0]
    return f"another machine may say otherwise: {said}" if _OF_THE_MACHINE.search(first) else ""


def errors_below(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was made of, each once."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [below for below in (each.__cause__, each.__context__) if below]
        # pydantic keeps what a model's own check raised.
        for details in reasons(each):
            inner = details.get("ctx", {}).get("error")
            waiting += [inner] if isinstance(inner, BaseException) else []


def reasons(error: BaseException) -> list[dict[str, Any]]:
    """The entries of pydantic's ValidationError; none: it is another error."""
    found = getattr(error, "errors", None)
    return list(found()) if type(error).__name__ == "ValidationError" and callable(found) else []


def reads_models(traceback: TracebackType | None) -> bool:
    """Whether an error came up where a model's files are read."""
    while traceback:
        if not set(_READS_MODELS).isdisjoint(Path(traceback.tb_frame.f_code.co_filename).parts):
            return True
        traceback = traceback.tb_next
    return False


def plain(error: BaseException) -> str:
    """What an error says, without pydantic's frame around it."""
    return "; ".join(map(reason, reasons(error))) or str(error) or type(error).__name__


def reason(details: dict[str, Any]) -> str:
    """One entry of a ValidationError; a model's own check names its fields by itself."""
    said, field = str(details.get("msg", "")), ".".join(map(str, details.get("loc", ())))
    own = said.removeprefix("Value error, ")
    return own if own != said or not field else f"{field}: {said}"


def last_line(text: str) -> str:
    """The last line of what argparse says, without the name of the command."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says no more"]
    return re.sub(r"^[\w./ -]*: error: ", "", lines[-1])


def flat(text: str) -> str:
    """A text in one line, and never too long."""
    said = " ".join(text.split())
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def answers(asked: dict[str, list[str]]) -> dict[str, Any]:
    """What vLLM makes of each list, and which vLLM; or why it cannot be asked."""
    try:
        version = str(importlib.import_module("vllm").__version__)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        what = "vLLM" if missing == "vllm" else f"{missing}, which its vLLM imports"
        return {"failure": f"it has no {what}"}
    unknown = ""
    try:
        use_cpu_platform()
        as_on_a_gpu()
    except (AttributeError, ImportError, UnknownLayoutError) as error:
        unknown = flat(plain(error))
    try:
        vllm = Vllm()
    except (AttributeError, ImportError) as error:
        return {"vllm": version, "failure": flat(plain(error))}
    found = {name: vllm.answer(args, unknown)._asdict() for name, args in asked.items()}
    return {"vllm": version, "answers": found}


def main() -> None:
    """Answer."""
    source = Path(sys.argv[1]).read_text(encoding="utf-8") if sys.argv[1:] else sys.stdin.read()
    found = json.dumps(answers(json.loads(source)), default=str)
    sys.stdout.write(f"\n{PREFIX}{found}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
