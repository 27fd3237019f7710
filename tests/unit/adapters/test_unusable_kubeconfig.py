"""What is wrong with a kubeconfig, what was looked for, and what to do."""

import base64
import re
from pathlib import Path

import pytest
import yaml

from fathom.adapters import kube_config
from support.kubeconfigs import ELSEWHERE, kubeconfig


async def refused(file: Path | None, context: str = "", *, as_operator: bool = False) -> str:
    """The sentence, which is the same whether the cluster or only its namespace is asked for."""
    with pytest.raises(kube_config.NoClusterError) as failed:
        await kube_config.load(file, context, as_operator=as_operator)
    with pytest.raises(kube_config.NoClusterError) as again:
        kube_config.namespace(file, context)
    assert as_operator or f"{again.value}" == f"{failed.value}"
    return f"{failed.value}"


NOT_SET = "KUBECONFIG is not set, and ~/.kube/config does not exist: set KUBECONFIG, or give "
LOCAL = " For the local cluster: type the line `export KUBECONFIG=…` of `fathom local up`."
ANOTHER = "correct it, or name another file by KUBECONFIG or --kubeconfig."


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One without a kubeconfig."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


async def test_a_forgotten_kubeconfig_is_said_and_where_the_local_cluster_s_is(home: Path) -> None:
    assert await refused(None) == f"{NOT_SET}--kubeconfig FILE.{LOCAL}"
    said = await refused(None, as_operator=True)
    assert said.startswith("There is no service account of a pod, KUBECONFIG is not set, and ")
    assert not (home / ".kube").exists()


@pytest.mark.usefixtures("home")
async def test_without_a_checkout_there_is_no_local_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kube_config, "_LOCAL", "no_such_package")
    assert await refused(None) == f"{NOT_SET}--kubeconfig FILE."


async def test_a_kubeconfig_that_does_not_exist_says_who_names_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, file = kubeconfig(home, server=ELSEWHERE), home / "none"
    monkeypatch.setenv("KUBECONFIG", str(file))
    does_not = f"names {file}, which does not exist: correct the path.{LOCAL}"
    assert await refused(None) == f"KUBECONFIG {does_not}"
    # `fathom run` takes the variable for its option.
    assert await refused(file) == f"KUBECONFIG {does_not}"
    monkeypatch.setenv("KUBECONFIG", f"{file}:{home / 'gone'}")
    assert f"names {file} and {home / 'gone'}, which do not exist" in await refused(None)
    monkeypatch.setenv("KUBECONFIG", str(there))
    assert await refused(file) == f"--kubeconfig {does_not}"


async def test_a_plugin_that_gives_no_token_is_named_before_a_server_is_asked(
    tmp_path: Path,
) -> None:
    file = kubeconfig(tmp_path, server=ELSEWHERE)
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    (user,) = content["users"]
    kind = "client.authentication.k8s.io/v1"
    user["user"] = {"exec": {"apiVersion": kind, "command": "no-such-plugin"}}
    file.write_text(yaml.safe_dump(content), encoding="utf-8")

    with pytest.raises(kube_config.NoClusterError, match=r"^no-such-plugin, by which the user"):
        await kube_config.load(file)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("a: [", "is not YAML (while parsing a flow node"),
        ("clusters: 7", "is none: contexts, clusters and users are lists"),
        ("contexts: [it]", "is none: contexts, clusters and users are lists"),
        ("a sentence", "is none: contexts, clusters and users are lists"),
        ("apiVersion: v1\nkind: Config\ncontexts:\n", "has no contexts"),
    ],
)
async def test_what_is_no_kubeconfig_is_said_with_the_file(
    tmp_path: Path, content: str, why: str
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)
    said = await refused(file)
    assert said.startswith(f"The kubeconfig {file} {why}")
    assert said.endswith(ANOTHER)


async def test_a_kubeconfig_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    said = await refused(tmp_path)
    assert said == f"The kubeconfig {tmp_path} cannot be read (Is a directory): {ANOTHER}"


def with_changes(folder: Path, **changes: object) -> Path:
    file = kubeconfig(folder, server=ELSEWHERE)
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))
    return file


