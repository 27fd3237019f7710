"""`python -m training`: the real chain without a GPU. Exit code 1 where a draft is not as meant.

vLLM on the CPU hands out hidden states, speculators trains three drafts by the template that users
have, `fathom_intake` takes them in, and vLLM serves each beside the constructed draft.
"""

import argparse
import asyncio
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fathom.text import counted
from local_cluster.engine.environment import EngineEnvironmentError, ensure_engine_environment
from local_cluster.engine.language import TRAFFIC_CLASSES, VOCABULARY, PairShape
from local_cluster.engine.model_pair import ModelPair, ensure_model_pair
from local_cluster.paths import SOURCES, cache_dir
from training.drafts import RECIPES, ensure_drafts
from training.environment import COST, ensure_training_environment
from training.on_cluster import Judged, Life, Trial, lived
from training.serving import DEPTH, REQUESTS, TOKENS, Acceptance, served

CONSTRUCTED: Final = "constructed"
_KNOWN: Final = ("Eagle3DraftModel", "LlamaForCausalLMEagle3", "eagle3", "llama")
_MOST_BYTES: Final = 1 << 30
_ENOUGH: Final = 0.95
_FEW: Final = 0.2
_MUCH: Final = 0.8
_MIB: Final = 1024
_NARROW: Final = 8
"""Characters of a column with a long name."""
_CHAIN_COST: Final = "The chain: half an hour on two shared cores, and 8 GiB of memory."

Measured = Mapping[str, Mapping[str, Acceptance]]


