"""From what was measured to the figures that count."""

import json
from io import StringIO

import pytest
from rich.console import Console

from benchmarks.engine.arms import Decided
from benchmarks.engine.estimates import Held, Slice
from benchmarks.engine.price import Price
from benchmarks.engine.report import BenchReport, phase_report, trace_report
from benchmarks.engine.sweep import SweepCell
from benchmarks.engine.tables import claims, result_tables
from benchmarks.engine.trace import PhaseRun
from fathom.api.conditions import Reason
from fathom.engine.depth import DepthDocument, DepthRange, flat
from fathom.tuning.interface import Action, TuningDecision
from fathom.tuning.learned_state import TuningState
from local_cluster.demo.compare import Ratio
from local_cluster.engine.language import EASY, HARD
from local_cluster.engine.traffic import Phase

SCHEDULE = (DepthRange(1, 4, 7), DepthRange(5, 16, 1))
MOVE = TuningDecision(
    action=Action.MOVE,
    reason=Reason.MOVED,
    message="Moves batch 2 from 3 to 7.",
    document=DepthDocument(generation=4, schedule=SCHEDULE),
    state=TuningState(),
    wake_after_s=5.0,
    measured=None,
)


def learnt(rate: float, seconds: float = 10.0) -> tuple[Slice, ...]:
    return tuple(Slice(n, steady=False, seconds=seconds, tokens=rate * seconds) for n in (0, 1))


def settled(*rates: float) -> tuple[Slice, ...]:
    return tuple(
        Slice(n, steady=True, seconds=5.0, tokens=rate * 5.0) for n, rate in enumerate(rates)
    )


EASY_RUN = PhaseRun(
    phase=Phase(EASY, concurrency=2),
    tuner=learnt(60) + settled(99, 99),
    static={
        0: learnt(50),
        # Faster by chance while all were measured, but not in the part that is compared.
        6: learnt(130),
        7: learnt(100) + settled(100, 100),
    },
    held=(Held(0.0, 0), Held(15.0, 7)),
    schedule=SCHEDULE,
    decided=(Decided(15.0, MOVE),),
)
HARD_RUN = PhaseRun(
    phase=Phase(HARD, concurrency=8),
    tuner=learnt(90) + settled(96, 96),
    static={0: learnt(80) + settled(80, 80), 6: learnt(40), 7: learnt(30)},
    held=(Held(0.0, 7),),
    schedule=flat(1, 16),
    decided=(),
)


def test_a_phase_is_judged_by_the_best_depth_of_its_steady_part() -> None:
    found = phase_report(EASY_RUN)
    assert found.best_depth == 7
    assert found.ratio_to_best.estimate == pytest.approx(0.99)
    assert found.tuner_steady_rate == pytest.approx(99)
    assert found.tuner_rate == pytest.approx((60 * 20 + 99 * 10) / 30)
    assert (found.depth, found.schedule) == (7, "7 at 1-4, 1 beyond")


def test_a_phase_tells_what_the_tuner_did() -> None:
    found = phase_report(EASY_RUN)
    assert found.decisions[0].model_dump() == {
        "at_seconds": 15.0,
        "action": "Move",
        "reason": "Moved",
        "message": "Moves batch 2 from 3 to 7.",
        "schedule": "7 at 1-4, 1 beyond",
    }


def test_learning_counts_in_the_whole_trace_and_only_there() -> None:
    found = trace_report([EASY_RUN, HARD_RUN])
    assert found.seconds == pytest.approx(60)
    assert found.tuner_tokens == pytest.approx((1200 + 990) + (1800 + 960))
    assert found.static_tokens == pytest.approx({0: 30 * 130, 6: 30 * 170, 7: 30 * 130})
    assert found.best_single_depth == 6
    assert found.ratios[6].estimate == pytest.approx(4950 / 5100)


def report(**changes: object) -> BenchReport:
    trace = trace_report([EASY_RUN, HARD_RUN])
    phases = tuple(map(phase_report, (EASY_RUN, HARD_RUN)))
    even = Ratio(1.0, 0.99, 1.01, 16)
    figures: dict[str, object] = {
        "worst_phase_ratio": 0.99,
        "ratio_to_best_single_static": 1.02,
        "requests_lost": 0,
        "hook_overhead_percent": 0.3,
        "engine": "vLLM 0.32.0",
        "quick": False,
        "requests": 1000,
        "first_error": "",
        "user_depth": 3,
        "minutes": 35.0,
        "sweep": tuple(SweepCell("easy", 2, depth, 100.0, 0.01, 1.0) for depth in (0, 6, 7)),
        "phases": phases,
        "trace": trace,
        "price": Price(10_000, 10_001, even, even, 0.3, 0.1),
    }
    return BenchReport.model_validate({**figures, **changes})


def test_all_claims_hold_where_all_is_well() -> None:
    assert [claim.holds for claim in claims(report())] == [True] * 4


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"worst_phase_ratio": 0.969}, "96.9%"),
        ({"ratio_to_best_single_static": 1.0}, "ahead"),
        ({"requests_lost": 2, "first_error": "token 3 is 9"}, "2 lost (token 3 is 9)"),
        ({"requests": 0}, "0 requests"),
        ({"hook_overhead_percent": 0.5}, "0.50 %"),
    ],
)
def test_each_claim_fails_by_its_own_number(broken: dict[str, object], says: str) -> None:
    failed = [claim.text for claim in claims(report(**broken)) if not claim.holds]
    assert len(failed) == 1
    assert says in failed[0]


def test_the_file_has_the_figures_at_its_top_and_reads_back() -> None:
    text = report().model_dump_json()
    found = json.loads(text)
    assert found["worst_phase_ratio"] == 0.99
    assert found["ratio_to_best_single_static"] == 1.02
    assert found["requests_lost"] == 0
    assert found["hook_overhead_percent"] == 0.3
    assert BenchReport.model_validate_json(text) == report()


def test_what_is_printed_names_every_arm_and_a_phase_that_never_arrived() -> None:
    console = Console(file=StringIO(), width=160, record=True)
    console.print(result_tables(report()))
    text = console.export_text()
    for part in ("easy × 2", "hard × 8", "never", "15 s", "static 7", "99.0% [99.0%, 99.0%]"):
        assert part in text
