"""All resources at a glance: as their status has it, what needs a look first."""

from fathom.api.conditions import AlarmKind, ConditionType, title_of
from fathom.api.status import SpeculativeDeploymentStatus
from fathom.cluster.kinds import ObjectKey
from fathom.health import UNWATCHED_S, Headline
from fathom.page.overview import MOST_ROWS, Health, health_in, overview_of
from fathom.page.rendering import overview_page
from fathom.times import rfc3339
from support.page_subjects import condition, lived, troubled
from support.work import work_of
from unit.tuning.plant import START_S

READY = condition(ConditionType.READY, "AllReplicasReady")
WELL = SpeculativeDeploymentStatus(conditions=(READY,))
ILL = SpeculativeDeploymentStatus(
    conditions=(condition(ConditionType.DEGRADED, "ImageUnavailable"),)
)


def test_a_row_is_what_the_status_says() -> None:
    subject, now_s = lived()
    status = subject.status
    (row,) = overview_of([(subject.key, status)], now_s).rows

    assert (row.namespace, row.name, row.ready) == ("llm", "kimi", "2/2")
    assert row.depth == status.depth.summary != ""
    assert row.speed == f"{status.measured.tokens_per_second:,}" != "0"
    assert row.gain == f"+{status.measured.gain_percent} %"
    assert f"Auto/{row.tuning_reason}" == status.tuning.summary
    assert row.tuning == title_of(row.tuning_reason) != row.tuning_reason
    assert (row.health, row.notices, row.cause) == (Health.WELL, (), "")


def test_numbers_of_the_past_are_not_those_of_the_present() -> None:
    subject, now_s = lived()
    idle = condition(ConditionType.TUNING, "NoTraffic")
    for status, at_s in (
        (subject.status, now_s + 3600),
        (subject.status.model_copy(update={"conditions": (READY, idle)}), now_s),
    ):
        (row,) = overview_of([(subject.key, status)], at_s).rows
        assert (row.speed, row.gain) == ("–", "–")
        assert row.depth == status.depth.summary


def test_what_is_not_known_is_a_dash_and_not_zero() -> None:
    (row,) = overview_of([(ObjectKey("a", "b"), WELL)], START_S).rows
    assert {row.ready, row.depth, row.speed, row.gain, row.tuning} == {"–"}


def test_alarms_and_degraded_are_told_and_conditions_that_are_as_they_should_be_are_not() -> None:
    subject, _ = lived()
    (row,) = overview_of([(subject.key, troubled(subject).status)], START_S).rows
    assert [(each.code, each.cause) for each in row.notices] == [
        ("Degraded/ImageUnavailable", "pod kimi-1: no such image."),
        ("DraftMismatch/AcceptanceCliff", "acceptance fell to 1.1."),
    ]
    # The headline's cause is among them: nothing twice.
    assert (row.health, row.cause) == (Health.NOT_WELL, "")
    over = condition(AlarmKind.DRAFT_MISMATCH, "AcceptanceCliff", holds=False)
    status = SpeculativeDeploymentStatus(conditions=(READY, over))
    assert overview_of([(subject.key, status)], START_S).troubled == 0


def test_every_verdict_has_a_health() -> None:
    assert {health_in(each).name for each in Headline} == {each.name for each in Health}


def test_what_happens_to_one_that_is_changing_is_said_and_is_no_trouble() -> None:
    progressing = condition(ConditionType.PROGRESSING, "Starting", "the engines are starting.")
    status = SpeculativeDeploymentStatus(conditions=(progressing,))
    overview = overview_of([(ObjectKey("a", "b"), status)], START_S)

    (row,) = overview.rows
    (notice,) = row.notices
    assert (row.health, notice.health) == (Health.UNDER_WAY, Health.UNDER_WAY)
    assert (notice.cause, row.cause) == ("the engines are starting.", "")
    assert (overview.troubled, overview.counts) == (0, ((Health.UNDER_WAY, 1),))


def test_one_that_nobody_watches_needs_a_look() -> None:
    since = rfc3339(START_S)
    found = [(ObjectKey("a", "b"), WELL.model_copy(update={"last_reconcile_time": since}))]
    soon, late = (
        overview_of(found, START_S + after_s) for after_s in (UNWATCHED_S, UNWATCHED_S + 1)
    )

    assert (soon.troubled, late.troubled) == (0, 1)
    (notice,) = late.rows[0].notices
    assert (notice.code, notice.since) == ("Unwatched", since)
    assert late.rows[0].health is Health.UNKNOWN


def test_what_needs_a_look_comes_first_then_names_in_order() -> None:
    found = [(ObjectKey("b", "x"), WELL), (ObjectKey("c", "x"), ILL), (ObjectKey("a", "y"), WELL)]
    overview = overview_of(found, START_S)

    assert [each.namespace for each in overview.rows] == ["c", "a", "b"]
    assert (overview.resources, overview.troubled, overview.pages) == (3, 1, 1)


def test_a_page_has_an_end_and_the_rest_is_on_the_next() -> None:
    found = [(ObjectKey("a", f"x{number:04}"), WELL) for number in range(MOST_ROWS + 1)]
    first, last, beyond = (overview_of(found, START_S, number) for number in (1, 2, 99))

    assert (len(first.rows), first.number, first.pages) == (MOST_ROWS, 1, 2)
    assert [each.name for each in last.rows] == [f"x{MOST_ROWS}"]
    assert beyond == last


def test_a_thousand_resources_are_a_small_page_and_little_work() -> None:
    subject, now_s = lived()
    found = [
        (ObjectKey(f"namespace-{number % 20}", f"some-model-{number:04}"), subject.status)
        for number in range(MOST_ROWS)
    ]
    page = overview_page(overview_of(found, START_S), now_s)
    work = work_of(lambda: overview_page(overview_of(found, START_S), now_s))

    assert page.count("<tr>") == MOST_ROWS + 1
    assert len(page.encode()) < 350 * 1024
    # Some 200 for a row.
    assert work.calls < 600 * MOST_ROWS
    assert work.bytes_at_most < 8 << 20


def test_no_resource_is_no_table() -> None:
    page = overview_page(overview_of([], START_S), START_S)
    assert "<table" not in page
    assert "This operator manages no SpeculativeDeployment yet." in page
