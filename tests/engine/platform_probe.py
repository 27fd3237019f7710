"""Asks a real vLLM what it makes of command lines on processors, where there is no GPU.

Run by the Python of an engine's environment, never by that of the tests. Reads a JSON list of
argument lists, writes one JSON list of answers on the last line.
"""

import json
import os
import sys

from fathom_measure.start_probe import Vllm, use_cpu_platform

os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"


def main() -> None:
    use_cpu_platform()
    vllm = Vllm()
    answers = []
    for args in json.load(sys.stdin):
        config = vllm.configured(vllm.parsed(args))
        answers.append(
            {
                "runner": "V2" if config.use_v2_model_runner else "V1",
                "asynchronous": bool(config.scheduler_config.async_scheduling),
                "graphs": config.compilation_config.cudagraph_mode.name,
                "sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
                "max_num_seqs": config.scheduler_config.max_num_seqs,
                "schedule": config.speculative_config.num_speculative_tokens_per_batch_size,
            }
        )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
