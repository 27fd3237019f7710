"""What the cluster serves is asked for rarely, and anew when somebody may have installed more."""

from fathom.cluster.kinds import LEADER_WORKER_SET, POD_MONITOR, Kind, ServedApis
from fathom.runtime.caches import REFRESH_S, SERVED_RETRY_S, ServedCache
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock


async def test_what_was_installed_meanwhile_is_seen_ten_minutes_later() -> None:
    kube, clock = FakeKube(), ManualClock()
    cache = ServedCache(kube, clock)
    before = await cache.get()
    kube._served = ServedApis(kinds=frozenset({(POD_MONITOR.api_version, POD_MONITOR.kind)}))
    clock.at_s += REFRESH_S - 1
    assert await cache.get() is before
    clock.at_s += 1
    assert (await cache.get()).has(POD_MONITOR)


async def test_a_clock_that_is_set_back_makes_it_ask_again() -> None:
    kube, clock = FakeKube(), ManualClock()
    cache = ServedCache(kube, clock)
    before = await cache.get()
    kube._served = ServedApis(kinds=frozenset({(POD_MONITOR.api_version, POD_MONITOR.kind)}))
    clock.at_s -= 3600
    assert await cache.get() is not before


def serving(*kinds: Kind, unknown: Kind | None = None) -> ServedApis:
    return ServedApis(
        kinds=frozenset((kind.api_version, kind.kind) for kind in kinds),
        version=None if unknown else (1, 36),
        unknown=frozenset({unknown.api_version, "version"} if unknown else ()),
    )


async def test_what_the_server_cannot_show_just_now_is_as_it_was() -> None:
    kube, clock = FakeKube(serving(POD_MONITOR, LEADER_WORKER_SET)), ManualClock()
    cache = ServedCache(kube, clock)
    await cache.get()
    kube._served = serving(unknown=LEADER_WORKER_SET)
    clock.at_s += REFRESH_S
    found = await cache.get()
    assert found.has(LEADER_WORKER_SET)
    assert found.since((1, 36))
    # Nobody has said that this one is still there.
    assert not found.has(POD_MONITOR)

    kube._served = serving()
    clock.at_s += SERVED_RETRY_S - 1
    assert (await cache.get()).has(LEADER_WORKER_SET)
    clock.at_s += 1
    assert not (await cache.get()).has(LEADER_WORKER_SET)


async def test_what_was_never_shown_is_asked_for_again_soon() -> None:
    kube, clock = FakeKube(serving(unknown=LEADER_WORKER_SET)), ManualClock()
    cache = ServedCache(kube, clock)
    assert not (await cache.get()).has(LEADER_WORKER_SET)
    kube._served = serving(LEADER_WORKER_SET)
    clock.at_s += SERVED_RETRY_S
    assert (await cache.get()).has(LEADER_WORKER_SET)