@pytest.mark.parametrize("none", ["", None])
async def test_without_a_current_context_one_is_to_be_named(
    tmp_path: Path, none: str | None
) -> None:
    file = with_changes(tmp_path, **{"current-context": none})
    assert await refused(file) == (
        f"The kubeconfig {file} has no current-context: give --context NAME, or run `kubectl "
        "config use-context NAME`. It has it."
    )
    assert kube_config.namespace(file, "it") == "default"
    assert (await kube_config.load(file, "it")).host == ELSEWHERE


async def test_a_context_that_is_not_there_says_which_are(tmp_path: Path) -> None:
    file = with_changes(tmp_path, **{"current-context": "gone"})
    assert await refused(file) == (
        f"current-context is 'gone', which the kubeconfig {file} does not have: give --context. "
        "It has it."
    )
    assert await refused(file, "other") == (
        f"--context is 'other', which the kubeconfig {file} does not have: name another. It has it."
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"clusters": []}, "names cluster 'it', which is not there"),
        ({"users": []}, "names user 'it', which is not there"),
        ({"contexts": [{"name": "it", "context": {"user": "it"}}]}, "names no cluster"),
    ],
)
async def test_what_a_context_names_is_there(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    file = with_changes(tmp_path, **changes)
    said = await refused(file)
    assert said.startswith(f"Context 'it' of the kubeconfig {file} {why}: {ANOTHER} It has ")


async def test_a_context_needs_no_user_and_a_cluster_a_server(tmp_path: Path) -> None:
    anonymous = {"name": "it", "context": {"cluster": "it", "namespace": "llm"}}
    file = with_changes(tmp_path, contexts=[anonymous])
    assert (await kube_config.load(file)).host == ELSEWHERE
    assert kube_config.namespace(file) == "llm"
    # But for TLS, where the library cannot do without.
    secure = {"name": "it", "cluster": {"server": "https://127.0.0.1:6443"}}
    file = with_changes(tmp_path, contexts=[anonymous], clusters=[secure])
    why = "names no user, and https://127.0.0.1:6443 asks for one"
    assert (await refused(file)).startswith(f"Context 'it' of the kubeconfig {file} {why}: ")
    file = with_changes(tmp_path, clusters=[{"name": "it", "cluster": {}}])
    assert await refused(file) == f"Cluster 'it' of the kubeconfig {file} has no server: {ANOTHER}"


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"client-certificate": "/nowhere/it.crt"}, "/nowhere/it.crt"),
        ({"client-certificate-data": "abcde"}, "base64"),
    ],
)
async def test_a_user_that_cannot_be_used_is_said(
    tmp_path: Path, user: dict[str, str], why: str
) -> None:
    cluster = {"name": "it", "cluster": {"server": "https://api.invalid"}}
    file = with_changes(tmp_path, clusters=[cluster], users=[{"name": "it", "user": user}])
    with pytest.raises(kube_config.NoClusterError, match=re.escape(why)) as failed:
        await kube_config.load(file)
    assert f"{failed.value}".startswith(f"Context 'it' of the kubeconfig {file} cannot be used: ")


async def test_a_certificate_that_is_none_is_said(tmp_path: Path) -> None:
    server, garbage = "https://api.invalid", base64.b64encode(b"garbage").decode()
    file = kubeconfig(tmp_path, server=server, **{"certificate-authority-data": garbage})
    configuration = await kube_config.load(file)
    with pytest.raises(kube_config.NoClusterError, match="a certificate or key for it cannot be"):
        kube_config.client(configuration)


async def test_of_several_files_the_first_counts_as_with_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a command would pause what another cluster than kubectl's has of that name."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name in ((first, "one"), (second, "two")):
        folder.mkdir()
        context = {"name": name, "context": {"cluster": name, "namespace": name}}
        cluster = {"name": name, "cluster": {"server": f"http://{name}"}}
        contents = {"contexts": [context], "clusters": [cluster], "current-context": name}
        with_changes(folder, **contents)
    files = [str(each / "kubeconfig") for each in (tmp_path / "gone", first, second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    assert kube_config.namespace(None) == "one"
    assert kube_config.namespace(None, "two") == "two"
    assert (await kube_config.load(None)).host == "http://one"
    assert (await kube_config.load(None, "two")).host == "http://two"
    (first / "kubeconfig").write_text("clusters:\n- name: two\n  cluster: {server: http://first}\n")
    assert kube_config.namespace(None) == "two"
    assert (await kube_config.load(None)).host == "http://first"
