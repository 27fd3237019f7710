"""The `speculators` command on a machine without an accelerator.

Its trainer moves the model to device 0 and waits for the accelerator. Here the device is the CPU.
"""

import sys

import torch
from speculators.cli import app
from speculators.train import trainer

_set_up = trainer.Trainer.setup_trainer


def _set_up_for_cpu(self: trainer.Trainer) -> None:
    self.device_type = "cpu"
    _set_up(self)


trainer.get_local_rank = lambda: torch.device("cpu")
trainer.Trainer.setup_trainer = _set_up_for_cpu
torch.accelerator.synchronize = lambda *_, **__: None

if __name__ == "__main__":
    sys.argv[0] = "speculators"
    app()
