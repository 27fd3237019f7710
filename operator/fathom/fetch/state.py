"""Weights fetched into the cache before pods start: what is wanted, what is known, what to do.

Pods of a revision are created only once the commits that its models' revisions mean are known and
fetched; from then on exactly these commits are what its pods load. Pods that exist already are left
as they are, whatever they load: they run.

How far a fetch is, how fast, and how long it will take follow from successive looks.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import fathom_fetch
from fathom.api import names
from fathom.api.models import ModelSpec
from fathom.cluster.job_pods import ended_well, newest_pod
from fathom.cluster.observed import ObservedJob, ObservedWorkload
from fathom.cluster.observed_pods import ObservedPod, Terminated
from fathom.engine.plugin import DeliveredCode, source_files
from fathom.model_refs import ModelRef
from fathom.resource import SpeculativeDeployment
from fathom.times import duration
from fathom_fetch.metrics import BYTES, COMMIT, DRAFT, MODEL
from fathom_vllm.plugin_version import content_hash

WINDOW_S: Final = 60.0
"""Over which the rate is taken: a hub's rate varies from second to second."""
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024

COMPONENT: Final = "fetch"
CONTAINER: Final = "fetch"
"""Container of the Job's pod. An injector may add others, which may continue after its end."""
DIGEST_LENGTH: Final = 10
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Which models are to lie in which claim."""

    claim: str
    model: ModelRef | None
    """None: the target is no model of a hub's."""
    draft: ModelRef | None
    whole: bool = False
    """Whether all files of the target's weights are to be fetched, also those that vLLM leaves
    alone by default."""

    @property
    def digest(self) -> str:
        """Changes with whatever would make it another fetch."""
        refs = [[ref.id, ref.revision] if ref else None for ref in (self.model, self.draft)]
        text = json.dumps([self.claim, self.whole, *refs], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]

    @property
    def by_role(self) -> Mapping[str, ModelRef]:
        """The models, by the role in which the engine loads them."""
        found = ((MODEL, self.model), (DRAFT, self.draft))
        return {role: ref for role, ref in found if ref is not None}


class _Part(BaseModel):
    """What was fetched in one role."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    commit: str
    bytes: int = 0


_PARTS: Final = TypeAdapter(dict[str, _Part])


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch has found and left in the cache."""

    commits: tuple[tuple[str, str], ...]
    """Pairs of a role and a commit, sorted."""
    total_bytes: int = 0
    """0: not known."""

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """From a fetch's message, or from what was kept of it; None: it is neither."""
        try:
            parts = _PARTS.validate_json(text)
        except ValidationError:
            return None
        commits = sorted((role, part.commit) for role, part in parts.items())
        if not commits or not all(_COMMIT.fullmatch(commit) for _, commit in commits):
            return None
        return cls(tuple(commits), sum(part.bytes for part in parts.values()))

    def to_json(self) -> str:
        """Canonical text; the bytes stand with the first role."""
        sizes = [self.total_bytes, *(0 for _ in self.commits[1:])]
        parts = {
            role: {COMMIT: commit, BYTES: size}
            for (role, commit), size in zip(self.commits, sizes, strict=True)
        }
        return json.dumps(parts, separators=(",", ":"), sort_keys=True)

    def commit(self, role: str) -> str:
        return dict(self.commits).get(role, "")


def pinned(sd: SpeculativeDeployment, fetched: Fetched | None) -> SpeculativeDeployment:
    """The same resource, loading what was fetched. Its revision stays that of the original."""
    if fetched is None:
        return sd
    spec = sd.spec
    model, draft = fetched.commit(MODEL), fetched.commit(DRAFT)
    changes = {
        "model": spec.model.model_copy(update=_of_target(spec.model, model)),
        "draft": spec.draft.model_copy(update={"revision": draft} if draft else {}),
    }
    return replace(sd, spec=spec.model_copy(update=changes))


def _of_target(model: ModelSpec, commit: str) -> dict[str, str]:
    """Offline, vLLM would call a model by the path of its files if it were not told otherwise."""
    return {"revision": commit, "served_name": model.served_name or model.id} if commit else {}


def commits_in(fetch: Fetch) -> Fetched | None:
    """What the revisions name, where each of them is a commit; None: not each one is."""
    commits = tuple(sorted((role, ref.revision) for role, ref in fetch.by_role.items()))
    if not commits or not all(_COMMIT.fullmatch(commit) for _, commit in commits):
        return None
    return Fetched(commits)


class FetchStage(Enum):
    NOT_WANTED = "no models are to be fetched"
    PODS_AS_THEY_ARE = "pods of this revision run, and were started without a fetch"
    MISSING = "nothing fetches them yet"
    UNDER_WAY = "a Job fetches them"
    GIVEN_UP = "the Job has been given up, or its fetch has ended without a word"
    FORGOTTEN = "a Job has fetched them, and its report is lost"
    FETCHED = "they are fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchStanding:
    """Where the fetch for one revision stands."""

    stage: FetchStage
    fetch: Fetch | None = None
    fetched: Fetched | None = None
    """None: what its pods load is not known, or left to them."""
    job: ObservedJob | None = None
    pod: ObservedPod | None = None
    """The Job's newest one."""
    news: bool = False
    """Whether this is the first to learn what was fetched."""

    @property
    def holds_pods(self) -> bool:
        """Whether no pod of the revision may be created yet."""
        settled = {FetchStage.NOT_WANTED, FetchStage.PODS_AS_THEY_ARE, FetchStage.FETCHED}
        return self.stage not in settled

    @property
    def outlived(self) -> bool:
        """Whether its pod goes on for nothing: what it has fetched is kept already."""
        if self.stage is not FetchStage.FETCHED or self.news or self.job is None:
            return False
        return not self.job.complete and self.pod is not None and not self.pod.finished


