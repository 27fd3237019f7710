"""Engines that show vLLM's own counters only: what these tell, and what they cannot. Pure."""

from dataclasses import dataclass, field

from fathom.core.measurement import EngineCounts, PodCounters, delta


@dataclass(slots=True)
class Unplugged:
    """Sums over the pods that count no cells."""

    pods: set[str] = field(default_factory=set)
    with_plugin: set[str] = field(default_factory=set)
    seconds: float = 0.0
    """Pod-seconds."""
    tokens: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0

    def take(self, before: PodCounters | None, look: PodCounters) -> None:
        """Take in one look, given the one before at the same pod."""
        if look.live_depth or look.cells:
            self.with_plugin.add(look.pod)
            self.pods.discard(look.pod)
        elif look.pod not in self.with_plugin:
            self.pods.add(look.pod)
            counted = delta(before, look) if before is not None else None
            if counted is not None:
                self._add(counted.engine, counted.seconds)

    def sentence(self) -> str:
        """What cannot be told of them, and why; empty: there are none."""
        if not self.pods:
            return ""
        count = len(self.pods)
        whose = "The engines show" if not self.with_plugin else f"{count} of the engines show"
        return (
            f"{whose} vLLM's own counters only: {self._seen()}. They do not tell at which batch "
            "and depth a step ran, nor how long it took, so what another depth would gain cannot "
            "be told. Mode Advise keeps your own depth and counts what is missing: record that."
        )

    def _add(self, counted: EngineCounts, seconds: float) -> None:
        self.seconds += seconds
        self.tokens += counted.generation_tokens
        self.drafts += counted.drafts
        self.draft_tokens += counted.draft_tokens
        self.accepted_tokens += counted.accepted_tokens

    def _seen(self) -> str:
        if self.seconds <= 0 or self.tokens <= 0:
            return "they generated nothing"
        rate = f"{self.tokens / self.seconds:.0f} tokens per second and pod"
        if self.drafts <= 0:
            return f"{rate}, nothing drafted"
        return (
            f"{rate}, acceptance length {1 + self.accepted_tokens / self.drafts:.2f} "
            f"at a mean depth of {self.draft_tokens / self.drafts:.1f}"
        )
