"""Does the Service select what serves, and nothing else?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.core.cluster.kinds import SERVICE
from storms.cluster import Cluster
from storms.invariants import BrokenError
from storms.server import Objects

MENDED_S: Final = 120.0
"""Within so long after whatever kept the operator from it. Who changes an object back and forth is
answered once a minute."""


@dataclass(kw_only=True)
class Selection:
    """Watches the Service of the resource."""

    objects: Objects
    cluster: Cluster
    is_ours: Callable[[Mapping[str, Any]], bool]
    """Whether a pod is the resource's."""
    _since_s: float | None = field(default=None, init=False)

    def look(self, now_s: float, *, hindered_at_s: float) -> None:
        """Look at it.

        Args:
            now_s: simulated seconds.
            hindered_at_s: when something last kept the operator from putting it right.

        Raises:
            BrokenError: it has selected too little or too much for too long.
        """
        wrong = self._wrong()
        if not wrong:
            self._since_s = None
            return
        since_s = self._since_s = now_s if self._since_s is None else self._since_s
        lasts_s = now_s - max(since_s, hindered_at_s)
        if lasts_s > MENDED_S:
            raise BrokenError(f"for {lasts_s:.0f} s {wrong}")

    def _wrong(self) -> str:
        serving = {place: pod for place, pod, _ in self.cluster.serving()}
        ours = {place for place, pod in serving.items() if self.is_ours(pod)}
        if not ours:
            return ""
        service = self.objects.look(SERVICE, "llm", "kimi")
        selector = (service or {"spec": {}})["spec"].get("selector") or {}
        chosen = {
            place
            for place, pod in serving.items()
            if selector and selector.items() <= pod["metadata"]["labels"].items()
        }
        if missed := sorted(ours - chosen):
            return f"the Service selects {selector}, and not {', '.join(missed)}, which serve"
        if strange := sorted(chosen - ours):
            return f"the Service selects {selector}, and so {', '.join(strange)}, somebody else's"
        return ""
