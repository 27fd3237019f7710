"""Fathom's preflight against what vLLM itself says of the same config.json files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fathom.api.problem import Severity
from fathom.model_facts import ModelConfig, ModelFacts
from fathom.validation.gpu_memory_checks import state_cost
from fathom.validation.hidden_state_checks import aux_layers_of, draft_weights
from fathom.validation.model_input import preflight_input
from fathom.validation.pair_checks import TARGETS_WITHOUT_EAGLE3, knows_eagle3_draft
from fathom_intake.model_weights import Weights
from local_cluster.engine.model_pair import ModelPair
from local_cluster.engine.releases import asked_releases
from manifest_samples import resource
from support.asked_vllm import AskVllm
from support.draft_weights import changed, shapes_of, tensors_from
from support.model_pairs import NAMES, Pair

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("asked")]

PROBE: Final = Path(__file__).with_name("preflight_probe.py")

SAYS: Final = {
    "deepseek-mtp": "ZeroDivisionError: integer modulo by zero",
    "draft-model": "should have the same vocabulary size",
    "gpt-oss-eagle3": "['Eagle3GptOssForCausalLM'] are not supported",
    "qwen3-moe-eagle3": "attention heads (2) must be divisible by tensor parallel size (4)",
}
"""Errors of broken pairs, in vLLM's words."""
NOTICED_LATER: Final = {"kimi-eagle3.1-mla", "llama-eagle3"}
"""Broken pairs whose configuration vLLM accepts: one that only an old engine gets wrong, and one
that fails when the first hidden states arrive."""


def case(pair: Pair) -> dict[str, Any]:
    """A pair as vLLM gets it."""
    speculative = {
        "method": pair.spec.get("draft.method", "eagle3"),
        "num_speculative_tokens": 7,
    }
    if pair.draft is not None:
        speculative["model"] = str(pair.directory / "draft")
    return {
        "target": str(pair.directory / "target"),
        "gpus": pair.spec.get("engine.tensorParallelSize", 4),
        "speculative": speculative,
    }


TARGET: Final[Mapping[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_hidden_layers": 12,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
    # In the speculators format nothing has a default.
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
DRAFT: Final = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "max_position_embeddings": 512,
}
FOUR: Final = [2, 4, 6, 9]


def speculators(**layers: Any) -> Mapping[str, Any]:
    """A draft in the speculators format."""
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 256,
        "eagle_aux_hidden_state_layer_ids": FOUR,
        "num_aux_hidden_states": 2,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": "some/target", "architectures": TARGET["architectures"]},
        },
        "transformer_layer_config": {**DRAFT, **layers},
    }


DRAFTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "none named": DRAFT,
    "at the top": {**DRAFT, "eagle_aux_hidden_state_layer_ids": FOUR},
    "counted": {**DRAFT, "eagle_aux_hidden_state_layer_ids": FOUR, "num_aux_hidden_states": 4},
    "in eagle_config": {**DRAFT, "eagle_config": {"eagle_aux_hidden_state_layer_ids": FOUR}},
    "speculators": speculators(),
    "speculators, counted": speculators(num_aux_hidden_states=4),
    "speculators, qwen3": speculators(model_type="qwen3", head_dim=32),
}


