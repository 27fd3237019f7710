"""Puts one process into a pod's namespaces and becomes, or waits for, the user's program.

Run as a file by an isolated interpreter, before any thread or event loop exists, since a process
with threads can neither unshare its namespaces nor fork safely. Standard library only, and quick
to start.

    runner.py sandbox HOSTNAME     new network, host name and IPC namespaces, held by `sleep`
    runner.py container            reads a plan (JSON) from stdin; see `ContainerPlan`

Both die with the process that started them, so nothing of a pod outlives its kubelet.
On stdout a container's runner writes one line, `started PID` or `failed MESSAGE`; its exit status
is the program's, or 128 plus the number of the signal that ended it. The program's output goes to
the runner's stderr.
"""

# ruff: noqa: S606, T201 - executing a program and writing to a pipe is all this file does
import contextlib
import ctypes
import json
import os
import platform
import shutil
import signal
import sys
from pathlib import Path
from typing import NoReturn, TypedDict

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2
PR_SET_PDEATHSIG = 1
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
SIGNALLED = 128
OUTPUT_BYTES = 65536
OLD_ROOT = "/.host"
# Of the host's mounts these are made anew, or are none of a container's business.
OWN_MOUNTS = ("/proc", "/sys", "/dev", "/run")

libc = ctypes.CDLL(None, use_errno=True)


class Mount(TypedDict):
    """A file or folder of the host, to be seen in the container."""

    source: str
    target: str
    read_only: bool


class ContainerPlan(TypedDict):
    """How to start a container."""

    sandbox_pid: int
    root: str
    """An empty folder of the host; the container's root is mounted there, seen by it alone."""
    mounts: list[Mount]
    read_only_root: bool
    argv: list[str]
    env: dict[str, str]
    cwd: str
    processors: list[int]
    """Where it may run; empty: anywhere."""


def main() -> None:
    """Dispatches on the first argument."""
    die_with_parent()
    if sys.argv[1] == "sandbox":
        hold_sandbox(hostname=sys.argv[2])
    else:
        plan: ContainerPlan = json.load(sys.stdin)
        run_container(plan)


def hold_sandbox(hostname: str) -> NoReturn:
    """Creates the namespaces; stdout closes when they exist."""
    check(libc.unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC), "unshare")
    os.set_inheritable(1, False)  # noqa: FBT003 - the standard library's signature
    encoded = hostname.encode()
    check(libc.sethostname(encoded, len(encoded)), "sethostname")
    os.execvp("sleep", ["sleep", "infinity"])


def run_container(plan: ContainerPlan) -> NoReturn:
    """Starts the program as process 1 of a PID namespace, and exits as it does."""
    try:
        for kind in ("net", "uts", "ipc"):
            with open(f"/proc/{plan['sandbox_pid']}/ns/{kind}", "rb") as namespace:  # noqa: PTH123
                check(libc.setns(namespace.fileno(), 0), f"setns {kind}")
        check(libc.unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare")
    except OSError as error:
        print(f"failed {error}", flush=True)
        sys.exit(SIGNALLED)
    failure_reader, failure_writer = os.pipe()
    output_reader, output_writer = os.pipe()
    child = os.fork()
    if child == 0:
        become_program(plan, failure_writer, output_writer)
    os.close(failure_writer)
    os.close(output_writer)
    with open(failure_reader, encoding="utf-8") as failures:  # noqa: PTH123
        failure = failures.read()
    print(f"failed {failure}" if failure else f"started {child}", flush=True)
    # A pipe, as container runtimes use: what opens /proc/1/fd/1 for writing must not empty the log.
    while output := os.read(output_reader, OUTPUT_BYTES):
        os.write(2, output)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else SIGNALLED - code)


