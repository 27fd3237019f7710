"""`fathom check` on models that lie on this machine."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from fathom.cli.check_report import CheckList
from fathom.cli.engine_check import RULE
from fathom.cli.main import app
from manifest_samples import manifest
from support.draft_weights import changed, file_of, header_of, shapes_of
from support.model_pairs import NAMES, PAIRS, Pair
from support.played_training import ALLOWED
from support.wrapped import unwrapped


def check(directory: Path, changes: dict[str, Any], *flags: str) -> Result:
    file = directory / "a.yaml"
    file.write_text(yaml.safe_dump(manifest(changes)), encoding="utf-8")
    return CliRunner().invoke(app, ["check", "--offline", *flags, "-f", str(file)])


def as_directories(pair: Pair) -> dict[str, Any]:
    """The pair's spec with its models where they lie."""
    here = {"model.id": str(pair.directory / "target")}
    if pair.draft is not None:
        here["draft.id"] = str(pair.directory / "draft")
    return pair.spec | here


@pytest.mark.parametrize("name", NAMES)
def test_a_good_pair_is_told_and_accepted(tmp_path: Path, name: str) -> None:
    result = check(tmp_path, as_directories(Pair.read("good", name)))

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].startswith("  draft: Compatible: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_pair_is_told_and_refused(tmp_path: Path, name: str) -> None:
    result = check(tmp_path, as_directories(Pair.read("broken", name)))

    assert result.exit_code == 2
    verdict, problem, *_ = unwrapped(result.stdout)
    assert verdict == "✘ kimi: refused"
    assert problem.startswith("  error [draft-fits] spec.draft.")


@pytest.mark.parametrize(
    ("changes", "depth", "graphs"),
    [
        (
            {"speculation": {"tokens": 12}},
            "With tokens 13 there would be more between them.",
            "of the start.",
        ),
        (
            {"speculation": {"depths": [1, 2, 3, 4]}},
            "Live: one of 1, 2, 3, 4, starting at 3.",
            (
                "Without a full graph at depth 3, batches: 17; other depths take it: leave out "
                "speculation.depths, or name depths of which each, plus one, divides one number "
                "up to 48."
            ),
        ),
        (
            {"speculation": {"tokens": 7}, "engine.args": ["--max-num-seqs", "2"]},
            "Live: one of 1, 3, 7, starting at 7.",
            (
                "Without a full graph at depth 7, batches: 2; --max-num-seqs leaves no place in "
                "the startup schedule for each depth: raise it."
            ),
        ),
    ],
    ids=["few between", "no grid", "few batches"],
)
def test_what_depths_cost_is_told(
    tmp_path: Path, changes: dict[str, Any], depth: str, graphs: str
) -> None:
    lines = unwrapped(check(tmp_path, changes).stdout)
    assert next(each for each in lines if each.startswith("  depth: ")).endswith(depth)
    assert next(each for each in lines if each.startswith("  CUDA graphs: ")).endswith(graphs)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"engine.args": ["--no-async-scheduling"]}, "--no-async-scheduling in spec.engine.args"),
        ({"draft": {"method": "ngram"}}, "method ngram"),
    ],
)
def test_what_turns_asynchronous_scheduling_off_is_told(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    lines = unwrapped(check(tmp_path, changes).stdout)
    (depth,) = (each for each in lines if each.startswith("  depth: Live: "))
    assert depth.endswith(
        f" Without asynchronous scheduling ({why}) it is live too, but of steps with a "
        "grammar (structured output) most mix depths and count for nothing."
    )


@pytest.mark.parametrize(
    "parser",
    [
        "--tool-call-parser=kimi_k2",
        "--enable_auto_tool_choice",
        "--reasoning-parser=kimi_k2",
        "--structured-outputs-config.backend=xgrammar",
    ],
)
def test_that_little_is_learned_of_grammars_without_asynchronous_scheduling_is_told(
    tmp_path: Path, parser: str
) -> None:
    option = parser.partition("=")[0].partition(".")[0]
    tail = (
        f"but most steps with a grammar, as {option} in spec.engine.args lets requests have, mix "
        "depths and count for nothing (0 to 18 % counted where it was run), so the tuner learns "
        "little: "
    )
    flag = "--no-async-scheduling"
    # Choosing tools needs a parser of them.
    args = [parser, *(["--tool-call-parser=kimi_k2"] if "choice" in parser else [])]
    lines = "\n".join(unwrapped(check(tmp_path, {"engine.args": [flag, *args]}).stdout))
    assert (
        f" Without asynchronous scheduling ({flag} in spec.engine.args) it is live, {tail}remove "
        f"{flag}.\n"
    ) in lines
    assert "all the same" not in lines

    ngram = {"draft": {"method": "ngram"}, "engine.args": args}
    lines = "\n".join(unwrapped(check(tmp_path, ngram).stdout))
    assert f"(method ngram) it is live, {tail}choose another method, such as ngram_gpu.\n" in lines

    assert "asynchronous" not in check(tmp_path, {"engine.args": args}).stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replicas": 3}, "one replica with adaptive verification, revision "),
        (
            {"replicas": 1, "rollout.maxSurge": 0},
            "set spec.replicas to 2 or more, or spec.rollout.maxSurge to 1",
        ),
    ],
)
def test_what_is_compared_is_told(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    canary = {"adaptiveVerification": "Canary"}
    backend = {"engine.attentionBackend": "flashinfer_mla"}
    found = check(tmp_path, {"speculation": canary, **backend, **changes})
    (line,) = [each for each in unwrapped(found.stdout) if "  comparison: " in each]
    assert said in line
    assert not found.exit_code


def test_prints_what_it_found(tmp_path: Path) -> None:
    target, draft = (PAIRS / "good" / "kimi-eagle3.1-mla" / part for part in ("target", "draft"))

    result = check(
        tmp_path,
        {"model.id": str(target), "draft.id": str(draft), "engine.args": ["--max-num-seqs=64"]},
    )

    first, *rest = unwrapped(result.stdout)
    assert first.startswith("✔ kimi: valid, revision ")
    assert rest == [
        (
            f"  draft: Compatible: {draft} is EAGLE-3.1 (its config.json), which vLLM 0.32.0 runs; "
            "compared: architecture, hidden size 7168, vocabulary 163840, 3 layers (2, 30, 58), "
            "attention heads."
        ),
        "  depth: Live: one of 1, 3, 7, starting at 3.",
        (
            "  CUDA graphs: 484 to capture, 179 if depth were not live (by vLLM's own "
            "rules). Estimated: 5.4 GiB of each GPU, 2.1 GiB if depth were not "
            "live, and 1 to 2 minutes of the start."
        ),
        (
            f"  target model: {target}: KimiK25ForConditionalGeneration, hidden 7168, vocabulary "
            "163840"
        ),
        (
            f"  draft model: {draft}: Eagle3DeepseekV2ForCausalLM, hidden 7168, vocabulary 163840, "
            "of which it drafts 32000"
        ),
        "  family: EAGLE-3.1",
        (
            "  memory of one GPU: target unknown, draft unknown, KV cache of drafts under 0.1 GiB, "
            "CUDA graphs about 5.4 GiB, GB200 has 185.0 GiB"
        ),
        "  GPUs: 1 replica × 4 GPUs (GB200) = 4; a rollout takes up to 4 more.",
        (
            "  start: at most 90 minutes (engine.startupMinutes), about 1 to 2 of them for CUDA "
            "graphs."
        ),
    ]


def test_weighs_the_files_without_reading_them(tmp_path: Path) -> None:
    pair = Pair.read("good", "llama-eagle3")
    for part, config in (("target", pair.target), ("draft", pair.draft)):
        (tmp_path / part).mkdir()
        (tmp_path / part / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with (tmp_path / part / "model.safetensors").open("wb") as file:
            # Holes: nothing is on the disk, and nothing could be read in time.
            file.truncate((4 if part == "draft" else 1200) << 30)

    models = {"model.id": str(tmp_path / "target"), "draft.id": str(tmp_path / "draft")}
    result = check(tmp_path, models)

    assert result.exit_code == 2
    assert unwrapped(result.stdout)[1] == (
        f"  error [draft-fits] spec.engine.tensorParallelSize: the weights of "
        f"{tmp_path / 'target'} take 300 GiB on each of 4 GPUs, and one GB200 has 185: raise "
        "tensorParallelSize, or use a quantised model."
    )
    in_full = " ".join(unwrapped(check(tmp_path, models, "-v").stdout))
    assert "target 300.0 GiB, draft 1.0 GiB" in in_full


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({}, 0, "draft: Compatible: "),
        (
            {"lm_head.weight": (1024, 6144)},
            2,
            "hold lm_head.weight of 1024 by 6144, and its config.json means 32000 by 6144",
        ),
        ({"fc_norm.0.weight": (8192,)}, 2, "hold fc_norm, and its config.json does not say"),
        ({"d2t": None}, 0, "warning [draft-fits] spec.draft.id: the weights of "),
    ],
)
def test_the_header_of_a_draft_on_this_machine_is_read(
    tmp_path: Path, changes: dict[str, tuple[int, ...] | None], code: int, said: str
) -> None:
    pair = Pair.read("good", "llama-eagle3")
    assert pair.draft is not None
    (tmp_path / "config.json").write_text(json.dumps(pair.draft), encoding="utf-8")
    header = header_of(changed(shapes_of(pair.draft), changes))
    (tmp_path / "model.safetensors").write_bytes(file_of(header))

    result = check(tmp_path, as_directories(pair) | {"draft.id": str(tmp_path)})

    assert result.exit_code == code, result.stdout
    assert said in " ".join(unwrapped(result.stdout))


