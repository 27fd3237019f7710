"""What has not moved is not read again, and what has moved always is."""

import gc
import weakref
from typing import Any

import pytest

from fathom.cluster.observed_pods import ObservedPod
from fathom.runtime.caches import Named, ReadOnce


def pod(name: str, phase: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"args": ["serve", "--model", "m"]}]},
        "status": {"phase": phase},
    }


def read(known: ReadOnce, *manifests: dict[str, Any]) -> list[ObservedPod | None]:
    with known.look():
        return [known.model(ObservedPod, each) for each in manifests]


def test_the_same_object_is_read_once_and_another_one_anew() -> None:
    known, manifest = ReadOnce(), pod("a", "Pending")
    (first,) = read(known, manifest)
    (again,) = read(known, manifest)
    (moved,) = read(known, pod("a", "Running"))
    assert again is first
    assert moved is not None
    assert moved.status.phase == "Running"


def test_what_a_look_has_not_met_is_forgotten() -> None:
    known, manifest = ReadOnce(), pod("a", "Running")
    (first,) = read(known, manifest)
    read(known)
    assert read(known, manifest)[0] is not first


def test_a_look_that_fails_loses_nothing() -> None:
    known, manifest = ReadOnce(), pod("a", "Running")
    (first,) = read(known, manifest)
    with pytest.raises(TimeoutError), known.look():
        raise TimeoutError
    assert read(known, manifest)[0] is first


def test_looks_that_fail_keep_nothing_of_what_they_read() -> None:
    known, seen = ReadOnce(), []

    def look() -> None:
        with known.look():
            model = known.model(ObservedPod, pod("a", "Running"))
            assert model is not None
            seen.append(weakref.ref(model))
            raise TimeoutError

    for _ in range(3):
        with pytest.raises(TimeoutError):
            look()
    gc.collect()
    assert [each() for each in seen] == [None, None, None]


def test_what_is_equal_in_two_pods_is_there_once() -> None:
    one, other = read(ReadOnce(), pod("a", "Running"), pod("b", "Running"))
    assert one is not None
    assert other is not None
    assert (one.name, other.name) == ("a", "b")
    assert other.spec is one.spec
    assert other == ObservedPod.model_validate(pod("b", "Running"))


def test_what_a_person_mangled_is_no_pod_but_has_a_name() -> None:
    known, mangled = ReadOnce(), pod("a", "Running") | {"spec": "none"}
    with known.look():
        assert known.model(ObservedPod, mangled) is None
        named = known.model(Named, mangled)
    assert named is not None
    assert named.metadata.name == "a"
