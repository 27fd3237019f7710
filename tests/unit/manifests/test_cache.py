"""What a spec wants in its cache, and what its pods make of it."""

from typing import Any

import pytest

from fathom.engine.plugin import PluginBundle
from fathom.fetch.state import Fetched, pinned
from fathom.manifests.cache import compile_cache, wanted_fetch
from fathom.manifests.pod_template import pod_template
from fathom.model_refs import ModelRef
from fathom.rollout.revision import revision_of
from manifest_samples import resource

COMMIT = "0123456789abcdef0123456789abcdef01234567"
COMMITS = {"model.revision": COMMIT, "draft.revision": COMMIT}
CLAIM = {"cache.claimName": "weights"}
BUNDLE = PluginBundle({}, "0123456789ab")
TARGET = ModelRef("nvidia/Kimi-K2.6-NVFP4")
DRAFT = ModelRef("lightseekorg/kimi-k2.6-eagle3.1-mla")


def variable(name: str, value: str) -> dict[str, Any]:
    return {"engine.env": [{"name": name, "value": value}]}


def env(changes: dict[str, Any]) -> dict[str, str]:
    template: Any = pod_template(resource(changes), revision="abcd0123", bundle=BUNDLE)
    (container,) = template["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cache.prefetch": True},
        {**CLAIM, "cache.prefetch": False},
        {**CLAIM, "engine.args": ["--download-dir", "/elsewhere"]},
        {**CLAIM, "engine.args": ["--download_dir=/elsewhere"]},
        {**CLAIM, "engine.args": ["--load-format", "dummy"]},
        {**CLAIM, "engine.args": ["--load-format=npcache"]},
        {**CLAIM, **variable("HF_HOME", "/elsewhere")},
        {**CLAIM, **variable("HF_HUB_CACHE", "/cache-of-mine")},
        {**CLAIM, **variable("HF_HUB_OFFLINE", "1")},
        {**CLAIM, **variable("VLLM_USE_MODELSCOPE", "True")},
        {**CLAIM, "model.id": "/models/target", "draft.id": "/models/draft"},
        {**CLAIM, "model.id": "s3://bucket/target", "draft": {"method": "ngram"}},
    ],
    ids=str,
)
def test_nothing_is_fetched_that_vllm_would_not_look_for_in_the_cache(
    changes: dict[str, Any],
) -> None:
    assert wanted_fetch(resource(changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        CLAIM,
        {"cache.size": "1Ti"},
        {**CLAIM, "engine.args": ["--load-format", "auto"]},
        {**CLAIM, **variable("HF_HOME", "/cache/mine")},
        {**CLAIM, **variable("HF_HUB_OFFLINE", "0")},
    ],
    ids=str,
)
def test_target_and_draft_are_fetched(changes: dict[str, Any]) -> None:
    fetch = wanted_fetch(resource(changes))
    assert fetch is not None
    assert (fetch.model, fetch.draft, fetch.whole) == (TARGET, DRAFT, False)


def test_a_model_by_its_path_is_left_out() -> None:
    target = wanted_fetch(resource({**CLAIM, "draft.id": "/models/draft"}))
    draft = wanted_fetch(resource({**CLAIM, "model.id": "/models/target"}))
    assert target is not None
    assert draft is not None
    assert (target.model, target.draft) == (TARGET, None)
    assert (draft.model, draft.draft) == (None, DRAFT)


def test_a_load_format_that_picks_other_files_gets_them_all() -> None:
    fetch = wanted_fetch(resource({**CLAIM, "engine.args": ["--load-format", "fastsafetensors"]}))
    assert fetch is not None
    assert fetch.whole


def test_the_digest_changes_with_what_is_fetched_and_with_nothing_else() -> None:
    def digest(changes: dict[str, Any]) -> str:
        fetch = wanted_fetch(resource({**CLAIM, **changes}))
        assert fetch is not None
        return fetch.digest

    same = [{}, {"replicas": 9}, {"engine.args": ["--seed", "1"]}, {"engine.image": "vllm:v0.33.0"}]
    others = [
        {"model.revision": "v1"},
        {"draft.revision": "v1"},
        {"draft.id": "org/other"},
        {"cache.claimName": "other"},
        {"engine.args": ["--load-format", "fastsafetensors"]},
    ]
    assert len({digest(each) for each in same}) == 1
    assert len({digest(each) for each in (same[0], *others)}) == 1 + len(others)


def test_pods_are_offline_once_every_commit_is_known() -> None:
    assert env({**CLAIM, **COMMITS})["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in env(CLAIM)
    assert "HF_HUB_OFFLINE" not in env({**CLAIM, "model.revision": COMMIT})
    assert "HF_HUB_OFFLINE" not in env(COMMITS)


@pytest.mark.parametrize("flag", ["--tokenizer", "--hf-config-path", "--lora-modules"])
def test_pods_that_may_need_another_repository_may_ask_for_it(flag: str) -> None:
    args = {"engine.args": [flag, "org/other"]}
    assert wanted_fetch(resource({**CLAIM, **args})) is not None
    assert "HF_HUB_OFFLINE" not in env({**CLAIM, **COMMITS, **args})


def test_the_users_own_environment_wins() -> None:
    changes = {**CLAIM, **COMMITS}
    assert env({**changes, **variable("HF_HUB_OFFLINE", "0")})["HF_HUB_OFFLINE"] == "0"
    assert env({**changes, **variable("VLLM_CACHE_ROOT", "/mine")})["VLLM_CACHE_ROOT"] == "/mine"


def test_compile_caches_are_shared_by_no_two_images_or_node_types() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"engine.image": "vllm/vllm-openai:v0.33.0"},
        {"engine.image": "mirror/vllm-openai:v0.32.0"},
        {"nodePool.accelerator": "H100"},
    ]
    found = [compile_cache(resource(each).spec) for each in changes]
    assert len(set(found)) == len(changes)
    assert found[0].startswith("/cache/vllm/gb200-")
    assert compile_cache(resource({"replicas": 3}).spec) == found[0]


def test_pinned_pods_belong_to_the_revision_of_what_the_user_wrote() -> None:
    sd = resource({**CLAIM, "model.revision": "main"})
    found = pinned(sd, Fetched((("draft", COMMIT), ("model", COMMIT))))
    assert (found.spec.model.revision, found.spec.draft.revision) == (COMMIT, COMMIT)
    assert found.spec.model.served_name == sd.spec.model.id
    assert revision_of(found) != revision_of(sd)
    assert pinned(sd, None) is sd


def test_a_name_that_the_user_gave_stays() -> None:
    sd = resource({**CLAIM, "model.servedName": "kimi"})
    assert pinned(sd, Fetched((("model", COMMIT),))).spec.model.served_name == "kimi"


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"model": 1}', '{"model": {"commit": "main", "bytes": 1}}', "gated."]
)
def test_what_is_no_result_of_a_fetch_is_none(text: str) -> None:
    assert Fetched.from_json(text) is None
