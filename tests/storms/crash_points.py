"""Scenarios that are cut off at each of their writes in turn."""

from typing import Final

from storms.deeds import IMAGES
from storms.history import Deed, History, Scenario
from storms.hub import BAD_DRAFT, OTHER_DRAFT


def _history(
    *deeds: tuple[float, str, dict[str, object]], replicas: int = 2, cached: bool = False
) -> History:
    scenario = Scenario(replicas=replicas, nodes=replicas + 1, load=0, cached=cached)
    return History(0, scenario, tuple(Deed(*each) for each in deeds))


CRASHES: Final = {
    "starts": _history(),
    "another draft": _history((120.0, "user sets the draft", {"draft": OTHER_DRAFT})),
    "a draft that is refused": _history(
        (120.0, "user sets the draft", {"draft": BAD_DRAFT}),
        (300.0, "user scales", {"replicas": 3}),
    ),
    "an image that crashes": _history(
        (100.0, "image crashes", {"image": IMAGES[1], "for_s": 400.0}),
        (120.0, "user sets the image", {"image": IMAGES[1]}),
    ),
    "scaled and set": _history(
        (120.0, "user scales", {"replicas": 3}),
        (160.0, "user sets tokens", {"tokens": 7}),
        (240.0, "user scales", {"replicas": 1}),
    ),
    "a draft is trained": _history(
        (
            120.0,
            "a draft is trained",
            {"ends": "well", "intake": "refused", "then": "", "stale": False, "for_s": 150.0},
        ),
        replicas=1,
        cached=True,
    ),
    "made again": _history((120.0, "user deletes and creates again", {"after_s": 5.0})),
}
