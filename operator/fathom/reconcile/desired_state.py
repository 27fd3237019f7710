"""Which spec and which revision one pass brings about, as far as the rollout has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fathom.cluster.events import Event
from fathom.cluster.snapshot import Objects
from fathom.engine.profile import StartedAs
from fathom.engine.start import number_in_tag
from fathom.fetch.state import NOT_WANTED, FetchStanding
from fathom.reconcile.annotations import QualityStep
from fathom.reconcile.checkpoint import Checkpoint
from fathom.reconcile.holding import Hold, started_as
from fathom.reconcile.renderings import Offer
from fathom.reconcile.variant import Arm
from fathom.resource import SpeculativeDeployment
from fathom.rollout.canary_evidence import CanaryWindows
from fathom.rollout.revision import revision_of
from fathom.rollout.rollout import Rollout, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What one pass brings about: which spec, in which revision, and what that needs."""

    sd: SpeculativeDeployment
    """The spec in force: the one asked for, or, while that one is vetoed, the stable one."""
    revision: str
    """Revision of `sd`."""
    stable: SpeculativeDeployment | None
    """What most replicas still are, while another revision is on trial; None: `sd`."""
    checkpoint: Checkpoint
    """What should survive a restart."""
    events: tuple[Event, ...]
    following: Mapping[str, bool]
    """Whether the pods of each revision that has a workload read the depth document."""
    windows: CanaryWindows = field(default_factory=CanaryWindows)
    """What a canary and the others count from now on."""
    held: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Depth that a quality check holds some pods at."""
    wake_after_s: float = float("inf")
    """Seconds after which it wants to be looked at again at the latest."""
    arm: Arm | None = None
    """What the spec wants compared with all other replicas; None: nothing."""
    weights: FetchStanding = NOT_WANTED
    """Where the fetch stands that the newest spec wants."""
    hold: Hold | None = None
    """Why nothing new starts for now; None: it may."""
    paused: str = ""
    """The sentence that says who paused the resource, and why; empty: it is not."""
    offer: Offer | None = None
    """What another build rendered, and this one would otherwise; None: nothing."""

    def with_quality(self, step: QualityStep) -> "DesiredState":
        """With what a quality check needs for its next step."""
        return replace(
            self,
            checkpoint=replace(self.checkpoint, quality=step.kept),
            events=(*self.events, *step.events),
            held=step.holds,
            wake_after_s=min(self.wake_after_s, step.wake_after_s),
        )

    @property
    def made_from(self) -> SpeculativeDeployment:
        """What pods of `revision` are made from: `sd`, as the Fathom read it that began with them.

        They may be gone, and have been ready before: they come back as they were.
        """
        ready_before = self.checkpoint.good_revision == self.revision
        live = self.following.get(self.revision, ready_before)
        return read_by_its_tag(self.sd, self.revision) if live else self.sd

    @property
    def tuned(self) -> SpeculativeDeployment:
        """By which depth is tuned: the stable one, while a revision without live depth is on trial.

        Otherwise the one asked for, whose live fields hold at once: mode Static among them, which
        asks for rest.
        """
        fleet = self.fleet
        if self.stable is not None and fleet.spec.tunable and not fleet.engine.live:
            return self.stable
        return fleet

    @property
    def on_trial(self) -> bool:
        """Whether a revision is on trial that may become that of all replicas."""
        return self.stable is not None and self.fleet is self.sd

    @property
    def baking(self) -> bool:
        """Whether a canary is ready, and compared with the others."""
        return self.on_trial and self.rollout is not None and self.rollout.served

    @property
    def fleet(self) -> SpeculativeDeployment:
        """What the replicas are to be: the spec in force, but for one that is only compared."""
        comparing = self.rollout is not None and self.rollout.arm
        return self.stable if comparing and self.stable is not None else self.sd

    @property
    def rollout(self) -> Rollout | None:
        return self.checkpoint.rollout

    @property
    def frozen(self) -> bool:
        """Whether nothing moves between revisions, whatever the spec says."""
        return bool(self.paused) or (self.hold is not None and self.hold.frozen)

    @property
    def most_new(self) -> int | None:
        """Replicas that `revision` may have for now; None: all."""
        if self.rollout is None:
            return None
        if self.rollout.stage is Stage.ROLLED_BACK and self.revision != self.rollout.stable:
            # This Fathom cannot read the stable spec. What is vetoed gets nothing anyway.
            return 0
        return self.rollout.most_new

    @property
    def tuned_revision(self) -> str:
        """The revision whose pods the tuner judges by: most replicas."""
        trial = self.rollout is not None and self.rollout.on_trial
        return self.rollout.stable if self.rollout is not None and trial else self.revision

    @property
    def followed(self) -> bool:
        """Whether the pods that depth is tuned by follow the document, tuned at present or not."""
        own = self.tuned_revision == self.revision
        sd = self.made_from if own else self.tuned
        return follows(self.following, self.tuned_revision, sd)

    @property
    def live(self) -> bool:
        """Whether the depth of those pods can be changed live."""
        return self.tuned.spec.tunable and self.followed

    @property
    def read(self) -> bool:
        """Whether any pod reads the depth document, or mounts it when it starts."""
        return any(self.following.values()) or self.made_from.engine.live


def read_by_its_tag(sd: SpeculativeDeployment, revision: str) -> SpeculativeDeployment:
    """With the number in the image's tag as vLLM's version, if the revision's name is of that.

    An earlier Fathom took any tag for it. Pods that became ready so have shown that it was right;
    for those of another revision nobody guesses.
    """
    number = number_in_tag(sd.spec.engine.image)
    if number is None or sd.spec.engine.version or sd.engine.live:
        return sd
    engine = sd.spec.engine.model_copy(update={"version": str(number)})
    read = sd.with_spec(sd.spec.model_copy(update={"engine": engine}))
    return read if read.engine.live and revision_of(read) == revision else sd


def following_of(objects: Objects) -> Mapping[str, bool]:
    """Which workloads' pods read the depth document. With the plugin alone they only count."""
    started = started_as(objects)
    return MappingProxyType({each: form is StartedAs.LIVE for each, form in started.items()})


def follows(following: Mapping[str, bool], revision: str, sd: SpeculativeDeployment) -> bool:
    """Whether the pods of a revision follow the depth document.

    How they were started says so, where any were: another Fathom may have judged their spec
    otherwise.
    """
    return following.get(revision, sd.engine.live)
