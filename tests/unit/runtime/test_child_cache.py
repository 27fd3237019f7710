"""What watches have told is known only while it is current, and never older than what is known."""

import copy
from typing import Any

import pytest

from fathom.cluster.kinds import CONFIG_MAP, POD, SERVICE, ObjectKey
from fathom.runtime.child_cache import SILENT_S, ChildCache, Feed
from support.loop_harness import ManualClock

KIMI = ObjectKey("llm", "kimi")


def pod(name: str, version: int, *, of: str = "kimi", namespace: str = "llm") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(version),
            "labels": {"fathom.dev/name": of},
            "managedFields": [{"manager": "somebody"}],
        }
    }


def versions(feed: Feed, resource: ObjectKey = KIMI) -> dict[str, str]:
    found: list[Any] = list(feed.of(resource))
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def feed(clock: ManualClock) -> Feed:
    """Two pods of one resource, listed at version 10."""
    feed = Feed(POD, "", clock)
    for each in (pod("a", 4), pod("b", 7)):
        feed.put(each)
    feed.listed({("llm", "a"), ("llm", "b")}, "10")
    return feed


def test_nothing_is_known_before_the_first_list(clock: ManualClock) -> None:
    cache = ChildCache(clock)
    assert cache.of(POD, KIMI) is None
    (feed,) = (each for each in cache if each.kind == POD)
    feed.put(pod("a", 4))
    assert cache.of(POD, KIMI) is None
    feed.listed({("llm", "a")}, "4")
    assert len(cache.of(POD, KIMI) or ()) == 1
    assert cache.of(SERVICE, KIMI) is None
    assert cache.of(POD, ObjectKey("llm", "other")) == ()


def test_silence_is_not_believed_for_ever(feed: Feed, clock: ManualClock) -> None:
    clock.at_s += SILENT_S - 1
    assert feed.current
    feed.told("11")
    clock.at_s += SILENT_S - 1
    assert feed.current
    clock.at_s += 1
    assert not feed.current


def test_a_clock_that_was_set_back_makes_nothing_last_longer(
    feed: Feed, clock: ManualClock
) -> None:
    clock.at_s += -3600
    assert not feed.current


def test_an_older_state_replaces_none(feed: Feed) -> None:
    assert feed.put(pod("a", 3)) == set()
    feed.gone(pod("b", 6))
    assert versions(feed) == {"a": "4", "b": "7"}


def test_what_moves_names_whose_it_is_and_was(feed: Feed) -> None:
    assert feed.put(pod("a", 11)) == {KIMI}
    assert feed.put(pod("a", 12, of="qwen")) == {KIMI, ObjectKey("llm", "qwen")}
    assert versions(feed) == {"b": "7"}
    assert versions(feed, ObjectKey("llm", "qwen")) == {"a": "12"}


def test_another_list_takes_away_what_is_gone(feed: Feed) -> None:
    assert feed.listed({("llm", "b")}, "12") == {KIMI}
    assert versions(feed) == {"b": "7"}


def test_a_list_of_an_older_state_begins_everything_anew(feed: Feed) -> None:
    """etcd was restored from a backup: b was made after it, and a is as it was."""
    feed.begin_list("6")
    assert not feed.current
    feed.put(pod("a", 3))
    feed.listed({("llm", "a")}, "6")
    assert feed.current
    assert versions(feed) == {"a": "3"}


def test_a_list_takes_away_nothing_that_was_made_after_it(feed: Feed) -> None:
    feed.note(pod("c", 13))
    feed.listed({("llm", "a"), ("llm", "b")}, "12")
    assert set(versions(feed)) == {"a", "b", "c"}


def test_a_write_is_known_at_once(feed: Feed) -> None:
    feed.note(pod("a", 11))
    assert versions(feed)["a"] == "11"


def test_an_answer_that_comes_late_brings_nothing_back(feed: Feed) -> None:
    """The watch has told of the write and of the deletion after it."""
    feed.put(pod("a", 11))
    feed.gone(pod("a", 12))
    feed.told("12")
    feed.note(pod("a", 11))
    assert set(versions(feed)) == {"b"}


def test_versions_that_are_no_numbers_are_all_believed(feed: Feed) -> None:
    odd = pod("a", 0)
    odd["metadata"]["resourceVersion"] = "abc"
    feed.put(odd)
    assert versions(feed)["a"] == "abc"
    feed.put(pod("a", 1))
    assert versions(feed)["a"] == "1"


def test_who_wrote_which_field_is_not_kept(feed: Feed) -> None:
    found: Any = feed.of(KIMI)[0]
    assert "managedFields" not in found["metadata"]


def test_namespaces_are_known_each_by_itself(clock: ManualClock) -> None:
    cache = ChildCache(clock, ("llm", "other"))
    for feed in cache:
        if feed.kind == POD and feed.namespace == "llm":
            feed.listed((), "3")
    assert cache.of(POD, KIMI) == ()
    assert cache.of(POD, ObjectKey("other", "kimi")) is None
    assert cache.of(POD, ObjectKey("third", "kimi")) is None


def test_what_bears_no_label_is_nobodys(clock: ManualClock) -> None:
    cache = ChildCache(clock)
    cache.note(POD, {"metadata": {"name": "a", "namespace": "llm", "resourceVersion": "9"}})
    (feed,) = (each for each in cache if each.kind == POD)
    assert feed.of(ObjectKey("llm", "")) == ()


def config_map(name: str, version: int, *, of: str, text: str) -> dict[str, Any]:
    found = pod(name, version, of=of)
    found["metadata"]["labels"]["fathom.dev/component"] = "plugin"
    # Never one object by itself, as when it is parsed.
    return {**found, "data": {"plugin.py": "".join(text)}, "immutable": True}


def test_what_is_equal_in_many_children_is_there_once(clock: ManualClock) -> None:
    """The plugin is 60 KB, and each of a thousand resources has a ConfigMap of it."""
    feed = Feed(CONFIG_MAP, "", clock)
    text = ["one = 1\n"] * 1000
    for number in range(3):
        of = f"resource-{number}"
        feed.put(config_map(f"{of}-plugin", number + 1, of=of, text="".join(text)))
    data = [
        child["data"]
        for number in range(3)
        for child in feed.of(ObjectKey("llm", f"resource-{number}"))
    ]
    assert data == [{"plugin.py": "".join(text)}] * 3
    assert data[0] is data[1] is data[2]


def test_a_child_shares_with_its_sibling_and_with_what_it_was(clock: ManualClock) -> None:
    feed = Feed(POD, "", clock)
    spec: dict[str, Any] = {"containers": [{"name": "engine", "args": ["serve", "--model", "m"]}]}
    feed.put({**pod("a", 1), "spec": copy.deepcopy(spec)})
    feed.put({**pod("x", 2, of="qwen"), "spec": {"containers": []}})
    feed.put({**pod("b", 3), "spec": copy.deepcopy(spec) | {"nodeName": "n"}})
    feed.put({**pod("a", 4), "spec": copy.deepcopy(spec)})
    a, b = feed.of(KIMI)
    assert a == {**pod("a", 4), "spec": spec} | {"metadata": a["metadata"]}
    assert a["metadata"]["resourceVersion"] == "4"  # type: ignore[call-overload,index]
    assert b["spec"]["nodeName"] == "n"  # type: ignore[call-overload,index]
    assert a["spec"]["containers"] is b["spec"]["containers"]  # type: ignore[call-overload,index]
