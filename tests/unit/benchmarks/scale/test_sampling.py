"""Sampled stacks."""

from benchmarks.scale.sampling import Hot, from_text, function_name, hottest, to_text

STACKS = {"cli.py:run;fathom/loop.py:tick;json/decoder.py:decode": 3, "cli.py:run": 1}


def test_stacks_survive_as_text() -> None:
    assert from_text(to_text(STACKS)) == STACKS
    assert from_text(to_text(STACKS, "rest"))["rest;cli.py:run"] == 1


def test_files_are_named_as_they_are_imported() -> None:
    assert function_name("/x/lib/python3.11/json/decoder.py", "f") == "json/decoder.py:f"
    assert function_name("/x/lib/python3.11/site-packages/kopf/a.py", "f") == "kopf/a.py:f"
    assert function_name("/work/operator/fathom/loop.py", "g") == "fathom/loop.py:g"
    assert function_name("<frozen importlib>", "h") == "<frozen_importlib>:h"


def test_the_hottest_by_themselves_and_with_what_they_call() -> None:
    found = hottest(STACKS, "rest")
    assert found.samples == 4
    assert found.itself == (Hot("json/decoder.py:decode", 0.75), Hot("cli.py:run", 0.25))
    assert found.whole == (Hot("fathom/loop.py:tick", 0.75),)


def test_what_calls_itself_took_the_time_once() -> None:
    (found,) = hottest({"fathom/a.py:f;fathom/a.py:f": 2}, "rest").whole
    assert found.share == 1.0
