"""Asks `vllm bench serve` what its arguments mean to it, and which prompts it finds by them.

Run by the Python of an engine's environment, with what stands in for a missing pandas. Reads a JSON
list of argument lists. Writes, as JSON on the last line, what each is parsed to, and its prompts.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from fathom_measure.load import pandas_stand_in

if (stand_in := pandas_stand_in(Path(tempfile.mkdtemp()))) is not None:
    sys.path.insert(0, str(stand_in))

from vllm.benchmarks.datasets import get_samples
from vllm.benchmarks.serve import add_cli_args
from vllm.tokenizers import get_tokenizer
from vllm.utils.argparse_utils import FlexibleArgumentParser

KEYS = (
    *("backend", "endpoint", "dataset_name", "dataset_path", "max_concurrency", "num_prompts"),
    *("num_warmups", "temperature", "host", "port", "save_result", "disable_tqdm"),
    *("result_dir", "result_filename", "trust_remote_code"),
)


def prompts(arguments: argparse.Namespace, model: str) -> list[str]:
    arguments.request_id_prefix = ""
    arguments.self_timed = False
    samples = get_samples(arguments, get_tokenizer(model))
    return [each.prompt for each in samples]


def main() -> None:
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    model, answers = sys.argv[1], []
    for line in json.load(sys.stdin):
        arguments = parser.parse_args(line)
        answer = {key: vars(arguments)[key] for key in KEYS}
        answer["prompts"] = prompts(arguments, model)
        answers.append(answer)
    print(json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
