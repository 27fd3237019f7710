"""`python -m mutants MODULE --seed N`: draws the sample, runs it, tells what survived."""

import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from mutants.candidates import candidates, compiles, mutated
from mutants.modules import MODULES, Module, read
from mutants.recording import OF, RECORD
from mutants.report import report_of
from mutants.running import POLL_S, TIMED_OUT, Tests, copied, load_early, replaced
from mutants.sampling import Candidate, drawn
from mutants.selection import Recorded
from mutants.session import Outcome, Recordings, Session, digest
from mutants.survivors import listed

ROOT: Final = Path(__file__).parents[2]
CACHE: Final = ROOT / ".cache" / "mutants"
SURVIVORS: Final = ROOT / "tests" / "mutants" / "survivors.toml"
LONGEST_CLEAN_S: Final = 1800.0
"""Time limit of one file of tests."""
TIMES_AS_LONG: Final = 1.5
"""As its tests took while they were recorded, in processor time, after which a mutant is taken to
run for ever; plus …"""
START_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker needs for one mutant."""

    candidate: Candidate
    mutated: str
    tests: list[str]
    longest_s: float


def main(
    module: Annotated[str, typer.Argument(help=f"One of {', '.join(MODULES)}.")],
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 1,
    count: Annotated[int, typer.Option(help="Mutants in the sample.")] = 120,
    workers: Annotated[int, typer.Option(help="How many run at a time.")] = 1,
) -> None:
    """Run a sample of the mutants of a module against its tests, and tell what survived."""
    of = MODULES.get(module)
    if of is None:
        raise typer.BadParameter(f"{module} is none of {', '.join(MODULES)}.")
    sources = read(ROOT, of.source_files(ROOT))
    found = (each for path, text in sources.items() for each in candidates(path, text))
    fit = (each for each in drawn(found, seed) if compiles(sources[each.path], each))
    sample = list(itertools.islice(fit, count))
    load_early()
    session = Session(CACHE / f"{module}-{seed}.jsonl")
    tests = digest(read(ROOT, of.test_files(ROOT)) | _support())
    recorded = _recorded(of, sources)
    digests = {path: digest({path: text}) for path, text in sources.items()}
    known = session.outcomes
    due = [
        _work(each, recorded, sources)
        for each in sample
        if each.key not in known or not known[each.key].holds(digests[each.path], tests)
    ]
    typer.echo(f"{len(sample)} mutants, {len(due)} of them to be run")
    for ended in _carried_out(due, of.test_files(ROOT), workers):
        mutant, source = ended.work.candidate, digests[ended.work.candidate.path]
        session.add(Outcome(mutant.key, source, tests, ended.killed, ended.by, ended.seconds))
        typer.echo(
            f"{'killed  ' if ended.killed else 'SURVIVED'} {ended.seconds:6.1f} s  "
            f"{mutant.path}:{mutant.start[0]}  {ended.by}"
        )
    report = report_of(sample, session.outcomes, sources, listed(SURVIVORS))
    typer.echo(report.text)
    sys.exit(0 if report.enough else 1)


def _support() -> dict[str, str]:
    return read(ROOT, (str(each.relative_to(ROOT)) for each in ROOT.glob("tests/support/*.py")))


def _recorded(of: Module, sources: Mapping[str, str]) -> Recorded:
    """Which tests execute what; run clean where that is not known."""
    recordings = Recordings(CACHE / "recorded")
    files = {
        each: recordings.path(each, digest(dict(sources) | read(ROOT, [each])))
        for each in of.test_files(ROOT)
    }
    missing = {test: into for test, into in files.items() if not into.exists()}
    if missing:
        with copied(ROOT) as copy:
            for test, into in missing.items():
                typer.echo(f"recording {test}")
                partial = into.with_suffix(".partial")
                environment = {RECORD: str(partial), OF: os.pathsep.join(sources)}
                with Tests(copy, [test], LONGEST_CLEAN_S, environment, clean=True) as tests:
                    if tests.ended():
                        sys.exit(f"{test} fails without any mutant:\n{tests.output()}")
                partial.rename(into)
    return recordings.read(files.values())


def _work(candidate: Candidate, recorded: Recorded, sources: Mapping[str, str]) -> Work:
    changed = mutated(sources[candidate.path], candidate)
    tests = recorded.tests_of(candidate, sources)
    clean_s = sum(recorded.seconds.get(each, 0.0) for each in tests)
    return Work(candidate, changed, tests, START_S + TIMES_AS_LONG * clean_s)


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one mutant."""

    work: Work
    killed: bool
    by: str
    seconds: float


def _carried_out(due: Sequence[Work], test_files: Sequence[str], workers: int) -> Iterator[Ended]:
    """Each as it ends."""
    waiting = deque(due)
    with ExitStack() as stack:
        free = [stack.enter_context(copied(ROOT)) for _ in range(min(workers, len(due)))]
        for copy in free:
            # Compiles what every run would compile again.
            with Tests(copy, ["--collect-only", *test_files], LONGEST_CLEAN_S, clean=True) as tests:
                tests.ended()
        running: list[tuple[Work, Path, Tests, ExitStack]] = []
        while waiting or running:
            while waiting and free:
                work = waiting.popleft()
                copy, own = free.pop(), stack.enter_context(ExitStack())
                own.enter_context(replaced(copy / work.candidate.path, work.mutated))
                tests = own.enter_context(Tests(copy, work.tests, work.longest_s))
                running.append((work, copy, tests, own))
            time.sleep(POLL_S)
            for one in [one for one in running if one[2].code() is not None]:
                work, copy, tests, own = one
                running.remove(one)
                by = _by(tests.ended(), tests.output(), len(work.tests))
                yield Ended(work, tests.ended() != 0, by, tests.seconds)
                own.close()
                free.append(copy)


def _by(code: int, output: str, tests: int) -> str:
    if not code:
        return f"{tests} tests pass"
    if code == TIMED_OUT:
        return "time-out"
    failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" - ")[0] if failed else f"exit code {code}"


if __name__ == "__main__":
    typer.run(main)
