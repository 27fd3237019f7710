"""Drafts that are trained in a history: what a person says, how Jobs end, and what must hold."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fathom.api import names
from fathom.cluster.kinds import JOB, SPECULATIVE_DEPLOYMENT
from storms.deeds import deed
from storms.hub import OTHER_DRAFT
from storms.server import Audit, Objects

if TYPE_CHECKING:
    from storms.storm import Storm

TRAINING: Final = {
    "gpus": 1,
    "deadlineMinutes": 10,
    "gpuHoursPerWeek": 4,
    "template": {"spec": {"containers": [{"name": "train", "image": "example/trainer:1"}]}},
}
ANOTHER: Final = {**TRAINING, "deadlineMinutes": 11}
UNHEARD_OF: Final = "12345678"
_COMMIT: Final = "c0ffee" + 34 * "0"
_TAKEN: Final = json.dumps({"schema": 1, "hub": {"id": OTHER_DRAFT, "revision": _COMMIT}})
MESSAGES: Final = {
    "taken": _TAKEN,
    "refused": json.dumps({"schema": 1, "refused": "notFinite"}),
    "forgotten": "",
}
"""What an intake's pod leaves."""
_OVER: Final = frozenset({"Adopted", "Dismissed"})


@dataclass
class Trainings:
    """What was approved, and which Jobs that train were made."""

    objects: Objects
    approved: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)

    def wrote(self, audit: Audit) -> str:
        """What is wrong with a write of an operator's; empty: nothing."""
        if audit.kind != "Job" or audit.before is not None or audit.after is None:
            return ""
        if _component(audit.after) != "training":
            return ""
        name = audit.after["metadata"]["name"]
        run = name.rpartition("-")[2]
        others = [
            each["metadata"]["name"]
            for each in self.objects.each(JOB)
            if _component(each) == "training"
            and each["metadata"]["name"] != name
            and not (each.get("status") or {}).get("conditions")
        ]
        if others:
            return f"{name} trains beside {others}"
        if run not in self.approved:
            return f"{name} trains, and nobody approved run {run}"
        if run in self.made:
            return f"run {run} was begun twice"
        self.made.append(run)
        return ""


def _component(body: Mapping[str, Any]) -> str:
    return str((body["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT, ""))


@deed(
    "a draft is trained",
    ends=["well", "well", "well", "fails", "deleted", "operator dies"],
    intake=list(MESSAGES),
    then=["adopted", "dismissed", "dismissed early", "edited", "taken in again"],
    stale=[True, False],
    for_s=(300.0, 900.0),
    needs="cached",
    weight=30,
)
async def _trained(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """A person asks for it, approves it, after a stale run maybe, and ends it in the end."""
    at = _Course(storm, storm.loop.time() + with_["for_s"])
    storm.cluster.jobs.leaves = MESSAGES[with_["intake"]]
    storm.cluster.jobs.trainer_fails = with_["ends"] == "fails"
    storm.annotate({names.ANNOTATION_PROPOSE_TRAINING: f"at {storm.loop.time():.0f}"})
    await at.until(lambda: at.phase in {"Proposed", "Failed"})
    if with_["stale"]:
        at.approve(UNHEARD_OF)
        await asyncio.sleep(5.0)
    at.approve(at.run)
    # Its trial may take a replica's place, as an edit does that needs new pods.
    storm.invariants.restart_edits.append(storm.loop.time())
    if with_["then"] == "edited":
        storm.edit({"draft.training": ANOTHER})
    await at.until(lambda: bool(at.jobs("training")))
    if with_["ends"] == "operator dies":
        storm.leader().kill()
    if with_["then"] == "dismissed early":
        at.dismiss()
    if with_["ends"] == "deleted":
        at.delete("training")
    await at.until(lambda: at.phase in {"Trial", "Faster", "Refused", "Failed", *_OVER})
    if with_["then"] == "taken in again":
        storm.cluster.jobs.leaves = _TAKEN
        at.delete("intake")
        await at.until(lambda: at.phase in {"Trial", "Faster", *_OVER})
    if with_["then"] == "adopted" and (adopt := at.told.get("adopt")):
        storm.edit({"draft.id": adopt["id"], "draft.revision": adopt["revision"]})
        await asyncio.sleep(30.0)
    await at.until(lambda: False)
    # What is on trial stays until a person ends it, who reads which run that is.
    for _ in range(30):
        if not at.told or at.phase in _OVER:
            return
        at.dismiss()
        await asyncio.sleep(10.0)


@dataclass
class _Course:
    """A training under way."""

    storm: "Storm"
    ends_s: float

    @property
    def told(self) -> Mapping[str, Any]:
        """What the status says of it; empty: nothing."""
        storm = self.storm
        found = storm.objects.look(SPECULATIVE_DEPLOYMENT, storm.namespace, storm.name) or {}
        return (found.get("status") or {}).get("training") or {}

    @property
    def phase(self) -> str:
        return str(self.told.get("phase", ""))

    @property
    def run(self) -> str:
        return str(self.told.get("run", ""))

    def jobs(self, component: str) -> list[str]:
        found = self.storm.objects.each(JOB)
        return [each["metadata"]["name"] for each in found if _component(each) == component]

    async def until(self, happens: Callable[[], bool]) -> None:
        """Wait for it, until the time of the deed is over."""
        while self.storm.loop.time() < self.ends_s and not happens():
            await asyncio.sleep(1.0)

    def approve(self, run: str) -> None:
        if run:
            self.storm.trainings.approved.add(run)
            self.storm.annotate({names.ANNOTATION_APPROVE_TRAINING: run})

    def dismiss(self) -> None:
        self.storm.annotate({names.ANNOTATION_DISMISS_TRAINING: self.run})

    def delete(self, component: str) -> None:
        for name in self.jobs(component):
            self.storm.objects.remove(JOB, self.storm.namespace, name)
