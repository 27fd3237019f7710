"""Asks the parser of a real vLLM what command lines mean to it.

Run by the Python of an engine's environment, never by that of the tests. Reads a JSON list of
argument lists. Writes, as JSON on the last line, what each is parsed to; what every beginning of
every option stands for; and which options take a value.
"""

import json
import sys

from vllm.utils.argparse_utils import FlexibleArgumentParser

from fathom_measure.start_probe import parser_module

KEYS = (
    "attention_backend",
    "attention_config",
    "host",
    "max_num_seqs",
    "model_tag",
    "nnodes",
    "port",
    "scheduler_cls",
    "served_model_name",
    "shutdown_timeout",
    "spec_tokens",
    "speculative_config",
    "tensor_parallel_size",
    "trust_remote_code",
)


def meanings(parser: FlexibleArgumentParser) -> dict[str, str]:
    options = parser._option_string_actions
    means = {}
    for option in options:
        for end in range(2, len(option) + 1):
            start = option[:end]
            if start in options:
                means[start] = options[start].dest
            elif start.startswith("--") and end > 2:
                found = [name for name in options if name.startswith(start)]
                if len(found) == 1:
                    means[start] = options[found[0]].dest
    return means


def parsed(parser: FlexibleArgumentParser, line: list[str]) -> dict[str, object]:
    namespace = vars(parser.parse_args(["model", *line]))
    transfer = namespace["kv_transfer_config"]
    return {
        **{key: namespace[key] for key in KEYS},
        "kv_transfer_config": transfer and vars(transfer),
    }


def main() -> None:
    parser = parser_module().make_arg_parser(FlexibleArgumentParser())
    options = parser._option_string_actions
    answer = {
        "means": meanings(parser),
        "parsed": [parsed(parser, line) for line in json.load(sys.stdin)],
        "valued": [option for option, action in options.items() if action.nargs != 0],
    }
    print(json.dumps(answer, default=str))


if __name__ == "__main__":
    main()
