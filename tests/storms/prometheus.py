"""The Prometheus of a history: it scrapes every pod, and answers range selectors as a real one."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from storms.cluster import Cluster
from storms.hub import SECRET
from storms.network import Connection, Network, Request
from storms.simulated_time import START_S

HOST: Final = "prometheus.monitoring:9090"
URL: Final = f"http://{HOST}"
SCRAPE_S: Final = 15.0
KEPT_S: Final = 160.0

_ROUNDING_S: Final = 1e-3
"""A real one counts in milliseconds."""


@dataclass(slots=True)
class _Series:
    name: str
    metric: str
    """What an answer says of its name and labels, but for the job, with which it ends."""
    points: deque[tuple[float, str]] = field(default_factory=deque)
    """When, and what an answer says of it: written once, since it is asked for many times."""


class Prometheus:
    """Answers `/api/v1/query`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Network, cluster: Cluster) -> None:
        self._loop = loop
        self._cluster = cluster
        self._series: dict[tuple[str, str], dict[tuple[Any, ...], _Series]] = {}
        """By pod's namespace and name, and by name and labels."""
        self.trouble = ""
        """What is wrong with it now; empty: nothing."""
        network.listen(HOST, self._answer)

    async def scrape(self) -> None:
        """Every pod, for ever."""
        while True:
            await asyncio.sleep(SCRAPE_S)
            if self.trouble == "late":
                continue
            now_s = self._loop.time()
            for place, container in self._cluster.containers.items():
                if container.engine is not None and place not in self._cluster.pages:
                    self._keep(place, now_s, container.engine.samples())

    def _keep(
        self, place: str, now_s: float, samples: list[tuple[str, dict[str, str], float]]
    ) -> None:
        namespace, _, pod = place.partition("/")
        kept = self._series.setdefault((namespace, pod), {})
        for name, labels, value in samples:
            key = (name, *labels.items())
            if key not in kept:
                target = {"pod": pod, "namespace": namespace, "instance": f"{pod}:8000"}
                metric = json.dumps({"__name__": name, **labels, **target})
                kept[key] = _Series(name, metric.removesuffix("}"))
            points = kept[key].points
            points.append((now_s, f'[{START_S + now_s!r}, "{float(value)!r}"]'))
            while points[0][0] < now_s - KEPT_S:
                points.popleft()

    async def _answer(self, connection: Connection, asked: Request) -> None:
        match self.trouble:
            case "hang":
                await asyncio.sleep(3600)
            case "error":
                connection.respond(500, SECRET.encode())
            case "garbage":
                connection.respond(200, f'{{"status": "success", "data": "{SECRET}"}}'.encode())
            case "drip":
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(100):
                    connection.send(b" ")
                    await asyncio.sleep(1.0)
            case "redirect":
                head = f"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/{SECRET}\r\n"
                connection.send(f"{head}Content-Length: 0\r\n\r\n".encode())
            case _:
                query = parse_qs(urlsplit(asked.target).query) | parse_qs(asked.body.decode())
                moment = query.get("time", [repr(START_S + self._loop.time())])[0]
                found = self._found(query["query"][0], float(moment) - START_S)
                connection.respond(200, found, "application/json")

    def _found(self, query: str, at_s: float) -> bytes:
        pods = re.search(r'[{,]pod=~"([^"]*)"', query)
        spaces = re.search(r'[{,]namespace=~"([^"]*)"', query)
        families = re.search(r'__name__=~"([^"]*)"', query)
        lookback = re.search(r"\[(\d+)ms\]", query)
        if pods is None or spaces is None or lookback is None or families is None:
            return _matrix([])
        since_s = at_s - int(lookback[1]) / 1000
        series: list[str] = []
        space, pattern, named = (
            re.compile(json.loads(f'"{each[1]}"')) for each in (spaces, pods, families)
        )
        for (namespace, pod), kept in sorted(self._series.items()):
            if space.fullmatch(namespace) and pattern.fullmatch(pod):
                wanted = [each for each in kept.values() if named.fullmatch(each.name)]
                for job in ("engines", "again") if self.trouble == "doubled" else ("engines",):
                    series += _told(wanted, job, since_s, at_s)
        if self.trouble == "partial":
            series = series[: len(series) // 2]
        return _matrix(series)


def _told(kept: Iterable[_Series], job: str, since_s: float, until_s: float) -> Iterator[str]:
    for each in kept:
        points = [told for at_s, told in each.points if since_s < at_s <= until_s + _ROUNDING_S]
        if points:
            yield f'{{"metric": {each.metric}, "job": "{job}"}}, "values": [{", ".join(points)}]}}'


def _matrix(series: list[str]) -> bytes:
    result = f'{{"resultType": "matrix", "result": [{", ".join(series)}]}}'
    return f'{{"status": "success", "data": {result}}}'.encode()
