"""Writes what each vLLM release reads and refuses at start (`release_gates.json`), by asking it.

Run as `python -m generators.release_gates`, or by `make known-names`.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fathom.engine.start import ReleaseGates
from generators.known_names import known_releases, rows
from local_cluster.engine import gate_probe
from local_cluster.engine.script_client import imported_vllm

Answer = Mapping[str, Sequence[str]]
"""Names by what they are of: the fields of `ReleaseGates`."""


def release_gates(answers: Mapping[str, Answer]) -> ReleaseGates:
    """What the file is to say.

    Args:
        answers: of each release, ascending.
    """
    found = {
        kind: rows({release: answer[kind] for release, answer in answers.items()})
        for kind in ReleaseGates.model_fields
        if kind != "releases"
    }
    return ReleaseGates.model_validate({"releases": tuple(answers), **found})


def main() -> None:
    """Ask, and write where the operator reads."""
    answers: dict[str, Answer] = {}
    for release in known_releases():
        sys.stderr.write(f"asking vLLM {release}\n")
        with imported_vllm(release) as vllm:
            answers[release] = vllm.ask(Path(gate_probe.__file__), None)
    sys.stdout.write(release_gates(answers).model_dump_json(indent=1) + "\n")


if __name__ == "__main__":
    main()
