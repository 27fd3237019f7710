"""Windows of the same minute for both sides."""

from fathom.measurement.counters import EngineCounts, PodCounters
from fathom.rollout.canary_evidence import CanaryWindows, window_length_s
from fathom.rollout.input import CanaryWindow


def counters(at_s: float, *pods: str, scraped_s: float | None = None) -> dict[str, PodCounters]:
    """Pods that generate one token a second."""
    sampled_s = at_s if scraped_s is None else scraped_s
    return {
        pod: PodCounters(
            pod=pod,
            at_s=sampled_s,
            started_at_s=1,
            engine=EngineCounts(generation_tokens=sampled_s),
            live_depth=True,
            depth_generation=1,
        )
        for pod in pods
    }


class Cutting:
    """Windows, one look after the other."""

    def __init__(self) -> None:
        self.windows = CanaryWindows()

    def next(
        self, canary: set[str], stable: set[str], found: dict[str, PodCounters], now_s: float
    ) -> CanaryWindow | None:
        self.windows, window = self.windows.next(canary, stable, found, now_s, 60)
        return window


def test_a_window_holds_what_both_sides_counted_in_it() -> None:
    windows = Cutting()
    assert windows.next({"c"}, {"a", "b"}, counters(100, "a", "b", "c"), 100) is None
    assert windows.next({"c"}, {"a", "b"}, counters(130, "a", "b", "c"), 130) is None
    window = windows.next({"c"}, {"a", "b"}, counters(160, "a", "b", "c"), 160)
    assert window is not None
    assert [each.pod for each in (*window.canary, *window.stable)] == ["c", "a", "b"]
    assert {each.engine.generation_tokens for each in window.stable} == {60}
    # The next one begins where this one ended.
    assert windows.next({"c"}, {"a"}, counters(200, "a", "c"), 200) is None


def test_a_slow_scrape_lengthens_the_window_and_a_lost_pod_ends_it_empty() -> None:
    windows = Cutting()
    windows.next({"c"}, {"a"}, counters(100, "a", "c"), 100)
    stale = counters(160, "a", "c", scraped_s=100)
    for now_s in (160, 220, 279):
        assert windows.next({"c"}, {"a"}, stale, now_s) is None
    window = windows.next({"c"}, {"a"}, counters(280, "a"), 280)
    assert window is not None
    assert window.canary == ()
    assert len(window.stable) == 1


def test_without_a_canary_nothing_is_counted_towards_one() -> None:
    windows = Cutting()
    windows.next(set(), {"a"}, counters(100, "a"), 100)
    windows.next(set(), {"a"}, counters(200, "a"), 200)
    assert windows.next({"c"}, {"a"}, counters(230, "a", "c"), 230) is None


def test_a_moment_without_the_others_costs_no_window_and_a_long_one_ends_it_empty() -> None:
    """As while they are not ready, or a person holds them at a depth."""
    windows = Cutting()
    windows.next({"c"}, {"a"}, counters(100, "a", "c"), 100)
    assert windows.next({"c"}, set(), counters(130, "a", "c"), 130) is None
    whole = windows.next({"c"}, {"a"}, counters(160, "a", "c"), 160)
    assert whole is not None
    assert len(whole.stable) == 1
    for now_s in (220, 280, 339):
        assert windows.next({"c"}, set(), counters(now_s, "a", "c"), now_s) is None
    alone = windows.next({"c"}, set(), counters(340, "a", "c"), 340)
    assert alone is not None
    assert (len(alone.canary), alone.stable) == (1, ())


def test_short_bakes_have_short_windows() -> None:
    assert window_length_s(1200) == 60
    assert window_length_s(120) == 6
    assert window_length_s(10) == 5
