"""The tables of docs/engines.md are those of the code."""

from pathlib import Path

import pytest
from packaging.version import Version

from fathom.engine import capability_table
from fathom.engine.capability_table import LIVE_DEPTH, LIVE_DEPTH_ADAPTIVE, TABLE, Capability
from local_cluster.engine.releases import NEWEST_KNOWN

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "engines.md").read_text()
RELEASES = ("0.23.0", "0.24.0", "0.28.0", "0.30.0", "0.32.0", NEWEST_KNOWN)


def table(*lines: tuple[str, ...]) -> str:
    header, *rows = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([header, "|---" * len(lines[0]) + "|", *rows]) + "\n"


def side_by_side() -> str:
    return table(
        ("", *RELEASES),
        *(
            (
                row.what,
                *("✔" if row.capability.in_version(Version(each)) else "–" for each in RELEASES),
            )
            for row in TABLE
        ),
    )


def in_words() -> str:
    return table(
        ("", "vLLM", "without it", "shown by", "decided in `vllm/`"),
        *(
            (
                row.what,
                "none yet"
                if str(row.capability.versions) == "<0"
                else str(row.capability.versions),
                row.without,
                row.shown,
                f"`{row.source}`",
            )
            for row in TABLE
        ),
    )


def test_releases_stand_side_by_side() -> None:
    assert side_by_side() in PAGE, f"Put this in:\n{side_by_side()}"


def test_each_row_says_what_is_done_without_it() -> None:
    assert in_words() in PAGE, f"Put this in:\n{in_words()}"


@pytest.mark.parametrize("capability", [LIVE_DEPTH, LIVE_DEPTH_ADAPTIVE])
def test_live_depth_ends_behind_the_newest_release_that_was_looked_at(
    capability: Capability,
) -> None:
    newest = Version(NEWEST_KNOWN)

    assert capability.in_version(newest)
    assert not capability.in_version(Version(f"{newest.major}.{newest.minor + 1}.0")), (
        f"once {newest.major}.{newest.minor + 1} was looked at, raise NEWEST_KNOWN in "
        "tools/local_cluster/engine/releases.py"
    )


def test_the_newest_release_that_was_looked_at_is_named() -> None:
    for sentence in (
        f"0.14.1 to {NEWEST_KNOWN}.",
        f"no release up to {NEWEST_KNOWN}.",
        f"make try-engine VERSION={NEWEST_KNOWN}\n",
        f"| {NEWEST_KNOWN} | ",
    ):
        assert sentence in PAGE, f"docs/engines.md does not say: {sentence}"
    assert f"0.14.1 to {NEWEST_KNOWN}." in (capability_table.__doc__ or ""), (
        f"the first lines of {capability_table.__name__} do not say that {NEWEST_KNOWN} was read"
    )


@pytest.mark.parametrize("page", ["live-or-restart.md", "requirements.md", "support.md"])
def test_pages_name_the_releases_with_live_depth(page: str) -> None:
    minors = range(Version(NEWEST_KNOWN).minor + 1)
    *others, last = [
        f"0.{each}" for each in minors if LIVE_DEPTH.in_version(Version(f"0.{each}.0"))
    ]

    assert f"{', '.join(others)} or {last}" in (DOCS / page).read_text(), (
        f"docs/{page} does not say which releases have live depth"
    )
