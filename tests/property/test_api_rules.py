"""CEL and predicate agree on every spec, not only on the examples."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cel import broken_by_cel
from fathom.api.cel_rules import violations
from fathom.api.choices import Accelerator, TuningMode
from fathom.api.methods import Method
from fathom.api.spec import SpeculativeDeploymentSpec
from manifest_samples import manifest

small = st.integers(min_value=1, max_value=12)
changes = st.fixed_dictionaries(
    {},
    optional={
        "speculation.tokens": small,
        "speculation.maxTokens": small,
        "speculation.drafting": st.sampled_from(["Enabled", "Disabled"]),
        "speculation.depths": st.lists(st.integers(0, 9), min_size=1, max_size=4),
        "speculation.minTokens": st.integers(min_value=0, max_value=9),
        "speculation.tuning.mode": st.sampled_from([mode.value for mode in TuningMode]),
        "engine.attentionBackend": st.sampled_from(["", "tokenspeed_mla", "TokenSpeed_MLA", "x"]),
        "engine.tensorParallelSize": st.integers(min_value=1, max_value=40),
        "draft.tensorParallelSize": small,
        "draft.method": st.sampled_from([method.value for method in Method]),
        "draft.id": st.sampled_from(["", "a/b"]),
        "nodePool.accelerator": st.sampled_from([name.value for name in Accelerator]),
        "nodePool.gpusPerNode": small,
        "cache.claimName": st.sampled_from(["", "weights"]),
        "cache.size": st.sampled_from(["", "800Gi", "1.5Ti"]),
        "rollout.maxUnavailable": st.integers(min_value=0, max_value=2),
        "rollout.maxSurge": st.integers(min_value=0, max_value=2),
    },
)


@given(changes)
def test_cel_and_predicates_agree(edits: dict[str, Any]) -> None:
    spec = manifest(edits)["spec"]

    broken = violations(SpeculativeDeploymentSpec.model_validate(spec))

    assert broken_by_cel(spec) == [problem.field.removeprefix("spec.") for problem in broken]