@dataclass
class Stages:
    """What each part of the chain took."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - began_s


async def main() -> int:
    """Run the chain and print what was measured."""
    argparse.ArgumentParser(prog="training", description=__doc__).parse_args()
    console = Console()
    console.print(f"speculators, once: {COST}. {_CHAIN_COST}")
    stages = Stages()
    try:
        with stages.timed("environments"):
            engine = ensure_engine_environment()
            pair = ensure_model_pair(cache_dir(), engine / "bin" / "python")
            environment = ensure_training_environment()
        with stages.timed("hidden states and three trainings"):
            drafts = await ensure_drafts(environment, pair)
    except EngineEnvironmentError as error:
        sys.exit(str(error))
    measured: dict[str, Mapping[str, Acceptance]] = {}
    with tempfile.TemporaryDirectory(prefix="fathom-store-") as store:
        with stages.timed("intake of three drafts"):
            taken = {
                name: taken_in(engine, drafts.output(name), Path(store) / name) for name in RECIPES
            }
        for name, draft in {CONSTRUCTED: pair.draft, **taken}.items():
            with stages.timed(f"serving {name}"):
                measured[name] = await served(engine, ModelPair(target=pair.target, draft=draft))
        console.print(table(measured))
        with stages.timed("trials and a life on a cluster"):
            life = await lived(environment, taken, console)
    console.print(trials_table(life.trials, measured))
    console.print(
        f"on a cluster: acceptance of the first draft from {life.before} to {life.after}; "
        f"{counted(life.requests, 'request')}, {life.failed} lost or wrong"
    )
    for name, ended in drafts.trainings.items():
        console.print(
            f"training {name}: {ended.seconds:.0f} s, {ended.cpu_seconds:.0f} CPU seconds, "
            f"largest process {ended.largest_mib} MiB"
        )
    if not drafts.trainings:
        console.print(f"trainings: none, all drafts are in {drafts.directory}")
    for stage, seconds in stages.seconds.items():
        console.print(f"{stage}: {seconds:.0f} s")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // _MIB
    console.print(f"in all: {sum(stages.seconds.values()):.0f} s; largest process {most} MiB")
    console.print(
        f"disk: {_mib(environment.directory)} MiB and {_mib(drafts.directory)} MiB of drafts"
    )
    wrong = [*problems(measured), *misjudged(life.trials, measured), *unlike_a_life(life)]
    for each in wrong:
        console.print(f"✘ {each}")
    return 1 if wrong else 0


def taken_in(engine: Path, output: Path, store: Path) -> Path:
    """The stored draft, by the program that a pod runs.

    Raises:
        RuntimeError: it was refused.
    """
    store.mkdir(parents=True)
    message = store.with_suffix(".json")
    ended = subprocess.run(
        [
            *(str(engine / "bin" / "python"), "-m", "fathom_intake"),
            *("--output", str(output), "--store", str(store), "--max-bytes", str(_MOST_BYTES)),
            *("--eagle3", "--target-hidden-size", str(PairShape().hidden)),
            *("--target-vocab-size", str(VOCABULARY), "--message", str(message)),
            *("--known", *_KNOWN),
        ],
        env={"PYTHONPATH": str(SOURCES[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"the intake refused {output}: {ended.stderr}")
    return store / str(json.loads(message.read_text())["draft"]["folder"])


def table(measured: Measured) -> Table:
    """For each draft: P(first i drafts accepted) by class, tokens per step, and wrong outputs."""
    found = Table(
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        title=f"Depth {DEPTH}, greedy; {counted(REQUESTS, 'prompt')} × {TOKENS} tokens of a class",
    )
    found.add_column("draft", no_wrap=True)
    for name in TRAFFIC_CLASSES:
        found.add_column(f"{name}: survival", no_wrap=True)
        found.add_column("tokens", justify="right")
    found.add_column("wrong", justify="right")
    for draft, by_class in measured.items():
        cells: list[str] = []
        for each in by_class.values():
            cells += [" ".join(f"{value:.3f}" for value in each.survival), f"{each.length:.2f}"]
        found.add_row(draft, *cells, str(sum(each.wrong for each in by_class.values())))
    return found


def trials_table(trials: Sequence[Judged], measured: Measured) -> Table:
    """What each trial found, beside what is true by what was accepted without a cluster."""
    found = Table(box=SIMPLE, padding=(0, 1, 0, 0), title="On trial beside the constructed draft")
    found.add_column("draft")
    found.add_column("easy : hard requests", max_width=_NARROW)
    found.add_column("tokens a step", max_width=_NARROW)
    for name in ("found", "%", "95 %", "depths", "s"):
        found.add_column(name, no_wrap=True)
    for each in trials:
        status, (old, new) = each.status, each.depths
        found.add_row(
            each.trial.draft,
            f"{each.trial.easy} : {each.trial.hard}",
            f"{_ratio(each.trial, measured) - 1:+.0%}",
            str(status.result),
            status.percent,
            status.interval_percent,
            f"{old}, {new}",
            f"{each.seconds:.0f}",
        )
    return found


def _ratio(trial: Trial, measured: Measured) -> float:
    """Steps that the constructed draft needs for the mix, over those that this one needs."""

    def steps(draft: str) -> float:
        return sum(1 / measured[draft][each.name].length for each in trial.classes)

    return steps(CONSTRUCTED) / steps(trial.draft)


def misjudged(trials: Sequence[Judged], measured: Measured) -> Sequence[str]:
    """Trials that found what is not true, and truths that are none any more, in sentences."""
    checks = {
        f"{trial.draft} under {trial.traffic} {what}": wrong
        for each in trials
        for trial in [each.trial]
        for what, wrong in {
            f"was found {each.status.result}": not each.right,
            "is not what its trial expects": (_ratio(trial, measured) > 1) != trial.faster,
        }.items()
    }
    return [sentence for sentence, wrong in checks.items() if wrong]


def problems(measured: Measured) -> Sequence[str]:
    """How the drafts differ from what they are for, in sentences."""
    first = {
        name: {each: found.survival[0] for each, found in by_class.items()}
        for name, by_class in measured.items()
    }
    length = {
        name: {each: found.length for each, found in by_class.items()}
        for name, by_class in measured.items()
    }
    before = first[CONSTRUCTED]
    checks = {
        f"both accepts less than {_ENOUGH} of hard traffic": first["both"]["hard"] < _ENOUGH,
        f"both accepts less than {_ENOUGH} of easy traffic": first["both"]["easy"] < _ENOUGH,
        "hard is not better on hard traffic": first["hard"]["hard"] < _MUCH,
        "hard is not worse on easy traffic": length["hard"]["easy"]
        >= length[CONSTRUCTED]["easy"] - 0.1,
        "early is not worse on easy traffic": first["early"]["easy"] >= before["easy"] / 2,
        "early is not worse on hard traffic": first["early"]["hard"] >= before["hard"],
        "an output is not the target's": any(
            found.wrong for by_class in measured.values() for found in by_class.values()
        ),
    }
    return [sentence for sentence, wrong in checks.items() if wrong]


def unlike_a_life(life: Life) -> Sequence[str]:
    """How it differs from what it is for, in sentences."""
    checks = {
        f"less than {_ENOUGH} is accepted after the adoption": float(life.after) < _ENOUGH,
        "the constructed draft is accepted too often to begin with": float(life.before) > _FEW,
        f"{counted(life.failed, 'request')} of {life.requests} were lost or wrong": life.failed > 0,
    }
    return [sentence for sentence, wrong in checks.items() if wrong]


def _mib(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file()) >> 20


if __name__ == "__main__":
    # So that what it started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(asyncio.run(main()))
