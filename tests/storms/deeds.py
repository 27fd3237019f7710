"""What can happen in a history: deeds of users, of other hands, of the cluster and of bad luck.

Each draws its own arguments and is carried out by one function. What lasts has `for_s`, and is over
after it. A deed that finds nothing to act on does nothing. What only the simulator can play is in
`storms.simulated_deeds`.
"""

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fathom.adapters.ports import KubeError
from fathom.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    SPECULATIVE_DEPLOYMENT,
    Kind,
)
from storms.cluster import BY_HAND
from storms.engine import Engine, page
from storms.history import MOST_REPLICAS, Scenario
from storms.hub import BAD_DRAFT, DRAFT, OTHER_DRAFT, PASSWORD, SECRET
from storms.invariants import MOST_DEPTH
from storms.network import Connection
from storms.watch import WatchTrouble

if TYPE_CHECKING:
    from storms.storm import Storm

Draw = Callable[[random.Random, Scenario], Mapping[str, Any]]
Do = Callable[["Storm", Mapping[str, Any]], Awaitable[None]]

IMAGES: Final = ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.32.1")
ASKED_FOR: Final = "that is asked for"
"""Instead of an image: the one in the spec, whichever that is."""
_KINDS: Final = {"Deployment": DEPLOYMENT, "Service": SERVICE, "ServiceAccount": SERVICE_ACCOUNT}


@dataclass(frozen=True, slots=True)
class Kindof:
    """One kind of deed."""

    draw: Draw
    do: Do
    weight: float = 1.0
    needs: str = ""
    """What a scenario has where it happens: a field of `Scenario`; empty: it happens in all."""

    def happens_in(self, scenario: Scenario) -> bool:
        """Whether a history of that scenario may have it."""
        return not self.needs or bool(getattr(scenario, self.needs))


DEEDS: Final[dict[str, Kindof]] = {}
SPOIL_METRICS: Final = frozenset({"metrics page is wrong", "Prometheus is wrong"})
PINS: Final = "hand pins a pod"


def deed(name: str, *, weight: float = 1.0, needs: str = "", **ranges: Any) -> Callable[[Do], Do]:
    """Register a deed; each range is a pair to draw a number between, or a list to choose from."""

    def draw(chance: random.Random, _: Scenario) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for key, values in ranges.items():
            if isinstance(values, tuple):
                low, high = values
                whole = isinstance(low, int)
                found[key] = (
                    chance.randint(low, high) if whole else round(chance.uniform(low, high), 1)
                )
            else:
                found[key] = chance.choice(values)
        return found

    def register(do: Do) -> Do:
        DEEDS[name] = Kindof(draw, do, weight, needs)
        return do

    return register


# -- the user


@deed("user sets tokens", tokens=(1, 7), weight=2)
async def _tokens(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"speculation.tokens": with_["tokens"]})


@deed("user scales", replicas=(0, MOST_REPLICAS), weight=2)
async def _scale(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"replicas": with_["replicas"]})


@deed("user sets the image", image=list(IMAGES), weight=3)
async def _image(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"engine.image": with_["image"]})


@deed("user sets the draft", draft=[DRAFT, OTHER_DRAFT, BAD_DRAFT, BAD_DRAFT], weight=4)
async def _draft(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"draft.id": with_["draft"]})


@deed("user sets the mode", mode=["Auto", "Advise", "Static"], weight=0.7)
async def _mode(storm: "Storm", with_: Mapping[str, Any]) -> None:
    # Without live depth there is nothing to compare by: the API server refuses that.
    storm.edit({"speculation.tuning.mode": with_["mode"], "speculation.drafting": None})


@deed("user sets adaptive verification", to=["Canary", "Canary", "Enabled", "Disabled"], weight=2)
async def _adaptive(storm: "Storm", with_: Mapping[str, Any]) -> None:
    alone = {"speculation.drafting": None, "draft.trial": None}
    storm.edit({"speculation.adaptiveVerification": with_["to"], **alone})


