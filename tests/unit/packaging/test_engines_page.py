"""The tables of docs/engines.md are those of the code."""

from pathlib import Path

from packaging.version import Version

from fathom.core.engine.capability_table import TABLE
from fathom_local.engine.releases import NEWEST_KNOWN

PAGE = (Path(__file__).parents[3] / "docs" / "engines.md").read_text()
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
