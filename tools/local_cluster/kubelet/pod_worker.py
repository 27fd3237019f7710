"""One pod's life, from the moment it is bound to a node until its object is gone."""

import asyncio
import contextlib
import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import structlog
from kubernetes.aio.client.exceptions import ApiException

from local_cluster.kube import Object
from local_cluster.kubelet.containers.container_worker import Backoff, ContainerWorker
from local_cluster.kubelet.containers.plan import (
    container_argv,
    container_mounts,
    container_variables,
    usable_image,
)
from local_cluster.kubelet.containers.processors import whole_processors
from local_cluster.kubelet.containers.runner import ContainerPlan
from local_cluster.kubelet.dependencies import Surroundings
from local_cluster.kubelet.hosts import hosts_text, write_hosts
from local_cluster.kubelet.models import Container, Pod
from local_cluster.kubelet.pod_folder import PodFolder
from local_cluster.kubelet.problem import (
    CREATE_CONTAINER_CONFIG_ERROR,
    CREATE_CONTAINER_ERROR,
    PodProblem,
)
from local_cluster.kubelet.sandbox import Sandbox, create_sandbox
from local_cluster.kubelet.sources import PodAddresses
from local_cluster.kubelet.status import (
    ContainerRecord,
    ContainerStateTerminated,
    ContainerStateWaiting,
    PodRecord,
    failed_containers,
    new_record,
    render_status,
)
from local_cluster.kubelet.volumes.pod_volumes import PodVolumes

RETRY_SECONDS = 1.0
# Tokens run out, and a source may have been missing: look again now and then.
REFRESH_SECONDS = 30.0

log = structlog.get_logger()


