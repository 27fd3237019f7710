"""Parsing and deciding around the cluster, without any cluster."""

import ipaddress
import json
import os
from functools import partial
from pathlib import Path

import psutil
import pytest

from local_cluster.cluster import is_in_use, why_not_ours
from local_cluster.control_plane.apt_sources import (
    is_debian,
    with_source_lines,
    with_source_stanzas,
    write_private_sources,
)
from local_cluster.control_plane.audit import read_events
from local_cluster.errors import LocalClusterError
from local_cluster.network import (
    ALL_PODS,
    ALL_SERVICES,
    MAX_CLUSTERS,
    ClusterNetwork,
    way_past_proxies,
)
from local_cluster.prerequisites import require_all
from local_cluster.processes import ProcessRecord, start_daemon, stop_processes, this_process
from local_cluster.service_proxy import Target, service_targets
from local_cluster.state import ClusterState, cluster_directory

DEB822 = """\
Types: deb
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main

# a comment
Types: deb
URIs: https://vendor.invalid/apt
Suites: stable
Components: main
"""


def test_only_the_distributions_own_stanzas_become_sources() -> None:
    text = with_source_stanzas(DEB822, "bookworm")
    assert "Types: deb deb-src\n" in text
    assert "URIs: http://mirror.invalid/debian" in text
    assert "vendor" not in text


def test_one_line_sources_are_doubled() -> None:
    listed = (
        "deb [arch=amd64] http://mirror.invalid/debian bookworm main\n"
        "# deb http://off.invalid bookworm main\n"
        "deb https://vendor.invalid cloud-sdk-bookworm main\n"
    )
    assert with_source_lines(listed, "bookworm").splitlines() == [
        "deb [arch=amd64] http://mirror.invalid/debian bookworm main",
        "deb-src [arch=amd64] http://mirror.invalid/debian bookworm main",
    ]


def test_other_systems_are_told_what_to_do(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text("ID=fedora\nVERSION_CODENAME=x\n")
    with pytest.raises(LocalClusterError, match="this is not Debian"):
        write_private_sources(tmp_path / "apt", etc_apt=tmp_path, os_release=release)


def test_debian_is_what_its_release_file_says(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    assert not is_debian(release)
    release.write_text("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n")
    assert not is_debian(release)
    release.write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    assert is_debian(release)


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        ({}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "export NO_PROXY=10.244.0.0/16,10.96.0.0/16"),
        (
            {"http_proxy": "http://p:1", "no_proxy": "localhost, .corp"},
            "export no_proxy=localhost,.corp,10.244.0.0/16,10.96.0.0/16",
        ),
        (
            {"ALL_PROXY": "socks5://p:1", "NO_PROXY": "10.96.0.0/16"},
            "export NO_PROXY=10.96.0.0/16,10.244.0.0/16",
        ),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.96.0.0/16,10.244.0.0/16"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
    ],
)
def test_a_proxy_is_kept_out_of_the_clusters_by_a_command(
    environment: dict[str, str], command: str | None
) -> None:
    way = way_past_proxies(environment)
    if command is None:
        assert way == ""
    else:
        assert way.endswith(command)
        assert way.startswith(next(iter(environment)))


def test_the_networks_of_all_clusters_are_what_proxies_keep_out() -> None:
    for index in range(MAX_CLUSTERS):
        network = ClusterNetwork(index=index)
        assert network.pods.subnet_of(ipaddress.IPv4Network(ALL_PODS))
        assert network.services.subnet_of(ipaddress.IPv4Network(ALL_SERVICES))


def test_every_check_is_made_before_anything_is_done() -> None:
    def fails(why: str) -> None:
        raise LocalClusterError(why)

    with pytest.raises(LocalClusterError, match=r"^no root\nno ip$"):
        require_all(partial(fails, "no root"), lambda: None, partial(fails, "no ip"))
    require_all(lambda: None)


