from typing import Any

import pytest

from fathom.api.conditions import Reason
from fathom.api.problem import Severity
from fathom.engine.capability_table import SHUTDOWN_TIMEOUT
from fathom.validation.chain import CHAIN, problems_of
from fathom.validation.engine_checks import capabilities
from manifest_samples import resource
from support.validated import candidate, errors

RULE_OF_VERSION = next(each for each in CHAIN[0] if each.id == "engine-version")


def image(version: str) -> dict[str, str]:
    return {"engine.image": f"vllm/vllm-openai:v{version}"}


EAGER_ON_V1 = {
    "engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}],
    "engine.args": ["--enforce-eager"],
}

RUST_FRONTEND = {"engine.env": [{"name": "VLLM_USE_RUST_FRONTEND", "value": "1"}]}


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.33.0"])
def test_known_engines_change_depth_live(version: str) -> None:
    assert resource(image(version)).engine.not_live is None


@pytest.mark.parametrize(
    ("changes", "reason", "part"),
    [
        (image("0.31.9"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.31.9"),
        (
            {"speculation.adaptiveVerification": "Enabled", **image("0.31.9")},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "this is 0.31.9",
        ),
        (image("0.32.0rc1"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.32.0rc1"),
        (image("0.34.0"), Reason.LIVE_DEPTH_UNSUPPORTED, "this is 0.34.0"),
        (
            {"engine.image": "vllm/vllm-openai:latest"},
            Reason.ENGINE_VERSION_UNKNOWN,
            "set spec.engine.version",
        ),
        ({"engine.dataParallelSize": 2}, Reason.LIVE_DEPTH_UNSUPPORTED, "dataParallelSize"),
        (
            {"draft.method": "suffix", "draft.id": None},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "method suffix is not known to follow the depth schedule",
        ),
        ({"draft.method": "dspark"}, Reason.LIVE_DEPTH_UNSUPPORTED, "method dspark"),
        (
            {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "VLLM_USE_V2_MODEL_RUNNER in spec.engine.env selects vLLM's Model Runner V1",
        ),
        (
            {"draft.options": {"parallel_drafting": "true"}},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "spec.draft.options.parallel_drafting selects vLLM's Model Runner V1",
        ),
        (
            {"draft.method": "draft_model", "draft.options": {"use_heterogeneous_vocab": "true"}},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "spec.draft.options.use_heterogeneous_vocab selects",
        ),
        (
            {"engine.args": ["--enable_dbo"]},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "--enable-dbo in spec.engine.args selects",
        ),
        (
            {"engine.args": ["--ubatch-size=2"]},
            Reason.LIVE_DEPTH_UNSUPPORTED,
            "--ubatch-size in spec.engine.args selects",
        ),
        (
            RUST_FRONTEND,
            Reason.LIVE_DEPTH_UNSUPPORTED,
            (
                "VLLM_USE_RUST_FRONTEND in spec.engine.env selects vLLM's Rust frontend, which "
                "shows none of the plugin's counters, so depth stays at tokens (3): remove it to "
                "have depth follow the traffic."
            ),
        ),
    ],
    ids=str,
)
def test_others_say_why_not(changes: dict[str, Any], reason: Reason, part: str) -> None:
    engine = resource(changes).engine

    refusal = engine.not_live

    assert refusal is not None
    assert refusal[0] is reason
    assert part in refusal[1]
    assert "depth stays at tokens (3)" in refusal[1]
    assert not engine.live


def test_an_engine_without_drafting_has_no_depth_and_needs_no_method() -> None:
    off = {"speculation.drafting": "Disabled", "speculation.adaptiveVerification": "Enabled"}
    sd = resource(off | {"engine.image": "vllm/vllm-openai:v0.24.0", "draft.method": "dspark"})
    engine = sd.engine

    assert not list(capabilities(candidate(sd)))
    assert not engine.live
    refusal = engine.not_live
    assert refusal is not None
    assert refusal[0] is Reason.DRAFTING_DISABLED


@pytest.mark.parametrize(
    "changes",
    [
        # Without graphs, V1 gives none up.
        EAGER_ON_V1,
        # vLLM says at start that the two do not go together.
        {
            "engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}],
            "draft.options": {"parallel_drafting": "true"},
        },
        {"draft.options": {"parallel_drafting": "false"}},
        {"draft.method": "dflash", "draft.options": {"parallel_drafting": "true"}},
        {"engine.args": ["--ubatch-size", "1"]},
        # vLLM says at start what is wrong with it.
        {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "no"}]},
    ],
    ids=str,
)
def test_model_runner_v1_is_in_the_way_only_where_it_costs_graphs(changes: dict[str, Any]) -> None:
    assert resource(changes).engine.live


@pytest.mark.parametrize(
    "stated",
    [
        [{"value": "0"}],
        [{"value": ""}],
        [{}],
        # vLLM says at start what is wrong with it.
        [{"value": "yes"}],
        # The last one is what the container has.
        [{"value": "1"}, {"value": "0"}],
    ],
    ids=str,
)
def test_what_selects_no_other_frontend_is_not_in_the_way(stated: list[dict[str, str]]) -> None:
    env = [{"name": "VLLM_USE_RUST_FRONTEND", **each} for each in stated]
    assert resource({"engine.env": env}).engine.live


def test_ngrams_of_the_gpu_have_one_depth_on_model_runner_v1() -> None:
    by_gpu = {"draft.method": "ngram_gpu", "draft.id": None}
    assert resource(by_gpu).engine.live
    assert resource({**by_gpu, **EAGER_ON_V1, "draft.method": "ngram"}).engine.live

    refusal = resource({**by_gpu, **EAGER_ON_V1}).engine.not_live

    assert refusal is not None
    assert refusal[0] is Reason.LIVE_DEPTH_UNSUPPORTED
    assert refusal[1] == (
        "VLLM_USE_V2_MODEL_RUNNER in spec.engine.env selects vLLM's Model Runner V1, which drafts "
        "at one depth only with method ngram_gpu, so depth stays at tokens (3): remove it to have "
        "depth follow the traffic."
    )


@pytest.mark.parametrize(
    ("changes", "advised"),
    [({}, "mtp, ngram, ngram_gpu."), (EAGER_ON_V1, "mtp, ngram.")],
    ids=["V2", "V1"],
)
def test_only_methods_whose_depth_would_be_live_are_advised(
    changes: dict[str, Any], advised: str
) -> None:
    suffix = {"draft.method": "suffix", "draft.id": None}

    refusal = resource({**suffix, **changes}).engine.not_live

    assert refusal is not None
    assert refusal[1].endswith(f"choose one of dflash, draft_model, eagle, eagle3, {advised}")


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        (EAGER_ON_V1, "VLLM_USE_V2_MODEL_RUNNER in spec.engine.env"),
        ({"engine.args": ["--no-async-scheduling"]}, "--no-async-scheduling in spec.engine.args"),
    ],
    ids=str,
)
def test_a_pipeline_whose_steps_wait_for_each_other_is_not_live(
    changes: dict[str, Any], cause: str
) -> None:
    assert resource(changes).engine.live

    refusal = resource({**changes, "engine.pipelineParallelSize": 2}).engine.not_live
    assert refusal is not None
    assert refusal[1].startswith(
        f"pipelineParallelSize above 1 needs another scheduler than the plugin with {cause}, so "
        "depth stays at tokens (3)"
    )
    assert resource({"engine.pipelineParallelSize": 2}).engine.live


@pytest.mark.parametrize(("release", "live"), [("0.32.0", False), ("0.33.0", True)])
def test_a_pipeline_with_ngrams_is_live_where_its_steps_do_not_wait(
    release: str, *, live: bool
) -> None:
    ngrams = {"draft": {"method": "ngram"}, "engine.pipelineParallelSize": 2}
    assert resource({**ngrams, "engine.version": release}).engine.live is live


def test_a_static_engine_is_not_live_though_it_could_be() -> None:
    engine = resource({"speculation.tuning.mode": "Static"}).engine

    assert engine.not_live is None
    assert not engine.live
    assert not engine.has_plugin


V1 = {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]}