NOT_WANTED: Final = FetchStanding(stage=FetchStage.NOT_WANTED)


def standing_of(
    fetch: Fetch | None,
    name: str,
    *,
    workload: ObservedWorkload | None,
    jobs: Sequence[ObservedJob],
    pods: Sequence[ObservedPod],
    kept: Mapping[str, Fetched],
) -> FetchStanding:
    """Where a fetch stands, by what the cluster holds.

    Args:
        fetch: the one that a revision wants; None: none.
        name: of the SpeculativeDeployment.
        workload: the revision's; None: it has none.
        jobs: the resource's.
        pods: the resource's.
        kept: what was fetched before, by digest.
    """
    if fetch is None:
        return NOT_WANTED
    known = kept.get(fetch.digest)
    if known is None and workload is not None:
        known = Fetched.from_json(workload.weights)
        if known is None:
            return FetchStanding(stage=FetchStage.PODS_AS_THEY_ARE, fetch=fetch)
    wanted = names.fetch_job(name, fetch.digest)
    job = next((each for each in jobs if each.name == wanted), None)
    pod = newest_pod(job, pods, CONTAINER) if job is not None else None
    if known is not None:
        return FetchStanding(stage=FetchStage.FETCHED, fetch=fetch, fetched=known, job=job, pod=pod)
    if job is None:
        return FetchStanding(stage=FetchStage.MISSING, fetch=fetch)
    return _by_job(fetch, job, pod)


def _by_job(fetch: Fetch, job: ObservedJob, pod: ObservedPod | None) -> FetchStanding:
    ended = ended_well(pod, CONTAINER)
    said = _result(ended, fetch) if ended else None
    if said is not None:
        return FetchStanding(
            stage=FetchStage.FETCHED, fetch=fetch, fetched=said, job=job, pod=pod, news=True
        )
    if job.failed is not None or ended is not None:
        # Asked again, a pod that is there would say the same.
        stage = FetchStage.GIVEN_UP
    else:
        stage = FetchStage.FORGOTTEN if job.complete else FetchStage.UNDER_WAY
    return FetchStanding(stage=stage, fetch=fetch, fetched=None, job=job, pod=pod)


def _result(ended: Terminated, fetch: Fetch) -> Fetched | None:
    """What a fetch that ended well says of each model that was wanted."""
    found = Fetched.from_json(ended.message)
    if found is None or {role for role, _ in found.commits} != fetch.by_role.keys():
        return None
    return found


class FetchProgram(DeliveredCode):
    """One version of it."""

    __slots__ = ()


def fetch_program() -> FetchProgram:
    """The one that comes with this Fathom."""
    files = source_files(fathom_fetch)
    return FetchProgram(files, content_hash(files))


@dataclass(frozen=True, slots=True)
class FetchedBytes:
    """One look at a fetch."""

    at_s: float
    """Unix seconds."""
    present: int
    total: int
    """Larger than 0."""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The looks of the last minute, the newest last; empty: none yet."""

    looks: tuple[FetchedBytes, ...] = ()

    def after(self, look: FetchedBytes) -> "FetchProgress":
        """With one more look. Another total, or fewer bytes than before, begins again."""
        last = self.looks[-1] if self.looks else None
        if last is None or last.total != look.total or last.present > look.present:
            return FetchProgress((look,))
        recent = tuple(each for each in self.looks if look.at_s - each.at_s <= WINDOW_S)
        return FetchProgress((*recent, look))

    @property
    def percent(self) -> int | None:
        """Rounded down; None: nothing was seen yet."""
        if not self.looks:
            return None
        return 100 * self.looks[-1].present // self.looks[-1].total

    @property
    def bytes_per_second(self) -> float | None:
        """None: too little was seen to say."""
        seconds = self._seconds
        return (self.looks[-1].present - self.looks[0].present) / seconds if seconds else None

    @property
    def _seconds(self) -> float:
        return self.looks[-1].at_s - self.looks[0].at_s if self.looks else 0.0

    @property
    def summary(self) -> str:
        """Bytes of bytes, rate, time left, as far as they are known."""
        if not self.looks:
            return "starting"
        last = self.looks[-1]
        said = f"{size(last.present)} of {size(last.total)}"
        rate = self.bytes_per_second
        if rate is None:
            return said
        if not rate:
            return f"{said}, nothing came in the last {self._seconds:.0f} s"
        left_s = (last.total - last.present) / rate
        return f"{said}, {size(rate)}/s, {duration(left_s)} left"


def size(count: float) -> str:
    """Bytes in the unit that fits, three digits at most."""
    power = 0
    while count >= _STEP and power < len(_UNITS) - 1:
        count /= _STEP
        power += 1
    few = power and count < 10  # noqa: PLR2004  # two digits
    return f"{count:.1f} {_UNITS[power]}" if few else f"{count:.0f} {_UNITS[power]}"