def become_program(plan: ContainerPlan, failure_writer: int, output_writer: int) -> NoReturn:
    """In the child: sets up the root filesystem and executes; never returns."""
    try:
        die_with_parent()
        os.setsid()
        enter_root(plan)
        os.dup2(output_writer, 1)
        os.dup2(output_writer, 2)
        os.chdir(plan["cwd"])
        if plan["processors"]:
            os.sched_setaffinity(0, plan["processors"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores these; what it executes would inherit that.
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(plan["env"])
        os.execvp(plan["argv"][0], plan["argv"])
    except FileNotFoundError as error:
        report(failure_writer, f"{error.filename or plan['argv'][0]}: no such file or directory")
    except OSError as error:
        report(failure_writer, str(error))
    os._exit(SIGNALLED)


def report(writer: int, message: str) -> None:
    """Tells the parent why the program was not executed."""
    os.write(writer, message.replace("\n", " ").encode())


def enter_root(plan: ContainerPlan) -> None:
    """Makes a copy-on-write view of the host's files the root, with the pod's volumes in it."""
    root = plan["root"]
    filesystems = ["/", *other_filesystems()]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    # What a container writes goes to memory, and is gone with its mount namespace.
    mount("tmpfs", root, "tmpfs", 0, "mode=755")
    merged = f"{root}/merged"
    for number, filesystem in enumerate(filesystems):
        upper, work = f"{root}/upper{number}", f"{root}/work{number}"
        target = merged if filesystem == "/" else f"{merged}{filesystem}"
        for folder in (upper, work, target):
            Path(folder).mkdir(mode=0o755, exist_ok=True)
        # Whether others may write, as in /tmp, is a property of the upper layer's root.
        shutil.copymode(filesystem, upper)
        layers = f"lowerdir={filesystem},upperdir={upper},workdir={work}"
        mount("overlay", target, "overlay", 0, layers)
    mount("proc", f"{merged}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("/sys", f"{merged}/sys", None, MS_BIND | MS_REC)
    mount("/dev", f"{merged}/dev", None, MS_BIND | MS_REC)
    # A container runtime gives 64 MiB; more has to be asked for with a memory volume.
    mount("tmpfs", f"{merged}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m")  # noqa: S108
    mount("tmpfs", f"{merged}/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    os.mkdir(f"{merged}{OLD_ROOT}")  # noqa: PTH102
    os.chdir(merged)
    number = SYS_PIVOT_ROOT[platform.machine()]
    check(libc.syscall(number, b".", OLD_ROOT.lstrip("/").encode()), "pivot_root")
    os.chdir("/")
    for item in sorted(plan["mounts"], key=lambda entry: entry["target"].count("/")):
        bind(item)
    check(libc.umount2(OLD_ROOT.encode(), MNT_DETACH), "umount")
    os.rmdir(OLD_ROOT)  # noqa: PTH106
    if plan["read_only_root"]:
        mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def other_filesystems() -> list[str]:
    """Folders of the host where filesystems are mounted that an overlay of `/` does not show."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:  # noqa: PTH123
        for line in mounts:
            target = line.split()[4].encode().decode("unicode_escape")
            inside_own = any(f"{target}/".startswith(f"{own}/") for own in OWN_MOUNTS)
            if target != "/" and not inside_own and Path(target).is_dir():
                found.append(target)
    return found


def bind(item: Mount) -> None:
    """Mounts a host path where the container wants it; its own links are followed, not ours."""
    source = f"{OLD_ROOT}{item['source']}"
    target = Path(item["target"])
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        # In /dev, which is the machine's own, an empty file stays behind for all to mount over.
        with contextlib.suppress(FileExistsError):
            target.touch(exist_ok=False)
    mount(source, str(target), None, MS_BIND | MS_REC)
    if item["read_only"]:
        mount("none", str(target), None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def die_with_parent() -> None:
    """Asks the kernel for SIGKILL when the parent ends, however it ends."""
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mounts, or changes a mount.

    Raises:
        OSError: with the target in its message.
    """
    encoded = None if kind is None else kind.encode()
    done = libc.mount(
        source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), data.encode()
    )
    check(done, f"mount {source} on {target}")


def check(result: int, what: str) -> None:
    """Turns a failed call into an exception.

    Raises:
        OSError: `result` is -1.
    """
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
