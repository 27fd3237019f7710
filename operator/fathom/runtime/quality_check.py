"""Carries out the quality check that a resource's annotation asks for: see `fathom.quality.check`.

Prompts are sent in the background, so that no pass waits for an engine.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fathom.adapters.ports import CompletionsPort, PodEndpoint
from fathom.api.spec import SpeculativeDeploymentSpec
from fathom.cluster.observed_pods import ObservedPod
from fathom.cluster.snapshot import Snapshot
from fathom.engine.flags import HTTP_PORT
from fathom.quality.check import QualityCheck, Question, begun
from fathom.quality.comparison import Completion, Unanswered
from fathom.reconcile.annotations import QualityStep, event_of, fleet_of, recalled, requested
from fathom.resource import SpeculativeDeployment

WAKE_S: Final = 5.0
"""Between two looks while a depth comes into force."""
UNWATCHED_S: Final = 150.0
"""More than two looks of a loop at rest are apart. Without one for longer, as when the operator was
away or paused, or could not reach the API server, and where its clock was set back: what took its
time then is nobody's fault."""

Replies = tuple[Completion, ...] | Unanswered


class QualityChecker:
    """At most one check at a time, for one loop. All methods belong to its event loop's thread."""

    def __init__(self, completions: CompletionsPort, wake: Callable[[], None]) -> None:
        """Start with none.

        Args:
            completions: how engines are asked.
            wake: called when answers have come, so that the next pass comes soon.
        """
        self._completions = completions
        self._wake = wake
        self._check: QualityCheck | None = None
        self._uid = ""
        self._asking: asyncio.Task[Replies] | None = None
        self._looked_at_s = float("-inf")

    async def advance(
        self,
        snapshot: Snapshot,
        pods: Sequence[ObservedPod],
        sd: SpeculativeDeployment,
        *,
        live: bool,
    ) -> QualityStep:
        """Go on with the check that is asked for, if there is one. Idempotent; never waits for it.

        A request that is withdrawn ends its check without a result; another one begins again.

        Args:
            snapshot: this pass's view.
            pods: those that the tuner judges by.
            sd: what they were made from.
            live: whether their depth is.
        """
        objects, now_s = snapshot.objects, snapshot.now_s
        watched = 0 <= now_s - self._looked_at_s <= UNWATCHED_S
        self._looked_at_s = now_s
        last = objects.status.quality if objects.status else None
        request_id = requested(objects.metadata)
        if not self._in_hand(objects.metadata.uid, request_id):
            await self.stop()
            self._check = None
            if not request_id or (last is not None and last.request_id == request_id):
                return QualityStep(holds={}, status=last, kept=None)
        fleet = fleet_of(snapshot, pods, sd, live=live)
        check = self._check or recalled(objects, request_id) or begun(request_id, fleet)
        if not watched:
            if not self._answered:
                # It may be for want of somebody to read that no answer came.
                await self.stop()
            check = check.anew(now_s)
        # Before the answers: those of a replica that was let go meanwhile do not count.
        check = check.advanced(fleet)
        if self._asking is not None and self._asking.done() and check.questions:
            done, self._asking = self._asking, None
            check = check.answered(done.result(), now_s)
        news = check is not self._check
        self._check, self._uid = check, objects.metadata.uid
        if not check.questions:
            await self.stop()
        elif self._asking is None:
            self._ask(check.questions, pods, sd.spec)
        if check.result is None:
            return QualityStep(
                holds=check.holds, status=last, kept=check.to_json(), wake_after_s=WAKE_S
            )
        events = (event_of(check.result),) if news else ()
        return QualityStep(holds={}, status=check.result, kept=None, events=events)

    async def stop(self) -> None:
        """Ask nothing more; what was under way, the next operator asks again."""
        task, self._asking = self._asking, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def _answered(self) -> bool:
        """Whether all answers to what was asked have come."""
        asking = self._asking
        return asking is not None and asking.done() and not isinstance(asking.result(), Unanswered)

    def _in_hand(self, uid: str, request_id: str) -> bool:
        """Whether the check in hand is the one that is asked for."""
        check = self._check
        return check is not None and (self._uid, check.request_id) == (uid, request_id)

    def _ask(
        self,
        questions: Sequence[Question],
        pods: Sequence[ObservedPod],
        spec: SpeculativeDeploymentSpec,
    ) -> None:
        model = spec.model.served_name or spec.model.id
        where = {
            pod.name: PodEndpoint(
                namespace=pod.metadata.namespace, pod=pod.name, ip=pod.status.pod_ip, port=HTTP_PORT
            )
            for pod in pods
        }
        self._asking = asyncio.create_task(
            replies_to(self._completions, model, where, questions), name="quality check"
        )
        self._asking.add_done_callback(self._came)

    def _came(self, task: "asyncio.Task[Replies]") -> None:
        if not task.cancelled():
            self._wake()


async def replies_to(
    completions: CompletionsPort,
    model: str,
    where: Mapping[str, PodEndpoint],
    questions: Sequence[Question],
) -> Replies:
    """Ask all questions: pods beside each other, each pod one thing at a time.

    Returns:
        One completion for each question, in their order; or the first failure of a pod, after
        which that pod is asked nothing more.
    """

    async def ask(pod: str) -> list[Completion] | Unanswered:
        found = []
        for question in questions:
            if question.pod == pod:
                reply = await completions.complete(where[pod], model, question.request)
                if isinstance(reply, Unanswered):
                    return reply
                found.append(reply)
        return found

    pods = tuple(dict.fromkeys(question.pod for question in questions))
    replies = dict(zip(pods, await asyncio.gather(*map(ask, pods)), strict=True))
    came = {}
    for pod, found in replies.items():
        if isinstance(found, Unanswered):
            return found
        came[pod] = iter(found)
    return tuple(next(came[question.pod]) for question in questions)
