"""A history: how the world is at first, and what happens in it, when. A seed is one history."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

FAULTS_END_S: Final = 1200.0
"""No deed begins later."""
MOST_DEEDS: Final = 9
FEW_DEEDS: Final = 4
"""Where a canary bakes for long, so that some bake undisturbed."""
MOST_REPLICAS: Final = 4
"""Replicas of the resource, scaled as a user may: there is capacity for them, and for a surge."""


BUILDS: Final = 3
"""Builds of the operator: `storms.operator_process` says what they are."""
GROUPS_EACH: Final = 10
"""In every so many histories a replica spans two nodes."""
SHARED_REST: Final = 5
"""The one of as many in which others use the cluster too, and its servers keep what they like."""
LONG_BAKE_MINUTES: Final = 20
"""The CRD's own default."""
OLDER_CRDS: Final = ("drops", "refuses")
"""What API servers do with fields unknown to a CRD: before Kubernetes 1.36, and from then on."""
_LATER: Final = ("shared", "cached", "fills_in", "older_crd")
"""Fields that histories written down before they came do not have, nor need."""


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that somebody or something does."""

    at_s: float
    what: str
    with_: Mapping[str, Any]

    @property
    def over_at_s(self) -> float:
        """When its effect ends, as far as it is not the operator's to end it."""
        return self.at_s + float(self.with_.get("for_s", 0.0))

    def __str__(self) -> str:
        with_ = " ".join(f"{key}={value}" for key, value in self.with_.items())
        return f"{self.at_s:7.1f} s  {self.what} {with_}".rstrip()


@dataclass(frozen=True, slots=True)
class Scenario:
    """What there is before anything happens."""

    replicas: int = 2
    max_unavailable: int = 1
    max_surge: int = 0
    canary_minutes: int = 1
    mode: str = "Auto"
    operators: int = 1
    nodes: int = 4
    load: int = 4
    draft: str = "acme/draft"
    hub_takes_s: float = 1.0
    prometheus: bool = False
    latency_s: float = 0.01
    """From the operator to the API server, and back again."""
    build: int = 0
    """The operator's, at first."""
    groups: bool = False
    """Whether a replica spans two nodes."""
    apart: bool = False
    """Whether another namespace has a resource of the same name, and an operator of its own."""
    shared: bool = False
    """Whether others use the cluster too: with quotas, benches and field managers of their own."""
    cached: bool = False
    """Whether pods load weights that a Job has fetched."""
    fills_in: bool = False
    """Whether the API server adds its defaults to what it keeps."""
    older_crd: str = ""
    """What the API server does with fields that its CRD does not know: one of `OLDER_CRDS`;
    empty: it knows all."""

    @property
    def bakes_long(self) -> bool:
        """Whether canaries bake for as long as they do by default."""
        return self.canary_minutes >= LONG_BAKE_MINUTES


@dataclass(frozen=True, slots=True)
class History:
    seed: int
    scenario: Scenario
    deeds: tuple[Deed, ...]

    @property
    def calm_at_s(self) -> float:
        """When the last fault is over."""
        return max((deed.over_at_s for deed in self.deeds), default=0.0)

    def without(self, gone: frozenset[int]) -> Self:
        """Less the deeds with these indices."""
        return replace(
            self, deeds=tuple(each for index, each in enumerate(self.deeds) if index not in gone)
        )

    def to_json(self) -> str:
        """One line per deed, to be kept beside the tests."""
        deeds = ",\n  ".join(
            json.dumps([deed.at_s, deed.what, dict(deed.with_)]) for deed in self.deeds
        )
        given = asdict(self.scenario)
        scenario = json.dumps({key: given[key] for key in given if given[key] or key not in _LATER})
        return f'{{"seed": {self.seed},\n "scenario": {scenario},\n "deeds": [\n  {deeds}\n ]}}\n'

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        document = json.loads(text)
        deeds = tuple(Deed(at_s, what, with_) for at_s, what, with_ in document["deeds"])
        return cls(document["seed"], Scenario(**document["scenario"]), deeds)


def drawn(seed: int) -> History:
    """The history of a seed."""
    from storms.simulated_deeds import DEEDS

    chance = random.Random(f"storm-{seed}")
    replicas = chance.choice((1, 2, 2, 3))
    max_surge = chance.choice((0, 0, 1))
    scenario = Scenario(
        replicas=replicas,
        max_unavailable=0 if max_surge and chance.random() < 0.5 else 1,
        max_surge=max_surge,
        canary_minutes=chance.choice((0, 1, 2)),
        mode=chance.choice(("Auto", "Auto", "Advise")),
        operators=chance.choice((1, 1, 2)),
        nodes=MOST_REPLICAS + 2,
        load=chance.choice((0, 2, 6)),
        hub_takes_s=chance.choice((0.2, 2.0, 10.0)),
        prometheus=chance.random() < 0.3,
        latency_s=chance.choice((0.01, 0.01, 0.3)),
        build=seed % BUILDS,
        groups=seed % GROUPS_EACH == 0,
        apart=seed % 8 == 0,
    )
    if seed % GROUPS_EACH == SHARED_REST:
        scenario = _shared(scenario, chance)
    names = sorted(name for name in DEEDS if DEEDS[name].happens_in(scenario))
    weights = [DEEDS[name].weight for name in names]
    deeds = []
    for _ in range(chance.randint(2, FEW_DEEDS if scenario.bakes_long else MOST_DEEDS)):
        (what,) = chance.choices(names, weights)
        at_s = round(chance.uniform(0, FAULTS_END_S), 1)
        deeds.append(Deed(at_s, what, DEEDS[what].draw(chance, scenario)))
    return History(seed, scenario, tuple(sorted(deeds, key=lambda deed: deed.at_s)))


def _shared(scenario: Scenario, chance: random.Random) -> Scenario:
    """The same, in a cluster that others use too. Groups bake for a short time: they cost most."""
    groups = chance.random() < 0.1
    long = not groups and chance.random() < 0.3
    return replace(
        scenario,
        shared=True,
        groups=groups,
        cached=chance.random() < 0.5,
        fills_in=chance.random() < 0.7,
        older_crd=chance.choice(("", "", *OLDER_CRDS)),
        canary_minutes=LONG_BAKE_MINUTES if long else scenario.canary_minutes,
    )