@pytest.mark.parametrize(
    "changes",
    [
        image("0.28.0"),
        image("0.31.9"),
        {"engine.dataParallelSize": 2},
        {"engine.dataParallelSize": 2, "engine.args": ["--no-async-scheduling"]},
        {"engine.dataParallelSize": 2, "engine.pipelineParallelSize": 2},
        {"speculation.adaptiveVerification": "Enabled", **image("0.31.9")},
        V1,
    ],
    ids=str,
)
def test_where_depth_is_not_live_steps_are_counted_all_the_same(changes: dict[str, Any]) -> None:
    engine = resource(changes).engine

    assert not engine.live
    assert engine.not_counted is None
    assert engine.has_plugin


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (image("0.27.9"), "the plugin counts in vLLM <0.34,>=0.28.0"),
        (image("0.34.0"), "the plugin counts in vLLM <0.34,>=0.28.0"),
        (
            {"engine.image": "vllm/vllm-openai:latest"},
            "the plugin counts in vLLM <0.34,>=0.28.0",
        ),
        (
            {"draft.method": "suffix", "draft.id": None},
            "the plugin is not known to count with method suffix",
        ),
        (
            {"draft.method": "ngram", "draft.id": None, "engine.dataParallelSize": 2},
            "the plugin is not known to count with method ngram",
        ),
        (
            {"draft.method": "ngram_gpu", "draft.id": None, "engine.dataParallelSize": 2},
            "the plugin is not known to count with method ngram_gpu",
        ),
        (
            {**V1, "engine.pipelineParallelSize": 2},
            "another scheduler with VLLM_USE_V2_MODEL_RUNNER in spec.engine.env",
        ),
        (
            {
                "engine.dataParallelSize": 2,
                "engine.pipelineParallelSize": 2,
                "engine.args": ["--no-async-scheduling"],
            },
            "another scheduler with --no-async-scheduling in spec.engine.args",
        ),
        (
            {"engine.dataParallelSize": 2, "engine.args": ["--disable_log_stats"]},
            "--disable_log_stats in spec.engine.args turns off the statistics that it counts by",
        ),
        (
            RUST_FRONTEND,
            (
                "VLLM_USE_RUST_FRONTEND in spec.engine.env selects vLLM's Rust frontend, which "
                "shows none of its counters"
            ),
        ),
    ],
    ids=str,
)
def test_where_nothing_is_counted_it_says_why(changes: dict[str, Any], why: str) -> None:
    engine = resource(changes).engine

    assert (engine.not_counted or "").endswith(why)
    assert not engine.has_plugin


