"""What has to be known of every accelerator that the API has a name for."""

from pathlib import Path

import pytest

from fathom.api.accelerators import PRESETS
from fathom.api.choices import Accelerator
from fathom.api.spec import NodePoolSpec

DOCS = Path(__file__).parents[3] / "docs"
NAMED = [each for each in Accelerator if each is not Accelerator.CUSTOM]


@pytest.mark.parametrize("accelerator", NAMED)
def test_every_accelerator_has_a_preset(accelerator: Accelerator) -> None:
    assert accelerator in PRESETS, (
        f"{accelerator} needs a row of PRESETS in operator/fathom/api/accelerators.py"
    )


@pytest.mark.parametrize("accelerator", [each for each in PRESETS if PRESETS[each].has_gpus])
def test_its_memory_is_known(accelerator: Accelerator) -> None:
    """Without it no preflight says what cannot fit, and vLLM's default for small GPUs is taken."""
    assert PRESETS[accelerator].memory_bytes > 0


@pytest.mark.parametrize("accelerator", [each for each in PRESETS if PRESETS[each].domain_key])
def test_one_with_an_nvlink_domain_is_named_where_domains_are_explained(
    accelerator: Accelerator,
) -> None:
    assert accelerator in (NodePoolSpec.model_fields["topology_key"].description or ""), (
        f"the docstring of NodePoolSpec.topology_key does not name {accelerator}"
    )
    for page in ("environment.md", "groups.md", "requirements.md"):
        assert accelerator in (DOCS / page).read_text(), f"docs/{page} does not name {accelerator}"


@pytest.mark.parametrize("accelerator", PRESETS)
def test_one_without_gpus_has_none_of_what_gpus_have(accelerator: Accelerator) -> None:
    preset = PRESETS[accelerator]
    of_gpus = (preset.gpus_per_node, preset.memory_bytes, preset.product)

    assert all(of_gpus) if preset.has_gpus else not any(of_gpus)
