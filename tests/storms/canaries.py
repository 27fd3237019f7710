"""Is a bad canary ever promoted, or a good one given up?

Images say what a canary is: those of `storms.cluster.BAD_IMAGES` are bad, all others good.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.api import names
from fathom.api.conditions import Reason
from fathom.cluster.kinds import CONFIG_MAP
from fathom.reconcile.checkpoint import ABSENT, SPECS
from fathom.rollout.canary_health import UNWATCHED_SHARE
from fathom.rollout.canary_verdict import LONGEST_BAKE
from storms.cluster import BAD_IMAGES, DEAF_IMAGE, FAILING_IMAGE, SLOWER_IMAGE, Cluster
from storms.invariants import BrokenError
from storms.server import Audit, Objects
from storms.workloads import WORKLOAD_NAMES, WORKLOADS, replicas_of, template_of

BARE_S: Final = 5.0
"""For so long no good pod serves, and then nothing is put at risk any more."""
LOOK_S: Final = 1.0
"""Between two looks of ours."""
GONE_S: Final = 5.0
"""Its place is given back before the status says so."""
LEAST_TRAFFIC: Final = 12
"""Requests in flight at each replica, times minutes of a bake: with fewer, chance would decide. The
first two minutes are those of a cold cache, and do not count."""
_TAKES_COMPARING: Final = frozenset({SLOWER_IMAGE, FAILING_IMAGE})
"""Seen beside others alone, and under traffic."""
_PROMOTED: Final = frozenset({"Promoted", "Complete"})


@dataclass(kw_only=True)
class Canaries:
    """Watches the rollouts of the resource."""

    objects: Objects
    cluster: Cluster
    is_ours: Callable[[Mapping[str, Any]], bool]
    """Whether a pod is the resource's."""
    may_go_back: Callable[[], bool]
    """Whether something has happened for which a good canary may be given up."""
    _asked_at_s: float = field(default=float("-inf"), init=False)
    """When the user asked for a bad image."""
    _comparable: bool = field(default=False, init=False)
    """Whether the spec allows to see by comparison, ever since."""
    _live: bool = field(default=False, init=False)
    """Whether the depth is to be live, ever since."""
    _served_at_s: float = field(default=0.0, init=False)
    """When a good pod was last seen to serve."""
    _bare: bool = field(default=True, init=False)
    """Whether none did for a while, since a bad image was asked for."""
    _longest_s: float = field(default=0.0, init=False)
    """For how long a canary is watched whose traffic leaves its speed in doubt; infinite: there is
    enough of it."""
    _served_s: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    """By revision of which a pod serves, or did a moment ago: from when until when."""
    by_chance: set[str] = field(default_factory=set, init=False)
    """Revisions that were given up for a speed that was still in doubt."""
    _images: dict[str, str] = field(default_factory=dict, init=False)
    """By revision."""
    _vetoed: set[str] = field(default_factory=set, init=False)
    """Revisions that were given up since the user last asked for anything."""

    def edited(self, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> None:
        """The user made a spec, or edited it."""
        now_s = self.cluster.now_s()
        self.forgive()
        bad = after["engine"]["image"] in BAD_IMAGES
        comparable, live = self._is_comparable(after), self._is_live(after)
        minutes = after.get("rollout", {}).get("canaryMinutes", 20)
        in_doubt = minutes * self.cluster.load <= LEAST_TRAFFIC
        # Where a clock leaps, so much of a bake counts as watched that was not.
        least_s = (LONGEST_BAKE - UNWATCHED_SHARE) * 60.0 * minutes
        self._longest_s = least_s if in_doubt else float("inf")
        if bad and before is not None and before["engine"]["image"] not in BAD_IMAGES:
            self._asked_at_s, self._served_at_s = now_s, now_s
            self._bare = False
            comparable, live = self._is_comparable(before), self._is_live(before)
            self._comparable, self._live = comparable, live
        elif bad and before is None:
            self._bare = True
        self._comparable = self._comparable and comparable
        self._live = self._live and live

    def forgive(self) -> None:
        """The user asks for something else, or for the same once more."""
        self._vetoed.clear()

    def look(self, now_s: float) -> None:
        """Look at what serves."""
        serving = [pod for _, pod, _ in self.cluster.serving() if self.is_ours(pod)]
        revisions = {pod["metadata"]["labels"][names.LABEL_REVISION] for pod in serving}
        for each in revisions:
            self._served_s[each] = self._served_s.get(each, (now_s, now_s))[0], now_s
        for each in [
            each for each, (_, last_s) in self._served_s.items() if last_s < now_s - GONE_S
        ]:
            del self._served_s[each]
        if any(_image(pod["spec"]) not in BAD_IMAGES for pod in serving):
            self._served_at_s = now_s
        elif now_s - self._served_at_s > BARE_S:
            self._bare = True

    def wrote(self, audit: Audit) -> None:
        """Look at one write.

        Raises:
            BrokenError: a bad canary is promoted, or a good one is given up.
        """
        if audit.kind in WORKLOAD_NAMES and audit.name.startswith("kimi-") and audit.after:
            self._scaled(audit)
        elif audit.verb == "status" and audit.name == "kimi":
            self._told(audit)

    def _scaled(self, audit: Audit) -> None:
        image = _image(template_of(audit.after)["spec"])
        revision = audit.after["metadata"]["labels"][names.LABEL_REVISION]
        self._images[revision] = image
        after = sum(
            replicas_of(each)
            for kind in WORKLOADS
            for each in self.objects.each(kind)
            if each["metadata"]["labels"].get(names.LABEL_REVISION) == revision
            and each["metadata"]["namespace"] == audit.namespace
        )
        before = after - replicas_of(audit.after) + replicas_of(audit.before)
        if after > before and self._nothing_left(audit.namespace):
            self._bare = True
            self.forgive()
        if after > before and revision in self._vetoed:
            raise BrokenError(f"revision {revision} is tried again, which was given up")
        if after > max(1, before) and self._shows(image, revision):
            raise BrokenError(f"{after} replicas are asked for of {image}, whose canary is bad")

    def _nothing_left(self, namespace: str) -> bool:
        """Whether neither a workload nor a spec that is kept says how a good pod is made."""
        kept = self.objects.look(CONFIG_MAP, namespace, "kimi-tuning") or {}
        specs = [json.loads(kept["data"].get(key, ABSENT)) for key in SPECS] if kept else []
        images = {spec["engine"]["image"] for spec in specs if spec}
        images |= {
            _image(template_of(each)["spec"])
            for kind in WORKLOADS
            for each in self.objects.each(kind)
            if each["metadata"]["namespace"] == namespace
        }
        return images <= set(BAD_IMAGES)

    def _told(self, audit: Audit) -> None:
        rollout = audit.after.get("status", {}).get("rollout") or {}
        earlier = (audit.before or {}).get("status", {}).get("rollout") or {}
        stage, revision = rollout.get("stage"), rollout.get("revision", "")
        image = self._images.get(revision, "")
        if stage in _PROMOTED and self._shows(image, revision):
            raise BrokenError(f"{image}, whose canary is bad, is {stage}: {rollout.get('message')}")
        fresh = (stage, revision) != (earlier.get("stage"), earlier.get("revision"))
        good = image and image not in BAD_IMAGES
        seen = audit.after.get("status", {}).get("observedGeneration")
        if stage == "RolledBack" and seen == audit.after["metadata"]["generation"]:
            self._vetoed.add(revision)
        slower = rollout.get("reason") == Reason.CANARY_SLOWER
        if stage == "RolledBack" and fresh and slower and self._is_left_to_chance(revision):
            self.by_chance.add(revision)
        if stage == "RolledBack" and fresh and good and not self.may_go_back():
            raise BrokenError(f"the good canary of {image} is given up: {rollout.get('message')}")

    def _shows(self, image: str, revision: str) -> bool:
        """Whether this very canary has to have been seen to be bad."""
        in_doubt = image == SLOWER_IMAGE and self._is_left_to_chance(revision)
        return self.is_seen(image) and not in_doubt

    def is_seen(self, image: str) -> bool:
        """Whether it can be known that a canary of an image is bad."""
        if image not in BAD_IMAGES or self._bare:
            return False
        if image == DEAF_IMAGE:
            return self._live
        quiet = self.cluster.disturbed_at_s < self._asked_at_s and not self.may_go_back()
        return image not in _TAKES_COMPARING or (self._comparable and quiet)

    def _is_left_to_chance(self, revision: str) -> bool:
        """Whether a canary was watched for as long as can be, and its speed is still in doubt.

        A step takes a second here, and a window tells something by 30 of them at one batch. In two
        minutes and twice as many more, less two that are cold, six requests in flight make about
        eight such windows. With fewer a canary is promoted. With eight its speed is known to ±20 to
        ±40 % (two standard errors), and it goes back where it is slower by one, which chance makes
        of one good canary in four to six.
        """
        since_s, _ = self._served_s.get(revision, (float("inf"), 0.0))
        watched_s = self.cluster.now_s() - since_s
        return 0 < self._longest_s <= watched_s + LOOK_S

    def _is_comparable(self, spec: Mapping[str, Any]) -> bool:
        minutes = spec.get("rollout", {}).get("canaryMinutes", 20)
        return minutes * self.cluster.load >= LEAST_TRAFFIC and spec.get("replicas", 1) > 1

    def _is_live(self, spec: Mapping[str, Any]) -> bool:
        return spec["speculation"].get("tuning", {}).get("mode") != "Static"


def _image(spec: Mapping[str, Any]) -> str:
    return str(spec["containers"][0]["image"])