MLA: Final = {
    **TARGET,
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "num_hidden_layers": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 0,
    "first_k_dense_replace": 1,
}
HEADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "llama": {**DRAFT, "draft_vocab_size": 128},
    "qwen3": {
        **DRAFT,
        "architectures": ["Eagle3Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 32,
        "draft_vocab_size": 128,
    },
    "mla": {**MLA, "draft_vocab_size": 128},
}
"""One draft for each class of vLLM's that loads them."""
WHOLE: Final = {"draft_vocab_size": 256, "lm_head.weight": (256, 64)}
NORMS: Final = {f"fc_norm.{index}.weight": (64,) for index in range(3)}
CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "as trained": {},
    "embeddings lent": {"embed_tokens.weight": None},
    "head lent": {"lm_head.weight": None},
    "head of other rows": {"lm_head.weight": (64, 64)},
    "head of other columns": {"lm_head.weight": (128, 32)},
    "embeddings of other rows": {"embed_tokens.weight": (250, 64)},
    "embeddings of other columns": {"embed_tokens.weight": (256, 32)},
    "fc for four layers": {"fc.weight": (64, 256)},
    "fc of other rows": {"fc.weight": (32, 192)},
    "no fc": {"fc.weight": None},
    "long table": {"d2t": (256,)},
    "table of columns": {"d2t": (128, 1)},
    "no table": {"d2t": None},
    "all tokens": {**WHOLE, "d2t": None},
    "all tokens and a table": {**WHOLE, "d2t": (256,)},
    "norms": {"fc_norm": True, **NORMS},
    "norms that count as asked for": {"fc_norm": 1, **NORMS},
    "norms not asked for": NORMS,
    "norms asked for": {"fc_norm": True, **dict.fromkeys(NORMS)},
    "norms of another width": {"fc_norm": True, **NORMS, "fc_norm.0.weight": (32,)},
    "named from the top": {"prefix": "model."},
}
SILENT: Final = {"no fc"}
"""What vLLM loads and Fathom refuses: it runs with whatever its memory holds."""
DOUBTED: Final = {"no table", "norms asked for"}
"""What vLLM loads, and takes something else for what lacks."""


def case_of(head: str, change: str) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """A draft's config.json and the shapes of its tensors."""
    changes = dict(CHANGES[change])
    prefix = changes.pop("prefix", "")
    asked = {key: changes.pop(key) for key in ("fc_norm", "draft_vocab_size") if key in changes}
    config = {**HEADS[head], **asked}
    shapes = {
        name: shape
        for name, shape in changed(shapes_of(config), changes).items()
        # Of attention with MLA a stand-in is enough for what is judged, and is not loaded.
        if "q_a_proj" not in name and "mlp" not in name
    }
    if prefix:
        shapes = {
            name if "lm_head" in name else f"{prefix}{name}": shape
            for name, shape in shapes.items()
        }
    return config, shapes


NOT_BUILT: Final = {("mla", "0.28.0")}
"""Classes that a release's build for the CPU cannot make: its MLA needs a kernel of GPUs."""
CASES: Final = [(head, change) for head in HEADS for change in CHANGES]


DELTA_NET: Final = {
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
}
MAMBA: Final = {
    "num_hidden_layers": 8,
    "hybrid_override_pattern": "MEMEM*ME",
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 6,
    "ssm_state_size": 128,
    "conv_kernel": 4,
}
STATES: Final = {
    f"{kind} {mode} {depth} on {gpus}": {
        "kind": kind,
        "sizes": (gpus, *sizes),
        "layers": layers,
        "depth": depth,
        "mode": mode,
        "gpus": gpus,
        "config": config,
    }
    for kind, sizes, layers, config in (
        ("gated_delta_net_state_shape", (16, 48, 128, 128, 4), 36, DELTA_NET),
        ("mamba2_state_shape", (128 * 64, 6, 128, 64, 128, 4), 4, MAMBA),
    )
    for mode, depth, gpus in (("none", 2, 1), ("align", 7, 8))
}


def written_folders(folder: Path) -> dict[str, str]:
    """Folders whose weights vLLM is to find."""
    files = {
        "pickles": {"pytorch_model.bin": b"", "training_args.bin": b""},
        "both": {"pytorch_model.bin": b"", "model.safetensors": b""},
        "no weights": {"training_args.bin": b""},
        "an index that leaves the folder": {
            "model-1.safetensors": b"",
            "model.safetensors.index.json": json.dumps(
                {
                    "weight_map": {
                        "fc.weight": "model-1.safetensors",
                        "d2t": "../../other",
                    }
                }
            ).encode(),
        },
    }
    for name, contents in files.items():
        (folder / name).mkdir()
        for file, content in contents.items():
            (folder / name / file).write_bytes(content)
    return {name: str(folder / name) for name in files}


