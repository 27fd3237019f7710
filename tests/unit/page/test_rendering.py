"""What a browser gets: whole, small, and harmless whatever names and messages say."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fathom.cluster.kinds import ObjectKey
from fathom.page.history import MOST_POINTS
from fathom.page.overview import overview_of
from fathom.page.rendering import (
    message_looks,
    message_page,
    overview_looks,
    overview_page,
    recording_page,
    resource_looks,
    resource_page,
)
from fathom.page.resource_view import resource_view
from fathom.tuning.estimate.acceptance_by_context import Contexts
from support.page_states import bench
from support.page_subjects import HOSTILE, hostile, lived, troubled

SUBJECT, NOW_S = lived()
PAGE = resource_page(resource_view(SUBJECT, NOW_S), home=True)
SAVED = resource_page(resource_view(SUBJECT, NOW_S), home=False)
MESSAGE = message_page("Not found", "There is none.")
OVERVIEW = overview_page(overview_of([(SUBJECT.key, SUBJECT.status)], NOW_S), NOW_S)
STRANGE = hostile()
HARMFUL = {
    "resource": resource_page(resource_view(STRANGE, NOW_S), home=True),
    "overview": overview_page(overview_of([(STRANGE.key, STRANGE.status)], NOW_S), NOW_S),
    "recording": recording_page(resource_view(STRANGE, NOW_S)),
    "message": message_page(HOSTILE, HOSTILE),
}


class _Tags(HTMLParser):
    """Every element with its attributes, and the text of each style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inline: dict[str, list[str]] = {"style": [], "script": []}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and (tag := self.elements[-1][0]) in self.inline and data.strip():
            kind = self.elements[-1][1].get("type", "")
            if kind != "application/json" and self.cdata_elem:
                self.inline[tag].append(data)


@pytest.mark.parametrize("page", HARMFUL.values(), ids=HARMFUL.keys())
def test_names_and_messages_of_a_cluster_stay_text(page: str) -> None:
    tags = _Tags(page)
    assert "&lt;script&gt;alert" in page
    assert not [tag for tag, _ in tags.elements if tag == "img"]
    assert not [text for text in tags.inline["script"] if "alert" in text]
    assert not [name for _, found in tags.elements for name in found if name.startswith("on")]


def test_a_strange_name_in_a_link_stays_one_path() -> None:
    (href,) = re.findall(r'href="(/resources/[^"]*)"', HARMFUL["overview"])
    assert re.fullmatch(r"/resources/[\w%./-]*", href)


