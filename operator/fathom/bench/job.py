"""The objects of one bench: a Job, and the code that its pod runs. Pure."""

from typing import Final

from pydantic import JsonValue

import fathom_measure
from fathom.api import names
from fathom.bench.planning import PlannedBench
from fathom.bench.request import DataVolume
from fathom.cluster.manifest import Manifest, owned_by
from fathom.engine.plugin import DeliveredCode, source_files
from fathom.manifests.config_maps import code_data, code_volume
from fathom.manifests.pod_template import DEPTH_VOLUME, PLUGIN_VOLUME
from fathom.manifests.template_parts import Part, part, parts
from fathom.resource import SpeculativeDeployment

PROGRAM_DIRECTORY: Final = "/etc/fathom/bench"
_MAIN: Final = "fathom_measure/__main__.py"
_NOT_MEASURING: Final = "fathom_measure/start_probe.py"
"""What `fathom check` runs."""
KEPT_SECONDS: Final = 3600
"""That a Job stays after its end: whoever asked may have gone, and come back for the result."""
_GRACE_SECONDS: Final = 30
_VOLUME: Final = "fathom-bench"
_NOT_SERVING: Final = frozenset(
    {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "args"}
)
"""Fields of the engine's container that a pod needs if clients reach it. Ports stay: with
`hostNetwork` they keep it from a node where a replica has them."""
_OF_A_REPLICA: Final = frozenset({"priorityClassName", "priority", "preemptionPolicy"})
"""Fields of the pod: a bench takes no one's place, and gives its own to a replica."""


class BenchProgram(DeliveredCode):
    """What the pod runs."""

    __slots__ = ()


def bench_program() -> BenchProgram:
    """The one that comes with this Fathom."""
    files = source_files(fathom_measure)
    # A folder on the command line is started by the `__main__.py` that lies in it, and is where
    # packages are found: neither PYTHONPATH nor the image's own packages change.
    main = {"__main__.py": files.pop(_MAIN)}
    del files[_NOT_MEASURING]
    return BenchProgram(main | files, "")


def bench_job(
    sd: SpeculativeDeployment,
    bench: PlannedBench,
    *,
    run: str,
    deadline_minutes: int,
    program: BenchProgram,
) -> Manifest:
    """One pod that is what a replica is, but serves nobody: no Service and no router selects it.

    It ends by itself, whatever becomes of the command that made it.

    Args:
        sd: whose.
        bench: what it measures.
        run: tells it from another bench of the same resource.
        deadline_minutes: after which Kubernetes ends it.
        program: what it runs.
    """
    labels: dict[str, JsonValue] = {names.LABEL_BENCH: sd.metadata.name}
    template = part(bench.template, "metadata")
    annotations = template.get("annotations")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.bench(sd.metadata.name),
            "namespace": sd.metadata.namespace,
            "labels": dict(labels),
            "annotations": {names.ANNOTATION_BENCH_RUN: run},
            "ownerReferences": owned_by(
                names.API_VERSION, names.KIND, sd.metadata.name, sd.metadata.uid
            ),
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline_minutes * 60,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {
                # Not the template's labels: a router would send it requests.
                "metadata": {
                    "labels": dict(labels),
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": _pod(bench, names.bench_code(sd.metadata.name, run), program),
            },
        },
    }


def bench_code(
    sd: SpeculativeDeployment,
    bench: PlannedBench,
    *,
    run: str,
    program: BenchProgram,
    owner: list[JsonValue],
) -> Manifest:
    """The program, and the plugin as this Fathom has it.

    Args:
        sd: whose.
        bench: whose plugin.
        run: the Job's.
        program: what the pod runs.
        owner: the Job, with which it goes.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.bench_code(sd.metadata.name, run),
            "namespace": sd.metadata.namespace,
            "labels": {names.LABEL_BENCH: sd.metadata.name},
            "ownerReferences": owner,
        },
        "data": {**code_data(bench.bundle), **code_data(program)},
    }


def _pod(bench: PlannedBench, code: str, program: BenchProgram) -> dict[str, JsonValue]:
    spec = part(bench.template, "spec")
    containers: list[JsonValue] = [
        _engine(bench, each) if each.get("name") == names.ENGINE_CONTAINER else dict(each)
        for each in parts(spec, "containers")
    ]
    volumes: list[JsonValue] = [
        *(_volume(bench, each, code) for each in parts(spec, "volumes")),
        code_volume(_VOLUME, code, program),
        *({"name": name, **volume.source()} for volume, name in _data_volumes(bench).items()),
    ]
    return {
        **{key: value for key, value in spec.items() if key not in _OF_A_REPLICA},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": containers,
        "volumes": volumes,
    }


def _engine(bench: PlannedBench, container: Part) -> dict[str, JsonValue]:
    """The same image, variables, devices and rights; the program starts the engine in it."""
    mounts: list[JsonValue] = [
        {**each, "readOnly": False} if each.get("name") == DEPTH_VOLUME else dict(each)
        for each in parts(container, "volumeMounts")
    ]
    mounts.append({"name": _VOLUME, "mountPath": PROGRAM_DIRECTORY, "readOnly": True})
    mounts += [
        {"name": name, "mountPath": volume.mount_path, "readOnly": True}
        for volume, name in _data_volumes(bench).items()
    ]
    return {
        **{key: value for key, value in container.items() if key not in _NOT_SERVING},
        "command": ["python3", PROGRAM_DIRECTORY, bench.measure.to_json()],
        "volumeMounts": mounts,
    }


def _volume(bench: PlannedBench, volume: Part, code: str) -> dict[str, JsonValue]:
    if volume.get("name") == PLUGIN_VOLUME:
        # By this Fathom: the operator's may be another, and its ConfigMap is not ours to read.
        return code_volume(PLUGIN_VOLUME, code, bench.bundle)
    if volume.get("name") == DEPTH_VOLUME:
        # Of its own: no operator decides on it, and no other pod follows it.
        return {"name": DEPTH_VOLUME, "emptyDir": {}}
    return dict(volume)


def _data_volumes(bench: PlannedBench) -> dict[DataVolume, str]:
    """Each once, with its name in the pod."""
    found = dict.fromkeys(each.volume for each in bench.data if each.volume)
    return {volume: f"bench-data-{index}" for index, volume in enumerate(found)}
