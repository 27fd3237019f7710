"""Which files of a repository are fetched."""

from fathom_fetch.fetch import INDEX, wanted_files

SHARDS = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
SMALL = {"config.json", "tokenizer.json", "modeling_kimi.py", INDEX}


def test_the_files_that_the_index_names_and_no_copies_in_other_formats() -> None:
    others = {"pytorch_model.bin", "original/model.safetensors", "onnx/model.onnx", "figure.png"}
    files = SHARDS | SMALL | others | {"original/consolidated.00.pth", "extra.safetensors"}
    assert wanted_files(files, SHARDS) == SHARDS | SMALL


def test_without_an_index_those_at_the_top() -> None:
    files = {"model.safetensors", "config.json", "fp32/model.safetensors"}
    assert wanted_files(files) == {"model.safetensors", "config.json"}


def test_weights_that_lie_in_folders_only_are_taken_there() -> None:
    files = {"text_encoder/model.safetensors", "config.json"}
    assert wanted_files(files) == files


def test_an_index_that_names_nothing_that_is_there_is_no_index() -> None:
    assert wanted_files(SHARDS, {"gone.safetensors"}) == SHARDS


def test_mistrals_own_format_goes_first_as_in_vllm() -> None:
    files = {"consolidated.safetensors", "params.json", *SHARDS}
    assert wanted_files(files, SHARDS) == {"consolidated.safetensors", "params.json"}


def test_older_formats_where_there_is_no_other() -> None:
    assert wanted_files({"pytorch_model.bin", "model.pt"}) == {"pytorch_model.bin"}
    assert wanted_files({"model.pt", "config.json"}) == {"model.pt", "config.json"}


def test_all_weights_of_the_format_wherever_they_lie() -> None:
    files = SHARDS | {"consolidated.safetensors", "original/model.safetensors", "model.bin"}
    assert wanted_files(files, SHARDS, all_weights=True) == files - {"model.bin"}
