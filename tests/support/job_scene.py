"""A user who waits for a Job, and a cluster that goes on with each pause."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from fathom.adapters.jobs import JobCluster
from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import JOB, POD
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock


@dataclass
class JobScene:
    """Time passes with each pause alone."""

    job_name: ClassVar[str]
    """Name of the Job that is waited for; its pod has an x more."""

    goes_on: Callable[[Self], None] = lambda _: None
    kube: FakeKube = field(default_factory=FakeKube)
    clock: ManualClock = field(default_factory=ManualClock)
    log: str = ""
    pauses: int = 0
    unreadable: KubeError | None = None

    @property
    def cluster(self) -> JobCluster:
        return JobCluster(kube=self.kube, logs=self, clock=self.clock, pause=self.pause)

    async def read(self, namespace: str, pod: str, container: str) -> str:
        assert (namespace, pod, container) == ("llm", f"{self.job_name}-x", "vllm")
        if self.unreadable is not None:
            raise self.unreadable
        return self.log

    async def pause(self, seconds: float) -> None:
        self.clock.at_s += seconds
        self.pauses += 1
        self.goes_on(self)

    def pod(self, **status: Any) -> None:
        labels = {"controller-uid": self.kube.find(JOB, self.job_name)["metadata"]["uid"]}
        metadata = {"name": f"{self.job_name}-x", "namespace": "llm", "labels": labels}
        self.kube.put(POD, {"metadata": metadata, "status": status})
