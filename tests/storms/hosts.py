"""Histories of a SpeculationTuner, and of those who own its pods: no invariant of 0069 breaks.

The host re-creates its pods, scales them, takes the plugin out and puts it back, and deletes
ConfigMaps; users edit, pause, delete and create tuners; a second tuner selects the same pods; the
operator dies at any of its writes, and the API server fails. Time is simulated.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import structlog

from fathom.adapters.ports import KubeError
from fathom.api import names
from fathom.api.choices import TuningMode
from fathom.cluster.kinds import CONFIG_MAP, EVENT, POD, SPECULATION_TUNER, Kind, ObjectKey
from fathom.engine.depth import depth_at, flat
from support.tuner_harness import DOCUMENT, KEY, LIVE, MAX_BATCH, TunerHarness
from unit.tuning.plant import EASY, HARD, MIDDLE

STATE: Final = names.tuner_state_config_map("qwen")
OTHER: Final = ObjectKey("llm", "other", SPECULATION_TUNER)
DEEDS_S: Final = (5.0, 90.0)
"""Between two deeds."""
CALM_S: Final = 300.0
"""After the last deed, until all has to be well."""
SMALLER: Final = (0, 1, 3)
"""Depths of an engine that has fewer than the others."""
DOCUMENTS: Final = frozenset({DOCUMENT, names.tuner_depth_config_map(OTHER.name)})


class Broken(Exception):  # noqa: N818 - what it says is the finding
    """An invariant does not hold."""


@dataclass(frozen=True, slots=True)
class Verdict:
    broken: str
    """Empty: every invariant held."""
    writes: int
    at_s: float
    log: str


def run(seed: int) -> Verdict:
    """One history."""
    with structlog.testing.capture_logs():
        return asyncio.run(_Storm(seed).run())


class _Storm:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        mode = self.random.choice(list(TuningMode)[:2])
        self.first = TunerHarness({"tuning": {"mode": mode, "windowSeconds": 10}}, pods=0)
        self.first.tick_s = 1.0
        self.second = self.first.loop_of(OTHER)
        """Its tuner is not there yet."""
        self.serial = 0
        for _ in range(self.random.randint(1, 4)):
            self._start()
        self.log: list[str] = []
        self.seen = 0
        self.created = 0
        self.exists = True
        self.dies_in: int | None = None
        """Writes until the operator dies; None: it does not."""
        self.down = False
        self.kube = self.first.kube
        self.kube.fail = self._trouble
        self.began_s = self.first.clock.at_s
        self.ever_auto = mode is TuningMode.AUTO

    async def run(self) -> Verdict:
        broken = ""
        try:
            for _ in range(self.random.randint(4, 12)):
                await self._pass_time(self.random.uniform(*DEEDS_S))
                deed = self.random.choice(self._deeds())
                self.log.append(f"{self._at_s:7.0f} s  {deed.__name__.strip('_')}")
                deed()
            await self._calm_down()
        except Broken as found:
            broken = str(found)
        return Verdict(broken, len(self.kube.writes), self._at_s, "\n".join(self.log))

    @property
    def _at_s(self) -> float:
        return self.first.clock.at_s - self.began_s

    # -- deeds

    def _deeds(self) -> list[Callable[[], None]]:
        return [
            self._recreate,
            self._roll_one,
            self._scale_up,
            self._scale_down,
            self._take_plugin_out,
            self._start_smaller,
            self._delete_depth_map,
            self._delete_state_map,
            self._write_junk,
            self._switch_mode,
            self._name_tokens,
            self._pause,
            self._delete_tuner,
            self._create_tuner,
            self._second_tuner,
            self._restart_operator,
            self._die_soon,
            self._fail_server,
            self._change_traffic,
            self._take_label_off,
        ]

    def _start(self, **how: Any) -> None:
        self.serial += 1
        self.first.start(f"qwen-{self.serial}", **how)

    def _stop(self, name: str) -> None:
        self.kube.remove(POD, "llm", name)
        for each in (self.first.engines, self.first.reports, self.first.gone_s):
            each.pop(name, None)  # type: ignore[attr-defined]
        self.first.without_plugin.discard(name)

    def _recreate(self) -> None:
        several = len(self.first.engines)
        for name in [*self.first.engines]:
            self._stop(name)
        for _ in range(several):
            self._start()

    def _roll_one(self) -> None:
        self._scale_down()
        self._start()

    def _scale_up(self) -> None:
        self._start()

    def _scale_down(self) -> None:
        if self.first.engines:
            self._stop(self.random.choice(sorted(self.first.engines)))

    def _take_plugin_out(self) -> None:
        self._scale_down()
        self._start(plugin=False, document="")

    def _start_smaller(self) -> None:
        self._scale_down()
        self._start(report=replace(LIVE, depths=SMALLER))

    def _delete_depth_map(self) -> None:
        self.kube.remove(CONFIG_MAP, "llm", DOCUMENT)

    def _delete_state_map(self) -> None:
        self.kube.remove(CONFIG_MAP, "llm", STATE)

    def _write_junk(self) -> None:
        name = self.random.choice((DOCUMENT, STATE))
        if name in self.kube.names(CONFIG_MAP):
            found = self.kube.find(CONFIG_MAP, name)
            self.kube.put(CONFIG_MAP, {**found, "data": dict.fromkeys(found["data"], "{")})

    def _edit(self, **changes: Any) -> None:
        if self.exists:
            self.first.edit(changes)

    def _switch_mode(self) -> None:
        mode = self.random.choice(("Auto", "Advise"))
        self.ever_auto |= mode == "Auto" and self.exists
        self._edit(tuning={"mode": mode, "windowSeconds": 10})

    def _name_tokens(self) -> None:
        self._edit(tokens=self.random.choice((1, 3, 5)))

    def _pause(self) -> None:
        if not self.exists:
            return
        found = self.first.resource
        paused = names.ANNOTATION_PAUSED in found["metadata"].get("annotations", {})
        found["metadata"]["annotations"] = {} if paused else {names.ANNOTATION_PAUSED: "true"}
        self.kube.put(SPECULATION_TUNER, found)
        self.first.loop.wake()

    def _delete_tuner(self) -> None:
        if self.exists:
            self.kube.remove(SPECULATION_TUNER, "llm", "qwen")
            # As Kubernetes does with what it owns.
            for name in (DOCUMENT, STATE):
                self.kube.remove(CONFIG_MAP, "llm", name)
            self.exists = False
            self.first.loop.told_deleted()

    def _create_tuner(self) -> None:
        if not self.exists:
            self.created += 1
            mode = self.random.choice(("Auto", "Advise"))
            self.ever_auto |= mode == "Auto"
            spec = {"tuning": {"mode": mode, "windowSeconds": 10}}
            self.first.create(spec, uid=f"uid-of-qwen-{self.created}")
            self.exists = True
            self.first.restart()

    def _second_tuner(self) -> None:
        if OTHER.name not in self.kube.names(SPECULATION_TUNER):
            spec = {"tuning": {"mode": "Auto", "windowSeconds": 10}}
            self.first.create(spec, uid="uid-of-other", key=OTHER)
        self.second = self.first.loop_of(OTHER)

    def _restart_operator(self) -> None:
        self.first.restart()

    def _die_soon(self) -> None:
        self.dies_in = self.random.randint(1, 6)

    def _fail_server(self) -> None:
        self.down = not self.down

    def _change_traffic(self) -> None:
        self.first.concurrency = self.random.choice((0, 1, 4, 12))
        self.first.acceptance = self.random.choice((EASY, MIDDLE, HARD))

    def _take_label_off(self) -> None:
        if self.first.engines:
            name = self.random.choice(sorted(self.first.engines))
            found = self.kube.find(POD, name)
            found["metadata"]["labels"] = {"app": self.random.choice(("qwen", "another"))}
            self.kube.put(POD, found)

    # -- time

    def _trouble(self, verb: str, _: Kind) -> KubeError | None:
        if self.down:
            return KubeError(503, "etcd has no leader")
        if verb in {"create", "apply", "merge", "delete"} and self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self.dies_in = None
                raise asyncio.CancelledError
        return None

    async def _pass_time(self, seconds: float) -> None:
        until_s = self.first.clock.at_s + seconds
        due_s = {KEY: 0.0, OTHER: 0.0}
        while self.first.clock.at_s < until_s:
            for key, at_s in due_s.items():
                if self.first.clock.at_s >= at_s:
                    due_s[key] = self.first.clock.at_s + await self._tick(key)
            self._judge()
            wait_s = min(min(due_s.values()) - self.first.clock.at_s, 10.0)
            self.first.serve(max(1.0, wait_s))

    async def _tick(self, key: ObjectKey) -> float:
        try:
            delay_s = await (self.first.loop if key == KEY else self.second).tick()
        except asyncio.CancelledError:
            if key == KEY:
                self.first.restart()
            else:
                self.second = self.first.loop_of(key)
            return 1.0
        return 60.0 if delay_s is None else delay_s

    async def _calm_down(self) -> None:
        self.down, self.dies_in = False, None
        for name in [*self.first.engines]:
            self._stop(name)
        for _ in range(2):
            self._start()
        if not self.exists:
            await self._pass_time(200.0)
            self._back_at_tokens()
            return
        self.first.concurrency = 0
        self.ever_auto = True
        self._edit(tuning={"mode": "Auto", "windowSeconds": 10})
        if names.ANNOTATION_PAUSED in self.first.resource["metadata"].get("annotations", {}):
            self._pause()
        await self._pass_time(CALM_S)
        found = self.first.condition("Attached")
        if found["reason"] != "Attached":
            raise Broken(f"in calm Attached is {found['reason']}: {found['message']}")
        if self.first.document is None:
            raise Broken("in calm and mode Auto there is no document")
        self._start(report=replace(LIVE, depths=SMALLER))
        self._start(plugin=False, document="")
        self.first.concurrency = 2
        await self._pass_time(400.0)
        asked = {each.depth for each in self.first.document.schedule}
        if not asked <= {*SMALLER}:
            raise Broken(f"an engine that has {SMALLER} is asked for {asked}")
        self.first.concurrency = 0
        await self._pass_time(CALM_S)
        before = len(self.kube.writes)
        await self._pass_time(300.0)
        news = [each for each in self.kube.writes[before:] if each.name != OTHER.name]
        if len(news) > 1:
            raise Broken(f"in calm it writes: {news}")
        self._delete_tuner()
        await self._pass_time(200.0)
        self._back_at_tokens()

    def _back_at_tokens(self) -> None:
        for name, engine in self.first.engines.items():
            wanted = self.first.tokens.get(name) or flat(3, MAX_BATCH)
            ran = [depth_at(engine.schedule, batch) for batch in (1, MAX_BATCH)]
            if ran != [depth_at(wanted, batch) for batch in (1, MAX_BATCH)]:
                raise Broken(f"without its tuner {name} runs {ran} and not {wanted}")

    # -- invariants

    def _judge(self) -> None:
        news, self.seen = self.kube.writes[self.seen :], len(self.kube.writes)
        for each in self._not_ours(news):
            raise Broken(f"it wrote to {each}")
        document = self.first.document
        if document is not None:
            if not self.ever_auto:
                raise Broken("a document was written in mode Advise")
            self._judge_document()
        for event in self.kube.all_of(EVENT):
            if event["reason"] == "InternalError":
                raise Broken(str(event["message"]))

    def _judge_document(self) -> None:
        document = self.first.document
        assert document is not None
        if not document.tokens:
            raise Broken("a document without tokens")
        strangers = document.pods.keys() - document.ends.keys()
        if strangers:
            raise Broken(f"entries without an end: {strangers}")
        depths = {
            each.depth for part in (document.schedule, *document.pods.values()) for each in part
        }
        if not depths <= {*LIVE.depths}:
            raise Broken(f"depths that no engine has: {depths}")

    def _mounts(self, write: Any) -> bool:
        if write.name not in self.kube.names(POD):
            return True
        volumes = self.kube.find(POD, write.name)["spec"]["volumes"]
        return any(each["configMap"]["name"] in DOCUMENTS for each in volumes)

    def _not_ours(self, news: list[Any]) -> Iterator[str]:
        own = {DOCUMENT, STATE, names.tuner_state_config_map(OTHER.name)}
        for each in news:
            if each.kind in {EVENT.kind, names.TUNER_KIND}:
                continue
            if each.kind == CONFIG_MAP.kind and each.name in own:
                continue
            if each.kind == POD.kind and each.verb in {"merge", "patch"}:
                changed = (each.body or {}).get("metadata", {}).keys()
                if {*changed} <= {"annotations", "resourceVersion", "uid"} and self._mounts(each):
                    continue
            yield f"{each.verb} {each.kind} {each.name}"
