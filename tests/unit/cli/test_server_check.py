"""`fathom check --server`: what is sent as dry runs, and what is repeated of the answers."""

from dataclasses import dataclass, field
from typing import Any

from fathom.adapters.ports import KubeError
from fathom.cli.check_report import CheckReport
from fathom.cli.live_check import Refused, ServerAnswer, answer_of_server, with_answer
from fathom.cluster.kinds import ALL, OPTIONAL_KINDS, SPANNING_KINDS, Kind, ServedApis
from fathom.cluster.manifest import Manifest
from manifest_samples import resource
from support.validated import candidate

TWO_TRAYS = {"engine.tensorParallelSize": 8}
NO_RIGHT = 'pods "kimi-dry-run" is forbidden: User "jo" cannot patch resource "pods" in API group'
QUOTA = 'pods "kimi-dry-run" is forbidden: exceeded quota: gpus'


@dataclass
class Server:
    """An API server that takes all but some kinds."""

    refuses: dict[str, KubeError] = field(default_factory=dict)
    apis: ServedApis = ALL
    sent: list[Manifest] = field(default_factory=list)

    async def dry_run(self, kind: Kind, manifest: Manifest) -> None:
        self.sent.append(manifest)
        if error := self.refuses.get(kind.kind):
            raise error

    async def served(self) -> ServedApis:
        return self.apis

    async def answer(self, changes: dict[str, Any] | None = None) -> ServerAnswer:
        return await answer_of_server(self, candidate(resource(changes)))

    def kinds(self) -> list[str]:
        return [str(each["kind"]) for each in self.sent]


async def test_all_that_a_resource_becomes_is_sent_and_a_pod_of_each_template() -> None:
    server = Server()
    answer = await server.answer(TWO_TRAYS)

    assert answer == ServerAnswer(taken=len(server.sent), refused=(), not_asked=())
    assert server.kinds()[-4:] == ["ComputeDomain", "LeaderWorkerSet", "Pod", "Pod"]
    leader, worker = (each["spec"] for each in server.sent[-2:])
    assert isinstance(leader, dict)
    assert isinstance(worker, dict)
    assert "serviceAccountName" not in leader
    assert leader["tolerations"]
    assert leader["containers"] != worker["containers"]


async def test_an_account_that_a_user_names_is_sent() -> None:
    server = Server()
    await server.answer({"podTemplate": {"spec": {"serviceAccountName": "mine"}}})

    pod = server.sent[-1]
    assert pod["kind"] == "Pod"
    assert isinstance(pod["spec"], dict)
    assert pod["spec"]["serviceAccountName"] == "mine"


async def test_what_is_refused_is_repeated() -> None:
    server = Server({"Pod": KubeError(403, QUOTA), "Service": KubeError(422, "is invalid")})
    answer = await server.answer()

    assert answer.refused == (
        Refused("Service kimi", "the API server refuses it: is invalid"),
        Refused("Pod kimi-dry-run", f"the API server refuses it: {QUOTA}"),
    )
    assert answer.taken == len(server.sent) - 2


async def test_what_may_not_be_asked_is_not_refused() -> None:
    answer = await Server({"Pod": KubeError(403, NO_RIGHT)}).answer()

    assert answer.refused == ()
    assert answer.not_asked == ("Pod kimi-dry-run",)
    report = with_answer(CheckReport(file="a.yaml", verdict="valid"), answer)
    assert report.verdict == "unknown"
    (finding,) = report.findings
    assert finding.line == (
        "unknown [api-server] Pod kimi-dry-run: it was not checked, as you may not create it."
    )
    assert [each.text for each in report.facts] == [
        f"it would take {answer.taken} objects (dry run)."
    ]


async def test_apis_that_are_not_there_are_refused_where_the_pods_need_them() -> None:
    known = {("v1", "Pod"), ("v1", "ConfigMap"), ("apps/v1", "Deployment")}
    server = Server(apis=ServedApis(kinds=frozenset(known)))

    assert (await server.answer()).refused == ()
    (refused,) = (await server.answer(TWO_TRAYS)).refused
    assert refused.what == "spec.engine.tensorParallelSize"
    assert refused.why.startswith("a replica of 8 GPUs is a group of")
    assert {each.kind for each in (*OPTIONAL_KINDS, *SPANNING_KINDS)}.isdisjoint(server.kinds())
