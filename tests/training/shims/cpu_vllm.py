"""The `vllm` command on a machine without an accelerator.

It is the next one on PATH, with `cpu_connector` in the place of the connector that writes hidden
states.
"""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_OPTION: Final = "--kv-transfer-config"
_CONNECTOR: Final = {
    "kv_connector": "CpuHiddenStatesConnector",
    "kv_connector_module_path": "cpu_connector",
}


def for_cpu(arguments: Sequence[str]) -> list[str]:
    """The same arguments, with the connector for the CPU."""
    at = arguments.index(_OPTION) + 1
    config = json.loads(arguments[at]) | _CONNECTOR
    return [*arguments[:at], json.dumps(config), *arguments[at + 1 :]]


def main() -> None:
    """Become that command."""
    own = Path(__file__).resolve().parent / "bin"
    others = (each for each in os.get_exec_path() if Path(each).resolve() != own)
    command = shutil.which("vllm", path=os.pathsep.join(others))
    if command is None:
        sys.exit("vllm is not on PATH: install it with `make engine`.")
    os.execv(command, [command, *for_cpu(sys.argv[1:])])


if __name__ == "__main__":
    main()
