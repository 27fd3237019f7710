"""Views as HTML: one file each, with all that it needs in it, so that a saved page is whole.

Whatever comes from a cluster is escaped. No script or style runs but those of this package, by
their hashes; nothing is fetched from anywhere.
"""

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from fathom import __version__
from fathom.measurement.bench_result import COLUMNS
from fathom.page.history import MomentKind
from fathom.page.resource_view import ResourceView
from fathom.page.subject import Overview
from fathom.resource import UNKNOWN
from fathom.times import rfc3339

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("fathom.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


@dataclass(frozen=True, slots=True)
class Looks:
    """What a kind of page brings along."""

    style: str
    scripts: tuple[str, ...]
    policy: str
    """Content-Security-Policy: these and nothing else."""


@cache
def overview_looks() -> Looks:
    """Style of the list, and no script at all."""
    return _looks(_own("page.css"), ())


@cache
def resource_looks() -> Looks:
    """Style and scripts of one resource: charts."""
    return _looks(
        _uplot("uPlot.min.css") + _own("page.css"), (_uplot("uPlot.iife.min.js"), _own("page.js"))
    )


def overview_page(overview: Overview, now_s: float) -> str:
    """The list.

    Args:
        overview: what is in it.
        now_s: when it was made (Unix seconds).
    """
    return _render("overview.html", overview_looks(), view=overview, at=rfc3339(now_s))


def resource_page(view: ResourceView, *, home: bool) -> str:
    """One resource.

    Args:
        view: what to show.
        home: whether there is a list to go back to: a file has none.
    """
    return _resource("resource.html", view, home=home)


def recording_page(view: ResourceView) -> str:
    """One resource as it was recorded, and what its tuner would have decided."""
    return _resource("recording.html", view, home=False)


def message_page(title: str, sentence: str) -> str:
    """A page that has nothing but a sentence, such as that there is no such page."""
    return _render("message.html", overview_looks(), title=title, sentence=sentence)


def _resource(template: str, view: ResourceView, *, home: bool) -> str:
    return _render(
        template,
        resource_looks(),
        view=view,
        home=home,
        data=_drawn(view),
        bench_columns=COLUMNS,
    )


def _drawn(view: ResourceView) -> dict[str, object]:
    """What page.js draws."""
    decisions = [each.at_s for each in view.moments if each.kind is MomentKind.DECISION]
    return {
        "at": view.charts.at_s,
        "depths": [{"batches": each.batches, "depths": each.depths} for each in view.charts.depths],
        "tokens_per_second": view.charts.tokens_per_second,
        "mean_batch": view.charts.mean_batch,
        "acceptance_length": view.charts.acceptance_length,
        "decisions": decisions,
    }


def _known(value: float | None) -> str:
    """In a table; a dash is what was not measured."""
    return UNKNOWN if value is None else f"{value:,}"


def _render(template: str, looks: Looks, **values: object) -> str:
    found = _ENVIRONMENT.get_template(template)
    return found.render(looks=looks, version=__version__, **values)


def _looks(style: str, scripts: Iterable[str]) -> Looks:
    several = tuple(scripts)
    allowed = " ".join(map(_hash, several)) or "'none'"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Looks(style, several, policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return (files("fathom.page") / "templates" / name).read_text(encoding="utf-8")


def _uplot(name: str) -> str:
    return (files("fathom.page") / "uplot" / name).read_text(encoding="utf-8")


_ENVIRONMENT.filters |= {"rfc3339": rfc3339, "known": _known}