def drafts_with_code(folder: Path) -> dict[str, Any]:
    """Drafts whose folder holds a configuration class, which leaves a mark when it is loaded."""
    cases = {}
    for name, keys, config in (
        ("own class", ("AutoConfig",), DRAFT),
        ("own model", ("AutoModelForCausalLM",), DRAFT),
        ("of speculators", ("",), speculators()),
    ):
        for trusted in (True, False):
            draft = folder / f"code, {name}, {trusted}"
            draft.mkdir()
            marker = draft / "it-ran"
            (draft / "cfg.py").write_text(
                "from transformers import LlamaConfig\n"
                f"open({str(marker)!r}, 'w').close()\n"
                "class Own(LlamaConfig):\n    pass\n",
                encoding="utf-8",
            )
            named = {**config, "auto_map": dict.fromkeys(keys, "cfg.Own")}
            (draft / "config.json").write_text(json.dumps(named), encoding="utf-8")
            cases[f"{name}, {'trusted' if trusted else 'not trusted'}"] = {
                "target": str(folder / "target"),
                "gpus": 1,
                "trusted": trusted,
                "marker": str(marker),
                "speculative": {
                    "method": "eagle3",
                    "model": str(draft),
                    "num_speculative_tokens": 3,
                },
            }
    return cases


