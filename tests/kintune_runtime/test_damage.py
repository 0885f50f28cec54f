"""Files that are truncated or changed are refused, and never crash the process."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kintune
import kintune_runtime
from kintune.core.model import Tensor
from kintune.runtime.merging import merge
from kintune.runtime.package import EncodedPlan, PackageVariant, write_package
from kintune.runtime.plan_format import decode_plan
from kintune_runtime import InputError, RunError
from kintune_runtime.library import checksum
from tests.support.toy_model import ADDING, calling, encoded, kernels, manifest, packed, write_model

WEIGHTS = packed([np.arange(1000, dtype=np.float32)])
PLAN = encoded(ADDING, WEIGHTS)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("toy") / "toy.kt").read_bytes()


def opens(path: Path, content: bytes) -> bool:
    """Whether it opens; then it must compute what it did."""
    path.write_bytes(content)
    try:
        model = kintune_runtime.open(path)
    except InputError:
        return False
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(model.run(x)["out"], x + 2 * np.arange(1000, dtype=np.float32))
    model.close()
    return True


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.kt: No such file or directory"):
        kintune_runtime.open(tmp_path / "no.kt")
    with pytest.raises(InputError, match="not a regular file"):
        kintune_runtime.open(tmp_path)
    for text in (b"", b"text", b"x" * 5000):
        assert not opens(tmp_path / "text.kt", text)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.kt")
    for opening in (kintune_runtime.open, kintune_runtime.HybridExecutable, kintune.open):
        with pytest.raises(InputError, match=r"pipe\.kt: not a regular file"):
            opening(tmp_path / "pipe.kt")


def test_a_truncated_file_is_refused(tmp_path: Path, content: bytes) -> None:
    for length in [*range(0, len(content), 997), len(content) - 1]:
        assert not opens(tmp_path / "short.kt", content[:length])


def test_a_changed_byte_is_found_or_was_padding(tmp_path: Path, content: bytes) -> None:
    """The manifest describes; what runs is the plan, the kernels and the weights."""
    start = content.index(PLAN)
    end = content.index(WEIGHTS.tobytes()) + WEIGHTS.nbytes
    library = content.index(kernels())
    refused = 0
    rng = np.random.default_rng(1)
    places = [*range(start, start + len(PLAN)), *rng.integers(library, end, 400).tolist()]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        refused += not opens(tmp_path / "changed.kt", bytes(changed))
        if start <= place < start + len(PLAN) or library <= place < library + len(kernels()):
            assert refused, place
    assert refused > 400


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of three variants the second one runs here; those of the others add other weights."""
    folder = tmp_path_factory.mktemp("merged")
    w = np.arange(1000, dtype=np.float32)
    given = [
        write_model(folder / "other.kt", [ADDING], [w + np.float32(0.5)], machine="riscv64"),
        write_model(folder / "this.kt", [ADDING], [w]),
        write_model(folder / "new.kt", [ADDING], [w + np.float32(0.25)], isa=["avx1024"]),
    ]
    return merge(given, folder / "fat.kt").path.read_bytes()


def test_a_changed_byte_of_any_variants_plan_is_found(tmp_path: Path, merged: bytes) -> None:
    assert opens(tmp_path / "fat.kt", merged)
    starts = [place for place in range(0, len(merged), 4096) if merged.startswith(b"KTPLAN", place)]
    assert len(starts) == 3
    for start in starts:
        for place in range(start, start + len(PLAN), 5):
            changed = bytearray(merged)
            changed[place] ^= 0x21
            assert not opens(tmp_path / "changed.kt", bytes(changed)), place


def test_a_truncated_merged_file_is_refused(tmp_path: Path, merged: bytes) -> None:
    for length in [*range(0, len(merged), 4099), len(merged) - 1]:
        assert not opens(tmp_path / "short.kt", merged[:length])


