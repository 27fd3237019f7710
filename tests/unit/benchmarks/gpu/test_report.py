"""The benchmark's verdicts and tables."""

from rich.console import Console, RenderableType

from benchmarks.gpu.figures import DepthChange, GraphCell, TurnTimes
from benchmarks.gpu.plan import ON_A_GPU, ON_THE_CPU, quick
from benchmarks.gpu.records import StartUp
from benchmarks.gpu.report import CapturedGraphs, GpuBenchReport, claims, comparison
from benchmarks.gpu.tables import result_tables

CHANGE = DepthChange(
    batch=4, depth=3, drafted_after_ms=120, steps_until_verified=1, steps=50, disobedient=0
)
ENGINE = CapturedGraphs(
    engine="live",
    runner="V2",
    mode="FULL_AND_PIECEWISE",
    sizes=(8, 16),
    graphs=12,
    ready_seconds=61,
    start_up=StartUp(14, 2.5, 9.47, 2_708_338),
    arguments=(),
)


def took(median_ms: float) -> TurnTimes:
    return TurnTimes(median_ms=median_ms, fastest_ms=median_ms / 2)


REPORT = GpuBenchReport(
    machine="vLLM 0.32.0 on a GPU",
    gpu=True,
    quick=False,
    depths=(3,),
    requests=90,
    requests_wrong=0,
    requests_without_speculation=20,
    first_error="",
    changes=(CHANGE,),
    hook_errors=0,
    graphs=(GraphCell(batch=4, depth=3, full=50, piecewise=0, none=0),),
    full_replays=50,
    engines=(ENGINE,),
    comparisons=(comparison(4, 3, [took(10.2), took(10.1), None], [took(10.0)] * 3),),
)


def shown(renderable: RenderableType) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def held(report: GpuBenchReport) -> list[bool | None]:
    return [claim.holds for claim in claims(report)]


def changed(**fields: object) -> GpuBenchReport:
    return REPORT.model_copy(update=fields)


def test_all_claims_hold_of_a_good_run() -> None:
    assert held(REPORT) == [True, True, True, True]


def test_each_claim_fails_by_its_own_number() -> None:
    disobeyed = CHANGE.model_copy(update={"disobedient": 1})
    assert held(changed(changes=(CHANGE, disobeyed))) == [False, True, True, True]
    assert held(changed(changes=())) == [False, True, True, True]
    assert held(changed(requests_wrong=1)) == [True, False, True, True]
    assert held(changed(requests_without_speculation=0)) == [True, False, True, True]
    assert held(changed(hook_errors=1)) == [True, True, False, True]
    piecewise = GraphCell(batch=4, depth=3, full=50, piecewise=1, none=0)
    assert held(changed(graphs=(piecewise,))) == [True, True, True, False]
    assert held(changed(graphs=())) == [True, True, True, False]


def test_turns_without_enough_steps_take_their_pair_out() -> None:
    (cell,) = REPORT.comparisons
    assert (cell.live, cell.single) == ((took(10.2), took(10.1)), (took(10.0), took(10.0)))
    for ratio in (cell.medians, cell.fastest):
        assert ratio is not None
        assert 1.01 < ratio.estimate < 1.02
    assert comparison(4, 3, [took(10.2), None], [took(10.0)] * 2).medians is None


def test_the_tables_show_what_was_measured() -> None:
    text = shown(result_tables(REPORT))
    assert "50 / 0 / 0" in text
    assert text.count("1.015 [") == 2
    assert "2, to 16" in text
    for of_its_start in ("14 s", "2.50 / 9.47 GiB", "2,708,338 tokens"):
        assert of_its_start in text
    assert "every step of decodes of one length replayed a full graph: 50 of 50" in text


def test_without_a_gpu_nothing_is_said_of_graphs() -> None:
    text = shown(result_tables(changed(gpu=False, machine="vLLM 0.32.0 on the CPU", graphs=())))
    assert "nothing is captured here, since this is vLLM 0.32.0 on the CPU" in text
    assert "replayed a full graph" not in text


def test_what_a_log_does_not_say_is_not_shown_as_nothing() -> None:
    silent = ENGINE.model_copy(update={"start_up": StartUp(None, None, None, None)})
    assert "– / –" in shown(result_tables(changed(engines=(silent,))))


def test_a_cell_without_steps_says_so() -> None:
    assert "too few steps" in shown(result_tables(changed(comparisons=(comparison(4, 3, [], []),))))


def test_a_quick_run_takes_a_minute_or_two_besides_its_engines() -> None:
    for plan in (ON_A_GPU, ON_THE_CPU):
        assert quick(plan).total_seconds((0, 1, 3, 7)) < 60
        assert plan.total_seconds((0, 1, 3, 7)) < 12 * 60