def test_models_that_nobody_read_are_not_valid_and_refused_by_strict_alone(tmp_path: Path) -> None:
    changes = {"model.id": "org/nowhere", "draft.id": "/nowhere/draft"}
    result = check(tmp_path, changes)

    assert (result.exit_code, result.stderr) == (0, "")
    first, target, draft, fact, *rest = unwrapped(result.stdout)
    assert first.startswith("! kimi: unknown, revision ")
    assert first.endswith(": the spec is sound; the target and the draft were not read")
    assert target == (
        "  unknown [draft-fits] spec.model.id: the config.json of org/nowhere was not read (it is "
        "not in the cache, and the hub is not to be asked). Leave out --offline and "
        "HF_HUB_OFFLINE, or fetch it into the cache (`hf download org/nowhere config.json`), or "
        "apply it: vLLM says at start whether it fits."
    )
    assert draft == (
        "  unknown [draft-fits] spec.draft.id: the config.json of /nowhere/draft was not read "
        "(there is no such directory on this machine). Check it where that directory is, or apply "
        "it: vLLM says at start whether it fits."
    )
    assert fact == "  draft: NotChecked: see the finding."
    assert not [each for each in rest if "nowhere" in each]
    assert check(tmp_path, changes, "--strict").exit_code == 2


def test_the_document_has_the_verdict_and_what_was_not_read(tmp_path: Path) -> None:
    pair = Pair.read("good", "llama-eagle3")
    changes = as_directories(pair) | {"draft.id": "/nowhere/draft"}
    (report,) = CheckList.model_validate_json(check(tmp_path, changes, "-o", "json").stdout).items
    assert (report.verdict, report.unread) == ("unknown", ("draft",))
    assert [(each.severity, each.field) for each in report.findings] == [
        ("unknown", "spec.draft.id")
    ]
    assert unwrapped(check(tmp_path, changes).stdout)[0].endswith("; the draft was not read")


