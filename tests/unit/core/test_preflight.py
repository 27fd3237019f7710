from typing import Any

import pytest

from fathom.api.conditions import ConditionStatus, Reason
from fathom.core.preflight import check_draft
from manifest_samples import resource

EAGLE_3_1 = {"fc_norm": True, "norm_output": True}
MLA = {"kv_lora_rank": 512}
OLD = {"engine.image": "vllm/vllm-openai:v0.22.1"}
OTHER = {"draft.id": "someone/draft"}


@pytest.mark.parametrize(
    ("changes", "target", "draft", "status", "reason", "family"),
    [
        ({}, None, None, ConditionStatus.TRUE, Reason.KNOWN_PAIR, "EAGLE-3.1"),
        (OLD, None, None, ConditionStatus.FALSE, Reason.ENGINE_TOO_OLD, "EAGLE-3.1"),
        (
            {"engine.image": "vllm/vllm-openai:v0.23.0"},
            None,
            None,
            ConditionStatus.TRUE,
            Reason.KNOWN_PAIR,
            "EAGLE-3.1",
        ),
        (
            {"engine.image": "vllm/vllm-openai:latest"},
            None,
            None,
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "EAGLE-3.1",
        ),
        (OTHER, None, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (OTHER | OLD, None, None, ConditionStatus.UNKNOWN, Reason.NOT_CHECKED, ""),
        (OTHER, None, EAGLE_3_1, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3.1"),
        (OTHER, None, {}, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3"),
        (
            OTHER | OLD,
            None,
            EAGLE_3_1 | MLA,
            ConditionStatus.FALSE,
            Reason.ENGINE_TOO_OLD,
            "EAGLE-3.1",
        ),
        (
            OTHER | OLD,
            {"text_config": MLA},
            EAGLE_3_1,
            ConditionStatus.FALSE,
            Reason.ENGINE_TOO_OLD,
            "EAGLE-3.1",
        ),
        (OTHER | OLD, {}, EAGLE_3_1, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3.1"),
        (OTHER | OLD, MLA, MLA, ConditionStatus.TRUE, Reason.COMPATIBLE, "EAGLE-3"),
        (
            {"draft.method": "mtp"} | OLD,
            None,
            None,
            ConditionStatus.UNKNOWN,
            Reason.NOT_CHECKED,
            "MTP",
        ),
    ],
    ids=str,
)
def test_verdicts(  # noqa: PLR0917 - the columns of the table above
    changes: dict[str, Any],
    target: dict[str, Any] | None,
    draft: dict[str, Any] | None,
    status: ConditionStatus,
    reason: Reason,
    family: str,
) -> None:
    verdict = check_draft(resource(changes).spec, target, draft)

    assert (verdict.status, verdict.reason, verdict.family) == (status, reason, family)
    assert verdict.refused == (status is ConditionStatus.FALSE)
    assert verdict.message.endswith(".")


@pytest.mark.parametrize(
    "config",
    [
        {"fc_norm": True},
        {"norm_output": True},
        {"fc_norm": False, "norm_output": True},
        {"eagle_config": {"fc_norm": True, "norm_output": True}},
        {"norm_before_fc": True, "norm_before_residual": True},
    ],
    ids=str,
)
def test_eagle_3_1_is_told_by_two_fields_at_the_top(config: dict[str, Any]) -> None:
    assert check_draft(resource(OTHER).spec, None, config).family == "EAGLE-3"
