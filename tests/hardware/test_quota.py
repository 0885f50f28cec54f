from __future__ import annotations

from pathlib import Path

import pytest

from kintune.hardware.cpu import inspect_machine
from kintune.hardware.quota import Throttling, cpu_quota, threads_within

V2 = "29 23 0:26 {root} {mount} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "31 24 0:28 {root} {mount} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"


class Machine:
    """A fake tree of `proc` and `sys`."""

    def __init__(self, root: Path, version: int, path: str, above: str = "/", mount: str = "/sys/fs/cgroup") -> None:
        self.root = root
        self.mount = root / mount.lstrip("/")
        self._version = version
        line = f"0::{path}\n" if version == 2 else f"12:pids:/elsewhere\n4:cpu,cpuacct:{path}\n0::/\n"
        mounts = (V2 if version == 2 else V1).format(root=above, mount=mount)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/cgroup").write_text(line)
        (root / "proc/self/mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mounts}")

    def group(self, path: str, quota: int | None, period: int = 100_000, throttled: int = 0) -> Path:
        """Make a group; without a quota it has no limit."""
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        if self._version == 2:
            (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} {period}\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota is None else quota}\n")
            (folder / "cpu.cfs_period_us").write_text(f"{period}\n")
        (folder / "cpu.stat").write_text(f"nr_periods 100\nnr_throttled {throttled}\nthrottled_usec 12345\n")
        return folder


@pytest.mark.parametrize("version", [1, 2])
def test_a_quota_is_read(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version, "/job")
    group = machine.group("job", 150_000)
    quota = cpu_quota(tmp_path)
    assert quota is not None
    assert (quota.cores, quota.group) == (1.5, str(group))
    assert threads_within(8, tmp_path) == 1
    assert inspect_machine(tmp_path).quota_cores == 1.5
    assert inspect_machine(tmp_path).threads == 1


@pytest.mark.parametrize("version", [1, 2])
def test_the_smallest_limit_on_the_way_to_the_root_holds(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version, "/a/b/c")
    machine.group("", None)
    machine.group("a", 300_000)
    smallest = machine.group("a/b", 100_000, period=50_000)
    machine.group("a/b/c", None)
    machine.group("other", 10_000)
    quota = cpu_quota(tmp_path)
    assert quota is not None
    assert (quota.cores, quota.group) == (2.0, str(smallest))
    assert threads_within(8, tmp_path) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_without_a_limit_there_is_none(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version, "/job")
    machine.group("", None)
    machine.group("job", None)
    assert cpu_quota(tmp_path) is None
    assert threads_within(8, tmp_path) == 8
    assert Throttling(tmp_path).count() == 0


def test_in_a_container_the_mount_shows_its_own_group_at_the_root(tmp_path: Path) -> None:
    """The path of the process is as the host has it, and so is the group that is mounted."""
    machine = Machine(tmp_path, 1, "/docker/7f/inner", above="/docker/7f")
    machine.group("", 200_000)
    machine.group("inner", 50_000)
    quota = cpu_quota(tmp_path)
    assert quota is not None
    assert (quota.cores, quota.group) == (0.5, str(machine.mount / "inner"))
    assert threads_within(4, tmp_path) == 1


@pytest.mark.parametrize("path", ["/", "/../..", "/elsewhere"])
def test_in_a_namespace_the_mount_itself_is_the_group(tmp_path: Path, path: str) -> None:
    machine = Machine(tmp_path, 2, path, above="/" if path != "/elsewhere" else "/job")
    machine.group("", 250_000)
    quota = cpu_quota(tmp_path)
    assert quota is not None
    assert quota.cores == 2.5


def test_a_mount_whose_name_has_a_space(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2, "/", mount="/sys/fs/control\\040groups")
    machine.mount = tmp_path / "sys/fs/control groups"
    machine.group("", 100_000)
    assert cpu_quota(tmp_path) is not None


def test_where_mounts_are_not_listed_the_usual_place_is_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2, "/")
    machine.group("", 100_000)
    (tmp_path / "proc/self/mountinfo").unlink()
    assert cpu_quota(tmp_path) is not None


@pytest.mark.parametrize("content", ["", "max", "many 100000", "100000 0", "1 2 3"])
def test_what_cannot_be_read_is_no_limit(tmp_path: Path, content: str) -> None:
    machine = Machine(tmp_path, 2, "/")
    (machine.group("", 1) / "cpu.max").write_text(content)
    assert cpu_quota(tmp_path) is None


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize("version", [1, 2])
def test_periods_in_which_it_was_stopped_are_counted(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version, "/a/b")
    machine.group("a", 100_000, throttled=3)
    machine.group("a/b", 100_000, throttled=4)
    throttling = Throttling(tmp_path)
    assert throttling.count() == 7
    machine.group("a/b", 100_000, throttled=9)
    assert throttling.count() == 12
    (machine.mount / "a/b/cpu.stat").unlink()
    assert throttling.count() == 3