@pytest.mark.parametrize(
    "changes",
    [{"draft": {"method": "ngram"}}, {"speculation": {"drafting": "Disabled"}}, {}],
    ids=["no draft", "not drafting", "a pair of the table"],
)
def test_no_target_that_nobody_read_is_valid(tmp_path: Path, changes: dict[str, Any]) -> None:
    document = json.loads(check(tmp_path, changes, "-o", "json").stdout)
    (report,) = document["items"]
    assert (report["verdict"], report["unread"][0]) == ("unknown", "target")


@pytest.mark.parametrize("draft", [{}, {"draft": {"method": "mtp"}}], ids=["a draft", "mtp"])
def test_nothing_is_said_of_drafts_where_none_is_loaded(
    tmp_path: Path, draft: dict[str, Any]
) -> None:
    changes = draft | {"speculation": {"drafting": "Disabled"}}
    lines = unwrapped(check(tmp_path, changes, "-v").stdout)

    assert "  memory of one GPU: target unknown, GB200 has 185.0 GiB" in lines
    assert not [each for each in lines if each.startswith("  family: ")]


def test_a_draft_that_is_not_checked_in_full_is_not_valid(tmp_path: Path) -> None:
    pair = Pair.read("good", "llama-eagle3")
    unversioned = {"engine.image": "vllm/vllm-openai:nightly"}
    first, finding, *_ = unwrapped(check(tmp_path, as_directories(pair) | unversioned).stdout)
    assert first.endswith(": the spec is sound; not all could be checked")
    assert finding.startswith("  unknown [draft-fits] spec.engine.version: which vLLM ")


