"""What leaves holds no secret, and says all else."""

import pytest

from fathom.text import literal_secrets, scrubbed, scrubbed_value

WORDS = (
    "RuntimeError: 401 for https://svc:s3cr3tpassw0rd@mirror.acme/api/models "
    "Authorization: Bearer hf_abcdefghijklmnopqrstuvwxyz012345678 "
    "non-default args: {'api_key': ['my-very-own-key'], 'model': 'org/a'}"
)


def test_of_an_engine_s_last_words_only_the_secrets_are_hidden() -> None:
    assert scrubbed(WORDS) == (
        "RuntimeError: 401 for https://(hidden)@mirror.acme/api/models "
        "Authorization: Bearer (hidden) "
        "non-default args: {'api_key': ['(hidden)'], 'model': 'org/a'}"
    )


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuvwxyz012345678",
        "sk-live-0123456789",
        "ghp_0123456789abcdef0123456789abcdef0123",
        "github_pat_11AAAAAAA0123456789abc",
        "glpat-0123456789abcdefghij",
        "nvapi-0123456789abcdef",
        "AKIA0123456789ABCDEF",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_tokens_of_known_shapes_are_hidden_wherever_they_stand(secret: str) -> None:
    assert scrubbed(f"refused ({secret}): see the log") == "refused ((hidden)): see the log"


@pytest.mark.parametrize(
    "text",
    [
        "pod kimi-1 failed: Allocate failed due to requested number of devices unavailable",
        "the token budget of 2048 does not hold tokens itself: set --max-num-batched-tokens",
        "https://huggingface.co/org/a shows no such repository; give spec.model.tokenSecretRef",
        "vllm/vllm-openai@sha256:0123 exited with code 1: KeyError: 'hf_config'",
        "secret llm/hf is missing",
    ],
)
def test_what_holds_none_stays_as_it_is(text: str) -> None:
    assert scrubbed(text) == text


def test_what_a_resource_gives_literally_is_known_by_its_name() -> None:
    env = [
        {"name": "MY_API_KEY", "value": "plainword"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "OMP_NUM_THREADS", "value": "16"},
        {"name": "DB_PASSWORD", "value": "x"},
    ]
    beside = [{"name": "SIDECAR_SECRET", "value": "anotherword"}]
    resource = {
        "spec": {
            "engine": {"env": env},
            "podTemplate": {"spec": {"containers": [{"name": "a", "env": beside}]}},
        }
    }
    known = literal_secrets(resource)
    assert known == {"plainword", "anotherword"}
    said = {"message": "got plainword", "conditions": ["and anotherword", 3, None]}
    assert scrubbed_value(said, known) == {
        "message": "got (hidden)",
        "conditions": ["and (hidden)", 3, None],
    }
    assert literal_secrets({}) == frozenset()