@deed("user compares a replica without drafts", to=["Canary", "Canary", None])
async def _drafting(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit(
        {
            "speculation.drafting": with_["to"],
            "speculation.adaptiveVerification": None,
            "speculation.tuning.mode": None,
            "draft.trial": None,
        }
    )


@deed("user tries another draft", draft=[DRAFT, OTHER_DRAFT, OTHER_DRAFT, BAD_DRAFT], weight=2)
async def _trial(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit(
        {
            "draft.trial": {"id": with_["draft"]},
            "speculation.adaptiveVerification": None,
            "speculation.drafting": None,
        }
    )


@deed("user ends the trial of a draft", adopts=[True, True, False])
async def _end_of_trial(storm: "Storm", with_: Mapping[str, Any]) -> None:
    trial = storm.spec().get("draft", {}).get("trial")
    adopted = {"draft.id": trial["id"]} if trial and with_["adopts"] else {}
    storm.edit({**adopted, "draft.trial": None})


@deed("user writes nonsense", for_s=(30.0, 300.0))
async def _nonsense(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"speculation.maxTokens": -3})
    await asyncio.sleep(with_["for_s"])
    storm.edit({"speculation.maxTokens": MOST_DEPTH})


@deed("user pauses the rollout", for_s=(30.0, 400.0))
async def _paused(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.edit({"rollout.paused": True})
    await asyncio.sleep(with_["for_s"])
    storm.edit({"rollout.paused": None})


@deed("user edits hundreds of times", times=(50, 200), for_s=(60.0, 60.0), weight=0.5)
async def _edits(storm: "Storm", with_: Mapping[str, Any]) -> None:
    for index in range(with_["times"]):
        storm.edit({"speculation.tokens": (1, 3)[index % 2]})
        await asyncio.sleep(with_["for_s"] / with_["times"])


# With a latency of 0.3 s, a loop's last look is on its way from 0.55 to 0.8 s after the deletion.
@deed("user deletes and creates again", after_s=[0.0, 0.3, 0.6, 0.7, 0.8, 1.5, 10.0], weight=2)
async def _again(storm: "Storm", with_: Mapping[str, Any]) -> None:
    await storm.recreate(with_["after_s"])


@deed("user asks for a quality check", weight=0.3)
async def _quality(storm: "Storm", _: Mapping[str, Any]) -> None:
    storm.annotate({"fathom.dev/check-quality": f"at-{storm.loop.time():.0f}"})


# -- other hands


@deed("hand deletes a child", kind=sorted([*_KINDS, "ConfigMap"]), weight=1.5)
async def _delete_child(storm: "Storm", with_: Mapping[str, Any]) -> None:
    kind = _KINDS.get(with_["kind"], CONFIG_MAP)
    kind = storm.workload if kind == DEPLOYMENT else kind
    found = storm.children(kind)
    if found:
        if kind == storm.workload:
            storm.cluster.disturbed()
        storm.objects.remove(kind, storm.namespace, found[0]["metadata"]["name"])


@deed("hand scales a Deployment", replicas=(0, 3))
async def _scale_child(storm: "Storm", with_: Mapping[str, Any]) -> None:
    for found in storm.children(storm.workload)[:1]:
        storm.cluster.disturbed()
        body = copy.deepcopy(found)
        body["spec"]["replicas"] = with_["replicas"]
        storm.objects.put(storm.workload, body)


@deed("hand changes a Service", for_s=(1.0, 120.0))
async def _service(storm: "Storm", with_: Mapping[str, Any]) -> None:
    end_s = storm.loop.time() + with_["for_s"]
    while storm.loop.time() < end_s:
        for found in storm.children(SERVICE):
            body = copy.deepcopy(found)
            body["spec"]["selector"] = {"app": "another"}
            if body != found:
                storm.objects.put(SERVICE, body)
        await asyncio.sleep(5.0)


@deed("hand deletes a pod")
async def delete_pod(storm: "Storm", _: Mapping[str, Any]) -> None:
    """One that serves."""
    for place, _, _ in storm.cluster.serving()[:1]:
        storm.cluster.disturbed()
        storm.cluster._leave(storm.objects.look(POD, *place.split("/")) or {}, BY_HAND)


@deed(PINS, depth=["0", "3", "99", "deep"], for_s=(30.0, 300.0))
async def _pin(storm: "Storm", with_: Mapping[str, Any]) -> None:
    for place, _, _ in storm.cluster.serving()[:1]:
        storm.annotate_pod(place, {"fathom.dev/pin-depth": with_["depth"]})
        await asyncio.sleep(with_["for_s"])
        storm.annotate_pod(place, {"fathom.dev/pin-depth": None})


@deed(
    "ConfigMap is spoilt",
    which=["tuning", "tuning", "depth"],
    how=["emptied", "cut", "junk", "deleted", "deep"],
    weight=2,
)
async def _spoil(storm: "Storm", with_: Mapping[str, Any]) -> None:
    name = f"{storm.name}-{with_['which']}"
    found = storm.objects.look(CONFIG_MAP, storm.namespace, name)
    if found is None:
        return
    if with_["how"] == "deleted":
        storm.objects.remove(CONFIG_MAP, storm.namespace, name)
        return
    body = copy.deepcopy(found)
    spoil: dict[str, Callable[[str], str]] = {
        "cut": lambda text: text[: len(text) // 2],
        "junk": lambda _: '{"not": "ours", "generation": 1e400}',
        "deep": lambda _: "[" * 20_000,
    }
    if with_["how"] == "emptied":
        body["data"] = {}
    else:
        body["data"] = {key: spoil[with_["how"]](text) for key, text in body["data"].items()}
    storm.objects.put(CONFIG_MAP, body)


@deed("name is taken", kind=["Service", "ServiceAccount", "ConfigMap"], for_s=(60.0, 300.0))
async def _foreign(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """A second resource is made where an object of its name is somebody else's."""
    kind = _KINDS.get(with_["kind"], CONFIG_MAP)
    await storm.second_resource(
        kind, "second-depth" if kind == CONFIG_MAP else "second", with_["for_s"]
    )


# -- the operator


@deed("operator dies", weight=3)
async def _dies(storm: "Storm", _: Mapping[str, Any]) -> None:
    storm.leader().kill()


@deed("operator dies at a write", write=(1, 12), weight=3)
async def _dies_at(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.kill_at_write(with_["write"])


@deed("operator is paused", for_s=(5.0, 240.0), weight=3)
async def _is_paused(storm: "Storm", with_: Mapping[str, Any]) -> None:
    process = storm.leader().process
    process.pause()
    await asyncio.sleep(with_["for_s"])
    process.resume()


@deed("clock jumps", by_s=[-3600.0, -30.0, 30.0, 3600.0], weight=1)
async def _clock(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.leader().process.wall_offset_s += with_["by_s"]


# -- the API server


@deed(
    "API server answers with errors",
    status=[409, 429, 500, 503, 0],
    share=(0.1, 1.0),
    for_s=(5.0, 240.0),
    weight=2,
)
async def _errors(storm: "Storm", with_: Mapping[str, Any]) -> None:
    chance = random.Random(f"errors-{with_}")

    def refuse(_: str, __: Kind, ___: str) -> KubeError | None:
        if chance.random() < with_["share"]:
            return KubeError(with_["status"], "simulated trouble")
        return None

    with storm.server.trouble.refusing(refuse):
        await asyncio.sleep(with_["for_s"])


@deed(
    "admission refuses", kind=["Deployment", "ConfigMap", "Service"], for_s=(5.0, 240.0), weight=2
)
async def _admission(storm: "Storm", with_: Mapping[str, Any]) -> None:
    def refuse(verb: str, kind: Kind, _: str) -> KubeError | None:
        refused = storm.workload.kind if with_["kind"] == "Deployment" else with_["kind"]
        if kind.kind == refused and verb in {"apply", "patch", "create"}:
            told = f"asked https://robot:{PASSWORD}@policy.acme"
            return KubeError(403, f'admission webhook "policy.acme" denied the request: {told}')
        return None

    with storm.server.trouble.refusing(refuse):
        await asyncio.sleep(with_["for_s"])


@deed("API server hangs", for_s=(5.0, 90.0))
async def _hangs(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.server.trouble.hang = True
    await asyncio.sleep(with_["for_s"])
    storm.server.trouble.hang = False


@deed("answers are lost", for_s=(5.0, 120.0))
async def _lost(storm: "Storm", with_: Mapping[str, Any]) -> None:
    chance = random.Random(f"lost-{with_}")
    storm.server.trouble.lose_answers = lambda *_: chance.random() < 0.5
    await asyncio.sleep(with_["for_s"])
    storm.server.trouble.lose_answers = lambda *_: False


@deed(
    "reads are stale",
    by_s=(5.0, 300.0),
    for_s=(10.0, 240.0),
    of=["everything", "the resource"],
    after=["nothing", "a scaling", "a scaling and a fail-over"],
    weight=2,
)
async def _stale(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Everything is as it was, or the resource alone: an API server caches each kind by itself.

    Where the user has scaled just before, what is read is older than what was acted upon, maybe by
    a leader that is gone.
    """
    trouble, left_s = storm.server.trouble, with_["for_s"]
    after = with_.get("after", "nothing")
    if after != "nothing":
        storm.edit({"replicas": storm.spec().get("replicas", 0) % MOST_REPLICAS + 1})
        known_s = min(with_["by_s"], left_s) / 2
        await asyncio.sleep(known_s)
        left_s -= known_s
    for operator in storm.operators:
        trouble.stale_s[operator.name] = with_["by_s"]
    if with_.get("of") == "the resource":
        trouble.stale_kinds = frozenset({SPECULATIVE_DEPLOYMENT})
    if "fail-over" in after:
        storm.leader().kill()
    await asyncio.sleep(left_s)
    trouble.stale_s.clear()
    trouble.stale_kinds = frozenset()


async def _spoil_watches(storm: "Storm", for_s: float, **trouble: float | bool) -> None:
    """Let something be wrong with all watches for a while."""
    for what, much in trouble.items():
        setattr(storm.watches.trouble, what, much)
    await asyncio.sleep(for_s)
    for what in trouble:
        setattr(storm.watches.trouble, what, getattr(WatchTrouble(), what))


@deed("watch events are lost", share=(0.2, 1.0), for_s=(10.0, 240.0))
async def _dropped(storm: "Storm", with_: Mapping[str, Any]) -> None:
    await _spoil_watches(storm, with_["for_s"], dropped=with_["share"])


@deed("watch events come twice and late", by_s=(0.0, 60.0), for_s=(10.0, 240.0))
async def _late(storm: "Storm", with_: Mapping[str, Any]) -> None:
    await _spoil_watches(storm, with_["for_s"], doubled=0.7, late_s=with_["by_s"])


@deed("watches are silent", for_s=(30.0, 300.0))
async def _silent(storm: "Storm", with_: Mapping[str, Any]) -> None:
    await _spoil_watches(storm, with_["for_s"], silent=True)


@deed("watches are answered 410", for_s=(60.0, 600.0))
async def _gone(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Again and again, as by an API server whose cache does not come up."""
    storm.watches.cut()
    await _spoil_watches(storm, with_["for_s"], gone=True)


@deed("watches end at once", for_s=(60.0, 300.0))
async def _brief(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """As behind a proxy that lets no answer last."""
    storm.watches.cut()
    await _spoil_watches(storm, with_["for_s"], brief=True)


@deed("watches end", weight=0.5)
async def _cut(storm: "Storm", _: Mapping[str, Any]) -> None:
    storm.watches.cut()


# -- the hub


@deed("hub is down", for_s=(30.0, 600.0), weight=2)
async def _hub_down(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.hub.down = True
    await asyncio.sleep(with_["for_s"])
    storm.hub.down = False


@deed("hub is slow", takes_s=(20.0, 90.0), for_s=(30.0, 600.0), weight=2)
async def _hub_slow(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.hub.takes_s += with_["takes_s"]
    await asyncio.sleep(with_["for_s"])
    storm.hub.takes_s -= with_["takes_s"]


@deed("hub wants a token", for_s=(30.0, 600.0))
async def _gated(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.hub.gated = True
    await asyncio.sleep(with_["for_s"])
    storm.hub.gated = False


# -- engines and nodes


@deed("engine crashes", weight=2)
async def _crash(storm: "Storm", _: Mapping[str, Any]) -> None:
    for place, _, _ in storm.cluster.serving()[:1]:
        storm.cluster.crash(place)


@deed("pod is evicted")
async def _evict(storm: "Storm", _: Mapping[str, Any]) -> None:
    for place, _, _ in storm.cluster.serving()[:1]:
        storm.cluster.evict(place)


async def node_away(
    storm: "Storm", for_s: float, goes: Callable[[str], None], comes: Callable[[str], None]
) -> None:
    """Let the node of a pod that serves go, and come back after a while."""
    for _, _, container in storm.cluster.serving()[:1]:
        node = container.node or ""
        goes(node)
        await asyncio.sleep(for_s)
        comes(node)


@deed("node is lost", for_s=(30.0, 600.0))
async def _node(storm: "Storm", with_: Mapping[str, Any]) -> None:
    cluster = storm.cluster
    await node_away(storm, with_["for_s"], cluster.lose_node, cluster.return_node)


@deed("image does not pull", image=list(IMAGES), for_s=(30.0, 400.0))
async def _pull(storm: "Storm", with_: Mapping[str, Any]) -> None:
    image = storm.cluster.image(with_["image"])
    image.pulls = False
    storm.cluster.disturbed()
    await asyncio.sleep(with_["for_s"])
    image.pulls = True
    storm.cluster.disturbed()


@deed("image crashes", image=[IMAGES[1], ASKED_FOR], for_s=(120.0, 900.0))
async def _crashing(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """From now on, also where it serves."""
    asked_for = storm.spec().get("engine", {}).get("image", IMAGES[0])
    image = storm.cluster.image(asked_for if with_["image"] == ASKED_FOR else with_["image"])
    # Two of these may overlap.
    image.crashing += 1
    storm.cluster.disturbed()
    await asyncio.sleep(with_["for_s"])
    image.crashing -= 1
    storm.cluster.disturbed()


@deed("volume is not refreshed", for_s=(30.0, 400.0))
async def _stuck(storm: "Storm", with_: Mapping[str, Any]) -> None:
    places = [place for place, _, _ in storm.cluster.serving()[:1]]
    storm.cluster.stuck_volumes.update(places)
    await asyncio.sleep(with_["for_s"])
    storm.cluster.stuck_volumes.difference_update(places)


@deed("disk is full", for_s=(60.0, 400.0))
async def _full(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """Engines that start meanwhile have no room for what they count."""
    storm.cluster.disk_full = True
    for place, _, _ in storm.cluster.serving()[:1]:
        storm.cluster.crash(place)
    await asyncio.sleep(with_["for_s"])
    storm.cluster.disk_full = False
    # What counts privately does so for life: the pod is replaced, as the engine's log says.
    storm.cluster.replace_blind()


@deed("namespace ends", for_s=(60.0, 120.0), weight=0.3)
async def _namespace(storm: "Storm", with_: Mapping[str, Any]) -> None:
    """All in it is deleted, and nothing can be made in it, until it is there again."""
    await storm.end_namespace(with_["for_s"])


# -- metrics


@deed(
    "metrics page is wrong",
    how=["hang", "drip", "reset", "garbage", "nan", "absurd", "error", "empty", "huge"],
    for_s=(20.0, 300.0),
    weight=2,
)
async def _page(storm: "Storm", with_: Mapping[str, Any]) -> None:
    places = [place for place, _, _ in storm.cluster.serving()[:2]]
    for place in places:
        storm.cluster.pages[place] = PAGES[with_["how"]]
    await asyncio.sleep(with_["for_s"])
    for place in places:
        storm.cluster.pages.pop(place, None)


@deed(
    "Prometheus is wrong",
    how=["hang", "drip", "error", "garbage", "redirect", "late", "partial", "doubled"],
    for_s=(20.0, 300.0),
    weight=1.5,
)
async def _prometheus(storm: "Storm", with_: Mapping[str, Any]) -> None:
    storm.prometheus.trouble = with_["how"]
    await asyncio.sleep(with_["for_s"])
    storm.prometheus.trouble = ""


async def _hang(_: Engine, __: Connection) -> None:
    await asyncio.sleep(3600)


async def _drip(engine: Engine, connection: Connection) -> None:
    body = page(engine.samples())
    connection.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    for index in range(60):
        if connection.closed:
            return
        connection.send(body[index : index + 1])
        await asyncio.sleep(1.0)


async def _reset(_: Engine, connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nvllm:")
    await asyncio.sleep(0.01)
    connection.reset()


async def _garbage(_: Engine, connection: Connection) -> None:
    connection.respond(200, f"<html>{SECRET}</html>".encode())


async def _nan(engine: Engine, connection: Connection) -> None:
    samples = [(name, labels, float("nan")) for name, labels, _ in engine.samples()]
    connection.respond(200, page(samples))


async def _absurd(engine: Engine, connection: Connection) -> None:
    samples = [(name, labels, -(value**3) * 1e30) for name, labels, value in engine.samples()]
    connection.respond(200, page(samples))


async def _error(_: Engine, connection: Connection) -> None:
    connection.respond(500, SECRET.encode())


async def _empty(_: Engine, connection: Connection) -> None:
    connection.respond(200, b"")


async def _huge(_: Engine, connection: Connection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n")
    for _ in range(40):
        if connection.closed:
            return
        connection.send(b"x" * 262_144)
        await asyncio.sleep(0.05)


PAGES: Final = {
    "hang": _hang,
    "drip": _drip,
    "reset": _reset,
    "garbage": _garbage,
    "nan": _nan,
    "absurd": _absurd,
    "error": _error,
    "empty": _empty,
    "huge": _huge,
}