def test_without_drafting_steps_are_counted_where_there_is_a_draft_to_compare_with() -> None:
    off = {"speculation.drafting": "Disabled"}
    assert resource(off).engine.has_plugin
    assert resource(off | {"draft.method": "mtp", "draft.id": None}).engine.has_plugin
    assert not resource(off | {"draft.id": None}).engine.has_plugin
    assert not resource(off | {"speculation.tuning.mode": "Static"}).engine.has_plugin
    assert not resource(off | {"engine.args": ["--scheduler-cls", "my.Own"]}).engine.has_plugin


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (image("0.30.0"), None),
        ({"draft.method": "dspark", **image("0.28.0")}, None),
        (image("0.29.0"), "vLLM 0.29.0 has none for method eagle3; it needs >=0.30.0"),
        ({"draft.method": "dflash", **image("0.30.0")}, None),
        (
            {"draft.method": "draft_model", **image("0.30.0")},
            "vLLM 0.30.0 has none for method draft_model; it needs >=0.31.0",
        ),
        (
            {"draft.method": "ngram", "draft.id": None},
            "vLLM has no adaptive verification for method ngram: set it to Disabled.",
        ),
        ({"engine.image": "vllm:latest"}, "set spec.engine.version"),
        (
            {"engine.attentionBackend": "TOKENSPEED_MLA"},
            (
                "TOKENSPEED_MLA cannot do it in vLLM 0.32.0: choose another attentionBackend (with "
                "MLA: flashinfer_mla, vLLM >=0.31.0), or set it to Disabled."
            ),
        ),
        ({"engine.attentionBackend": "flashinfer_mla"}, None),
        (
            {"engine.attentionBackend": "flashinfer_mla", **image("0.30.0")},
            "flashinfer_mla cannot do it in vLLM 0.30.0",
        ),
        ({"engine.attentionBackend": "some_new_backend"}, None),
        ({"engine.pipelineParallelSize": 2, "engine.tensorParallelSize": 2}, "pipelineParallel"),
        (
            {"engine.args": ["--enable-lora"]},
            (
                "vLLM cannot combine it with --enable-lora in spec.engine.args: remove that, or "
                "set this to Disabled."
            ),
        ),
        ({"engine.args": ["--enable_lora"]}, "--enable-lora"),
        (
            {"engine.args": ["--enable-batch-sharded-sampling"]},
            "vLLM cannot combine it with --enable-batch-sharded-sampling",
        ),
        ({"engine.args": ["--enable-batch-sharded-sampling"], **image("0.33.0")}, None),
        ({"engine.args": ["--enable-log-requests"]}, None),
        ({"engine.args": ["--enforce-eager"]}, "full CUDA graphs, and --enforce-eager"),
        ({"engine.args": ["--enforce-eager", "--no-enforce-eager"]}, None),
        ({"engine.args": ["-O0"]}, "full CUDA graphs, and -O0"),
        ({"engine.args": ["--optimization-level", "1"]}, "full CUDA graphs, and -O1"),
        ({"engine.args": ["-O2"]}, None),
        ({"engine.args": ["-O0", "-cc.cudagraph_mode=FULL"]}, None),
        ({"engine.args": ["-cc.cudagraph_mode", "PIECEWISE"]}, "cudagraph_mode PIECEWISE"),
        (
            {"engine.args": ["--compilation-config", '{"cudagraph_mode": "NONE"}']},
            "cudagraph_mode NONE",
        ),
        ({"engine.args": ["--compilation-config", '{"mode": 3}']}, None),
        ({"engine.args": ["-cc", "{"]}, None),
        ({"engine.args": ["-cc.cudagraph_mode=1"]}, "cudagraph_mode PIECEWISE"),
        # Keys take the place of the JSON, wherever they stand.
        (
            {"engine.args": ["-cc.cudagraph_mode=none", "-cc", '{"cudagraph_mode": "FULL"}']},
            "cudagraph_mode NONE",
        ),
        ({"engine.args": ["-cc", '{"cudagraph_mode": "NONE"}', "-cc.mode=3"]}, None),
        ({"engine.args": ["-cc.cudagraph_mode=NONE", "--compi.mode=3", "-cc.mode=3"]}, None),
        (
            {"engine.env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]},
            (
                "VLLM_USE_V2_MODEL_RUNNER in spec.engine.env selects vLLM's Model Runner V1, which "
                "does not have it: remove it, or set this to Disabled."
            ),
        ),
        ({"draft.options": {"use_local_argmax_reduction": "true"}}, "the draft's logits"),
        ({"draft.options": {"use_local_argmax_reduction": "false"}}, None),
        (
            {"draft.method": "dspark", "draft.options": {"use_local_argmax_reduction": "true"}},
            None,
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("wished", ["Enabled", "Canary"])
def test_adaptive_verification_needs_an_engine_that_has_it(
    changes: dict[str, Any], sentence: str | None, wished: str
) -> None:
    sd = resource({"speculation.adaptiveVerification": wished, **changes})

    problem = next(capabilities(candidate(sd)), None)

    if sentence is None:
        assert problem is None
    else:
        assert problem is not None
        assert problem.field == "spec.speculation.adaptiveVerification"
        assert sentence in problem.message


SUFFIX = {"draft.method": "suffix", "draft.id": None}
PIPELINE = {"engine.pipelineParallelSize": 2, "engine.tensorParallelSize": 2}


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        (
            {"draft.method": "dspark", **image("0.24.0")},
            "spec.draft.method",
            (
                "vLLM 0.24.0 does not know method dspark, which needs >=0.25.0: change "
                "spec.engine.image, or choose another method."
            ),
        ),
        (
            {"draft.method": "ngram_gpu", "draft.id": None, **image("0.11.0")},
            "spec.draft.method",
            (
                "vLLM 0.11.0 does not know method ngram_gpu, which needs >=0.18.0: change "
                "spec.engine.image, or choose another method."
            ),
        ),
        (
            {"engine.tensorParallelSize": 8, **image("0.11.0")},
            "spec.engine.image",
            (
                "vLLM 0.11.0 cannot have a replica over several nodes without Ray, which needs "
                ">=0.11.1: change it, or keep a replica within one node."
            ),
        ),
        (
            {"engine.attentionBackend": "Tokenspeed_MLA", **image("0.20.2")},
            "spec.engine.attentionBackend",
            (
                "vLLM 0.20.2 does not know Tokenspeed_MLA, which needs >=0.21.0: change "
                "spec.engine.image, or choose another attentionBackend."
            ),
        ),
        (
            {**PIPELINE, **image("0.29.0")},
            "spec.engine.pipelineParallelSize",
            (
                "vLLM 0.29.0 would split the draft of method eagle3 into stages too, which none of "
                "them can be; >=0.30.0 does not: change spec.engine.image, or set it to 1."
            ),
        ),
        (
            {"speculation.adaptiveVerification": "Enabled", **image("0.29.0")},
            "spec.speculation.adaptiveVerification",
            (
                "vLLM 0.29.0 has none for method eagle3; it needs >=0.30.0: change "
                "spec.engine.image, or set it to Disabled."
            ),
        ),
    ],
    ids=str,
)
def test_what_an_engine_would_not_start_with_is_refused(
    changes: dict[str, Any], field: str, sentence: str
) -> None:
    (problem,) = capabilities(candidate(resource(changes)))

    assert problem.field == field
    assert problem.message == sentence


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"draft.method": "dspark", **image("0.25.0")},
        {"draft.method": "ngram_gpu", "draft.id": None, **image("0.18.0")},
        {"engine.tensorParallelSize": 8, **image("0.11.1")},
        {**SUFFIX, "engine.image": "acme/vllm-suffix:0.32.0"},
        {**SUFFIX, "speculation.drafting": "Disabled"},
        {"draft.method": "dspark", "engine.image": "vllm:latest"},
        {"engine.attentionBackend": "tokenspeed_mla", "engine.image": "vllm:latest"},
        {"engine.attentionBackend": "some_old_backend", **image("0.20.2")},
        {**PIPELINE, **image("0.30.0")},
        {**PIPELINE, "engine.image": "vllm:latest"},
        {**PIPELINE, "draft.method": "draft_model", **image("0.28.0")},
    ],
    ids=str,
)
def test_what_an_engine_has_or_may_have_is_not_refused(changes: dict[str, Any]) -> None:
    assert not list(capabilities(candidate(resource(changes))))


