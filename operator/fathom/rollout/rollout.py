"""What is remembered of one rollout; it is kept in the tuning ConfigMap.

Which replicas exist is read from the cluster at every pass. What the cluster does not show is only
this: since when the canary is watched, what it has shown, and what was decided about it.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Final, Self

from pydantic import JsonValue, TypeAdapter

from fathom.api.bounded_json import UnreadableJsonError, parsed_json
from fathom.api.choices import Compares
from fathom.api.conditions import Reason
from fathom.api.newer_release import read_known
from fathom.rollout.canary_evidence import CanaryEvidence
from fathom.rollout.comparison import ArmComparison, what_it_has
from fathom.times import UnixSeconds


class Stage(StrEnum):
    SETTLING = "Settling"
    """The spec has just changed, and may change again: nothing moves yet."""
    CANARY = "Canary"
    """One replica of the new revision, beside the others; an arm stays there."""
    PROMOTED = "Promoted"
    """All replicas follow."""
    ROLLED_BACK = "RolledBack"
    """The new revision is vetoed: the stable one serves until the spec asks for another."""


_MOST_NEW: Final = {Stage.SETTLING: 0, Stage.CANARY: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryWatch:
    """One canary pod."""

    pod: str
    ready_since_s: UnixSeconds | None = None
    """Unix seconds at which its bake began; None: not ready yet."""
    unready_since_s: UnixSeconds | None = None
    """None: it is ready."""
    restarts: int = 0
    """Restarts of its engine and of what ran before that, when the bake began."""
    uid: str = ""
    """Uid of the pod; a group's leader comes back under the same name."""
    replaced: int = 0
    """How often it came back so."""
    generation: int = 0
    """Generation of the depth document that its engine had in force last."""
    behind_since_s: UnixSeconds | None = None
    """Since when that is an older one than was written, and the same; None: it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """From one revision to another."""

    revision: str
    """The one that the spec asks for."""
    stable: str
    """The one that served when it began, or that was promoted last."""
    stage: Stage
    began_at_s: UnixSeconds
    """Unix seconds; of the present stage."""
    reason: Reason
    message: str = ""
    """Where it stands, or how it ended, in words."""
    why: str = ""
    """The first difference between the pods of both revisions, in words."""
    watch: CanaryWatch | None = None
    evidence: CanaryEvidence = field(default_factory=CanaryEvidence)
    paused_at_s: UnixSeconds | None = None
    """Since when `rollout.paused` holds it, or a canary that is scaled to zero."""
    retry: str = ""
    """What the user's annotation said when it began."""
    arm: bool = False
    """Whether its one replica is there to be compared, and never promoted."""
    compares: Compares = Compares.ADAPTIVE_VERIFICATION
    """What it then has otherwise than the others; an older Fathom knew nothing else."""
    draft: str = ""
    """The draft on trial, if that is what it compares."""
    compared: ArmComparison | None = None
    """What came of that; None: nothing yet."""
    offered: bool = False
    """Whether a person asked for what this build renders otherwise: both revisions are of one
    spec."""
    no_room: bool = False
    """Whether no node had room for the canary beside all replicas, so that none is asked for."""

    @property
    def carried(self) -> str:
        """The revision to carry out."""
        return self.stable if self.stage is Stage.ROLLED_BACK else self.revision

    def vetoes(self, revision: str) -> bool:
        """Whether this revision failed, and gets no pod until it is asked for again."""
        return self.stage is Stage.ROLLED_BACK and revision == self.revision

    @property
    def on_trial(self) -> bool:
        return self.stage in _MOST_NEW

    @property
    def served(self) -> bool:
        """Whether its one replica, which is compared with the others, has become ready."""
        return self.watch is not None and self.watch.ready_since_s is not None

    @property
    def has(self) -> str:
        """What its one replica is that is compared with the others, in words."""
        return what_it_has(self.compares, self.draft)

    @property
    def most_new(self) -> int | None:
        """Replicas that the new revision may have for now; None: all."""
        return _MOST_NEW.get(self.stage)

    def entered(self, stage: Stage, reason: Reason, message: str, now_s: float) -> "Rollout":
        """In another stage, from now on."""
        return replace(self, stage=stage, reason=reason, message=message, began_at_s=now_s)

    def same_step(self, other: Self | None) -> bool:
        """Whether both stand at the same point, whatever was seen meanwhile."""
        return other is not None and _step(self) == _step(other)

    def to_json(self) -> str:
        """Canonical text, of a few KiB at most."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Rollout | None":
        """None: it is not one, or at a stage of another Fathom."""
        try:
            document = parsed_json(text)
        except UnreadableJsonError:
            return None
        return read_known(_with_named_reason(document), _ROLLOUT.validate_python)[0]


def named_reason(reason: str, stage: str) -> Reason:
    """The reason that was given; one that only a later Fathom has is told by the stage.

    It decides nothing, and the message says the same in words. A veto must not be lost for it.
    """
    try:
        return Reason(reason)
    except ValueError:
        return Reason.ROLLED_BACK if stage == Stage.ROLLED_BACK else Reason.ROLLING_OUT


def _with_named_reason(document: JsonValue) -> JsonValue:
    if not isinstance(document, dict):
        return document
    reason, stage = document.get("reason"), document.get("stage")
    if not (isinstance(reason, str) and isinstance(stage, str)):
        return document
    return {**document, "reason": named_reason(reason, stage)}


def _step(rollout: Rollout) -> tuple[object, ...]:
    watch = rollout.watch
    return (
        rollout.revision,
        rollout.stable,
        rollout.stage,
        rollout.paused_at_s is None,
        rollout.arm,
        rollout.compared and rollout.compared.found,
        rollout.no_room,
        watch and (watch.pod, watch.ready_since_s, watch.unready_since_s),
    )


_ROLLOUT: Final = TypeAdapter(Rollout)
