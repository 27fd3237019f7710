"""vLLM's connector that writes hidden states, for engines on a CPU.

vLLM copies them through pinned memory, and a CUDA event says when a copy is done. A CPU has
neither: here memory is ordinary, and a copy is done once it has been made.
"""

from typing import Any
from unittest import mock

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    PendingSave,
)

_empty_like = torch.empty_like


class _Done:
    """A copy that has been made."""

    def query(self) -> bool:
        return True


def _unpinned(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
    del pin_memory
    return _empty_like(*arguments, **options)


class CpuHiddenStatesConnector(ExampleHiddenStatesConnector):
    """The same, without CUDA."""

    def _submit_async_write(self, pending: PendingSave) -> None:
        with mock.patch.object(torch, "empty_like", _unpinned):
            super()._submit_async_write(pending)
        self._req_copy_events[pending.req_id] = _Done()
