"""How many events leave in an hour."""

from fathom.cluster.events import AN_HOUR, HOUR_S, Event, EventPace, Severity

START_S = 1_800_000_000.0


def event(reason: str = "ReplicasNotReady") -> Event:
    return Event(Severity.WARNING, reason, "1 of 2 replicas are ready.")


def test_of_one_reason_no_hour_has_more_and_other_reasons_are_told() -> None:
    pace, posted = EventPace(), []
    for step in range(3 * 360):
        now_s = START_S + 10 * step
        pace, let = pace.let_through([event()], now_s)
        posted += [now_s] * len(let)
        if step % 100 == 0:
            pace, let = pace.let_through([event("Promoted")], now_s)
            assert let == (event("Promoted"),)
    assert posted[AN_HOUR - 1] == START_S + 10 * (AN_HOUR - 1)
    assert all(sum(0 <= each - at_s < HOUR_S for each in posted) <= AN_HOUR for at_s in posted)
    assert len(posted) == 3 * AN_HOUR


def test_the_next_one_says_how_many_were_not_told() -> None:
    pace, let = EventPace().let_through([event()] * (AN_HOUR + 3), START_S)
    assert len(let) == AN_HOUR
    pace, (later,) = pace.let_through([event()], START_S + HOUR_S)
    assert later.message == (
        "1 of 2 replicas are ready. (3 more events ReplicasNotReady before it: at most 20 an hour.)"
    )
    assert pace.let_through([event()], START_S + HOUR_S)[1] == (event(),)


def test_a_clock_that_is_set_back_keeps_nothing_back() -> None:
    pace, _ = EventPace().let_through([event()] * AN_HOUR, START_S)
    assert pace.let_through([event()], START_S - 7200)[1] == (event(),)
