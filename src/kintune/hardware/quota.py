"""The CPU time that control groups leave to this process, and how often they have stopped it.

Containers and batch systems limit a group of processes to so many microseconds of CPU time in each period.  A process
whose group has spent them is stopped until the next period begins.  Every group on the way to the root has a limit of
its own, and the smallest one holds.  Version 2 of the interface has `cpu.max`, version 1 has `cpu.cfs_quota_us`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

__all__ = ["CpuQuota", "Throttling", "cpu_quota", "threads_within"]

_USUAL_MOUNTS = ("sys/fs/cgroup", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct")
"""The usual mount points of the groups, for when the kernel's list of mounts has none."""

_NEARLY = 0.05  # cores by which a limit may fall short of a whole number and still count as that number


class CpuQuota(msgspec.Struct, frozen=True):
    """Seconds of CPU time a second (`cores`), and the folder of the control group that allows no more."""

    cores: float
    group: str


def cpu_quota(root: Path = Path("/")) -> CpuQuota | None:
    """Returns the smallest limit of this process's control groups, None if it has none.

    `root` is where `proc` and `sys` lie.
    """
    limits = [CpuQuota(cores, str(group)) for group, cores in _limited_groups(root)]
    return min(limits, key=lambda limit: limit.cores, default=None)


def threads_within(cores: int, root: Path = Path("/")) -> int:
    """Returns how many threads may spin on so many cores without being stopped: at least one."""
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota.cores + _NEARLY)))


class Throttling:
    """Counts the periods in which this process's control groups were stopped because their CPU time was used up."""

    def __init__(self, root: Path = Path("/")) -> None:
        """The groups are found once; those that have no limit now are not looked at again."""
        self._files = [group / "cpu.stat" for group, _ in _limited_groups(root)]

    def count(self) -> int:
        """Returns the periods in which one of the groups was stopped so far, added up over the groups."""
        return sum(_throttled(file) for file in self._files)


def _throttled(file: Path) -> int:
    try:
        found = re.search(r"^nr_throttled (\d+)$", file.read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _limited_groups(root: Path) -> Iterator[tuple[Path, float]]:
    """The folders of this process's groups that have a limit, each with its cores."""
    for group in _groups(root):
        cores = _limit(group)
        if cores is not None:
            yield group, cores


def _limit(group: Path) -> float | None:
    """Cores that a group may use; None if it has no limit, or none that can be read."""
    try:
        if (group / "cpu.max").exists():
            spent, period = (group / "cpu.max").read_text().split()
        else:
            spent = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        return int(spent) / int(period) if spent not in ("max", "-1") and int(period) > 0 else None
    except (OSError, ValueError):
        return None


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the groups that this process is in, from its own upwards, of both versions."""
    mounts = _mounts(root)
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        version = 2 if number == "0" and not controllers else 1
        if version == 1 and "cpu" not in controllers.split(","):
            continue
        for above, folder in mounts.get(version, ()):
            parts = _below(path, above)
            yield from (folder.joinpath(*parts[:length]) for length in range(len(parts), -1, -1))


def _below(path: str, above: str) -> list[str]:
    """The folders from a mounted group down to the group `path`.

    Empty if `path` is not below the mounted group, as it may look from inside a namespace.
    """
    if above != "/":
        if path != above and not path.startswith(f"{above}/"):
            return []
        path = path[len(above) :]
    parts = [part for part in path.split("/") if part]
    return [] if ".." in parts else parts


def _mounts(root: Path) -> dict[int, list[tuple[str, Path]]]:
    """By version, the mounted hierarchies with the CPU controller: the group that is mounted, and its mount point."""
    found: dict[int, list[tuple[str, Path]]] = {}
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        version = {"cgroup2": 2, "cgroup": 1}.get(kind[0])
        if version is None or (version == 1 and "cpu" not in kind[-1].split(",")):
            continue
        found.setdefault(version, []).append((_plain(fields[3]), root / _plain(fields[4]).lstrip("/")))
    if not found:
        usual = [("/", root / folder) for folder in _USUAL_MOUNTS]
        found = {1: usual, 2: usual[:1]}
    return found


def _plain(text: str) -> str:
    """Decode a path of `mountinfo`, which has escapes with octal numbers in place of spaces."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
