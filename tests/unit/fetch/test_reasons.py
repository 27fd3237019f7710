"""What is said when a model cannot be fetched; the rest is asked of a server, in tests/contract."""

import errno

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError, OfflineModeIsEnabled

from fathom_fetch.reasons import LONGEST_QUOTE, NoCommitError, reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "no space"), "the volume is full: enlarge the claim"),
        (OSError(errno.EDQUOT, "quota"), "the volume is full: enlarge the claim"),
        (PermissionError(errno.EACCES, "denied"), "may not be written: let the user that the pod"),
        (
            OSError(errno.EROFS, "read-only"),
            "is mounted read-only: set spec.cache.prefetch to",
        ),
        (NoCommitError(), "does not say which commit its revision means"),
        (HFValidationError("no"), "that is no Hugging Face id: correct spec.draft.id"),
        (OfflineModeIsEnabled("no"), "HF_HUB_OFFLINE is set where it runs"),
        (
            ConnectionError("no route"),
            "cannot be reached, or broke off (no route): where the",
        ),
        (RuntimeError(), "cannot be reached, or broke off (RuntimeError)"),
    ],
)
def test_each_cause_has_a_sentence(error: Exception, said: str) -> None:
    assert said in reason(error, role="draft", revision="v1")


def test_the_credentials_of_a_mirror_are_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = "https://svc:s3cr3t@mirror.acme"
    monkeypatch.setattr(constants, "ENDPOINT", mirror)
    said = reason(ConnectionError(f"no route to {mirror}/api"), role="draft", revision="")
    assert said.startswith(
        "https://(hidden)@mirror.acme cannot be reached, or broke off (no route to "
        "https://(hidden)@mirror.acme/api)"
    )


def test_a_full_volume_is_seen_behind_what_a_library_makes_of_it() -> None:
    outer = RuntimeError("Data processing error")
    outer.__cause__ = OSError(errno.ENOSPC, "no space")
    assert "the volume is full" in reason(outer, role="model", revision="")


def test_a_long_message_is_cut() -> None:
    said = reason(RuntimeError("x" * 5000), role="model", revision="")
    assert len(said) < LONGEST_QUOTE + 200
