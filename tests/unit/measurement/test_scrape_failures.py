from fathom.measurement.counters import FORGOTTEN_AFTER_S, Unread, UnreadPods

LATE = "no answer within 5 s"
PODS = frozenset("abcdefg")


def looked(*looks: dict[str, str], every_s: float = 10.0, pods: frozenset[str] = PODS) -> list[str]:
    """The sentence after each look, which fails for these pods for these causes."""
    unread, told = UnreadPods(), []
    for i, failures in enumerate(looks):
        found = [Unread(pod, cause) for pod, cause in failures.items()]
        unread = unread.after(found, pods, i * every_s)
        told.append(unread.sentence)
    return told


def test_one_failure_is_an_accident_and_two_are_told() -> None:
    assert looked({"a": LATE}, {"a": LATE}) == ["", f"Metrics not read: a ({LATE})."]


def test_pods_are_sorted_under_their_cause_and_beyond_three_counted() -> None:
    failures = dict.fromkeys("gfedcb", LATE) | {"a": "it answers with HTTP status 503"}

    assert looked(failures, failures)[-1] == (
        "Metrics not read: a (it answers with HTTP status 503); "
        "b, c, d and 3 more (no answer within 5 s)."
    )


def test_causes_beyond_three_are_counted() -> None:
    failures = {pod: f"cause {pod}" for pod in "edcba"}

    assert looked(failures, failures)[-1] == (
        "Metrics not read: a (cause a); b (cause b); c (cause c); others for 2 more reasons."
    )


def test_a_pod_that_fails_at_every_other_look_is_told_in_the_same_words() -> None:
    told = looked(*[{"a": LATE}, {}] * 10)

    assert set(told[2:]) == {f"Metrics not read: a ({LATE})."}


def test_causes_that_take_turns_are_both_told() -> None:
    told = looked(*[{"a": LATE}, {"a": "it closed the connection"}] * 10)

    assert set(told[3:]) == {f"Metrics not read: a (it closed the connection); a ({LATE})."}


def test_what_was_read_for_minutes_is_forgotten() -> None:
    looks = int(FORGOTTEN_AFTER_S / 10)
    told = looked({"a": LATE}, {"a": LATE}, *[{}] * looks)

    assert told[-2] != ""
    assert told[-1] == ""


def test_rare_accidents_are_never_told() -> None:
    told = looked(*[{"a": LATE}, {}] * 10, every_s=FORGOTTEN_AFTER_S)

    assert set(told) == {""}


def test_a_pod_that_is_gone_is_not_told_any_more() -> None:
    unread = UnreadPods().after([Unread("a", LATE)], {"a"}, 0).after([Unread("a", LATE)], {"a"}, 1)

    assert unread.sentence
    assert unread.after([], {"b"}, 2).sentence == ""