@pytest.fixture(scope="module", params=asked_releases(os.environ))
def told(
    request: pytest.FixtureRequest, ask_vllm: AskVllm, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """What one release of vLLM says."""
    folder = tmp_path_factory.mktemp("drafts")
    for name, config in {"target": TARGET, **DRAFTS}.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
    pairs = {
        f"{kind}/{name}": case(Pair.read(kind, name))
        for kind in ("good", "broken")
        for name in NAMES
    }
    drafts = {
        name: {
            "target": str(folder / "target"),
            "gpus": 1,
            "speculative": {
                "method": "eagle3",
                "model": str(folder / name),
                "num_speculative_tokens": 3,
            },
        }
        for name in DRAFTS
    }
    weights = {}
    for head, change in CASES:
        if (head, request.param) in NOT_BUILT:
            continue
        name = f"{head}, {change}"
        config, shapes = case_of(head, change)
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        weights[name] = {
            "target": str(folder / "target"),
            "gpus": 1,
            "speculative": {
                "method": "eagle3",
                "model": str(folder / name),
                "num_speculative_tokens": 3,
            },
            "tensors": {
                each: ("int64" if "d2t" in each else "bfloat16", shape)
                for each, shape in shapes.items()
                if "t2d" not in each
            },
        }
    question = {
        "weights": weights,
        "files": written_folders(folder),
        "code": drafts_with_code(folder),
        "pairs": pairs,
        "targets": sorted(TARGETS_WITHOUT_EAGLE3),
        "drafts": drafts,
        "states": STATES,
    }
    found: Mapping[str, Any] = ask_vllm(PROBE, question, release=request.param)
    return {**found, "release": request.param}


@pytest.mark.parametrize("name", DRAFTS)
def test_layers_room_and_positions_are_as_vllm_has_them(told: Mapping[str, Any], name: str) -> None:
    spec = {"engine.image": f"vllm/vllm-openai:v{told['release']}", "draft.id": "some/draft"}
    target, draft = (
        ModelFacts(config=ModelConfig.from_json(each)) for each in (TARGET, DRAFTS[name])
    )
    found = aux_layers_of(preflight_input(resource(spec).engine, target, draft))

    assert found is not None
    theirs = told["drafts"][name]
    assert theirs["layers"] == (list(found.layers or ()) if found.named else [])
    assert theirs["cost"] == found.capacity
    # Stretched to --max-model-len, as `draft_positions` has it.
    assert theirs["positions"] == 1024


@pytest.mark.parametrize(("head", "change"), CASES)
def test_what_is_said_of_weights_is_what_vllm_makes_of_them(
    told: Mapping[str, Any], head: str, change: str
) -> None:
    config, shapes = case_of(head, change)
    spec = {"engine.image": f"vllm/vllm-openai:v{told['release']}", "draft.id": "some/draft"}
    target = ModelFacts(config=ModelConfig.from_json(TARGET))
    draft = ModelFacts(
        config=ModelConfig.from_json(config), weights=Weights(tensors=tensors_from(shapes))
    )
    problem = draft_weights(preflight_input(resource(spec).engine, target, draft))
    if (head, told["release"]) in NOT_BUILT:
        return
    stops = told["loaded"][f"{head}, {change}"]

    assert bool(stops) == (problem is not None and "at start" in problem.message), stops
    if stops:
        assert problem is not None
        assert problem.severity is Severity.ERROR
    elif change in SILENT | DOUBTED:
        assert problem is not None
        assert "without an error" in problem.message
        assert (problem.severity is Severity.ERROR) == (change in SILENT)
    else:
        assert problem is None, problem


def test_vllm_reads_pickles_for_want_of_anything_else(told: Mapping[str, Any]) -> None:
    assert told["files"]["pickles"] == "pytorch_model.bin"
    assert told["files"]["both"] == "model.safetensors"
    assert "Cannot find any model weights" in told["files"]["no weights"]


def test_vllm_stops_at_an_index_that_leaves_the_folder(told: Mapping[str, Any]) -> None:
    found = told["files"]["an index that leaves the folder"]
    assert "FileNotFoundError: Weight files referenced in index but missing" in found


def test_code_of_a_draft_runs_where_the_target_is_trusted(told: Mapping[str, Any]) -> None:
    assert told["code"] == {
        "own class, trusted": True,
        "own class, not trusted": False,
        # Its class is in vLLM's registry, so that nothing else is looked for.
        "own model, trusted": False,
        "own model, not trusted": False,
        "of speculators, trusted": False,
        "of speculators, not trusted": False,
    }


@pytest.mark.parametrize("name", NAMES)
def test_vllm_takes_the_good_pairs(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"good/{name}"] == ""


@pytest.mark.parametrize("name", sorted(SAYS))
def test_vllm_refuses_what_fathom_refuses(told: Mapping[str, Any], name: str) -> None:
    assert SAYS[name] in told["refusals"][f"broken/{name}"]


@pytest.mark.parametrize("name", sorted(NOTICED_LATER))
def test_some_of_it_vllm_notices_late_or_never(told: Mapping[str, Any], name: str) -> None:
    assert told["refusals"][f"broken/{name}"] == ""


@pytest.mark.parametrize("name", STATES)
def test_states_are_as_large_as_vllm_has_them(told: Mapping[str, Any], name: str) -> None:
    case = STATES[name]
    spec = {
        "engine.tensorParallelSize": case["gpus"],
        "engine.args": ["--no-enable-prefix-caching"] if case["mode"] == "none" else [],
        "speculation.tokens": case["depth"],
        "speculation.maxTokens": case["depth"],
    }
    target = ModelFacts(config=ModelConfig.from_json(case["config"]))
    cost = state_cost(preflight_input(resource(spec).engine, target, ModelFacts()))

    assert cost is not None
    assert cost.request_bytes == told["states"][name]


def test_the_targets_without_eagle_3_are_those_of_vllm(told: Mapping[str, Any]) -> None:
    assert [name for name, able in told["eagle3_targets"].items() if able] == []


def test_every_eagle_3_draft_that_vllm_has_is_known(told: Mapping[str, Any]) -> None:
    theirs = {name for name in told["known"] if name.startswith("Eagle3") or "Eagle3" in name}

    unknown = {
        name for name in theirs if not knows_eagle3_draft(ModelConfig(architectures=(name,)))
    }

    assert theirs
    assert unknown == set()


def test_the_constructed_drafts_are_an_eagle_3_1_and_an_eagle_3_one(pair: ModelPair) -> None:
    files = (pair.draft / "config.json", pair.draft.with_name("draft-eagle3") / "config.json")
    newer, older = (ModelConfig.from_json(json.loads(each.read_text())) for each in files)
    assert (newer.named_eagle3, newer.fc_norm, newer.norm_output) == (True, True, True)
    assert (older.named_eagle3, older.fc_norm, older.norm_output) == (True, False, False)
