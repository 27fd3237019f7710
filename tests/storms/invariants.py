"""What must hold at every moment of every history, whatever happens in it.

Each is looked at when something is written or a pod goes, and ends the history with a sentence.
What is told of depends on what the world did, never on what the operator says of itself; but since
when a draft is refused, nobody else knows.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from fathom.api import names
from fathom.cluster.kinds import COMPUTE_DOMAIN, POD
from storms.cluster import BY_HAND, Cluster
from storms.groups import CHANGED, SHRANK
from storms.hub import BAD_DRAFT, SECRETS, TARGET
from storms.server import Audit, Objects
from storms.workloads import WORKLOAD_NAMES, WORKLOADS, replicas_of, template_of
from support.group_pods import set_of

LOOK_UP_S: Final = 40.0
"""How long a spec may be held back for what the hub says of it."""
LAG_S: Final = 1.0
"""What was known so shortly before a write may not have been known to who wrote."""
AFTERMATH_S: Final = 240.0
"""For so long after pods suffered from something else, too few of them say nothing of us."""
SHRINKING_S: Final = 20.0
"""The same of pods that an operator takes: it has seen by then what they suffered from."""
READ_S: Final = 300.0
"""By then an operator has read what the user wrote."""
MOST_TASKS: Final = 200
_COMMIT: Final = re.compile(r"\b[0-9a-f]{40}\b")
MOST_DEPTH: Final = 7
"""`maxTokens` of every simulated resource."""


class BrokenError(AssertionError):
    """An invariant does not hold."""


class Told(Protocol):
    """What a hub has reported, and when."""

    answers: list[tuple[float, str]]


@dataclass(kw_only=True)
class WriteInvariants:
    """Watches the writes of some operators, be their API server simulated or real."""

    hub: Told
    most_depth: int = MOST_DEPTH
    """`maxTokens` of every resource, but while a user writes nonsense."""
    foreign: set[tuple[str, str, str]] = field(default_factory=set)
    """Objects that are somebody else's."""
    edited_at_s: dict[str, float] = field(default_factory=dict)
    """By draft: when the user last asked for it and had not before."""
    refused_at_s: dict[tuple[str, str], float] = field(default_factory=dict)
    """By uid of the resource and its draft: since when the operator has said that it refuses it. Of
    a new resource of the same name it need not know."""
    rolled_out: set[str] = field(default_factory=set)
    """Drafts that had every replica when they were refused: what was ready is left alone, and comes
    back where a rollout has taken its place."""
    holder: str = ""
    """Who holds the lease."""
    _epochs: dict[str, int] = field(default_factory=dict)
    _touched: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def wrote(self, audit: Audit) -> None:
        """Look at one write."""
        if audit.kind == "Lease":
            self._lease(audit)
            return
        self._no_secret(audit)
        if audit.kind == "Event":
            self._no_bug(audit)
            return
        self._fenced(audit)
        if audit.place in self.foreign and audit.before != audit.after:
            self._break(f"{audit.who} touched the foreign {audit.kind} {audit.name}")
        match audit.kind:
            case "SpeculativeDeployment":
                self._spec_untouched(audit)
                self._note_refusal(audit)
            case "ConfigMap" if audit.name.endswith("-depth") and audit.after is not None:
                self._depth_within(audit)
            case kind if kind in WORKLOAD_NAMES:
                self._allowed_pods(audit)
                self._never_back(audit)
            case _:
                pass

    # -- each of them

    def _lease(self, audit: Audit) -> None:
        holder = (audit.after or {}).get("spec", {}).get("holderIdentity", "")
        if holder != self.holder:
            self.holder = holder
            self._epochs[holder] = max(self._epochs.values(), default=0) + 1

    def _fenced(self, audit: Audit) -> None:
        if audit.before == audit.after:
            return
        mine, theirs = self._epochs.get(audit.who, 0), self._touched.get(audit.place, 0)
        if mine < theirs:
            self._break(
                f"{audit.who}, which no longer leads, changed {audit.kind} {audit.name} after the "
                "new leader had written to it"
            )
        self._touched[audit.place] = max(mine, theirs)

    def _no_secret(self, audit: Audit) -> None:
        if audit.kind not in {"Event", "SpeculativeDeployment"}:
            return
        told = json.dumps(audit.body)
        if any(each in told for each in SECRETS):
            self._break(f"a secret stands in {audit.kind} {audit.name}: {told}")

    def _no_bug(self, audit: Audit) -> None:
        if audit.body.get("reason") == "InternalError":
            self._break(f"a pass ended in an error of its own: {audit.body.get('message')}")

    def _spec_untouched(self, audit: Audit) -> None:
        before, after = audit.before or {}, audit.after or {}
        if before.get("spec") != after.get("spec"):
            self._break(f"{audit.who} wrote to the spec of {audit.name}")

    def _note_refusal(self, audit: Audit) -> None:
        status = (audit.after or {}).get("status", {})
        conditions = {each["type"]: each for each in status.get("conditions", [])}
        verdict = conditions.get("DraftCompatible", {})
        spec = (audit.after or {}).get("spec", {})
        draft = spec.get("draft", {}).get("id", "")
        if verdict.get("status") != "False" or audit.after is None:
            return
        asked = audit.after["metadata"]["uid"], draft
        if asked not in self.refused_at_s:
            self.refused_at_s[asked] = audit.at_s
            self._refused(draft)

    def _refused(self, draft: str) -> None:
        """A draft is refused for the first time."""

    def _depth_within(self, audit: Audit) -> None:
        document = json.loads(audit.after["data"]["depth.json"])
        most = self.most_depth
        tables = [document["schedule"], *(document.get("pods") or {}).values()]
        for first, last, depth in (entry for table in tables for entry in table):
            if not 0 <= depth <= most:
                self._break(f"depth {depth} for batches {first} to {last} is beyond {most}")

    def _allowed_pods(self, audit: Audit) -> None:
        """No pod for a spec that was refused, nor before its facts are known or 40 s are over."""
        before = replicas_of(audit.before)
        after = replicas_of(audit.after)
        if audit.after is None or after <= before:
            return
        draft = _draft_of(audit.after)
        if draft == BAD_DRAFT and draft not in self.rolled_out:
            owner = audit.after["metadata"]["ownerReferences"][0]["uid"]
            refused_s = self.refused_at_s.get((owner, draft))
            if refused_s is not None and refused_s < audit.at_s - LAG_S:
                self._break(
                    f"{audit.name} grew from {before} to {after} replicas of a draft that was "
                    f"refused {audit.at_s - refused_s:.0f} s before"
                )
        asked_s = self.edited_at_s.get(draft, 0.0)
        known = {model for at_s, model in self.hub.answers if at_s <= audit.at_s}
        if {draft, TARGET} <= known or audit.at_s - asked_s >= LOOK_UP_S - LAG_S:
            return
        self._break(
            f"{audit.name} got pods {audit.at_s - asked_s:.0f} s after it was asked for, while "
            f"nothing was known of {draft}"
        )

    def _never_back(self, audit: Audit) -> None:
        """What makes pods is not changed for an older spec than the one it was written for."""
        before, after = _generation(audit.before), _generation(audit.after)
        if audit.after is not None and after < before:
            self._break(
                f"{audit.who} changed {audit.name} for generation {after} of the spec, after it "
                f"was written for generation {before}"
            )

    def _break(self, sentence: str) -> None:
        raise BrokenError(sentence)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user has asked for."""

    at_s: float
    replicas: int
    unavailable: int
    surge: int

    @classmethod
    def of(cls, spec: Mapping[str, Any], at_s: float) -> "Asked":
        rollout = spec.get("rollout", {})
        return cls(
            at_s,
            spec.get("replicas", 1),
            rollout.get("maxUnavailable", 1),
            rollout.get("maxSurge", 1),
        )


@dataclass(kw_only=True)
class Invariants(WriteInvariants):
    """Watches one simulated history."""

    objects: Objects
    cluster: Cluster
    user_spec: Callable[[str], Mapping[str, Any] | None]
    """The spec that the user wrote last, by name; None: there is no such resource."""
    cached: bool = False
    """Whether pods load what a Job has fetched."""
    theirs: dict[tuple[str, str, str], set[tuple[str, str]]] = field(default_factory=dict)
    """By object: labels, annotations and conditions of it that are somebody else's, such as
    `("labels", "x")`."""
    restart_edits: list[float] = field(default_factory=list)
    """When the user changed something that needs new pods."""
    asked: list[Asked] = field(default_factory=list)
    """Each time that replicas, or how many may be away or more, were another number."""
    stale_until_s: float = float("-inf")
    """Until then reads may be old, so that nobody knows what is there."""
    _removals: int = 0
    _domains: set[tuple[str, str]] = field(default_factory=set)
    """ComputeDomains at the last look, by namespace and name."""

    def look(self) -> None:
        """Look at the cluster."""
        self._engines_within()
        self._domain_outlives_pods()
        removals = self.cluster.removals[self._removals :]
        self._removals += len(removals)
        for at_s, place, revision, why in removals:
            if why != BY_HAND and place.startswith("llm/kimi-"):
                self._removal(at_s, place, revision, why)

    # -- each of them

    def _refused(self, draft: str) -> None:
        there = [(each["metadata"], each) for each in self._workloads()]
        kimis = [
            each
            for metadata, each in there
            if metadata["namespace"] == "llm" and metadata["name"].startswith("kimi-")
        ]
        # The last replica may just have gone for another's sake.
        kimis = [each for each in kimis if replicas_of(each)] or kimis
        if kimis and all(_draft_of(each) == draft for each in kimis):
            self.rolled_out.add(draft)

    def _engines_within(self) -> None:
        for place, container in self.cluster.containers.items():
            depths = container.engine.depths if container.engine is not None else ()
            if any(not 0 <= depth <= MOST_DEPTH for depth in depths):
                self._break(f"{place} runs at depths {depths}")

    def _domain_outlives_pods(self) -> None:
        """A group whose ComputeDomain goes loses NVLink from under it, once it has started."""
        domains = {
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in self.objects.each(COMPUTE_DOMAIN)
        }
        gone, self._domains = self._domains - domains, domains
        for pod in self.objects.each(POD) if gone else ():
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            of = namespace, pod["metadata"]["labels"].get(names.LABEL_NAME, "")
            container = self.cluster.containers.get(f"{namespace}/{name}")
            started = container is not None and container.started_at_s is not None
            if set_of(pod) and of in gone and started:
                self._break(f"the ComputeDomain went before {name}")

    def wrote(self, audit: Audit) -> None:
        super().wrote(audit)
        if audit.kind in WORKLOAD_NAMES and audit.name.startswith("kimi-"):
            self._never_more(audit)
            self._weights_there(audit)
        self._theirs_stays(audit)

    def _workloads(self) -> list[dict[str, Any]]:
        return [each for kind in WORKLOADS for each in self.objects.each(kind)]

    def _lately(self, at_s: float, within_s: float) -> list[Asked]:
        """All that was asked for at some moment within a time."""
        earlier = [each for each in self.asked if each.at_s <= at_s - within_s]
        return earlier[-1:] + [each for each in self.asked if each.at_s > at_s - within_s]

    def least_ready(self, at_s: float) -> int:
        """How many replicas are to be ready whatever the operator does."""
        lately = self._lately(at_s, AFTERMATH_S)
        return min((each.replicas - each.unavailable for each in lately), default=0)

    def _never_more(self, audit: Audit) -> None:
        """No more pods are asked for than replicas and surge."""
        if replicas_of(audit.after) <= replicas_of(audit.before) or audit.at_s < self.stale_until_s:
            return
        if audit.at_s - self.cluster.disturbed_at_s < LAG_S:
            return  # as where another has just made one larger
        owner = audit.after["metadata"]["ownerReferences"][0]["uid"]
        asked = sum(
            replicas_of(each)
            for each in self._workloads()
            if each["metadata"]["ownerReferences"][0]["uid"] == owner
        )
        most = max(each.replicas + each.surge for each in self._lately(audit.at_s, READ_S))
        if asked > most:
            self._break(
                f"{audit.name} grew to {replicas_of(audit.after)} replicas: {asked} are asked for, "
                f"and {most} are the most"
            )

    def _weights_there(self, audit: Audit) -> None:
        """No pod starts before a Job has fetched what it loads."""
        if not self.cached or replicas_of(audit.after) <= replicas_of(audit.before):
            return
        template = json.dumps(template_of(audit.after))
        loads = set(_COMMIT.findall(template))
        models = 2 if "--speculative-config" in template else 1
        if len(loads) != models or not loads <= self.cluster.jobs.fetched:
            self._break(f"{audit.name} got pods that load {sorted(loads)}, which nobody fetched")

    def _theirs_stays(self, audit: Audit) -> None:
        """What another field manager has put on an object stays, as long as the object does."""
        if audit.after is None or audit.before is None:
            return
        for where, key in self.theirs.get(audit.place, ()):
            before, after = (_held(each, where) for each in (audit.before, audit.after))
            if key in before and before[key] != after.get(key):
                self._break(
                    f"{audit.who} took {key} from the {where} of {audit.kind} {audit.name}, which "
                    "is another's"
                )

    def _removal(self, at_s: float, place: str, revision: str, why: str) -> None:
        if why == CHANGED:
            self._break(f"{place} of revision {revision} went: {CHANGED}")
        disturbed_s = at_s - self.cluster.disturbed_at_s
        if self.user_spec("kimi") is None or at_s < self.stale_until_s:
            return
        if disturbed_s < (SHRINKING_S if why == SHRANK else AFTERMATH_S):
            return
        lately = self._lately(at_s, AFTERMATH_S)
        wanted = min(each.replicas for each in lately)
        ready = len([p for p, _, _ in self.cluster.serving() if p.startswith("llm/kimi-")])
        least = self.least_ready(at_s)
        if ready < least:
            self._break(
                f"{place} of revision {revision} went ({why}), and {ready} replicas are ready "
                f"where {least} have to be"
            )
        # However late: stale reads and a back-off may hide a scaling for longer than its aftermath.
        surplus, scaled = ready >= wanted, len(lately) > 1
        quiet = disturbed_s >= AFTERMATH_S
        if quiet and not scaled and not surplus and not self.restart_edits:
            self._break(
                f"{place} of the serving revision {revision} went ({why}), without a rollout, a "
                "scaling or a refresh"
            )


def _held(body: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Labels, annotations or conditions of an object."""
    if where == "conditions":
        return {each["type"]: each for each in body.get("status", {}).get("conditions", [])}
    found: Mapping[str, Any] = body["metadata"].get(where) or {}
    return found


def _generation(workload: Mapping[str, Any] | None) -> int:
    """Generation of the spec that a workload was last written for; 0: it does not say."""
    annotations = workload["metadata"].get("annotations") or {} if workload else {}
    return int(annotations.get(names.ANNOTATION_GENERATION, 0))


def _draft_of(workload: Mapping[str, Any]) -> str:
    text = json.dumps(template_of(workload))
    for part in text.split('\\"'):
        if part.startswith("acme/") and part != TARGET:
            return part
    return ""