def test_weights_of_another_variant_are_not_looked_at(tmp_path: Path, merged: bytes) -> None:
    w = np.arange(1000, dtype=np.float32)
    for added, right in ((0, False), (0.5, True), (0.25, True)):
        changed = bytearray(merged)
        changed[changed.index((w + np.float32(added)).tobytes()) + 40] ^= 1
        assert opens(tmp_path / "changed.kt", bytes(changed)) == right


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}, {"number": 0}], "a plan is missing"),
        ([{}, {"total": 3}], "a plan is missing"),
        ([{"variant": 1}, {"variant": 1}], "the plans of a variant are missing"),
        ([{}, {"variant": 2}], "the plans of a variant are missing"),
        ([{"weights_offset": 64}, {}], "bad checksum of its weights|weights.bin has another length"),
        ([{"weights_offset": 1 << 62}, {}], "weights.bin has another length"),
        ([{"weights_offset": (1 << 64) - 64}, {}], "weights.bin has another length"),
        ([{"weights_bytes": 1 << 62}, {}], "weights.bin has another length"),
        *[
            ([{}, {"variant": 0, **change}], "two plans of a variant differ")
            for change in (
                {"machine": "riscv64"}, {"cpu": "another"}, {"isa": ("avx1024",)}, {"weights_offset": 64},
                {"weights_checksum": 1},
            )
        ],
    ],
)  # fmt: skip
def test_plans_that_do_not_belong_together_are_refused(
    tmp_path: Path, changes: list[dict[str, Any]], said: str
) -> None:
    """Two plans, by themselves right, of two variants; those of the second one are for the future."""
    plans = [decode_plan(encoded(ADDING, WEIGHTS, number=n, total=2, variant=n), checksum) for n in range(2)]
    made = [
        EncodedPlan(plan._replace(**change).encoded(checksum), kernels())
        for plan, change in zip(plans, changes, strict=True)
    ]
    path = tmp_path / "wrong.kt"
    write_package(path, [PackageVariant(manifest(ADDING), (plan,)) for plan in made], WEIGHTS)
    with pytest.raises(InputError, match=said):
        kintune_runtime.open(path)


@pytest.mark.parametrize(("count", "said"), [(1000, "more than 512 plans"), (400_000, "not a Kintune executable")])
def test_more_plans_than_any_result_has_are_not_read(tmp_path: Path, count: int, said: str) -> None:
    """Each is looked for among all members: 200,000 took minutes."""
    local, directory = bytearray(), bytearray()
    for name in (f"plan{number}.bin".encode() for number in range(count)):
        sizes = (33, 0, 0, 0, len(name), 0)
        directory += struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, *sizes, 0, 0, 0, 0, len(local)) + name
        local += struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, *sizes) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(directory), len(local), 0)
    (tmp_path / "many.kt").write_bytes(local + directory + end)
    with pytest.raises(InputError, match=said):
        kintune_runtime.open(tmp_path / "many.kt")


def test_outputs_larger_than_any_memory_are_refused(tmp_path: Path) -> None:
    """Of two outputs of 2^63 bytes the sum is 0, as long numbers of the machine add up."""
    half = Tensor("a", (1 << 61,), "float32")
    plan = calling("sleep", [Tensor("s", (1,), "float32")], [half, half])
    model = kintune_runtime.open(write_model(tmp_path / "vast.kt", [plan], []))
    with pytest.raises(RunError, match="no memory for the arena"):
        model.context()


@given(place=st.integers(0, len(PLAN) - 1), value=st.integers(0, 255), more=st.binary(max_size=40), first=st.booleans())
def test_a_plan_of_any_content_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, more: bytes, first: bool
) -> None:
    """With a right checksum, so that the checks behind it are what is tried; alone, or after another variant's."""
    before = [] if first else [encoded(ADDING, WEIGHTS, total=2)]
    plan = bytearray(PLAN if first else encoded(ADDING, WEIGHTS, number=1, total=2, variant=1, cpu="a CPU"))
    size = len(plan)
    plan[place] = value
    plan[place + 1 : place + 1 + len(more)] = more
    plan = plan[:size]
    plan[16:24] = (checksum(bytes(plan[:16])) ^ checksum(bytes(plan[24:]))).to_bytes(8, "little")
    path = tmp_path_factory.mktemp("fuzz") / "fuzz.kt"
    variants = [PackageVariant(manifest(ADDING), (EncodedPlan(each, kernels()),)) for each in (*before, bytes(plan))]
    write_package(path, variants, WEIGHTS)
    for number in range(len(variants)):
        try:
            model = kintune_runtime.open(path, number)
        except InputError:
            continue
        try:
            model.context(threads=1).close()
        except RunError as error:  # an arena of any size is fine, if there is the memory
            assert "no memory" in str(error)  # noqa: PT017
        model.close()
