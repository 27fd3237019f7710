"""Views as HTML: one file each, with all that it needs in it, so that a saved page is whole.

Whatever comes from a cluster is escaped. No script or style runs but those of this package, by
their hashes; a page that is served fetches itself again, and nothing else is fetched.
"""

import base64
import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from fathom import __version__
from fathom.measurement.bench_result import COLUMNS
from fathom.page.overview import Overview
from fathom.page.resource_view import ResourceView
from fathom.times import ago, lasting, rfc3339, unix_seconds
from fathom.tuning.estimate.acceptance_by_context import CONTEXT_COLUMNS

_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("fathom.page"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_RFC3339: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z")


@dataclass(frozen=True, slots=True)
class Looks:
    """What a kind of page brings along."""

    style: str
    scripts: tuple[str, ...]
    policy: str
    """Content-Security-Policy: these and nothing else."""


@cache
def message_looks() -> Looks:
    """Style of a sentence, and no script at all."""
    return _looks(_own("page.css"), ())


@cache
def overview_looks() -> Looks:
    """Style and scripts of the list: sorting, the filter, what is new."""
    return _looks(_own("page.css"), (_own("list.js"), _own("live.js")), live=True)


@cache
def resource_looks(*, live: bool) -> Looks:
    """Style and scripts of one resource: charts, and where it is served what is new."""
    drawn = (_uplot("uPlot.iife.min.js"), _own("charts.js"))
    style = _uplot("uPlot.min.css") + _own("page.css")
    return _looks(style, (*drawn, _own("live.js")) if live else drawn, live=live)


def overview_page(overview: Overview, now_s: float) -> str:
    """The list.

    Args:
        overview: what is in it.
        now_s: when it was made (Unix seconds).
    """
    at = rfc3339(now_s)
    return _render("overview.html", overview_looks(), view=overview, at=at, now_s=now_s)


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
    return _render("message.html", message_looks(), title=title, sentence=sentence)


def _resource(template: str, view: ResourceView, *, home: bool) -> str:
    now_s = unix_seconds(view.at)
    return _render(
        template,
        resource_looks(live=home),
        view=view,
        home=home,
        # In a file an age would soon be wrong.
        now_s=now_s if home else None,
        data={**asdict(view.charts), "now_s": now_s},
        bench_columns=COLUMNS,
        context_columns=CONTEXT_COLUMNS,
    )


def _utc(text: str) -> str:
    """Times of the API within a text, as people read them."""
    return _RFC3339.sub(r"\1 \2 UTC", text)


def _render(template: str, looks: Looks, **values: object) -> str:
    found = _ENVIRONMENT.get_template(template)
    return found.render(looks=looks, version=__version__, **values)


def _looks(style: str, scripts: Iterable[str], *, live: bool = False) -> Looks:
    several = tuple(scripts)
    allowed = " ".join(map(_hash, several)) or "'none'"
    itself = "connect-src 'self'; " if live else ""
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; {itself}"
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Looks(style, several, policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _own(name: str) -> str:
    return (files("fathom.page") / "templates" / name).read_text(encoding="utf-8")


def _uplot(name: str) -> str:
    return (files("fathom.page") / "uplot" / name).read_text(encoding="utf-8")


_ENVIRONMENT.filters |= {"rfc3339": rfc3339, "utc": _utc, "ago": ago, "lasting": lasting}