def audit_line(**fields: object) -> str:
    event = {
        "verb": "patch",
        "user": {"username": "u"},
        "objectRef": {"resource": "pods", "namespace": "n", "name": "p", "subresource": "status"},
        "responseStatus": {"code": 200},
        "stageTimestamp": "2026-01-01T00:00:00.5Z",
        **fields,
    }
    return json.dumps(event) + "\n"


def test_audit_events_are_read_up_to_a_half_written_line(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    assert list(read_events(log)) == []
    log.write_text(audit_line() + audit_line(verb="list", objectRef={}) + audit_line()[:50])
    first, second = read_events(log)
    assert (first.user, first.resource, first.subresource, first.code) == (
        "u",
        "pods",
        "status",
        200,
    )
    assert first.is_write
    assert (second.resource, second.is_write) == ("", False)


def test_service_leads_to_ready_addresses_by_port_name() -> None:
    service = {
        "spec": {
            "clusterIP": "10.96.0.5",
            "ports": [
                {"name": "http", "port": 80},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
        }
    }
    endpoints = {
        "subsets": [
            {
                "addresses": [{"ip": "10.244.0.17"}, {"ip": "10.244.0.16"}],
                "notReadyAddresses": [{"ip": "10.244.0.18"}],
                "ports": [{"name": "http", "port": 8000}, {"name": "metrics", "port": 9000}],
            }
        ]
    }
    at = Target("10.96.0.5", 80)
    assert service_targets(service, endpoints) == {
        at: (Target("10.244.0.16", 8000), Target("10.244.0.17", 8000))
    }
    assert service_targets(service, None) == {at: ()}
    assert service_targets({"spec": {"clusterIP": "None"}}, endpoints) == {}


def test_clusters_do_not_share_addresses() -> None:
    networks = [ClusterNetwork(index=index) for index in range(3)]
    assert len({network.pods for network in networks}) == 3
    assert networks[2].gateway in networks[2].pods
    assert networks[2].bridge == "fathom2"


@pytest.mark.parametrize("name", ["", "../x", "A", "a_b", "-a", "a" * 40])
def test_names_that_are_no_folder_names_are_refused(name: str) -> None:
    with pytest.raises(LocalClusterError, match="cannot name a cluster"):
        cluster_directory(name)


def test_only_the_process_that_was_started_is_ended(tmp_path: Path) -> None:
    record = start_daemon("sleep", ["sleep", "600"], log=tmp_path / "log", env={"PATH": os.defpath})
    stranger = record.model_copy(update={"started_at": record.started_at - 1})
    assert stranger.find() is None
    stop_processes([stranger])
    assert record.find() is not None
    stop_processes([record])
    assert record.find() is None
    stop_processes([record])


def test_program_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="etcd did not start: /nowhere/etcd"):
        start_daemon("etcd", ["/nowhere/etcd"], log=tmp_path / "log", env={})


def test_record_of_a_dead_process_is_not_found() -> None:
    assert ProcessRecord(name="x", pid=psutil.pids()[-1] + 100_000, started_at=0).find() is None


def a_cluster(owner: ProcessRecord | None) -> ClusterState:
    return ClusterState(name="demo", network=ClusterNetwork(index=3), owner=owner)


def test_a_cluster_is_in_use_as_long_as_its_owner_lives() -> None:
    living = this_process()
    assert is_in_use(a_cluster(living))
    assert f"belongs to process {living.pid}" in why_not_ours(a_cluster(living))
    # The same pid, but handed out again since.
    assert not is_in_use(a_cluster(living.model_copy(update={"started_at": 1.0})))


def test_a_cluster_that_is_kept_is_in_use_while_all_of_it_runs() -> None:
    kept = a_cluster(None)
    assert not is_in_use(kept)
    assert "fathom local down --name demo" in why_not_ours(kept)
    kubelet = this_process().model_copy(update={"name": "kubelet"})
    half = kept.model_copy(update={"agents": (kubelet,)})
    assert not is_in_use(half)
    proxy = kubelet.model_copy(update={"name": "service_proxy"})
    assert is_in_use(half.model_copy(update={"agents": (kubelet, proxy)}))