def test_what_is_not_known_of_the_engine_is_told_beside_models_that_were_not_read(
    tmp_path: Path,
) -> None:
    later = {"engine.image": "vllm/vllm-openai:v0.40.0"}
    found = [
        each.partition(": ")[0]
        for each in unwrapped(check(tmp_path, later).stdout)
        if each.startswith("  unknown [draft-fits] ")
    ]

    fields = ("spec.model.id", "spec.draft.id", "spec.engine.image")
    assert found == [f"  unknown [draft-fits] {each}" for each in fields]


def test_what_is_unknown_can_be_silenced_and_stays_unknown(tmp_path: Path) -> None:
    document = manifest()
    document["metadata"]["annotations"] = {"silence.fathom.dev/draft-fits": "CI has no hub"}
    file = tmp_path / "b.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    quiet = CliRunner().invoke(app, ["check", "--offline", "--strict", "-f", str(file)])
    assert quiet.exit_code == 0
    assert quiet.stdout.startswith("! kimi: unknown, revision ")
    assert (
        "  2 findings are silenced: draft-fits spec.model.id (CI has no hub), draft-fits "
        "spec.draft.id (CI has no hub)."
    ) in unwrapped(quiet.stdout)


@pytest.mark.parametrize(
    ("rule", "reason", "why"),
    [
        ("draft-fit", "CI", ": no rule is called draft-fit. Did you mean draft-fits?"),
        ("nonsense", "CI", ": no rule is called nonsense. Remove it."),
        ("draft-fits", " ", ", and has no reason: write why as its value."),
        (RULE, "CI", ""),
    ],
)
def test_an_annotation_that_silences_nothing_is_told(
    tmp_path: Path, rule: str, reason: str, why: str
) -> None:
    document, file = manifest(), tmp_path / "b.yaml"
    document["metadata"]["annotations"] = {f"silence.fathom.dev/{rule}": reason}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    printed = unwrapped(CliRunner().invoke(app, ["check", "--offline", str(file)]).stdout)
    expected = f"  warning metadata.annotations: silence.fathom.dev/{rule} silences nothing{why}"

    assert [each for each in printed if "silences nothing" in each] == ([expected] if why else [])


def test_the_bill_has_what_a_training_takes(tmp_path: Path) -> None:
    lines = unwrapped(check(tmp_path, ALLOWED).stdout)

    (gpus,) = (each for each in lines if each.startswith("  GPUs: "))
    assert gpus.endswith("; a training, once a person approves it, takes 4.")


def test_the_memory_of_a_gpu_that_is_not_known_is_not_made_up(tmp_path: Path) -> None:
    pool = {"nodePool": {"accelerator": "Custom", "gpusPerNode": 4}, "engine.attentionBackend": ""}
    lines = unwrapped(check(tmp_path, pool, "-v").stdout)

    (memory,) = (each for each in lines if each.startswith("  memory of one GPU: "))
    assert memory.endswith("Custom has an unknown size")


def test_the_document_has_the_same_findings_as_the_text(tmp_path: Path) -> None:
    changes = {"engine.args": ["--max-num-seqs=many", "--tensor-parallel-size=2"]}
    result = check(tmp_path, changes, "-o", "json")
    assert result.exit_code == 2
    document = CheckList.model_validate_json(result.stdout)
    (report,) = document.items
    assert (report.verdict, report.name, report.revision) == ("refused", "kimi", "")
    assert sorted(each.rule for each in report.findings) == ["arguments-owned", "max-num-seqs"]
    text = unwrapped(check(tmp_path, changes).stdout)
    assert [f"  {each.line}" for each in report.findings] == text[1:3]
    as_yaml = yaml.safe_load(check(tmp_path, changes, "-o", "yaml").stdout)
    assert CheckList.model_validate(as_yaml) == document


def test_what_does_not_parse_is_in_the_document(tmp_path: Path) -> None:
    document = json.loads(check(tmp_path, {"speculation.tokens": "x"}, "-o", "json").stdout)
    (report,) = document["items"]
    assert report["verdict"] == "refused"
    assert report["findings"][0]["field"] == "spec.speculation.tokens"


