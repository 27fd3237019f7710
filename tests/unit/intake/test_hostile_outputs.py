"""Each output that is not honest is refused by its code. None is followed, run or kept."""

import json
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fathom_intake.__main__ import taken_in
from fathom_intake.verdict import LONGEST_MESSAGE, Code, RefusedError, Target
from support.draft_weights import changed
from support.trained_drafts import CLASS, CONFIG, MARK, Intake, Output, names_in

Change = Callable[[Output], object]

NAN, INFINITE = 0x7FC0, 0xFF80
HIDDEN = CONFIG["hidden_size"]


def result(document: Any) -> Change:
    return lambda output: output.result(document)


def result_text(text: str) -> Change:
    return lambda output: (output.path / "result.json").write_text(text)


def config(**changes: Any) -> Change:
    return lambda output: output.write_config(**changes)


def config_text(text: str) -> Change:
    return lambda output: (output.draft / "config.json").write_text(text)


def index(document: Any) -> Change:
    text = document if isinstance(document, str) else json.dumps(document)
    return lambda output: (output.draft / "model.safetensors.index.json").write_text(text)


def shapes(**changes: tuple[int, ...] | None) -> Change:
    """Other tensors; two underscores are a dot."""
    named = {name.replace("__", "."): shape for name, shape in changes.items()}
    return lambda output: output.tensors(changed(output.shapes, named))


def tensor(name: str, dtype: str, values: bytes) -> Change:
    """This type and these numbers in place of zeros."""
    return lambda output: output.tensors(
        {**output.shapes}, dtypes={name: dtype}, values={name: values}
    )


def norm(dtype: str, form: str, number: float) -> Change:
    """A number at the end of a vector."""
    return tensor(
        "norm.weight", dtype, struct.pack(f"<{HIDDEN}{form}", *[1] * (HIDDEN - 1), number)
    )


def table(*numbers: int) -> Change:
    """The beginning of d2t, which is zeros from then on."""
    return tensor("d2t", "I64", struct.pack("<16q", *numbers, *[0] * (16 - len(numbers))))


def header(**described: Any) -> Change:
    """What the header says of tensors instead."""
    return lambda output: output.tensors({"a": (4,), "b": (4,)}, header=described)


