"""The hub's adapter, against a server that answers like the Hugging Face Hub, and its fake."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fathom.adapters.hub import HuggingFaceHub
from fathom.adapters.model_files import INDEX
from fathom.adapters.ports import ModelHub
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom_intake.model_weights import Tensor, Weights
from manifest_samples import manifest
from support import bad_server
from support.bad_server import SECRET, Answer, answering
from support.fake_hub import FakeHub
from support.hub_server import TOKEN, HubServer, Repository, serving
from support.waiting import GUARD_S, guarded

CONFIG: Final = b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}'
DRAFT_CONFIG: Final = b'{"vocab_size": 100, "draft_vocab_size": 10}'
HEADER: Final = json.dumps(
    {"d2t": {"dtype": "I64", "shape": [10], "data_offsets": [0, 80]}}
).encode()
BULK: Final = b"weights" * (1 << 19)
"""Big enough that a body which is read on the way would show."""
WEIGHTS: Final = len(HEADER).to_bytes(8, "little") + HEADER + BULK

WAITED_OUT: Final = (bad_server.dripping, bad_server.silent)
"""All others show by themselves that they are no good: no time-out has to help."""

TARGET: Final = ModelRef("org/target")
DRAFT: Final = ModelRef("org/draft", "v1")


@pytest.fixture
async def server() -> AsyncIterator[HubServer]:
    hub = HubServer(
        {
            "org/target": Repository(
                {
                    "config.json": CONFIG,
                    "model-00001-of-00002.safetensors": WEIGHTS,
                    "model-00002-of-00002.safetensors": WEIGHTS,
                    "consolidated.safetensors": WEIGHTS,
                    "original/model.safetensors": WEIGHTS,
                    INDEX: b"{}",
                }
            ),
            "org/draft": Repository(
                {"config.json": DRAFT_CONFIG, "model.safetensors": WEIGHTS},
                revisions=("main", "v1"),
            ),
            "org/gated": Repository({"config.json": CONFIG}, gated=True),
            "org/bare": Repository({"README.md": b"hello"}),
            "org/odd": Repository({"config.json": b"[]"}),
        }
    )
    async with serving(hub):
        yield hub


def real(server: HubServer, cache: Path, **changed: Any) -> HuggingFaceHub:
    arguments: dict[str, Any] = {
        "endpoint": server.endpoint,
        "cache": cache,
        "timeout_s": GUARD_S,
        "token": "hf_wrong",
    }
    return HuggingFaceHub(**arguments | changed)


KNOWN: Final = {
    TARGET: ModelFacts(
        config=ModelConfig(architectures=("LlamaForCausalLM",), hidden_size=64),
        weights=Weights(total_bytes=2 * len(WEIGHTS), pickled=False),
    ),
    DRAFT: ModelFacts(
        config=ModelConfig(vocab_size=100, draft_vocab_size=10, eagle_keys=True),
        weights=Weights(
            total_bytes=len(WEIGHTS), pickled=False, tensors=(Tensor("d2t", "I64", (10,)),)
        ),
    ),
}


@pytest.fixture(params=["real", "fake"])
def hub(request: pytest.FixtureRequest, server: HubServer, tmp_path: Path) -> ModelHub:
    return real(server, tmp_path) if request.param == "real" else FakeHub(KNOWN)


@pytest.mark.parametrize("ref", KNOWN, ids=lambda ref: ref.id)
async def test_both_tell_the_config_the_size_and_the_table(hub: ModelHub, ref: ModelRef) -> None:
    assert await hub.look_up(ref) == KNOWN[ref]


async def test_both_say_that_a_model_is_missing(hub: ModelHub) -> None:
    found = await hub.look_up(ModelRef("org/nowhere"))

    assert (found.config, found.absence) == (None, Absence.MISSING)
    assert found.explanation
    assert not found.explanation.endswith(".")


@pytest.mark.parametrize(
    ("ref", "absence", "explanation"),
    [
        (
            ModelRef("org/gated"),
            Absence.GATED,
            "it is gated at {}; set HF_TOKEN to a token that has access",
        ),
        (
            ModelRef("org/nowhere"),
            Absence.MISSING,
            (
                "{} shows no such repository; if it is private, set HF_TOKEN to a token that has "
                "access"
            ),
        ),
        (ModelRef("org/draft", "v9"), Absence.MISSING, "{} knows no revision v9 of it"),
        (ModelRef("org/bare"), Absence.MISSING, "the repository has none"),
        (ModelRef("org/odd"), Absence.UNREADABLE, "it is no JSON object"),
        (
            ModelRef("not/an/id"),
            Absence.MISSING,
            "that is neither an absolute path nor a Hugging Face id",
        ),
    ],
    ids=lambda value: value.id if isinstance(value, ModelRef) else "",
)
async def test_what_stands_between_is_a_sentence(
    server: HubServer, tmp_path: Path, ref: ModelRef, absence: Absence, explanation: str
) -> None:
    found = await real(server, tmp_path).look_up(ref)

    assert found == ModelFacts(absence=absence, explanation=explanation.format(server.endpoint))


async def test_a_token_opens_what_is_gated(server: HubServer, tmp_path: Path) -> None:
    found = await real(server, tmp_path, token=TOKEN).look_up(ModelRef("org/gated"))

    assert found.config is not None
    assert found.config.hidden_size == 64


async def test_a_closed_port_is_unreachable(unused_tcp_port: int, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{unused_tcp_port}"

    found = await HuggingFaceHub(endpoint=endpoint, cache=tmp_path).look_up(TARGET)

    assert found == ModelFacts(
        absence=Absence.UNREACHABLE, explanation=f"{endpoint} cannot be reached"
    )


async def test_the_credentials_of_a_mirror_are_told_to_nobody(
    unused_tcp_port: int, tmp_path: Path
) -> None:
    at = f"127.0.0.1:{unused_tcp_port}"
    hub = HuggingFaceHub(endpoint=f"http://svc:s3cr3t@{at}", cache=tmp_path)

    found = await hub.look_up(TARGET)

    assert found.explanation == f"http://(hidden)@{at} cannot be reached"


async def test_a_hub_in_trouble_is_unreachable(server: HubServer, tmp_path: Path) -> None:
    server.broken = True

    found = await real(server, tmp_path).look_up(TARGET)

    assert found == ModelFacts(
        absence=Absence.UNREACHABLE,
        explanation=f"{server.endpoint} answers with HTTP status 503",
    )


async def test_a_silent_server_is_given_up(tmp_path: Path) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        # The one who asks goes, be it after this test: nobody else would close it then.
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    asked = 0
    async with await asyncio.start_server(never, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        hub = HuggingFaceHub(endpoint=f"http://127.0.0.1:{port}", cache=tmp_path, timeout_s=0.2)

        found = await hub.look_up(TARGET)

    assert found.absence is Absence.UNREACHABLE
    assert asked


@pytest.mark.parametrize(
    ("answer", "absence", "explanation"),
    [
        (bad_server.endless, Absence.UNREADABLE, "it is not JSON"),
        (bad_server.dripping, Absence.UNREACHABLE, "{} cannot be reached"),
        (bad_server.silent, Absence.UNREACHABLE, "{} cannot be reached"),
        (bad_server.looping, Absence.UNREACHABLE, "{} redirects without an end"),
        (bad_server.bomb, Absence.UNREADABLE, "{} sends it packed, though asked not to"),
        (bad_server.failing, Absence.UNREACHABLE, "{} answers with HTTP status 503"),
        (bad_server.failing_for_ever, Absence.UNREACHABLE, "{} answers with HTTP status 500"),
        (bad_server.babbling, Absence.UNREACHABLE, "{} cannot be reached"),
        (bad_server.breaking_off, Absence.UNREACHABLE, "{} cannot be reached"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_hub_that_misbehaves_is_left_in_time_and_never_quoted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: Answer,
    absence: Absence,
    explanation: str,
) -> None:
    timeout_s = 0.3 if answer in WAITED_OUT else GUARD_S
    async with answering(answer) as server:
        hub = HuggingFaceHub(
            endpoint=server.url, cache=tmp_path, timeout_s=timeout_s, token="hf_wrong"
        )
        found = await hub.look_up(TARGET)
        sent_bytes = server.sent_bytes

    assert found == ModelFacts(absence=absence, explanation=explanation.format(server.url))
    # As much is on its way in the buffers of both sides.
    assert sent_bytes < (16 << 20)
    assert SECRET not in caplog.text


async def test_a_hub_that_hangs_takes_no_thread_that_others_wait_for(tmp_path: Path) -> None:
    async with answering(bad_server.silent) as server:
        hub = HuggingFaceHub(endpoint=server.url, cache=tmp_path, timeout_s=GUARD_S)
        look_ups = [asyncio.create_task(hub.look_up(TARGET)) for _ in range(40)]
        # All that it will ever be: a server that closes while it takes a connection in never closes
        # that one (asyncio before Python 3.12).
        while len(server.asked) < 4:
            await asyncio.sleep(0)
        await asyncio.to_thread(os.getpid)
        done = [each.done() for each in look_ups]
        asked = len(server.asked)
        for each in look_ups:
            each.cancel()
        await asyncio.gather(*look_ups, return_exceptions=True)

    assert not any(done)
    assert asked == 4


async def test_a_listing_that_is_nonsense_makes_the_weights_unknown(
    server: HubServer, tmp_path: Path
) -> None:
    server.listing = '{"siblings": [{"rfilename": 5}, 7]}'

    found = await real(server, tmp_path).look_up(TARGET)

    assert found == ModelFacts(config=KNOWN[TARGET].config)


def cached(directory: Path, content: bytes) -> None:
    """What another program has downloaded of the target."""
    repository = directory / "models--org--target"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc", encoding="utf-8")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    (repository / "snapshots" / "abc" / "config.json").write_bytes(content)


async def test_offline_asks_nobody_and_reads_the_cache(server: HubServer, tmp_path: Path) -> None:
    offline = real(server, tmp_path, offline=True)
    before = await offline.look_up(TARGET)
    cached(tmp_path, CONFIG)

    after = await offline.look_up(TARGET)

    assert before == ModelFacts(
        absence=Absence.OFFLINE,
        explanation="it is not in the cache, and the hub is not to be asked",
    )
    assert after.config == KNOWN[TARGET].config
    assert server.requests == []


async def test_the_cache_helps_out_while_the_hub_is_down(server: HubServer, tmp_path: Path) -> None:
    server.broken = True
    cached(tmp_path, CONFIG)

    found = await real(server, tmp_path).look_up(TARGET)

    assert found == ModelFacts(config=KNOWN[TARGET].config)


async def test_no_weights_are_ever_downloaded(server: HubServer, tmp_path: Path) -> None:
    for ref in KNOWN:
        await real(server, tmp_path).look_up(ref)

    weights = {path: size for path, size in server.sent_bytes.items() if path != "config.json"}
    assert weights == {"model.safetensors": 8 + len(HEADER)}
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - pathlib's would be flagged as blocking
    assert set(server.requests) == {
        "GET /org/target/resolve/main/config.json",
        "GET /api/models/org/target",
        "GET /org/draft/resolve/v1/config.json",
        "GET /api/models/org/draft/revision/v1",
        "GET /org/draft/resolve/v1/model.safetensors",
        "GET /cdn/org/draft/model.safetensors",
    }


async def test_a_mirror_that_would_send_a_whole_file_is_not_listened_to(
    server: HubServer, tmp_path: Path
) -> None:
    # Far more than what is on its way when the connection is closed.
    weights = WEIGHTS + bytes(1 << 26)
    server.ignores_ranges = True
    server.repositories["org/draft"].files["model.safetensors"] = weights

    found = await real(server, tmp_path).look_up(DRAFT)

    assert found.weights == Weights(total_bytes=len(weights), pickled=False)
    assert server.sent_bytes["model.safetensors"] < len(weights) / 2
    assert server.requests.count("GET /cdn/org/draft/model.safetensors") == 1


async def test_says_who_asks(server: HubServer, tmp_path: Path) -> None:
    await real(server, tmp_path).look_up(DRAFT)

    assert {agent.split("/")[0] for agent in server.user_agents} == {"fathom"}


@dataclass(frozen=True)
class Checked:
    """How a run of `fathom check` ended."""

    code: int | None
    stdout: str
    stderr: str


async def fathom_check(
    endpoint: str, directory: Path, changes: dict[str, Any], **env: str
) -> Checked:
    """Run `fathom check` as a user does, with a hub of their own."""
    file = directory / "a.yaml"
    file.write_text(yaml.safe_dump(manifest(changes)), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "fathom"),
        "check",
        "-f",
        str(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(directory / "home"),
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": "",
            **env,
        },
    )
    async with guarded("fathom check ends"):
        stdout, stderr = await process.communicate()
    return Checked(process.returncode, stdout.decode(), stderr.decode())


async def test_check_reads_the_hub_that_the_environment_names(
    server: HubServer, tmp_path: Path
) -> None:
    checked = await fathom_check(
        server.endpoint, tmp_path, {"model.id": "org/target", "draft.id": "org/draft"}
    )

    assert (checked.code, checked.stderr) == (0, "")
    assert "target model: org/target: LlamaForCausalLM, hidden 64" in checked.stdout


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        ("org/gated", "it is gated at "),
        ("org/nowhere", "shows no such repository"),
    ],
)
async def test_check_says_why_a_draft_cannot_be_read_and_refuses_nothing(
    server: HubServer, tmp_path: Path, draft: str, why: str
) -> None:
    checked = await fathom_check(
        server.endpoint, tmp_path, {"model.id": "org/target", "draft.id": draft}
    )

    assert (checked.code, checked.stderr) == (0, "")
    printed = " ".join(checked.stdout.split())
    assert f"spec.draft.id: the config.json of {draft} was not read (" in printed
    assert printed.startswith("! kimi: unknown, revision ")
    assert why in printed


async def test_check_refuses_nothing_without_a_network(
    unused_tcp_port: int, tmp_path: Path
) -> None:
    endpoint = f"http://127.0.0.1:{unused_tcp_port}"

    checked = await fathom_check(endpoint, tmp_path, {"draft.id": "org/draft"})

    assert (checked.code, checked.stderr) == (0, "")
    assert f"({endpoint} cannot be reached)" in " ".join(checked.stdout.split())


async def test_check_takes_the_token_of_the_environment(server: HubServer, tmp_path: Path) -> None:
    checked = await fathom_check(
        server.endpoint,
        tmp_path,
        {"model.id": "org/target", "draft.id": "org/gated"},
        HF_TOKEN=TOKEN,
    )

    assert (checked.code, checked.stderr) == (0, "")
    assert "draft model: org/gated: LlamaForCausalLM, hidden 64" in checked.stdout


async def test_check_asks_nobody_where_the_environment_says_offline(
    server: HubServer, tmp_path: Path
) -> None:
    checked = await fathom_check(
        server.endpoint, tmp_path, {"draft.id": "org/draft"}, HF_HUB_OFFLINE="1"
    )

    assert (checked.code, checked.stderr) == (0, "")
    assert "the hub is not to be asked" in checked.stdout
    assert server.requests == []


async def test_of_several_files_the_index_is_read_and_no_header(
    server: HubServer, tmp_path: Path
) -> None:
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    weight_map = {"fc.weight": one, "norm.weight": one, "d2t": two, "lm_head.weight": "../gone"}
    index = json.dumps({"weight_map": weight_map}).encode()
    files = {"config.json": DRAFT_CONFIG, one: WEIGHTS, two: WEIGHTS, INDEX: index}
    server.repositories["org/draft"] = Repository(files, revisions=("v1",))

    found = await real(server, tmp_path).look_up(DRAFT)

    assert found.weights == Weights(
        total_bytes=2 * len(WEIGHTS),
        tensors=(Tensor("d2t"), Tensor("fc.weight"), Tensor("lm_head.weight")),
        pickled=False,
        index_lacks="../gone",
    )
    assert len(server.requests) == 3
    assert not server.sent_bytes.keys() & {one, two}


async def test_the_index_beside_one_file_is_none_that_vllm_fetches(
    server: HubServer, tmp_path: Path
) -> None:
    index = json.dumps({"weight_map": {"fc.weight": "gone.safetensors"}}).encode()
    files = {"config.json": DRAFT_CONFIG, "weights.safetensors": WEIGHTS, INDEX: index}
    server.repositories["org/draft"] = Repository(files, revisions=("v1",))

    found = await real(server, tmp_path).look_up(DRAFT)

    assert found.weights == Weights(total_bytes=len(WEIGHTS), pickled=False)


async def test_pickles_are_known_by_their_names(server: HubServer, tmp_path: Path) -> None:
    files = {"config.json": DRAFT_CONFIG, "pytorch_model.bin": WEIGHTS}
    server.repositories["org/draft"] = Repository(files, revisions=("v1",))

    assert (await real(server, tmp_path).look_up(DRAFT)).weights == Weights(pickled=True)
