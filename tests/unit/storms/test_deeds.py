"""Deeds by themselves: what they name is there, and what they change they change back."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from storms.cluster import Image
from storms.deeds import SPOIL_METRICS
from storms.simulated_deeds import DEEDS, FIGHTS, HINDERS
from storms.simulated_time import SimulatedLoop, run

if TYPE_CHECKING:
    from storms.storm import Storm


def test_every_deed_that_is_named_can_be_drawn() -> None:
    assert DEEDS.keys() >= SPOIL_METRICS | FIGHTS | HINDERS


def test_an_image_that_two_deeds_make_crash_is_good_once_both_are_over() -> None:
    image, seen = Image(), list[bool]()
    cluster = SimpleNamespace(image=lambda _: image, disturbed=lambda: None)
    storm = cast("Storm", SimpleNamespace(cluster=cluster, spec=dict))

    async def both(_: SimulatedLoop) -> None:
        crashing = DEEDS["image crashes"].do
        first = asyncio.create_task(crashing(storm, {"image": "one", "for_s": 100.0}))
        await asyncio.sleep(50.0)
        second = asyncio.create_task(crashing(storm, {"image": "one", "for_s": 100.0}))
        await first
        seen.append(image.crashes)
        await second
        seen.append(image.crashes)

    run(both)
    assert seen == [True, False]
