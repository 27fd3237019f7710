"""PersistentVolumeClaims as folders of this machine, which every pod may mount.

What a storage provisioner and Kubernetes' own volume controllers do in a real cluster, as far as
pods need it: a volume for each claim, bound at once, gone with it. Capacities and access modes are
believed, not enforced.
"""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from local_cluster.kube import MERGE_PATCH, Key, KubeApi, Object, retry_until_done

VOLUMES: Final = "/api/v1/persistentvolumes"


def claim_folder(directory: Path, namespace: str, claim: str) -> Path:
    """Where a claim's files are."""
    return directory / namespace / claim


@dataclass(slots=True)
class ClaimBinder:
    """Gives each claim its folder."""

    api: KubeApi
    directory: Path
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def changed(self, key: Key, item: Object | None) -> None:
        """Some claim is new, another, or gone (None)."""
        task = asyncio.create_task(self._settle(key, item))
        # The event loop holds tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, key: Key, item: Object | None) -> None:
        folder = claim_folder(self.directory, *key)
        if item is None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        elif item["metadata"].get("deletionTimestamp"):
            await self._release(key, item)
        elif not item["spec"].get("volumeName"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)
            await self._bind(key, item, folder)

    async def _bind(self, key: Key, item: Object, folder: Path) -> None:
        volume = _volume(item, folder)
        path = f"{_claims(key)}/{key[1]}"
        bound = {"volumeName": volume["metadata"]["name"]}
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        shown = {"capacity": volume["spec"]["capacity"], "phase": "Bound"}
        await self._write("POST", VOLUMES, volume)
        await self._write("PATCH", path, {"metadata": {"annotations": done}, "spec": bound})
        await self._write("PATCH", f"{path}/status", {"status": shown})

    async def _release(self, key: Key, item: Object) -> None:
        """Nobody else takes the finalizers away: the controllers that do are not started."""
        unguarded: Object = {"metadata": {"finalizers": None}}
        if name := item["spec"].get("volumeName"):
            await self._write("PATCH", f"{VOLUMES}/{name}", unguarded)
            await self._write("DELETE", f"{VOLUMES}/{name}", None)
        await self._write("PATCH", f"{_claims(key)}/{key[1]}", unguarded)

    async def _write(self, method: str, path: str, body: Object | None) -> None:
        kind = MERGE_PATCH if method == "PATCH" else "application/json"

        async def attempt() -> None:
            await self.api.request(method, path, body=body, content_type=kind)

        await retry_until_done(attempt)


def _claims(key: Key) -> str:
    return f"/api/v1/namespaces/{key[0]}/persistentvolumeclaims"


def _volume(claim: Object, folder: Path) -> Object:
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}"},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": spec["resources"]["requests"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "hostPath": {"path": str(folder)},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName") or "",
        },
    }
