"""What the cluster serves is asked for rarely, and anew when somebody may have installed more."""

from fathom.core.kinds import POD_MONITOR
from fathom.core.served import ServedApis
from fathom.runtime.served_cache import REFRESH_S, ServedCache
from support.bench import ManualClock
from support.fake_kube import FakeKube


async def test_what_was_installed_meanwhile_is_seen_ten_minutes_later() -> None:
    kube, clock = FakeKube(), ManualClock()
    cache = ServedCache(kube, clock)
    before = await cache.get()
    kube._served = ServedApis(frozenset({(POD_MONITOR.api_version, POD_MONITOR.kind)}))
    clock.at_s += REFRESH_S - 1
    assert await cache.get() is before
    clock.at_s += 1
    assert (await cache.get()).has(POD_MONITOR)
