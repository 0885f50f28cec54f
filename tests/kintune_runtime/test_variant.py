"""Which variant of a merged file is chosen."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kintune_runtime
from kintune.hardware.cpu import host_extensions
from kintune.runtime.executable import Executable
from kintune.runtime.merging import merge
from kintune_runtime import InputError
from tests.support.toy_model import ADDING, write_model

HERE = platform.machine()
X = np.arange(-500, 500, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)

EXTENSIONS = host_extensions() or ()
needs_extensions = pytest.mark.skipif(len(EXTENSIONS) < 2, reason="this CPU has no extensions to hide")


def outputs(path: Path, x: np.ndarray, variant: int | None = None) -> Any:
    with kintune_runtime.open(path, variant) as model:
        return model.run(x)["out"]


def test_what_suits_this_machine_is_chosen(tmp_path: Path) -> None:
    """Of another architecture, of no extensions, of a CPU of the future: each adds other weights."""
    given = [
        write_model(tmp_path / "arm.kt", [ADDING], [W + 1], machine="riscv64", isa=["v"]),
        write_model(tmp_path / "plain.kt", [ADDING], [W + 2]),
        write_model(tmp_path / "new.kt", [ADDING], [W + 3], isa=["avx1024"]),
    ]
    with kintune_runtime.open(merge(given, tmp_path / "fat.kt").path) as model:
        assert model.variant == (1, 3, HERE, "", (), 2)
        np.testing.assert_array_equal(model.run(X)["out"], X + 2 * (W + 2))


@needs_extensions
def test_the_one_with_the_most_extensions_is_chosen(tmp_path: Path) -> None:
    given = [
        write_model(tmp_path / f"{count}.kt", [ADDING], [W + count], isa=EXTENSIONS[:count])
        for count in (1, len(EXTENSIONS), 0)
    ]
    fat = merge(given, tmp_path / "fat.kt").path
    np.testing.assert_array_equal(outputs(fat, X), X + 2 * (W + len(EXTENSIONS)))
    for number, count in enumerate((1, len(EXTENSIONS), 0)):
        np.testing.assert_array_equal(outputs(fat, X, number), X + 2 * (W + count))


def test_the_first_is_chosen_of_those_that_are_equal(tmp_path: Path) -> None:
    given = [write_model(tmp_path / f"{cpu}.kt", [ADDING], [W + n], cpu=cpu) for n, cpu in enumerate(["one", "two"])]
    np.testing.assert_array_equal(outputs(merge(given, tmp_path / "fat.kt").path, X), X + 2 * W)
    np.testing.assert_array_equal(outputs(merge(given[::-1], tmp_path / "fat.kt").path, X), X + 2 * (W + 1))


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@needs_extensions
@pytest.mark.skipif(not cpu_name(), reason="this CPU has no name")
def test_the_one_that_was_tuned_on_this_cpu_is_chosen(tmp_path: Path) -> None:
    given = [
        write_model(tmp_path / "other.kt", isa=EXTENSIONS, cpu="another one"),
        write_model(tmp_path / "same.kt", isa=EXTENSIONS[:1], cpu=cpu_name()),
    ]
    with kintune_runtime.open(merge(given, tmp_path / "fat.kt").path) as model:
        assert model.variant == (1, 2, HERE, cpu_name(), EXTENSIONS[:1], 2)


@needs_extensions
def test_with_extensions_hidden_the_next_is_chosen(tmp_path: Path) -> None:
    given = [
        write_model(tmp_path / "new.kt", [ADDING], [W + 1], isa=EXTENSIONS),
        write_model(tmp_path / "old.kt", [ADDING], [W], isa=EXTENSIONS[:1]),
    ]
    fat = merge(given, tmp_path / "fat.kt").path
    code = f"""
        import numpy as np
        import kintune_runtime
        try:
            model = kintune_runtime.open({str(fat)!r})
            print(model.variant.number, float(model.run(np.zeros(1000, np.float32))["out"][1]))
        except kintune_runtime.InputError as error:
            print(error)
    """

    def said(hidden: str) -> str:
        environment = {**os.environ, "KINTUNE_HIDE_ISA": hidden}
        command = [sys.executable, "-c", textwrap.dedent(code)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    first, *_, last = EXTENSIONS
    assert said("") == "0 4.0"
    assert said("nothing") == "0 4.0"
    assert said(last.upper()) == "0 4.0"
    assert said(f"nothing {last}") == "1 2.0"
    assert said(f"{first} {last}") == (
        f"{fat}: variant 0 uses instructions that this CPU lacks: {first}, {last}; variant 1 uses instructions that"
        f" this CPU lacks: {first}; build it again for this machine with `kintune compile`, and add it with"
        " `kintune merge`"
    )


def test_where_none_fits_each_is_named(tmp_path: Path) -> None:
    given = [write_model(tmp_path / f"{name}.kt", machine=name) for name in ("riscv64", "s390x")]
    fat = merge(given, tmp_path / "fat.kt").path
    with pytest.raises(
        InputError, match=r"fat.kt: variant 0 is for riscv64, this machine is .*; variant 1 is for s390x, this .*merge`"
    ):
        kintune_runtime.open(fat)
    with pytest.raises(InputError, match=r"fat.kt: variant 0 is built for riscv64.*; variant 1 is built for s390x"):
        Executable.open(fat)
    with pytest.raises(InputError, match=r"fat.kt: variant 1 is for s390x"):
        kintune_runtime.open(fat, 1)


def test_a_variant_that_is_not_there_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "a.kt")
    with pytest.raises(InputError, match=r"a.kt: has no variant 1; there are 1, from 0"):
        kintune_runtime.open(model, 1)
    for number in (-1, 1 << 40):
        with pytest.raises(InputError, match=f"there is no variant {number}; they count from 0"):
            kintune_runtime.open(model, number)
