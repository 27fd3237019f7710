"""Options whose value is read, each by any beginning that stands for it alone."""

import pytest

from fathom.engine.argument_parser import SHORTEST, EngineArguments

OBJECT = "--kv-transfer-config"


@pytest.mark.parametrize("name", SHORTEST)
def test_an_option_is_read_in_every_spelling(name: str) -> None:
    shortest = SHORTEST[name]

    for end in range(len(shortest), len(name) + 1):
        assert EngineArguments.of([name[:end], "x"]).value(name) == "x"
        assert (
            EngineArguments.of([f"{name[:end].replace('-', '_').replace('__', '--', 1)}=x"]).value(
                name
            )
            == "x"
        )
    assert EngineArguments.of([shortest[:-1], "x"]).value(name) is None
    assert EngineArguments.of([f"{name}-more", "x"]).value(name) is None


@pytest.mark.parametrize("name", SHORTEST)
def test_no_beginning_stands_for_two_of_them(name: str) -> None:
    assert [each for each in SHORTEST if each.startswith(SHORTEST[name])] == [name]


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ('OBJECT {"a":1}', {"a": 1}),
        ('OBJECT={"a":1} --kv-t {"b":2}', {"b": 2}),
        ("OBJECT.a 1 --kv_transfer_config.b=x", {"a": 1, "b": "x"}),
        ('OBJECT.b=2 OBJECT {"a":1}', {"b": 2}),
        ('OBJECT.a.b 1 OBJECT.a={"c":2}', {"a": {"b": 1, "c": 2}}),
        ("OBJECT.a=1 OBJECT.a.b=[2] OBJECT.a.b=[3]", {"a": {"b": [2, 3]}}),
        # Keys behind another spelling are an object of their own, which comes as it began.
        ("OBJECT.a=1 --kv-t.b=2 OBJECT.c=3", {"b": 2}),
        ("OBJECT.a.b+=x,y OBJECT.a.b+ z", {"a": {"b": ["x", "y", "z"]}}),
        ("OBJECT.a", {"a": ""}),
        ("OBJECT [1]", {}),
        ("OBJECT", {}),
        ("--kv-cache-dtype fp8", {}),
    ],
)
def test_an_object_is_read_as_json_or_key_by_key(line: str, stated: object) -> None:
    assert EngineArguments.of(line.replace("OBJECT", OBJECT).split()).object(OBJECT) == stated


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("SIZES 1 2 4 --other 8", (1, 2, 4)),
        ("SIZES=8 SIZES 1 2", (1, 2)),
        ("SIZES 1 2 SIZES=8", (8,)),
        ("--cudagraph_c 16", (16,)),
        ("SIZES", ()),
        ("SIZES many", ()),
        ("--other 1", ()),
    ],
)
def test_numbers_behind_an_option_are_read(line: str, numbers: tuple[int, ...]) -> None:
    name = "--cudagraph-capture-sizes"
    assert EngineArguments.of(line.replace("SIZES", name).split()).numbers(name) == numbers


def test_a_short_name_stands_for_an_option_as_a_whole_only() -> None:
    name = "--compilation-config"
    assert EngineArguments.of(["-cc", "x"]).value(name) == "x"
    assert EngineArguments.of(["-cc.a=1", name, "{}"]).object(name) == {"a": 1}
    assert EngineArguments.of(["-c", "x"]).value(name) is None
    assert EngineArguments.of(["-ccc", "x"]).value(name) is None


@pytest.mark.parametrize("text", ["{", "[" * 30_000], ids=["cut off", "deep"])
def test_an_object_that_cannot_be_read_is_none(text: str) -> None:
    assert EngineArguments.of([OBJECT, text]).object(OBJECT) == {}


def test_keys_that_stand_too_deep_are_not_read() -> None:
    deep = OBJECT + ".a" * 30_000

    assert EngineArguments.of([f"{deep}=1", f"{deep}=2", f"{OBJECT}.b=1"]).object(OBJECT) == {
        "b": 1
    }