@dataclass(slots=True)
class PodWorker:
    """Runs one pod; told of changes by the kubelet, it tells the API server."""

    pod: Pod
    around: Surroundings
    record: PodRecord = field(init=False)
    volumes: PodVolumes = field(init=False)
    _sandbox: Sandbox | None = None
    _processors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _workers: dict[str, ContainerWorker] = field(default_factory=dict)
    _dirty: asyncio.Event = field(default_factory=asyncio.Event)
    _refresh: asyncio.Event = field(default_factory=asyncio.Event)
    _leave: asyncio.Event = field(default_factory=asyncio.Event)
    _vanished: bool = False

    def __post_init__(self) -> None:
        config = self.around.config
        uid = self.pod.metadata.uid
        self.record = new_record(self.pod, _now())
        self.volumes = PodVolumes(
            folder=config.pods_directory / uid / "volumes",
            memory_folder=config.memory_directory / uid,
            claims_folder=config.claims_directory,
            sources=self.around.sources,
            request_token=self.around.api.create_token,
        )

    @property
    def _folder(self) -> PodFolder:
        return PodFolder(self.around.config.pods_directory / self.pod.metadata.uid)

    @property
    def logs(self) -> Path:
        """Where the pod's output goes."""
        metadata = self.pod.metadata
        return self.around.config.logs_directory / f"{metadata.namespace}_{metadata.name}"

    def update(self, pod: Pod) -> None:
        """The pod object changed."""
        if pod.metadata != self.pod.metadata:
            # Also how a writer makes kubelets look at their ConfigMaps at once.
            self._refresh.set()
        self.pod = self.record.pod = pod
        if pod.metadata.deletion_timestamp is not None:
            self._leave.set()

    def vanish(self) -> None:
        """The pod object is gone without a goodbye: a forced deletion."""
        self._vanished = True
        self._leave.set()
        for worker in self._workers.values():
            worker.kill()

    def sources_changed(self) -> None:
        """Some ConfigMap, Secret, Service or name of a pod changed."""
        self._refresh.set()

    async def run(self) -> None:
        """Returns when nothing is left of the pod."""
        tasks = [
            asyncio.create_task(task)
            for task in (self._write_statuses(), self._run_containers(), self._keep_fresh())
        ]
        try:
            await self._leave.wait()
            await self._stop_containers()
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    log.error("pod task failed", pod=self.pod.metadata.name, exc_info=result)
            await self._clean_up()
        if not self._vanished:
            self._mark_ended()
            await self.around.api.write_status(self.pod, render_status(self.record, _now()))
            await self.around.api.delete(self.pod)

    async def _run_containers(self) -> None:
        if self.pod.finished or self.pod.metadata.deletion_timestamp is not None:
            return
        try:
            await self._prepare()
            for record in self.record.init_containers:
                policy = self.pod.spec.restart_policy
                code = await self._worker(
                    record, "Never" if policy == "Never" else "OnFailure"
                ).run()
                if code != 0:
                    return
            async with asyncio.TaskGroup() as group:
                for record in self.record.containers:
                    group.create_task(self._worker(record, self.pod.spec.restart_policy).run())
        finally:
            if not self._leave.is_set():
                # All ended by themselves; the object stays until somebody deletes it.
                await self._close_sandbox()
        log.info(
            "pod finished",
            pod=self.pod.metadata.name,
            failed=failed_containers(self.record.containers),
        )

    def _worker(self, record: ContainerRecord, policy: str) -> ContainerWorker:
        config = self.around.config
        addresses = self._known_addresses()
        worker = ContainerWorker(
            record=record,
            pod_ip=addresses.pod_ip,
            restart_policy=policy,
            grace_seconds=self.pod.spec.termination_grace_period_seconds,
            make_plan=self._plan,
            changed=self._dirty.set,
            report=self._report,
            session=self.around.session,
            backoff=Backoff(config.backoff_seconds, config.backoff_limit_seconds),
            log_path=self.logs / f"{record.container.name}.log",
            message_path=self._folder.message(record.container.name),
        )
        self._workers[record.container.name] = worker
        return worker

    def _report(self, reason: str, message: str) -> None:
        self.around.api.record_event(self.pod, reason, message)

    async def _prepare(self) -> None:
        """Network and volumes; tries until they are there."""
        self._dirty.set()
        while True:
            try:
                if self._sandbox is None:
                    self._sandbox = await self._open_sandbox()
                await self._refresh_files()
            except PodProblem as problem:
                self._all_waiting(problem)
            except (TimeoutError, OSError, ApiException, aiohttp.ClientError) as error:
                self._all_waiting(PodProblem(CREATE_CONTAINER_ERROR, str(error)))
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _open_sandbox(self) -> Sandbox:
        if self.pod.spec.host_network:
            raise PodProblem(
                CREATE_CONTAINER_CONFIG_ERROR, "The local kubelet does not support hostNetwork."
            )
        network = self.around.config.network
        address = self.around.addresses.take()
        try:
            sandbox = await create_sandbox(
                network, address, self.pod.spec.hostname or self.pod.metadata.name
            )
        except BaseException:
            self.around.addresses.give_back(address)
            raise
        self.record.addresses = PodAddresses(address, str(network.gateway))
        return sandbox

    def _all_waiting(self, problem: PodProblem) -> None:
        state = ContainerStateWaiting(problem.reason, problem.message)
        for record in self.record.containers:
            if record.state != state:
                record.state = state
                self._dirty.set()

    async def _keep_fresh(self) -> None:
        """Brings changed ConfigMaps, Secrets, tokens and names into the running pod."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._refresh.wait()
            self._refresh.clear()
            if self._sandbox is None:
                continue
            try:
                await self._refresh_files()
            except PodProblem as problem:
                # As in a real cluster: a running pod keeps the last content it had.
                log.info(
                    "volumes not refreshed", pod=self.pod.metadata.name, reason=problem.message
                )
            except (TimeoutError, OSError, ApiException, aiohttp.ClientError) as error:
                log.warning("volumes not refreshed", pod=self.pod.metadata.name, error=str(error))

    async def _refresh_files(self) -> None:
        addresses = self._known_addresses()
        await self.volumes.refresh(self.pod, addresses)
        write_hosts(
            self._folder.hosts,
            hosts_text(
                self.pod, addresses.pod_ip, self.around.services(), self.around.named_pods()
            ),
        )

    async def _plan(self, container: Container) -> ContainerPlan:
        """How to start a container, as of now.

        Raises:
            PodProblem: something it needs is missing.
        """
        config = self.around.config
        image = usable_image(config.images, container.image)
        addresses = self._known_addresses()
        await self.volumes.refresh(self.pod, addresses)
        variables = container_variables(self.pod, container, config, addresses, self.around.sources)
        argv = container_argv(container, image, variables)
        if self._sandbox is None:
            raise PodProblem(CREATE_CONTAINER_ERROR, "The pod has no network.")
        mounts = container_mounts(
            container, image, self._folder, self.volumes.mounts(self.pod, container)
        )
        return ContainerPlan(
            sandbox_pid=self._sandbox.pid,
            root=str(self._folder.make_root()),
            mounts=mounts,
            read_only_root=container.security_context.read_only_root_filesystem,
            argv=argv,
            env=image.environment() | variables,
            cwd=container.working_dir or "/",
            processors=list(self._processors_of(container)),
        )

    def _processors_of(self, container: Container) -> tuple[int, ...]:
        """The same ones through all of a container's restarts."""
        if container.name not in self._processors:
            count = whole_processors(container)
            self._processors[container.name] = self.around.processors.take(count)
        return self._processors[container.name]

    def _known_addresses(self) -> PodAddresses:
        if self.record.addresses is None:
            raise PodProblem(CREATE_CONTAINER_ERROR, "The pod has no address yet.")
        return self.record.addresses

    async def _stop_containers(self) -> None:
        grace = self.pod.metadata.deletion_grace_period_seconds
        if grace is None:
            grace = self.pod.spec.termination_grace_period_seconds
        seconds = 0.0 if self._vanished else float(grace)
        async with asyncio.TaskGroup() as group:
            for worker in self._workers.values():
                group.create_task(worker.stop(seconds))

    async def _write_statuses(self) -> None:
        """Tells the API server after each change; what comes meanwhile goes with the next write."""
        written: Object | None = None
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            status = render_status(self.record, _now())
            if status != written:
                await self.around.api.write_status(self.pod, status)
                written = status

    def _mark_ended(self) -> None:
        now = _now()
        for record in (*self.record.init_containers, *self.record.containers):
            record.ready = False
            if not isinstance(record.state, ContainerStateTerminated) and record.container_id:
                record.state = ContainerStateTerminated(137, now, now)

    async def _close_sandbox(self) -> None:
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.close()
            self.around.addresses.give_back(sandbox.address)
        while self._processors:
            _, processors = self._processors.popitem()
            self.around.processors.give_back(processors)

    async def _clean_up(self) -> None:
        await self._close_sandbox()
        await asyncio.to_thread(self._remove_files)

    def _remove_files(self) -> None:
        self.volumes.remove()
        self._folder.remove()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
