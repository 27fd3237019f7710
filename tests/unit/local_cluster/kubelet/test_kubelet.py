"""The kubelet's decisions, without any process."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cluster.kubelet.containers.container_worker import Backoff
from local_cluster.kubelet.containers.environment import expand
from local_cluster.kubelet.containers.probes import ThresholdCounter
from local_cluster.kubelet.hosts import NamedPod, hosts_text, named_pod, write_hosts
from local_cluster.kubelet.models import Container, ContainerProbe, Pod, PodStatusRead, TokenSource
from local_cluster.kubelet.problem import PodProblem
from local_cluster.kubelet.sources import PodAddresses, Sources
from local_cluster.kubelet.status import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    new_record,
    phase,
    render_status,
)
from local_cluster.kubelet.volumes.atomic_writer import FileContent, write_payload
from local_cluster.kubelet.volumes.claims import claim_folder
from local_cluster.kubelet.volumes.pod_volumes import PodVolumes

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ADDRESSES = PodAddresses(pod_ip="10.244.0.16", host_ip="10.244.0.1")


def make_pod(**spec: Any) -> Pod:
    return Pod.model_validate(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(NOPE)", "$(NOPE)"),
        ("x$(A)y$(A)", "x1y1"),
        ("$A", "$A"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b", "sub/c"]),
            st.builds(FileContent, st.binary(max_size=8), st.sampled_from([0o644, 0o600])),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_volume_shows_exactly_its_payload(payloads: list[dict[str, FileContent]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for payload in payloads:
            write_payload(folder, payload)
            assert not write_payload(folder, payload)
            shown = {path.name for path in folder.iterdir() if not path.name.startswith("..")}
            assert shown == {relative.partition("/")[0] for relative in payload}
            for relative, file in payload.items():
                path = folder / relative
                assert path.read_bytes() == file.content
                assert path.stat().st_mode & 0o777 == file.mode
            # The swapped link and the one folder it leads to, nothing older.
            assert len([path for path in folder.iterdir() if path.name.startswith("..")]) == 2


async def test_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    now = [0.0]
    requested: list[float] = []

    async def request_token(pod: Pod, source: TokenSource) -> str:
        assert (pod.metadata.name, source.expiration_seconds) == ("p", 1000)
        requested.append(now[0])
        return f"token {len(requested)}"

    pod = make_pod(
        volumes=[
            {
                "name": "v",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {"fieldPath": "metadata.namespace"},
                                    }
                                ]
                            }
                        },
                    ]
                },
            }
        ]
    )
    volumes = PodVolumes(
        tmp_path / "v",
        tmp_path / "m",
        tmp_path / "c",
        Sources({}, {}),
        request_token,
        clock=lambda: now[0],
    )
    for now[0] in (0.0, 799.0, 800.0):
        await volumes.refresh(pod, ADDRESSES)
    assert requested == [0.0, 800.0]
    assert (tmp_path / "v" / "v" / "token").read_text() == "token 2"
    assert (tmp_path / "v" / "v" / "namespace").read_text() == "ns"


async def test_a_claim_is_a_folder_once_it_is_bound(tmp_path: Path) -> None:
    async def no_token(pod: Pod, source: TokenSource) -> str:
        raise AssertionError((pod, source))

    volumes = PodVolumes(tmp_path, tmp_path / "m", tmp_path / "c", Sources({}, {}), no_token)
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": "data", "readOnly": name == "read"}}
        for name in ("write", "read")
    ]
    pod = make_pod(volumes=claims)
    mounted = [
        {"name": "write", "mountPath": "/write"},
        {"name": "read", "mountPath": "/read"},
        {"name": "write", "mountPath": "/also", "readOnly": True},
    ]
    container = Container.model_validate({"name": "c", "image": "i", "volumeMounts": mounted})
    message = "PersistentVolumeClaim ns/data, which a volume needs, not found."
    with pytest.raises(PodProblem, match=message):
        volumes.mounts(pod, container)
    folder = claim_folder(tmp_path / "c", "ns", "data")
    folder.mkdir(parents=True)
    found = volumes.mounts(pod, container)
    assert {each["source"] for each in found} == {str(folder)}
    assert [each["read_only"] for each in found] == [False, True, True]


async def test_missing_sources_are_sentences(tmp_path: Path) -> None:
    async def no_token(pod: Pod, source: TokenSource) -> str:
        raise AssertionError((pod, source))

    sources = Sources({("ns", "here"): {"data": {"a": "1"}}}, {})
    volumes = PodVolumes(tmp_path, tmp_path / "m", tmp_path / "c", sources, no_token)
    for volume, message in (
        ({"configMap": {"name": "gone"}}, "ConfigMap ns/gone, which a volume needs, not found."),
        ({"secret": {"secretName": "gone"}}, "Secret ns/gone, which a volume needs, not found."),
        (
            {"configMap": {"name": "here", "items": [{"key": "b", "path": "b"}]}},
            "ConfigMap ns/here has no key b, which a volume needs.",
        ),
        ({"nfs": {"server": "s"}}, "does not support the kind of volume v"),
    ):
        with pytest.raises(PodProblem, match=message):
            await volumes.refresh(make_pod(volumes=[{"name": "v", **volume}]), ADDRESSES)
    optional = {"name": "v", "configMap": {"name": "gone", "optional": True}}
    await volumes.refresh(make_pod(volumes=[optional]), ADDRESSES)


def test_thresholds_count_verdicts_in_a_row() -> None:
    counter = ThresholdCounter(ContainerProbe(failure_threshold=2, success_threshold=2))
    verdicts = [counter.add(well=well) for well in (True, False, True, True, False, False)]
    assert verdicts == [None, None, None, True, None, False]


def test_backoff_doubles_up_to_its_limit() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.pause(crashes) for crashes in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]


ENDED_WELL = ContainerStateTerminated(0, NOW, NOW)
FAILED = ContainerStateTerminated(1, NOW, NOW)


@pytest.mark.parametrize(
    ("policy", "state", "last", "expected"),
    [
        ("Always", ContainerStateWaiting("ContainerCreating"), None, "Pending"),
        ("Always", ContainerStateRunning(NOW), None, "Running"),
        ("Always", ContainerStateWaiting("CrashLoopBackOff"), FAILED, "Running"),
        ("Always", ENDED_WELL, None, "Running"),
        ("OnFailure", FAILED, None, "Running"),
        ("OnFailure", ENDED_WELL, None, "Succeeded"),
        ("Never", FAILED, None, "Failed"),
        ("Never", ENDED_WELL, None, "Succeeded"),
    ],
)
def test_phase(
    policy: str, state: ContainerState, last: ContainerStateTerminated | None, expected: str
) -> None:
    record = new_record(make_pod(restartPolicy=policy), NOW)
    record.containers[0].state = state
    record.containers[0].last_state = last
    assert phase(record) == expected


def test_condition_keeps_the_time_of_its_last_change() -> None:
    record = new_record(make_pod(), NOW)

    def ready(at: dt.datetime) -> tuple[str, str]:
        conditions = render_status(record, at)["conditions"]
        found = next(item for item in conditions if item["type"] == "Ready")
        return found["status"], found["lastTransitionTime"]

    first, later = NOW, NOW + dt.timedelta(seconds=5)
    assert ready(first) == ready(later) == ("False", "2026-01-01T00:00:00Z")
    record.containers[0].ready = True
    assert ready(later) == ("True", "2026-01-01T00:00:05Z")


def test_hosts_file_names_services_and_keeps_its_inode(tmp_path: Path) -> None:
    services = [
        {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"clusterIP": "10.96.0.9"}},
        {"metadata": {"name": "b", "namespace": "other"}, "spec": {"clusterIP": "10.96.0.8"}},
        {"metadata": {"name": "headless", "namespace": "ns"}, "spec": {"clusterIP": "None"}},
    ]
    text = hosts_text(make_pod(), "10.244.0.16", services)
    assert "10.96.0.9 a.ns.svc.cluster.local a.ns.svc a.ns a\n" in text
    assert "10.96.0.8 b.other.svc.cluster.local b.other.svc b.other\n" in text
    assert "headless" not in text
    path = tmp_path / "hosts"
    write_hosts(path, text)
    inode = path.stat().st_ino
    write_hosts(path, "short\n")
    assert path.read_text() == "short\n"
    assert path.stat().st_ino == inode


def headless(name: str, selector: dict[str, str] | None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"clusterIP": "None", "selector": selector, **spec},
    }


def member(**changes: Any) -> NamedPod:
    fields = {
        "namespace": "ns",
        "service": "set",
        "hostname": "set-0",
        "labels": {"app": "x", "more": "y"},
        "address": "10.244.0.17",
        "ready": False,
    }
    return NamedPod(**(fields | changes))


def test_a_pod_behind_a_headless_service_has_a_name_of_its_own() -> None:
    service = headless("set", {"app": "x"}, publishNotReadyAddresses=True)
    text = hosts_text(make_pod(), "10.244.0.16", [service], [member()])
    names = "set-0.set.ns.svc.cluster.local set-0.set.ns.svc set-0.set.ns set-0.set"
    assert f"10.244.0.17 {names}\n" in text

    elsewhere = Pod.model_validate(
        {
            "metadata": {"name": "p", "namespace": "other", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
    )
    text = hosts_text(elsewhere, "10.244.0.16", [service], [member()])
    assert "10.244.0.17 set-0.set.ns.svc.cluster.local set-0.set.ns.svc set-0.set.ns\n" in text


def test_a_name_waits_for_a_ready_pod_unless_its_service_says_otherwise() -> None:
    service = headless("set", {"app": "x"})
    assert "set-0" not in hosts_text(make_pod(), "10.244.0.16", [service], [member()])
    assert "set-0" in hosts_text(make_pod(), "10.244.0.16", [service], [member(ready=True)])


@pytest.mark.parametrize(
    ("service", "changes"),
    [
        (headless("set", {"app": "z"}), {}),
        (headless("set", None), {}),
        (headless("another", {"app": "x"}), {}),
        (headless("set", {"app": "x"}), {"namespace": "other"}),
        (headless("set", {"app": "x"}, clusterIP="10.96.0.9"), {}),
    ],
)
def test_only_the_headless_service_that_selects_a_pod_names_it(
    service: dict[str, Any], changes: dict[str, Any]
) -> None:
    pod = member(ready=True, **changes)
    assert "10.244.0.17" not in hosts_text(make_pod(), "10.244.0.16", [service], [pod])


def pod_with_name(status: dict[str, Any], **spec: Any) -> Pod:
    return make_pod(**({"hostname": "set-0", "subdomain": "set"} | spec)).model_copy(
        update={"status": PodStatusRead.model_validate(status)}
    )


def test_a_pod_is_named_once_it_has_an_address_and_until_it_has_ended() -> None:
    running = {"phase": "Running", "podIP": "10.244.0.17"}
    ready = [{"type": "Ready", "status": "True"}]
    found = named_pod(pod_with_name({**running, "conditions": ready}))
    assert found == member(labels={"app": "x"}, ready=True)
    assert named_pod(pod_with_name(running)) == member(labels={"app": "x"})
    assert named_pod(pod_with_name({"phase": "Pending"})) is None
    assert named_pod(pod_with_name({**running, "phase": "Succeeded"})) is None
    assert named_pod(pod_with_name(running, subdomain="")) is None
    assert named_pod(pod_with_name(running, hostname="")) is None
