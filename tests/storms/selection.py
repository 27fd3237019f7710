"""Does the Service select what serves, and nothing else?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fathom.cluster.kinds import SERVICE
from storms.cluster import Cluster, Container
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

    def look(self, now_s: float, *, hindered_at_s: float) -> tuple[Container, ...]:
        """Look at it.

        Args:
            now_s: simulated seconds.
            hindered_at_s: when something last kept the operator from putting it right.

        Returns:
            What it selects that is ready.

        Raises:
            BrokenError: it has selected too little or too much for too long.
        """
        service = self.objects.look(SERVICE, "llm", "kimi")
        selector = (service or {"spec": {}})["spec"].get("selector") or {}
        ours, chosen = set[str](), dict[str, Container]()
        for place, pod, container in self.cluster.serving():
            if pod["metadata"]["namespace"] != "llm":
                continue
            if self.is_ours(pod):
                ours.add(place)
            if selector and selector.items() <= pod["metadata"]["labels"].items():
                chosen[place] = container
        wrong = self._wrong(ours, set(chosen), selector)
        if not wrong:
            self._since_s = None
            return tuple(chosen.values())
        since_s = self._since_s = now_s if self._since_s is None else self._since_s
        lasts_s = now_s - max(since_s, hindered_at_s)
        if lasts_s > MENDED_S:
            raise BrokenError(f"for {lasts_s:.0f} s {wrong}")
        return tuple(chosen.values())

    def _wrong(self, ours: set[str], chosen: set[str], selector: Mapping[str, str]) -> str:
        if not ours:
            return ""
        if missed := sorted(ours - chosen):
            return f"the Service selects {selector}, and not {', '.join(missed)}, which serve"
        if strange := sorted(chosen - ours):
            return f"the Service selects {selector}, and so {', '.join(strange)}, somebody else's"
        return ""