def test_a_package_that_a_release_image_lacks_is_told() -> None:
    (found,) = capabilities(candidate(resource(SUFFIX)))

    assert found.severity is Severity.WARNING
    assert found.field == "spec.engine.image"
    assert "method suffix needs the Python package arctic-inference" in found.message


@pytest.mark.parametrize(
    ("engine", "known"),
    [(image("0.17.1"), False), (image("0.18.0"), True), ({"engine.image": "vllm:latest"}, True)],
    ids=str,
)
def test_an_old_parser_is_told_of_where_nothing_is_refused(
    engine: dict[str, str],
    known: bool,  # noqa: FBT001 - a parameter of the table above
) -> None:
    sd = resource(engine)
    profile = sd.engine
    refusal = profile.not_live

    assert profile.start.has(SHUTDOWN_TIMEOUT) is known
    assert not list(capabilities(candidate(sd)))
    assert refusal is not None
    assert ("a pod that goes aborts its requests" in refusal[1]) is not known


def test_a_version_that_is_stated_is_named_where_it_decides() -> None:
    engine = image("0.32.0") | {"engine.version": "0.31.0"}
    refusal = resource(engine).engine.not_live
    (doubt,) = problems_of(candidate(resource(engine)), [[RULE_OF_VERSION]])
    agreed = (("0.32.0-cu130", "v0.32.0+cu130"), ("0.32.0", "0.32"), ("0.32.0-rc1", "0.32.0rc1"))

    assert refusal is not None
    assert (
        "and this is 0.31.0 (spec.engine.version), so depth stays at tokens (3): change "
        "spec.engine.image and spec.engine.version."
    ) in refusal.sentence
    assert (doubt.severity, doubt.field) == (Severity.WARNING, "spec.engine.version")
    assert "this is 0.31.0, and counts, where the tag of spec.engine.image says" in doubt.message
    for tag, stated in agreed:
        same = image(tag) | {"engine.version": stated}
        assert not problems_of(candidate(resource(same)), [[RULE_OF_VERSION]])


def test_each_obstacle_to_live_depth_is_named_with_its_own_cure() -> None:
    changes = {"engine.image": "vllm/vllm-openai:v0.28.0", "engine.dataParallelSize": 8}
    refusal = resource(changes).engine.not_live
    assert refusal is not None
    assert refusal.sentence.count("depth stays at tokens") == 1
    assert "change spec.engine.image. Also, vLLM drops the depth schedule" in refusal.sentence
    alone = resource({"engine.image": "vllm/vllm-openai:v0.28.0"}).engine.not_live
    assert alone is not None
    assert "Also" not in alone.sentence


@pytest.mark.parametrize(
    ("ranks", "backend", "refused"), [(16, "ray", True), (16, "mp", False), (4, "ray", False)]
)
def test_ray_is_refused_where_a_replica_spans_nodes(
    ranks: int, backend: str, *, refused: bool
) -> None:
    args = ["--distributed-executor-backend", backend]
    sd = resource({"engine.tensorParallelSize": ranks, "engine.args": args})
    assert [each.rule for each in errors(sd)] == ["group-backend"] * refused