def test_warnings_can_be_refused_and_silenced_with_a_reason(tmp_path: Path) -> None:
    image = {"engine.image": "acme/vllm:v0.32.0", "engine.args": ["--no-such-option"]}
    changes = as_directories(Pair.read("good", "kimi-eagle3.1-mla")) | image
    assert check(tmp_path, changes).exit_code == 0
    strict = check(tmp_path, changes, "--strict")
    assert (strict.exit_code, strict.stdout[0]) == (2, "!")
    document = manifest(changes)
    document["metadata"]["annotations"] = {"silence.fathom.dev/option-names": "our fork has it"}
    file = tmp_path / "b.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    quiet = CliRunner().invoke(app, ["check", "--offline", "--strict", "-f", str(file)])
    assert (quiet.exit_code, quiet.stdout[0]) == (0, "✔")
    assert "1 finding is silenced: option-names spec.engine.args[0] (our fork" in quiet.stdout


def test_says_what_depth_costs_a_hybrid_target(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": 48,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_nextn_predict_layers": 1,
    }
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec = {"model.id": str(tmp_path / "target"), "draft.id": None, "draft.method": "mtp"}

    said = " ".join(check(tmp_path, spec | {"speculation.tokens": 2}).stdout.split())

    assert "Live: one of 1, 2, starting at 2. Depth cannot rise above 2: " in said
    assert "space for depth 7 takes 8 states a request, for depth 2 only 3" in said
    assert "draft in the target's files, " in said
    deeper = check(tmp_path, spec | {"speculation": {"tokens": 2, "maxTokens": 7}}).stdout
    assert "warning [hybrid-states] spec.speculation.maxTokens: " in deeper


@pytest.mark.parametrize(
    ("changes", "graphs"),
    [
        (
            {"engine.args": ["--max-num-seqs", "6", "--max-cudagraph-capture-size", "6"]},
            (
                "Without a full graph: depth 1 at batches 3 to 6; depth 3 at batches 2 to 6; "
                "depth 7 at batches 1 to 6. Remove the sizes, and Fathom adds those that fit, or "
                "have them reach 48."
            ),
        ),
        (
            {
                "engine.args": ["--max-num-seqs", "6", "--max-cudagraph-capture-size", "6"],
                "speculation.tuning.mode": "Static",
            },
            ("Without a full graph: depth 3 at batches 2 to 6. Have them reach 24."),
        ),
        (
            {
                "engine.args": [
                    "--max-num-seqs=8",
                    "--cudagraph-capture-sizes",
                    *map(str, range(1, 65)),
                ]
            },
            "as engine.args set them, with a full one for each batch and depth.",
        ),
    ],
)
def test_batches_that_stated_sizes_leave_without_full_graphs_are_counted(
    tmp_path: Path, changes: dict[str, Any], graphs: str
) -> None:
    lines = unwrapped(check(tmp_path, changes).stdout)
    (line,) = [each for each in lines if each.startswith("  CUDA graphs: ")]
    assert line.endswith(graphs)


def test_a_pair_in_doubt_is_a_warning_and_not_told_twice(tmp_path: Path) -> None:
    good = Pair.read("good", "llama-eagle3")
    changes = as_directories(good) | {"engine.args": ["--max-model-len", "131072"]}
    for part, config in (("target", good.target), ("draft", good.draft)):
        (tmp_path / part).mkdir()
        text = json.dumps(config | ({"max_position_embeddings": 2048} if part == "draft" else {}))
        (tmp_path / part / "config.json").write_text(text, encoding="utf-8")
        changes[f"{'model' if part == 'target' else 'draft'}.id"] = str(tmp_path / part)
    verdict, problem, *rest = unwrapped(check(tmp_path, changes).stdout)
    assert verdict.startswith("! kimi: valid")
    assert problem.startswith("  warning [draft-fits] ")
    assert "2048 positions" in problem
    assert rest[0] == "  draft: Doubtful: see the finding."
    assert check(tmp_path, changes, "--strict").exit_code == 2


def test_nothing_is_missed_where_no_full_graphs_are_asked_for(tmp_path: Path) -> None:
    config = ["--compilation-config", '{"cudagraph_mode":"PIECEWISE"}']
    lines = unwrapped(check(tmp_path, {"engine.args": config}).stdout)
    (line,) = [each for each in lines if each.startswith("  CUDA graphs: ")]
    assert "Without a full graph" not in line
