"""What the control plane's parts show each other: certificates, keys, tokens, kubeconfigs."""

import csv
import datetime as dt
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from pydantic import BaseModel, ConfigDict

VALID_FOR = dt.timedelta(days=365)
ADMIN = "fathom:admin"
KUBELET = "fathom:kubelet"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
# A name of its own per component, so that the audit log tells them apart; all are all-powerful,
# since what a local cluster guards against is a pod with too narrow a role, not its own parts.
USERS = (ADMIN, KUBELET, CONTROLLER_MANAGER, SCHEDULER)
SUPERUSERS = "system:masters"


class Credentials(BaseModel):
    """Paths of one control plane's credential files."""

    model_config = ConfigDict(frozen=True)

    directory: Path

    @property
    def ca_certificate(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        return self.directory / "apiserver.crt"

    @property
    def server_key(self) -> Path:
        return self.directory / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"

    @property
    def service_account_public_key(self) -> Path:
        return self.directory / "service-account.pub"

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user.rpartition(':')[2]}.kubeconfig"


def create_credentials(
    directory: Path,
    *,
    cluster: str,
    address: ipaddress.IPv4Address,
    port: int,
    service: ipaddress.IPv4Address,
) -> Credentials:
    """Writes everything anew, readable by the owner alone.

    Args:
        directory: where to.
        cluster: name of cluster and context in the kubeconfigs.
        address: where the API server listens.
        port: where the API server listens.
        service: the cluster address of the service `default/kubernetes`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    credentials = Credentials(directory=directory)
    _create_certificates(credentials, [address, service, ipaddress.IPv4Address("127.0.0.1")])
    _create_service_account_keys(credentials)
    tokens = {user: secrets.token_urlsafe(32) for user in USERS}
    with credentials.tokens.open("w", newline="") as file:
        writer = csv.writer(file)
        for user, token in tokens.items():
            writer.writerow([token, user, user, SUPERUSERS])
    for user, token in tokens.items():
        _write_kubeconfig(credentials, user, token, cluster, f"https://{address}:{port}")
    return credentials


def _create_certificates(
    credentials: Credentials, addresses: Sequence[ipaddress.IPv4Address]
) -> None:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fathom-local-ca")])
    now = dt.datetime.now(dt.UTC)
    begin, end = now - dt.timedelta(hours=1), now + VALID_FOR
    ca_identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = (
        x509.CertificateBuilder()
        .subject_name(ca_name)
        .issuer_name(ca_name)
        .public_key(ca_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(ca_identifier, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    server = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")]))
        .issuer_name(ca_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        # A client is the API server of the kubelet, whose logs it fetches.
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        # Python 3.13 refuses a chain without it.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
            ),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    credentials.ca_certificate.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    credentials.server_certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    credentials.server_key.write_bytes(_private_pem(key))


def _create_service_account_keys(credentials: Credentials) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    credentials.service_account_key.write_bytes(_private_pem(key))
    credentials.service_account_public_key.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def _write_kubeconfig(
    credentials: Credentials, user: str, token: str, cluster: str, server: str
) -> None:
    path = credentials.kubeconfig(user)
    path.touch(mode=0o600)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [
            {
                "name": cluster,
                "cluster": {
                    "server": server,
                    "certificate-authority": str(credentials.ca_certificate),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
