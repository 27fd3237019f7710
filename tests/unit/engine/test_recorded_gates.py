"""What each release reads and refuses at start, as it is recorded."""

import pytest
from packaging.version import Version

from fathom.engine.known_options import names_of
from fathom.engine.start import ReleaseGates, release_gates
from generators.known_names import known_releases
from generators.release_gates import release_gates as recorded


def test_every_release_of_the_capability_table_was_asked() -> None:
    assert release_gates().releases == known_releases()


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.32.0", "0.32.0"), ("0.32.1", "0.32.0"), ("0.27.9", None), ("0.99.0", None)],
)
def test_a_patch_release_is_taken_for_the_first_of_its_minor(
    version: str, release: str | None
) -> None:
    assert release_gates().asked_as(Version(version)) == release


def test_of_an_unknown_version_nothing_is_known() -> None:
    assert release_gates().asked_as(None) is None


@pytest.mark.parametrize("kind", sorted(set(ReleaseGates.model_fields) - {"releases"}))
def test_each_release_has_names_of_each_kind(kind: str) -> None:
    gates = release_gates()
    assert all(names_of(each, getattr(gates, kind)) for each in gates.releases)


def test_names_are_recorded_once_for_all_releases_that_have_them() -> None:
    kinds = [kind for kind in ReleaseGates.model_fields if kind != "releases"]
    answers = {
        "0.1.0": {kind: ["A", "B"] for kind in kinds},
        "0.2.0": {kind: ["B", "C"] for kind in kinds},
    }

    gates = recorded(answers)

    assert gates.releases == ("0.1.0", "0.2.0")
    assert [(row.releases, row.names) for row in gates.environment] == [
        (("0.1.0",), ("A",)),
        (("0.1.0", "0.2.0"), ("B",)),
        (("0.2.0",), ("C",)),
    ]