@pytest.mark.parametrize(
    ("page", "policy", "scripts"),
    [
        (PAGE, resource_looks(live=True).policy, 3),
        (SAVED, resource_looks(live=False).policy, 2),
        (OVERVIEW, overview_looks().policy, 2),
        (MESSAGE, message_looks().policy, 0),
    ],
)
def test_only_what_the_policy_names_runs(page: str, policy: str, scripts: int) -> None:
    tags = _Tags(page)
    for text in (*tags.inline["style"], *tags.inline["script"]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(tags.inline["script"]) == scripts
    assert "unsafe" not in policy
    (meta,) = [found for tag, found in tags.elements if found.get("http-equiv")]
    assert meta["content"] == policy
    assert not [found for _, found in tags.elements if "style" in found]


def test_what_is_served_asks_its_own_address_again_and_a_file_asks_none() -> None:
    assert "connect-src 'self';" in resource_looks(live=True).policy
    assert "connect-src" not in resource_looks(live=False).policy
    assert "a file does not refresh" in SAVED
    assert 'id="pause"' not in SAVED


@pytest.mark.parametrize("page", [PAGE, OVERVIEW])
def test_nothing_comes_from_elsewhere(page: str) -> None:
    tags = _Tags(page)
    assert not [found for _, found in tags.elements if "src" in found or "srcset" in found]
    links = {found["href"] for _, found in tags.elements if "href" in found}
    assert all(each and each.startswith(("/", "#", "data:,")) for each in links)
    assert "url(" not in "".join(tags.inline["style"])
    assert "@import" not in "".join(tags.inline["style"])


def test_a_file_has_no_way_to_a_list_that_is_not_there() -> None:
    assert 'href="/"' in PAGE
    assert 'href="/"' not in SAVED


def test_the_page_of_a_full_history_is_small() -> None:
    points = SUBJECT.history.points if SUBJECT.history else ()
    assert MOST_POINTS / 3 < len(points) <= MOST_POINTS
    assert len(PAGE.encode()) < 60 * 1024 * len(points) / MOST_POINTS + 100 * 1024


def test_the_charts_data_is_what_the_view_has() -> None:
    view = resource_view(SUBJECT, NOW_S)
    data = json.loads(re.findall(r'id="history">(.*?)</script>', PAGE)[0])

    assert data["tokens_per_second"] == list(view.charts.tokens_per_second)
    assert [each["batches"] for each in data["depths"]] == [e.batches for e in view.charts.depths]
    assert len(data["at_s"]) == len(data["depths"][0]["depths"]) == len(view.charts.at_s)


def test_alarms_stand_on_the_page() -> None:
    page = resource_page(resource_view(troubled(SUBJECT), NOW_S), home=True)
    text = " ".join(re.sub(r"<[^>]*>", "", page).split())
    assert "Far fewer drafts are accepted than before Still so for 45 min now, since 2023-" in text
    assert "What to do: Correct spec.engine.image, push the image" in text
    assert "kimi is not well." in page
    assert "kimi is well." in PAGE
    assert 'id="notices"' not in PAGE


def test_a_file_without_a_history_says_so_and_brings_no_script() -> None:
    page = resource_page(resource_view(replace(SUBJECT, history=None), NOW_S), home=False)
    assert "No charts: a cluster keeps no history" in page
    assert "<code>fathom record</code>" in page
    assert "<script" not in page


def test_two_resources_of_one_name_are_two_rows() -> None:
    found = [(ObjectKey("a", "x"), SUBJECT.status), (ObjectKey("b", "x"), SUBJECT.status)]
    page = overview_page(overview_of(found, NOW_S), NOW_S)
    assert 'href="/resources/a/x"' in page
    assert 'href="/resources/b/x"' in page


def test_the_last_bench_is_shown_row_by_row_and_says_what_was_not_measured() -> None:
    found = bench().model_copy(update={"image": HOSTILE})
    page = resource_page(resource_view(replace(SUBJECT, bench=found), NOW_S), home=False)

    cells = re.findall(r"<td>([^<]*)</td>", page.partition('id="bench"')[2])[:8]
    assert cells == [
        *("1024", "4", "3", "1,181.8", "300.0", "3.881 ±0.032", "4.34×", "not measured"),
    ]
    assert "true off: the engine did not start." in page
    assert HOSTILE not in page
    assert "The last bench" not in PAGE


def test_acceptance_by_context_is_shown_range_by_range() -> None:
    part = PAGE.partition('id="contexts"')[2].partition("</section>")[0]
    rows = re.findall(r'<th scope="row">([^<]*)</th>((?:<td>[^<]*</td>)+)', part)

    shares = {context: re.findall(r"<td>([^<]*)</td>", cells)[0] for context, cells in rows}
    assert shares == {"2k-4k": "80%", "32k-64k": "20%"}
    first = [float(re.findall(r"<td>(\d+)%</td>", cells)[1]) for _, cells in rows]
    assert first[1] == pytest.approx(first[0] / 2, abs=2)


def test_where_contexts_are_not_known_there_is_no_such_part() -> None:
    older = replace(SUBJECT, state=replace(SUBJECT.state, contexts=Contexts()))
    assert "by context" not in resource_page(resource_view(older, NOW_S), home=True)
