import pytest
from packaging.version import Version

from fathom.engine.start import engine_version
from manifest_samples import resource


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("vllm/vllm-openai:0.32.0-cu130", "0.32.0"),
        ("vllm/vllm-openai:v0.32.0-aarch64", "0.32.0"),
        ("vllm/vllm-openai:v0.33.0rc2", "0.33.0rc2"),
        ("vllm/vllm-openai:v0.32.0@sha256:" + "a" * 64, "0.32.0"),
        ("registry.example.com:5000/vllm:v0.23.0", "0.23.0"),
        ("registry.example.com/team/our-vllm:v0.32.0", "0.32.0"),
        ("rocm/vllm:rocm7.0_ubuntu22.04_vllm_0.26.0_20260812", "0.26.0"),
        ("registry.example.com/serving:2026.11-vllm0.32.0", "0.32.0"),
        ("ghcr.io/kserve/huggingfaceserver:v0.16-vllm-v0.32.0rc1", "0.32.0rc1"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.7.0", None),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2.1", None),
        ("nvcr.io/nvidia/vllm:26.05-py3", None),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7.0", None),
        ("lmcache/vllm-openai:v0.3.9", None),
        ("registry.example.com/mirror/lmcache/vllm-openai:v0.3.9", None),
        ("registry.example.com/mirror/vllm/openai:v0.32.0", "0.32.0"),
        ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.0-vllm0.32.0", "0.32.0"),
        ("registry.example.com/team/serving:v0.32.0", None),
        ("vllm.example.com/team/serving:v0.32.0", None),
        ("lmsysorg/sglang:v0.5", None),
        ("lmsysorg/sglang:v0.5.3-cu129", None),
        ("ghcr.io/huggingface/text-generation-inference:0.9", None),
        ("registry.example.com/serving:notvllm-0.32.0", None),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0a1b2c3", None),
        ("vllm/vllm-openai:0a1b2c3", None),
        ("vllm/vllm-openai:20261101", None),
        ("registry.example.com:5000/vllm", None),
        ("vllm/vllm-openai@sha256:" + "a" * 64, None),
    ],
)
def test_the_tag_tells_the_version(image: str, version: str | None) -> None:
    engine = resource({"engine.image": image}).spec.engine

    assert engine_version(engine) == (version and Version(version))


@pytest.mark.parametrize("written", ["0.23.0", "v0.23.0"])
def test_the_users_word_wins_over_the_tag(written: str) -> None:
    assert engine_version(resource({"engine.version": written}).spec.engine) == Version("0.23.0")