def at(begin: int, end: int, **other: Any) -> dict[str, Any]:
    return {"dtype": "BF16", "shape": [(end - begin) // 2], "data_offsets": [begin, end], **other}


def replaced(name: str, make: Callable[[Path], object]) -> Change:
    """Something else in place of a file of the draft's."""

    def change(output: Output) -> None:
        path = output.draft / name
        path.unlink()
        make(path)

    return change


def sparse(name: str, size: int) -> Change:
    return lambda output: os.truncate(output.path / name, size)


def socket_at(path: Path) -> None:
    """The address of a socket is short."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(before)


def linked_result(output: Output) -> None:
    (output.path / "result.json").rename(output.path / "real")
    (output.path / "result.json").symlink_to("real")


def twice(output: Output) -> None:
    (output.draft / "another.safetensors").write_bytes(output.weights.read_bytes())


def renamed_draft(make: Callable[[Output], object]) -> Change:
    def change(output: Output) -> None:
        output.draft.rename(output.path / "elsewhere")
        make(output)

    return change


def many(output: Output) -> None:
    for number in range(65):
        (output.draft / f"{number}.safetensors").write_bytes(b"")


def only_pickles(output: Output) -> None:
    output.weights.rename(output.draft / "pytorch_model.bin")


def cut(bytes_left: int) -> Change:
    return lambda output: os.truncate(output.weights, bytes_left)


def long_header(output: Output) -> None:
    output.weights.write_bytes((200_000_000).to_bytes(8, "little"))
    os.truncate(output.weights, 200_000_008)


def prefixed(output: Output) -> None:
    named = {f"model.{name}": shape for name, shape in output.shapes.items()}
    output.tensors(named, dtypes={"model.d2t": "I64"})


def weights_text(text: bytes, data: bytes = b"") -> Change:
    content = len(text).to_bytes(8, "little") + text + data
    return lambda output: output.weights.write_bytes(content)


HOSTILE: dict[str, tuple[Code, Change]] = {
    "no result": (Code.NO_RESULT, lambda output: (output.path / "result.json").unlink()),
    "a result that is a link": (
        Code.NOT_A_FILE,
        linked_result,
    ),
    "a result of 1 GB": (Code.BAD_RESULT, sparse("result.json", 1 << 30)),
    "a result that is not JSON": (Code.BAD_RESULT, result_text(MARK)),
    "a result that nests": (Code.BAD_RESULT, result_text("[" * 60_000)),
    "a result that is a list": (Code.BAD_RESULT, result([MARK])),
    "another schema": (Code.BAD_RESULT, result({"schema": 2, "draft": "draft"})),
    "a schema that is true": (Code.BAD_RESULT, result({"schema": True, "draft": "draft"})),
    "neither draft nor hub": (Code.BAD_RESULT, result({"schema": 1})),
    "draft and hub": (
        Code.BAD_RESULT,
        result({"schema": 1, "draft": "draft", "hub": {"id": "a/b", "revision": "0" * 40}}),
    ),
    "a draft twice": (
        Code.BAD_RESULT,
        result_text('{"schema": 1, "draft": "draft", "draft": "elsewhere"}'),
    ),
    "a draft elsewhere": (Code.BAD_FOLDER, result({"schema": 1, "draft": "../../x"})),
    "a draft by its path": (Code.BAD_FOLDER, result({"schema": 1, "draft": "/cache"})),
    "a draft in a folder": (Code.BAD_FOLDER, result({"schema": 1, "draft": "draft/."})),
    "a draft that is all": (Code.BAD_FOLDER, result({"schema": 1, "draft": "."})),
    "a draft of no name": (Code.BAD_FOLDER, result({"schema": 1, "draft": ""})),
    "a draft with a line end": (Code.BAD_FOLDER, result({"schema": 1, "draft": "draft\n"})),
    "a draft by a name of other letters": (
        Code.BAD_FOLDER,
        result({"schema": 1, "draft": "dräft"}),
    ),
    "a branch": (
        Code.NOT_A_COMMIT,
        result({"schema": 1, "hub": {"id": "org/draft", "revision": "main"}}),
    ),
    "a commit with a line end": (
        Code.NOT_A_COMMIT,
        result({"schema": 1, "hub": {"id": "org/draft", "revision": "0" * 40 + "\n"}}),
    ),
    "a repository that is a path": (
        Code.BAD_RESULT,
        result({"schema": 1, "hub": {"id": "../../etc", "revision": "0" * 40}}),
    ),
    "a repository that leads up": (
        Code.BAD_RESULT,
        result({"schema": 1, "hub": {"id": "org/a..b", "revision": "0" * 40}}),
    ),
    "a repository that is a sentence": (
        Code.BAD_RESULT,
        result({"schema": 1, "hub": {"id": f"{MARK} {MARK}", "revision": "0" * 40}}),
    ),
    "no folder": (Code.BAD_FOLDER, renamed_draft(lambda _: None)),
    "a folder that is a link": (
        Code.BAD_FOLDER,
        renamed_draft(lambda output: output.draft.symlink_to("elsewhere")),
    ),
    "a folder that is a file": (
        Code.BAD_FOLDER,
        renamed_draft(lambda output: output.draft.write_text(MARK)),
    ),
    "a config that is a link": (
        Code.NOT_A_FILE,
        replaced("config.json", lambda path: path.symlink_to("/etc/hostname")),
    ),
    "weights that are a link": (
        Code.NOT_A_FILE,
        replaced("model.safetensors", lambda path: path.symlink_to("/etc/hostname")),
    ),
    "weights that are a link to nothing": (
        Code.NOT_A_FILE,
        replaced("model.safetensors", lambda path: path.symlink_to(MARK)),
    ),
    "weights that are a pipe": (Code.NOT_A_FILE, replaced("model.safetensors", os.mkfifo)),
    "weights that are a socket": (Code.NOT_A_FILE, replaced("model.safetensors", socket_at)),
    "weights that are a folder": (
        Code.NOT_A_FILE,
        replaced("model.safetensors", lambda path: path.mkdir()),
    ),
    "weights that are a device": (
        Code.NOT_A_FILE,
        replaced("model.safetensors", lambda path: path.symlink_to("/dev/zero")),
    ),
    "weights of 4 TiB, all holes": (Code.TOO_LARGE, sparse("draft/model.safetensors", 4 << 40)),
    "too many files": (Code.TOO_MANY_FILES, many),
    "pickles alone": (Code.NO_WEIGHTS, only_pickles),
    "weights without tensors": (Code.NO_WEIGHTS, weights_text(b"{}")),
    "no config": (Code.BAD_CONFIG, lambda output: (output.draft / "config.json").unlink()),
    "a config of 2 MiB": (Code.BAD_CONFIG, config(padding=MARK * (1 << 18))),
    "a config that is not JSON": (Code.BAD_CONFIG, config_text(MARK)),
    "a config that nests": (Code.BAD_CONFIG, config_text('{"a":' * 900 + "1" + "}" * 900)),
    "a config that nests beyond": (Code.BAD_CONFIG, config_text("[" * 100_000)),
    "a config that says a thing twice": (
        Code.BAD_CONFIG,
        config_text('{"hidden_size": 8, "hidden_size": 9}'),
    ),
    "a number of 5000 digits": (Code.BAD_CONFIG, config_text(f'{{"a": {"9" * 5000}}}')),
    "a size that is a text": (Code.BAD_CONFIG, config(hidden_size=MARK)),
    "a size below zero": (Code.BAD_CONFIG, config(vocab_size=-1)),
    "a flag that is a text": (Code.BAD_CONFIG, config(fc_norm=MARK)),
    "layers that are texts": (Code.BAD_CONFIG, config(eagle_aux_hidden_state_layer_ids=[MARK])),
    "more than a message holds": (
        Code.BAD_CONFIG,
        config(
            **{
                place: {"eagle_aux_hidden_state_layer_ids": [1 << 50] * 64}
                for place in ("eagle_config", "text_config", "transformer_layer_config", "verifier")
            }
        ),
    ),
    "a class of the trainer's": (Code.UNKNOWN_CLASS, config(architectures=[MARK])),
    "no class": (Code.UNKNOWN_CLASS, config(architectures=None)),
    "an index that leaves the folder": (
        Code.BAD_INDEX,
        index({"weight_map": {"fc.weight": "../../x/model.safetensors"}}),
    ),
    "an index of another file": (
        Code.BAD_INDEX,
        index({"weight_map": {"fc.weight": "gone.safetensors"}}),
    ),
    "an index of other tensors": (
        Code.BAD_INDEX,
        index({"weight_map": {"fc.weight": "model.safetensors"}}),
    ),
    "an index of numbers": (Code.BAD_INDEX, index({"weight_map": {"fc.weight": 1}})),
    "an index of nothing": (Code.BAD_INDEX, index({"weight_map": {}})),
    "an index that is not JSON": (Code.BAD_INDEX, index(MARK)),
    "weights that are empty": (Code.BAD_HEADER, cut(0)),
    "weights that end in their header": (Code.BAD_HEADER, cut(40)),
    "weights that are cut off": (
        Code.BAD_HEADER,
        lambda output: os.truncate(output.weights, output.weights.stat().st_size - 1),
    ),
    "weights that go on": (
        Code.BAD_HEADER,
        lambda output: os.truncate(output.weights, output.weights.stat().st_size + 1),
    ),
    "a header of 200 MB": (
        Code.BAD_HEADER,
        long_header,
    ),
    "a header of 2**64 bytes": (
        Code.BAD_HEADER,
        lambda output: output.weights.write_bytes(b"\xff" * 64),
    ),
    "a header that is not JSON": (Code.BAD_HEADER, weights_text(MARK.encode())),
    "a header that nests": (Code.BAD_HEADER, weights_text(b"[" * 100_000)),
    "a header of another encoding": (Code.BAD_HEADER, weights_text('{"a": 1}'.encode("utf-16"))),
    "a tensor twice": (
        Code.BAD_HEADER,
        weights_text(
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"0",
        ),
    ),
    "metadata that is no texts": (Code.BAD_HEADER, header(__metadata__={"a": [1]})),
    "tensors that overlap": (Code.BAD_HEADER, header(b=at(4, 12), c=at(12, 16))),
    "tensors with a gap": (Code.BAD_HEADER, header(b=at(10, 16))),
    "tensors that begin later": (Code.BAD_HEADER, header(a=at(2, 8))),
    "tensors beyond the end": (Code.BAD_HEADER, header(b=at(8, 18))),
    "tensors before the beginning": (Code.BAD_HEADER, header(a=at(-8, 8))),
    "the same bytes as two tensors": (Code.BAD_HEADER, header(c=at(8, 16))),
    "a tensor that is nowhere": (Code.BAD_HEADER, header(c={"dtype": "BF16", "shape": [0]})),
    "a tensor that is a text": (Code.BAD_HEADER, header(c=MARK)),
    "a shape that is not the size": (Code.BAD_HEADER, header(b=at(8, 16, shape=[1 << 40]))),
    "a shape whose product overflows": (
        Code.BAD_HEADER,
        header(b=at(8, 16, shape=[1 << 32, 1 << 32, 1 << 52])),
    ),
    "a shape below zero": (Code.BAD_HEADER, header(b=at(8, 16, shape=[-2, -2]))),
    "a shape of nothing": (Code.BAD_HEADER, header(b={"dtype": "BF16"})),
    "offsets that are true": (
        Code.BAD_HEADER,
        weights_text(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[false,true]}}', b"0"),
    ),
    "a type that there is not": (Code.BAD_TYPE, header(b=at(8, 16, dtype=MARK))),
    "a type of half bytes": (Code.BAD_TYPE, header(b=at(8, 16, dtype="F4"))),
    "a name of other letters": (
        Code.BAD_NAME,
        lambda output: output.tensors({**output.shapes, "nörm.weight": (8,)}),
    ),
    "a name that is a sentence": (
        Code.BAD_NAME,
        lambda output: output.tensors({**output.shapes, f"{MARK} {MARK}": (8,)}),
    ),
    "a tensor in two files": (Code.BAD_NAME, twice),
    "another width": (Code.OTHER_TARGET, config(target_hidden_size=16)),
    "more tokens than the target has": (Code.OTHER_TARGET, config(draft_vocab_size=33)),
    "a head of other rows": (Code.BAD_WEIGHTS, shapes(lm_head__weight=(15, HIDDEN))),
    "embeddings of another width": (Code.BAD_WEIGHTS, shapes(embed_tokens__weight=(32, 4))),
    "a table of another length": (Code.BAD_WEIGHTS, shapes(d2t=(8,))),
    "norms that the config does not name": (
        Code.BAD_WEIGHTS,
        shapes(fc_norm__0__weight=(HIDDEN,)),
    ),
    "names that vLLM prefixes": (Code.BAD_WEIGHTS, prefixed),
    "NaN in BF16": (Code.NOT_FINITE, norm("BF16", "H", NAN)),
    "infinite in BF16": (Code.NOT_FINITE, norm("BF16", "H", INFINITE)),
    "NaN in F16": (Code.NOT_FINITE, norm("F16", "e", float("nan"))),
    "infinite in F16": (Code.NOT_FINITE, norm("F16", "e", float("inf"))),
    "NaN in F32": (Code.NOT_FINITE, norm("F32", "f", float("nan"))),
    "infinite in F32": (Code.NOT_FINITE, norm("F32", "f", float("-inf"))),
    "NaN in F64": (Code.NOT_FINITE, norm("F64", "d", float("nan"))),
    "infinite in F64": (Code.NOT_FINITE, norm("F64", "d", float("inf"))),
    "NaN in F8_E4M3": (Code.NOT_FINITE, norm("F8_E4M3", "B", 0xFF)),
    "NaN in F8_E5M2": (Code.NOT_FINITE, norm("F8_E5M2", "B", 0x7E)),
    "infinite in F8_E5M2": (Code.NOT_FINITE, norm("F8_E5M2", "B", 0xFC)),
    "a table that leads beyond": (Code.BAD_TABLE, table(0, 31)),
    "a table that leads before": (Code.BAD_TABLE, table(0, -2)),
    "a table that leads around": (Code.BAD_TABLE, table(0, (1 << 63) - 1)),
    "a table of fractions": (
        Code.BAD_TABLE,
        tensor("d2t", "F64", struct.pack("<16d", *[0.0] * 16)),
    ),
    "a table by another name": (
        Code.BAD_TABLE,
        lambda output: output.tensors(
            {**output.shapes, "my.d2t": (2, 2)}, dtypes={"my.d2t": "I64"}
        ),
    ),
}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a volume that is full; and a test that fails fills no disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("code", "change"), HOSTILE.values(), ids=HOSTILE.keys())
def test_is_refused_by_its_code_and_leaves_nothing(
    intake: Intake, capsys: pytest.CaptureFixture[str], code: Code, change: Change
) -> None:
    change(intake.output)
    before = names_in(intake.output.path)

    with files_of_at_most(64 << 20):
        taken = intake.run()

    assert (taken.exit_code, taken.refused) == (1, code.value)
    assert len(taken.text) <= LONGEST_MESSAGE
    shown = capsys.readouterr()
    assert MARK not in taken.text + shown.out + shown.err
    assert intake.stored == []
    assert not intake.marker.exists()
    assert names_in(intake.output.path) == before


def test_every_code_of_what_a_trainer_does_has_a_case() -> None:
    ours = {
        *(Code.STORE_FULL, Code.STORE_CLOSED, Code.STORE_CHANGED, Code.STORAGE_FAILED),
        *(Code.UNREADABLE, Code.CHANGED, Code.BROKEN),
    }
    assert {code for code, _ in HOSTILE.values()} == {*Code} - ours


ALMOST: dict[str, Change] = {
    "the largest of F8_E4M3": norm("F8_E4M3", "B", 0x7E),
    "the largest of F8_E5M2": norm("F8_E5M2", "B", 0x7B),
    "the largest of BF16": norm("BF16", "H", 0x7F7F),
    "the largest of F16": norm("F16", "e", 65504.0),
    "a large one of F32": norm("F32", "f", -3.0e38),
    "a large one of F64": norm("F64", "d", 1.7e308),
    "a table that goes back": table(0, 30, 29, -3),
    "auto_map": config(auto_map={"AutoConfig": "cfg.C", "AutoModel": "cfg.M"}),
    "nothing where something may be": config(eagle_config=None, head_dim=None),
    "a norm of nothing": shapes(norm__weight=(0,)),
    "neither head nor embeddings": shapes(lm_head__weight=None, embed_tokens__weight=None),
    "a name beyond ASCII": lambda output: (output.draft / "ünïcode.bin").write_text(""),
    "a folder within": lambda output: (output.draft / "config.json.d" / "deep").mkdir(parents=True),
}


@pytest.mark.parametrize("change", ALMOST.values(), ids=ALMOST.keys())
def test_what_is_almost_so_is_taken(intake: Intake, change: Change) -> None:
    change(intake.output)

    assert intake.run().refused == ""


def test_a_value_at_the_end_of_a_large_tensor_is_found(intake: Intake) -> None:
    """Beyond the first of the pieces that are read at once."""
    count = 3 << 20
    values = bytes(2 * count - 2) + struct.pack("<H", NAN)
    intake.output.tensors({**intake.output.shapes, "big": (count,)}, values={"big": values})

    assert intake.run(most_bytes=8 << 20).refused == "notFinite"


def test_a_table_has_no_place_where_vllm_proposes_all_tokens(intake: Intake) -> None:
    intake.output.write_config(draft_vocab_size=32)
    intake.output.tensors(changed(intake.output.shapes, {"lm_head.weight": (32, 8), "d2t": (32,)}))

    assert intake.run().refused == ""
    refused = intake.run("--table-unread")
    assert (refused.refused, refused.message["fault"]) == ("badWeights", "d2t unread")


def test_weights_of_another_kind_of_draft_are_not_held_against_eagle_3(intake: Intake) -> None:
    HOSTILE["a head of other rows"][1](intake.output)
    target = Target(known=frozenset({CLASS}))

    message = taken_in(intake.output.path, intake.store, most_bytes=1 << 20, target=target, now_s=0)

    assert "digest" in message


def test_a_store_without_space_keeps_nothing(intake: Intake) -> None:
    target = Target(known=frozenset({CLASS}))
    intake.output.tensors({"a": (1 << 19,)})

    with files_of_at_most(1 << 19), pytest.raises(RefusedError) as refused:
        taken_in(intake.output.path, intake.store, most_bytes=1 << 30, target=target, now_s=0)

    assert refused.value.refusal.code is Code.STORE_FULL
    assert intake.stored == []


def test_a_fault_of_the_program_s_own_is_told_without_any_text(
    intake: Intake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> object:
        raise RuntimeError(MARK)

    monkeypatch.setattr("fathom_intake.__main__.without_code", broken)

    assert intake.run().message == {"schema": 1, "refused": "broken"}
    shown = capsys.readouterr().err
    assert "RuntimeError" in shown
    assert MARK not in shown
