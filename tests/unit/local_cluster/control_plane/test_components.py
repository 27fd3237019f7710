"""Flags of a control plane, which differ by release."""

import ipaddress
from pathlib import Path

import pytest

from local_cluster.control_plane.components import (
    ControlPlane,
    admission_flags,
    controller_commands,
)
from local_cluster.control_plane.credentials import Credentials, create_credentials

OLD, CURRENT = (1, 20), (1, 36)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    loopback = ipaddress.IPv4Address("127.0.0.1")
    return create_credentials(
        tmp_path_factory.mktemp("credentials"),
        cluster="any",
        address=loopback,
        port=1,
        service=ipaddress.IPv4Address("10.96.0.1"),
    )


def test_what_a_current_release_no_longer_knows_is_not_said_to_it(
    credentials: Credentials,
) -> None:
    """It would not start: "unknown flag: --port", "unrecognized feature gate"."""
    gate = "--feature-gates=BoundServiceAccountTokenVolume=true"
    assert gate in admission_flags(OLD, controllers=True)
    assert gate not in admission_flags(CURRENT, controllers=True)
    for flags in controller_commands(OLD, credentials).values():
        assert "--port=0" in flags
    for flags in controller_commands(CURRENT, credentials).values():
        assert "--port=0" not in flags
        assert "--secure-port=0" in flags


def test_a_cluster_of_an_earlier_fathom_can_still_be_read(
    credentials: Credentials, tmp_path: Path
) -> None:
    """Or nothing could take it down."""
    plane = ControlPlane(
        directory=tmp_path,
        version="1.36.2",
        address=ipaddress.IPv4Address("127.0.0.1"),
        port=1,
        credentials=credentials,
        processes=(),
    )
    earlier = plane.model_dump_json(exclude={"version"})
    assert ControlPlane.model_validate_json(earlier).version == "1.20.2"


@pytest.mark.parametrize("release", [OLD, CURRENT])
def test_an_api_server_alone_wants_no_service_account_of_a_pod(release: tuple[int, int]) -> None:
    flags = admission_flags(release, controllers=False)
    assert flags == ["--disable-admission-plugins=ServiceAccount"]
