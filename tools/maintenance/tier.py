"""Runs one tier of the tests, says what it cost, and fails where that is twice its budget.

Run as `python -m maintenance.tier NAME --budget CPU_SECONDS -- COMMAND...`.

The budget is of processor time, since other work on a machine would lengthen wall time, and of the
machine that it was measured on: a slower one has as much more of it. Other work lengthens processor
time, too, by half where caches are shared, and no measure of slowness sees all of that. Hence what
is over the budget is said, and only twice the budget fails.

It counts every process of the tier, those that a test made a daemon and those in namespaces of
their own included: this process adopts whatever loses its parent (`PR_SET_CHILD_SUBREAPER`,
prctl(2)), and the kernel counts a child once it has ended and was waited for. Hence nothing may
still run when the tier has ended: what does is ended, named, and fails the tier.

Two tiers may run side by side: each line that the tests print is printed whole, after the name of
its tier.
"""

import argparse
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from threading import Thread
from typing import Final

from local_cluster.slowness import slowness_seen

_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_SECONDS: Final = 0.05
MOST_SLOWNESS: Final = 5.0
"""That a budget is raised by."""
FAILS_AT: Final = 2.0
"""Times its budget."""


def main() -> int:
    """Return the tests' exit code, or 1 where they passed and the tier still has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tier")
    parser.add_argument("--budget", type=float, required=True, metavar="CPU_SECONDS")
    parser.add_argument(
        "--patience",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="what the tests told to end may take so long",
    )
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()

    _say(f"\n==> {given.tier}")
    started_s = time.monotonic()
    _adopt_orphans()
    tests = subprocess.Popen(given.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    printing = Thread(target=_print_lines, args=(tests.stdout or (), f"{given.tier:7} | "))
    printing.start()
    with slowness_seen() as seen:
        code = _ended(tests)
    slow = min(MOST_SLOWNESS, max(1.0, fmean(seen)))
    budget_s = given.budget * slow
    left = _end_what_is_left(given.patience)
    printing.join()  # nobody has the other end of the pipe any more
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    _say(
        f"==> {given.tier}: {time.monotonic() - started_s:.0f} s, {cpu_s:.0f} CPU seconds "
        f"of {budget_s:.0f} (the Makefile's times {slow:.1f}: how slow this machine was)"
    )
    if left:
        _say(
            f"The tests of the tier {given.tier} left processes running, which are ended now: "
            f"{'; '.join(left)}. End them in the fixture that starts them."
        )
    too_dear = over_budget(given.tier, cpu_s, budget_s)
    if too_dear:
        _say(too_dear)
    return code or bool(left) or cpu_s > FAILS_AT * budget_s


def over_budget(tier: str, cpu_s: float, budget_s: float) -> str:
    """What to do about a tier that is too dear; empty: it is not."""
    if cpu_s <= budget_s:
        return ""
    return (
        f"The tier {tier} took {cpu_s:.0f} CPU seconds, {cpu_s / budget_s - 1:.0%} more than its "
        f"budget of {budget_s:.0f} by the Makefile; {FAILS_AT:.0f} times the budget fails. Look at "
        "its slowest tests, above: share an engine or a cluster, or simulate what need not be "
        "real. Raise the budget only for what is worth this much of everybody's every run."
    )


def _adopt_orphans() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for its exit code, and for adopted children that end meanwhile."""
    # Ctrl-C reaches the tests, too: they clean up and end, and so does this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return abs(process.returncode)


def _print_lines(lines: Iterable[bytes], prefix: str) -> None:
    for line in lines:
        print(prefix + line.decode(errors="replace").rstrip("\n"), flush=True)  # noqa: T201 - see _say


def _end_what_is_left(patience_s: float) -> list[str]:
    """Wait for every child; those that do not end by themselves are killed and returned."""
    killed: dict[int, str] = {}
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return list(killed.values())
        if pid:
            continue
        if time.monotonic() > deadline_s:
            # Their children become ours in turn.
            for child in _children() - killed.keys():
                killed[child] = f"{_command_line(child)} (pid {child})"
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _children() -> set[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in listed.split()}


def _command_line(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        return words.decode(errors="replace")[:100].strip()
    return "?"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a command's own output


if __name__ == "__main__":
    sys.exit(main())
