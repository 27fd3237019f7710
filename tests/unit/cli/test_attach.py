"""`fathom attach`: what it finds, what it says of it, and what it prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from fathom.adapters.http import BadAnswerError
from fathom.adapters.pod_metrics import ForbiddenPageError
from fathom.adapters.ports import PodEndpoint
from fathom.api.tuner import Level
from fathom.attach.host import Host, HostError, host_of, host_of_pods
from fathom.attach.patch import Attachment, Printed
from fathom.attach.startup import startup_of
from fathom.cli.attach import find, kind_and_name, print_object
from fathom.cli.attach_report import AttachReport, Reader, lines_of, pod_lines, report_of
from fathom.cli.main import app
from fathom.cluster.kinds import DEPLOYMENT, LLM_INFERENCE_SERVICE, POD
from support import hosts
from support.engine_page import FakeEngine
from support.fake_kube import FakeKube
from support.loop_harness import ManualClock

ACCEPTED = (80, 50, 30)
"""Drafts of a hundred, by position."""
BOTH = frozenset({"qwen-0", "qwen-1"})
TOLD = {"vllm_version": "0.32.0", "max_num_seqs": "1024", "depths": "0,1,3,7"}


def page(drafts: int, *, running: int, plugin: bool) -> str:
    """What an engine shows that made so many drafts of depth 3."""
    accepted = [drafts * share // 100 for share in ACCEPTED]
    engine = FakeEngine(tokens=drafts + sum(accepted), running=running, plugin=plugin, told=TOLD)
    text = engine.page()
    for before, after in ((30, drafts), (90, 3 * drafts), (42, sum(accepted))):
        text = text.replace(f"}} {before}.0", f"}} {after}.0", 1)
    positions = [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",position="{at}"}} {n}'
        for at, n in enumerate(accepted)
    ]
    return text + "\n".join(positions) + "\n"


@dataclass
class Pages:
    """Pods whose pages show more at each look."""

    attached: frozenset[str] = frozenset()
    """Pods that run with the plugin and a schedule."""
    running: int = 4
    version: str = '{"version":"0.32.0"}'
    error: BadAnswerError | None = None
    looks: int = 0
    asked: list[tuple[str, int, str]] = field(default_factory=list)

    async def page(self, pod: PodEndpoint, path: str = "metrics") -> str:
        self.asked.append((pod.pod, pod.port, path))
        if path == "version":
            if not self.version:
                raise BadAnswerError("it answers with HTTP status 404")
            return self.version
        if self.error is not None:
            raise self.error
        self.looks += 1
        plugin = pod.pod in self.attached
        return page(1000 * self.looks, running=self.running, plugin=plugin)


@dataclass
class Scene:
    """A Deployment and two pods of it."""

    pages: Pages = field(default_factory=Pages)
    manifest: Mapping[str, Any] = field(default_factory=lambda: hosts.ARGS)
    kube: FakeKube = field(default_factory=FakeKube)
    clock: ManualClock = field(default_factory=ManualClock)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kube.put(DEPLOYMENT, self.manifest)
        for name in ("qwen-0", "qwen-1"):
            self.start(name)

    def start(self, name: str, *, document: str = "qwen-tuner-depth", **status: Any) -> None:
        spec = dict(self.manifest["spec"]["template"]["spec"])
        spec["volumes"] = [{"name": "fathom-depth", "configMap": {"name": document}}]
        labels = self.manifest["spec"]["selector"]["matchLabels"]
        metadata = {"name": name, "namespace": "llm", "labels": labels}
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.0.0.1"}
        self.kube.put(POD, {"metadata": metadata, "spec": spec, "status": {**ready, **status}})

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.at_s += seconds

    async def report(
        self, workload: str = "deployment/qwen", *, selector: str = "", seconds: float | None = 10
    ) -> AttachReport:
        found = await find(self.kube, "llm", workload, selector=selector)
        attachment = Attachment(
            host=found.host, startup=startup_of(found.host.engine), tuner="qwen", plugin="p"
        )
        reader = Reader(pages=self.pages, clock=self.clock, pause=self._pause)
        return await report_of(attachment, found, reader, seconds)


async def text_of(scene: Scene, **asked: Any) -> str:
    return "\n".join(lines_of(await scene.report(**asked), "--print deployment"))


async def test_of_a_stock_engine_acceptance_break_evens_and_the_price_are_said() -> None:
    scene = Scene()
    text = await text_of(scene)

    assert "2 pods of Deployment qwen (container vllm-openai, port 8000)." in text
    assert "vLLM 0.32.0. Its arguments say: eagle3, depth 3, --max-num-seqs 1024." in text
    assert "2 Metrics: the engine runs without Fathom's plugin" in text
    assert "At depth 3 a request gets 2.60 tokens per step" in text
    assert "(accepted by position: 0.80, 0.50, 0.30)" in text
    assert "depth 2 keeps 88 % of them, and pays if a step gets over 12 % shorter" in text
    assert "Live, by one restart of these pods." in text
    assert "captures 600 CUDA graphs in place of 251 (computed from the arguments" in text
    assert "not measured" in text
    assert scene.pauses == [10]
    assert scene.kube.written() == []


async def test_without_traffic_it_waits_for_none_and_says_so() -> None:
    scene = Scene(Pages(running=0))
    report = await scene.report()

    assert report.measured == "No request runs, so there is no acceptance to measure now."
    assert (report.acceptance_length, report.survival, scene.pauses) == (None, (), [])


async def test_one_look_is_enough_for_whoever_says_so() -> None:
    scene = Scene()

    assert "as --seconds 0 asks" in (await scene.report(seconds=0)).measured
    assert scene.pauses == []


async def test_after_the_restart_each_pod_has_a_line() -> None:
    scene = Scene(Pages(attached=frozenset({"qwen-0"})))
    report = await scene.report(seconds=None)

    live, stock = pod_lines(report)
    assert live == "qwen-0: Live"
    assert stock.startswith("qwen-1: Metrics. PluginMissing: the engine runs without")
    assert report.level is Level.LIVE


async def test_a_pod_that_mounts_another_document_is_not_live() -> None:
    scene = Scene(Pages(attached=BOTH))
    scene.start("qwen-1", document="other-tuner-depth")
    report = await scene.report(seconds=None)

    assert [each.reason for each in report.pods] == [None, "MountsAnotherDocument"]


async def test_where_all_are_live_nothing_is_left_to_do() -> None:
    text = await text_of(Scene(Pages(attached=BOTH)))

    assert "2 Live." in text
    assert "Live already." in text
    assert "--print" not in text


async def test_the_version_is_asked_of_an_engine_and_else_read_of_its_image() -> None:
    scene = Scene(Pages(version='{"version":"0.31.1"}'))
    report = await scene.report()

    assert report.vllm == "0.31.1"
    assert report.problem is not None
    assert "and this is 0.31.1" in report.problem
    assert (await Scene(Pages(version="")).report()).vllm == "0.32.0"
    assert (await Scene(Pages(version="[]")).report()).vllm == "0.32.0"


async def test_pods_that_are_not_ready_or_have_ended_are_not_read() -> None:
    scene = Scene()
    scene.start("qwen-0", conditions=[])
    scene.start("qwen-1", phase="Failed")
    report = await scene.report()

    assert [(each.name, each.reason) for each in report.pods] == [("qwen-0", "PodsNotReady")]
    assert scene.pages.asked == []


async def test_a_page_that_is_not_there_is_a_reason_and_a_right_that_lacks_is_an_end() -> None:
    report = await Scene(Pages(error=BadAnswerError("refused"))).report()
    assert report.pods[0].missing is not None
    assert "/metrics on port 8000 cannot be read: refused" in report.pods[0].missing

    with pytest.raises(ForbiddenPageError):
        await Scene(Pages(error=ForbiddenPageError("pods/proxy"))).report()


async def test_pods_are_found_by_their_labels_alone() -> None:
    report = await Scene().report("", selector="app=qwen")

    assert report.workload == "app=qwen"
    assert len(report.pods) == 2
    with pytest.raises(HostError, match="No pod of namespace llm has the labels app=other"):
        await Scene().report("", selector="app=other")


async def test_a_workload_that_is_not_there_is_said() -> None:
    with pytest.raises(HostError, match="There is no StatefulSet llm/qwen"):
        await Scene().report("statefulset/qwen")


async def test_what_kserve_runs_is_read_of_its_pods() -> None:
    scene = Scene()
    scene.kube.put(LLM_INFERENCE_SERVICE, hosts.KSERVE)
    found = await find(scene.kube, "llm", "llminferenceservice/qwen")

    assert found.pods == ()
    assert found.host.labels["kserve.io/component"] == "workload"


# -- what is printed


@pytest.mark.parametrize("form", Printed)
def test_all_that_is_printed_is_yaml(form: Printed, capsys: pytest.CaptureFixture[str]) -> None:
    manifests = {Printed.KSERVE: hosts.KSERVE, Printed.LWS: hosts.LWS}
    host = host_in(manifests.get(form, hosts.PRODUCTION_STACK))
    startup = startup_of(host.engine)
    print_object(Attachment(host=host, startup=startup, tuner="qwen", plugin="p"), form)

    out, err = capsys.readouterr()
    assert isinstance(yaml.safe_load(out), dict)
    assert out.startswith("# ")
    assert err == ""


def test_what_is_left_to_do_is_on_stderr_and_above_the_patch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = host_in(hosts.deployment(args=["m"]))
    startup = startup_of(host.engine)
    print_object(
        Attachment(host=host, startup=startup, tuner="qwen", plugin="p"), Printed.DEPLOYMENT
    )

    out, err = capsys.readouterr()
    assert "# TO DO: Write --speculative-config" in out
    assert err.startswith("To do: Write --speculative-config")


def test_kustomize_gets_a_component(capsys: pytest.CaptureFixture[str]) -> None:
    host = host_in(hosts.ARGS)
    startup = startup_of(host.engine)
    print_object(
        Attachment(host=host, startup=startup, tuner="qwen", plugin="p"), Printed.KUSTOMIZE
    )

    component = yaml.safe_load(capsys.readouterr().out)
    (patch,) = component["patches"]
    assert patch["target"]["name"] == "qwen"
    assert yaml.safe_load(patch["patch"])["kind"] == "Deployment"


def test_pods_of_any_kind_get_what_is_merged_into_their_template(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pod = hosts.ARGS["spec"]["template"] | {"metadata": {"name": "a", "namespace": "llm"}}
    host = host_of_pods("llm", {"role-name": "decode"}, pod, "")
    attachment = Attachment(host=host, startup=startup_of(host.engine), tuner="qwen", plugin="p")
    print_object(attachment, Printed.POD)

    template = yaml.safe_load(capsys.readouterr().out)
    assert template["metadata"]["labels"] == {"fathom.dev/tuned-by": "qwen"}
    (container,) = template["spec"]["containers"]
    assert container["args"][:2] == ["--model", "m"]
    with pytest.raises(typer.Exit):
        print_object(attachment, Printed.DEPLOYMENT)
    assert capsys.readouterr().err == (
        "--print deployment needs a WORKLOAD: what made these pods is not known. "
        "Give --print pod.\n"
    )


@pytest.mark.parametrize(
    ("manifest", "form", "right"),
    [
        (hosts.ARGS, Printed.KSERVE, Printed.DEPLOYMENT),
        # Its template is the spec of a pod, and its labels are elsewhere.
        (hosts.KSERVE, Printed.POD, Printed.KSERVE),
        (hosts.LWS, Printed.POD, Printed.LWS),
    ],
)
def test_a_patch_of_another_kind_is_refused_with_the_right_one(
    manifest: Mapping[str, Any],
    form: Printed,
    right: Printed,
    capsys: pytest.CaptureFixture[str],
) -> None:
    host = host_in(manifest)
    attachment = Attachment(host=host, startup=startup_of(host.engine), tuner="qwen", plugin="p")
    with pytest.raises(typer.Exit):
        print_object(attachment, form)

    assert capsys.readouterr().err == f"--print {form} is not for {host}: give --print {right}.\n"


def host_in(manifest: Mapping[str, Any]) -> Host:
    return host_of(kind_and_name(f"{manifest['kind']}/qwen")[0], dict(manifest), None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "Usage"),
        (("-l", "app=a", "deployment/qwen"), "Name a WORKLOAD"),
        (("--check",), "Name a WORKLOAD"),
        (("deployment/qwen", "--check", "--print", "tuner"), "Give --print alone"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(app, ["attach", *words])

    assert result.exit_code == 2
    assert why in result.output
