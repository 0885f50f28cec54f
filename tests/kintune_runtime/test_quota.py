"""The limits of control groups, as the runtime reads them; the files are made up."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "runtime" / "native"
INCLUDE = NATIVE.parent / "src" / "kintune_runtime" / "include"

_PROGRAM = """
#include <stdio.h>
#include "internal.h"
int main(int count, char **arguments) {
  printf("%g", count == 3 ? kt_cpu_quota(arguments[1], arguments[2]) : -1.0);
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quota")
    (folder / "main.c").write_text(_PROGRAM)
    sources = [str(folder / "main.c"), str(NATIVE / "quota.c")]
    flags = ["-std=gnu11", "-Wall", "-Werror", "-I", str(INCLUDE), "-I", str(NATIVE)]
    subprocess.run(["cc", *flags, "-o", str(folder / "quota"), *sources], check=True)
    return folder / "quota"


@pytest.fixture
def quota(program: Path, tmp_path: Path) -> Callable[..., float]:
    """The limit with these groups (the content of /proc/self/cgroup) and these files below the mounted groups."""

    def limit(groups: str, **files: str) -> float:
        (tmp_path / "groups").write_text(groups)
        for name, text in files.items():
            path = tmp_path / "mount" / name.replace("__", ".").replace("_in_", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = [str(program), str(tmp_path / "groups"), str(tmp_path / "mount")]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return limit


def test_the_smallest_limit_on_the_way_to_the_root_holds(quota: Callable[..., float]) -> None:
    files = {
        "cpu__max": "max 100000\n",
        "a_in_cpu__max": "150000 100000\n",
        "a_in_b_in_cpu__max": "400000 100000\n",
        "c_in_cpu__max": "50000 100000\n",
    }
    assert quota("0::/a/b\n", **files) == 1.5
    assert quota("0::/c\n") == 0.5
    assert quota("0::/elsewhere\n") == 1e9


def test_a_container_sees_its_own_group_as_the_root(quota: Callable[..., float]) -> None:
    assert quota("0::/\n", cpu__max="250000 100000\n") == 2.5
    assert quota("0::/../../other\n") == 2.5


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
def test_the_first_version_has_a_hierarchy_for_each_kind(quota: Callable[..., float], folder: str) -> None:
    files = {f"{folder}_in_a_in_cpu.cfs_quota_us": "300000\n", f"{folder}_in_a_in_cpu.cfs_period_us": "100000\n"}
    assert quota("3:memory:/b\n2:cpu,cpuacct:/a\n", **files) == 3.0
    files = {f"{folder}_in_a_in_cpu.cfs_quota_us": "-1\n"}
    assert quota("2:cpu,cpuacct:/a\n", **files) == 1e9


@pytest.mark.parametrize("text", ["", "max\n", "many 100000\n", "100000 0\n", "-1 100000\n"])
def test_what_makes_no_sense_is_no_limit(quota: Callable[..., float], text: str) -> None:
    assert quota("0::/a\n", a_in_cpu__max=text) == 1e9
    assert quota("nothing\n0:\n") == 1e9
