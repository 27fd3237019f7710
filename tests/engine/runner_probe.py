"""Asks a real vLLM what it makes of command lines with one model runner or the other.

Run by the Python of an engine's environment, never by that of the tests. Reads a JSON list of
pairs, of a value of VLLM_USE_V2_MODEL_RUNNER (null: not set) and of arguments; answers as
`command_probe` does.
"""

import json
import os
import sys
from pathlib import Path

from fathom_measure.start_probe import Vllm, as_on_a_gpu

# It lies beside, and is no module of any package.
sys.path.insert(0, str(Path(__file__).parent))

from command_probe import ask

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"


def main() -> None:
    as_on_a_gpu()
    vllm = Vllm()
    answers = []
    for runner, args in json.load(sys.stdin):
        os.environ.pop(VARIABLE, None)
        if runner is not None:
            os.environ[VARIABLE] = runner
        answers.append(ask(vllm, args))
    print(json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
