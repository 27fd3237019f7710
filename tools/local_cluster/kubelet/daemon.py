"""The kubelet process: one event loop for all nodes and pods."""

import asyncio
import shutil
from dataclasses import dataclass, field

import aiohttp
import structlog

from local_cluster.kube import Key, KubeApi, Mirror, Object, connect
from local_cluster.kubelet.config import KubeletConfig
from local_cluster.kubelet.containers.processors import ProcessorPool
from local_cluster.kubelet.dependencies import Surroundings
from local_cluster.kubelet.hosts import NamedPod, named_pod
from local_cluster.kubelet.log_server import log_server
from local_cluster.kubelet.models import Pod
from local_cluster.kubelet.node import keep_node
from local_cluster.kubelet.pod_api import KubePodApi
from local_cluster.kubelet.pod_worker import PodWorker
from local_cluster.kubelet.sandbox import AddressPool
from local_cluster.kubelet.sources import Sources
from local_cluster.kubelet.volumes.claims import ClaimBinder

PROBE_CONNECTIONS = 100

log = structlog.get_logger()


@dataclass(slots=True)
class Kubelet:
    """Hands pods to their workers."""

    config: KubeletConfig
    api: KubeApi
    session: aiohttp.ClientSession
    _workers: dict[str, PodWorker] = field(default_factory=dict)
    _uids: dict[Key, str] = field(default_factory=dict)
    _named_pods: dict[Key, NamedPod] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _around: Surroundings = field(init=False)
    _mirrors: list[Mirror] = field(init=False)

    def __post_init__(self) -> None:
        config_maps = Mirror(self.api, "/api/v1/configmaps", self._source_changed)
        secrets = Mirror(self.api, "/api/v1/secrets", self._source_changed)
        services = Mirror(self.api, "/api/v1/services", self._source_changed)
        binder = ClaimBinder(self.api, self.config.claims_directory)
        claims = Mirror(self.api, "/api/v1/persistentvolumeclaims", binder.changed)
        pods = Mirror(self.api, "/api/v1/pods", self._pod_changed)
        self._mirrors = [config_maps, secrets, services, claims, pods]
        self._around = Surroundings(
            config=self.config,
            api=KubePodApi(self.api),
            sources=Sources(config_maps.items, secrets.items),
            services=lambda: [services.items[key] for key in sorted(services.items)],
            named_pods=lambda: [self._named_pods[key] for key in sorted(self._named_pods)],
            addresses=AddressPool(self.config.network),
            processors=ProcessorPool(),
            session=self.session,
        )

    async def run(self) -> None:
        """Runs until cancelled; the pods end with it."""
        self._clear_leftovers()
        host_ip, version = str(self.config.network.gateway), self.config.version
        async with log_server(self.config) as port, asyncio.TaskGroup() as group:
            for mirror in self._mirrors[:-1]:
                group.create_task(mirror.run())
            # Pods last: what they refer to is known when they start.
            for mirror in self._mirrors[:-1]:
                await mirror.synced.wait()
            group.create_task(self._mirrors[-1].run())
            for node in self.config.nodes:
                group.create_task(keep_node(self.api, node, host_ip, port, version))

    def _clear_leftovers(self) -> None:
        """Remove what an earlier kubelet left: its processes ended with it, its files did not."""
        for folder in (self.config.pods_directory, self.config.memory_directory):
            shutil.rmtree(folder, ignore_errors=True)
            # What is still ending may have kept a file from being removed.
            folder.mkdir(parents=True, exist_ok=True)

    def _source_changed(self, key: Key, item: Object | None) -> None:
        del key, item
        self._refresh_pods()

    def _refresh_pods(self) -> None:
        for worker in self._workers.values():
            worker.sources_changed()

    def _name(self, key: Key, named: NamedPod | None) -> None:
        """Each pod that may ask for another by its name hears of a new address."""
        if self._named_pods.get(key) == named:
            return
        if named is None:
            del self._named_pods[key]
        else:
            self._named_pods[key] = named
        self._refresh_pods()

    def _pod_changed(self, key: Key, item: Object | None) -> None:
        known = self._uids.get(key)
        if item is None:
            self._name(key, None)
            if known in self._workers:
                self._workers[known].vanish()
            return
        pod = Pod.model_validate(item)
        self._name(key, named_pod(pod))
        if pod.spec.node_name not in {node.name for node in self.config.nodes}:
            return
        uid = pod.metadata.uid
        if known is not None and known != uid and known in self._workers:
            self._workers[known].vanish()
        self._uids[key] = uid
        worker = self._workers.get(uid)
        if worker is None:
            worker = self._workers[uid] = PodWorker(pod, self._around)
            task = asyncio.create_task(self._run_worker(key, worker))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        worker.update(pod)

    async def _run_worker(self, key: Key, worker: PodWorker) -> None:
        uid = worker.pod.metadata.uid
        try:
            await worker.run()
        except Exception:
            log.exception("pod worker failed", pod=key)
        finally:
            self._workers.pop(uid, None)
            if self._uids.get(key) == uid:
                self._uids.pop(key)


async def run_kubelet(config: KubeletConfig) -> None:
    """Runs a kubelet until cancelled."""
    connector = aiohttp.TCPConnector(limit=PROBE_CONNECTIONS, force_close=True)
    probing = {"User-Agent": f"kube-probe/{config.version.rpartition('.')[0]}"}
    async with (
        connect(config.kubeconfig) as client,
        aiohttp.ClientSession(connector=connector, headers=probing, trust_env=False) as session,
    ):
        await Kubelet(config, KubeApi(client), session).run()
