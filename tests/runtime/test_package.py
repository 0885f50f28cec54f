import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kintune
import kintune_runtime
from kintune.core.model import Tensor
from kintune.errors import InputError, StorageError, StorageFull
from kintune.runtime.package import (
    ALIGNMENT,
    PAGE,
    Block,
    EncodedPlan,
    Manifest,
    Narrow,
    Package,
    PackageVariant,
    VmPackage,
    pack_weights,
    read_manifest,
    read_manifests,
    write_package,
    write_vm_package,
    write_with_error,
    write_with_thread_counts,
)
from kintune.runtime.plan_format import with_thread_counts
from kintune_runtime.library import checksum
from tests.support.toy_model import write_model

MANIFEST = Manifest(
    model_name="small",
    model_digest="d" * 32,
    target='{"kind":"llvm"}',
    machine="x86_64",
    isa=("avx2",),
    threads=2,
    inputs=(Tensor("x", (1, 3), "float32"),),
    outputs=(Tensor("y", (1,), "int64"),),
    chosen={"w": "c"},
    created="2026-01-01T00:00:00+00:00",
    kintune="0",
    tvm="0",
)
LIBRARY = bytes(range(256)) * 3
PLANS = (EncodedPlan(b"plan" * 50, LIBRARY), EncodedPlan(b"another plan", b"another library"))
VARIANTS = (PackageVariant(MANIFEST, PLANS),)


def block(*shape: int, dtype: str = "float32", seed: int = 0) -> Block:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Block(shape, dtype, np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8))


def content(package: Package) -> tuple[object, ...]:
    return package.variants, package.weights.tobytes()


def weights(*blocks: Block) -> Any:
    return pack_weights(blocks)[1]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.kt"
    blocks = block(3, 5), block(7, dtype="int8", seed=1), block(2, 2, seed=2)
    write_package(path, VARIANTS, weights(*blocks))
    return path


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    names=st.lists(st.text(max_size=20), min_size=1, max_size=3),
    each=st.integers(1, 3),
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=5),
)
def test_what_is_written_is_read(
    tmp_path: Path, data: st.DataObject, names: list[str], each: int, shapes: list[tuple[int, ...]]
) -> None:
    plan = st.builds(EncodedPlan, st.binary(max_size=300), st.binary(max_size=300))
    variants = [
        PackageVariant(
            msgspec.structs.replace(MANIFEST, cpu=name),
            tuple(data.draw(st.lists(plan, min_size=each, max_size=each))),
        )
        for name in names
    ]
    packed = weights(*(block(*shape, seed=i) for i, shape in enumerate(shapes)))
    write_package(tmp_path / "f.kt", variants, packed)
    assert content(Package.open(tmp_path / "f.kt")) == content(Package(tuple(variants), packed))
    assert read_manifest(tmp_path / "f.kt") == variants[0].manifest
    assert read_manifests(tmp_path / "f.kt") == tuple(variant.manifest for variant in variants)


@given(st.lists(st.integers(0, 200), max_size=6))
def test_weights_lie_at_aligned_offsets_one_after_another(sizes: list[int]) -> None:
    blocks = [block(size, dtype="uint8", seed=i) for i, size in enumerate(sizes)]
    offsets, packed = pack_weights(blocks)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert list(offsets) == sorted(offsets)
    for offset, each in zip(offsets, blocks, strict=True):
        assert packed[offset : offset + each.data.nbytes].tobytes() == each.data.tobytes()


def test_every_member_lies_at_a_page(saved: Path) -> None:
    whole = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        assert archive.namelist() == ["manifest.json", "plan0.bin", "lib0.so", "plan1.bin", "lib1.so", "weights.bin"]
        for info in archive.infolist():
            name, extra = struct.unpack_from("<2H", whole, info.header_offset + 26)
            start = info.header_offset + 30 + name + extra
            assert start % PAGE == 0
            assert whole[start : start + info.file_size] == archive.read(info)


def test_a_file_for_the_virtual_machine_has_its_weights_apart(tmp_path: Path) -> None:
    blocks = [block(3, 5), block(7, dtype="int8", seed=1)]
    write_vm_package(tmp_path / "gpu.kt", MANIFEST, LIBRARY, blocks)
    opened = VmPackage.open(tmp_path / "gpu.kt")
    assert (opened.manifest, opened.library) == (MANIFEST, LIBRARY)
    assert [(b.shape, b.dtype, b.data.tobytes()) for b in opened.weights] == [
        (b.shape, b.dtype, b.data.tobytes()) for b in blocks
    ]
    assert [b.data.__array_interface__["data"][0] % ALIGNMENT for b in opened.weights] == [0, 0]


def test_a_file_for_the_virtual_machine_is_no_file_for_a_cpu(tmp_path: Path) -> None:
    write_vm_package(tmp_path / "board.kt", MANIFEST, LIBRARY, [])
    with pytest.raises(InputError, match=r"board.kt: made for TVM's virtual machine; a file for a CPU is needed"):
        Package.open(tmp_path / "board.kt")
    write_vm_package(tmp_path / "gpu.kt", msgspec.structs.replace(MANIFEST, target='{"kind":"cuda"}'), LIBRARY, [])
    with pytest.raises(InputError, match=r"gpu.kt: made for a GPU; a file for a CPU is needed"):
        Package.open(tmp_path / "gpu.kt")


def test_plans_that_no_number_of_variants_has_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "odd.kt", "w") as archive:
        described = {"format": 2, "executable": msgspec.to_builtins(MANIFEST), "plans": 3}
        archive.writestr("manifest.json", msgspec.json.encode({**described, "others": [msgspec.to_builtins(MANIFEST)]}))
    with pytest.raises(InputError, match=r"damaged \(3 plans of 2 variants\)"):
        Package.open(tmp_path / "odd.kt")


def test_writing_to_mapped_weights_leaves_the_file_alone(saved: Path) -> None:
    before = saved.read_bytes()
    Package.open(saved).weights[:] = 0
    assert saved.read_bytes() == before


def test_the_same_content_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    package = Package.open(saved)
    write_package(tmp_path / "again.kt", package.variants, package.weights)
    assert (tmp_path / "again.kt").read_bytes() == saved.read_bytes()


def test_an_opened_file_may_be_replaced(saved: Path) -> None:
    package = Package.open(saved)
    before = content(package)
    write_package(saved, [PackageVariant(MANIFEST, PLANS[:1])], weights(block(1)))
    assert content(package) == before


def test_the_file_may_be_repacked_by_another_tool(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(tmp_path / "repacked.kt", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert content(Package.open(tmp_path / "repacked.kt")) == content(Package.open(saved))


def test_truncation_anywhere_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"truncated or damaged|not a Kintune executable"):
            Package.open(saved)


def test_a_flipped_byte_never_gives_other_content(saved: Path) -> None:
    whole, expected = saved.read_bytes(), content(Package.open(saved))
    refusals = []
    for position in (i for i in range(len(whole)) if whole[i] or i % 64 == 0):  # few of the zeros that pad
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            assert content(Package.open(saved)) == expected
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 1000
    assert not [refusal for refusal in refusals if "\n" in refusal]


@pytest.mark.parametrize("content", [b"", b"PK", b"\x7fELF" * 50, b"\x00" * 5000])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.kt").write_bytes(content)
    with pytest.raises(InputError, match="not a Kintune executable"):
        Package.open(tmp_path / "other.kt")


def test_other_archives_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(InputError, match="not a Kintune executable"):
        read_manifest(tmp_path / "other.npz")


def test_a_foreign_manifest_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "foreign.kt", "w") as archive:
        archive.writestr("manifest.json", '{"name": "a browser extension"}')
    with pytest.raises(InputError, match=r"not a Kintune executable: manifest\.json"):
        read_manifest(tmp_path / "foreign.kt")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"threads": 0}, "0 threads"),
        ({"target": "../x"}, "target ../x"),
        ({"inputs": (Tensor("x", (-1, 3), "float32"),)}, "input x of shape"),
        ({"inputs": (Tensor("x", (1 << 40, 1 << 40), "float32"),)}, "input x of shape"),
        ({"inputs": (Tensor("x", (1,), "nonsense"),)}, "input x of type nonsense"),
        ({"inputs": (Tensor("x", (1,), "float32", values="bytes"),)}, "input x of bytes float32"),
        ({"inputs": (Tensor("x", (1,), "int64", bounds=(3, 2)),)}, "input x with indices from 3 to 2"),
        ({"inputs": (Tensor("x", (1,), "int64", bounds=(0, 1 << 70)),)}, "input x with indices from 0 to"),
    ],
)
def test_a_manifest_of_what_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    path = write_model(tmp_path / "toy.kt")
    manifest = msgspec.structs.replace(read_manifest(path), **changed)
    package = Package.open(path)
    write_package(path, [package.variants[0]._replace(manifest=manifest)], package.weights)
    with pytest.raises(InputError, match=rf"toy\.kt: truncated or damaged \(manifest\.json: {said}"):
        kintune.open(path)


def test_a_manifest_of_another_file_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "toy.kt")
    package = Package.open(path)
    for changed in ({"inputs": (Tensor("x", (7,), "float32"),)}, {"outputs": ()}):
        manifest = msgspec.structs.replace(package.manifest, **changed)
        write_package(tmp_path / "other.kt", [package.variants[0]._replace(manifest=manifest)], package.weights)
        with pytest.raises(InputError, match=r"other\.kt: damaged: its manifest is of another file"):
            kintune.open(tmp_path / "other.kt")


def test_another_format_is_refused_by_number(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "new.kt", "w") as archive:
        archive.writestr("manifest.json", '{"format": 99, "unheard_of": true}')
    with pytest.raises(InputError, match="written in format 99, this Kintune reads format 2"):
        Package.open(tmp_path / "new.kt")


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.kt: no such file"):
        Package.open(tmp_path / "none.kt")
    with pytest.raises(InputError, match="a directory"):
        Package.open(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFull, match="cannot be written: No space left on device"):
        write_package(saved, [PackageVariant(MANIFEST, PLANS[:1])], weights())
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_unwritable_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written: No such file or directory"):
        write_package(tmp_path / "no" / "such.kt", VARIANTS, weights())
    with pytest.raises(InputError, match="cannot be written: not a regular file"):
        write_package(tmp_path, VARIANTS, weights())


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link, real = tmp_path / "link.kt", tmp_path / "store" / "real.kt"
    link.symlink_to(real)
    write_package(link, VARIANTS, weights())
    assert link.is_symlink()
    assert real.is_file()


def test_thread_counts_are_written_to_another_file_or_in_place(tmp_path: Path) -> None:
    plain, changed = write_model(tmp_path / "plain.kt"), tmp_path / "changed.kt"
    write_with_thread_counts(plain, changed, ({0: 1, 1: 2},))
    before, after = Package.open(plain), Package.open(changed)
    (old,), (new,) = before.variants[0].plans, after.variants[0].plans
    assert new.plan == with_thread_counts(old.plan, {0: 1, 1: 2}, checksum) != old.plan
    assert (after.manifest, after.weights.tobytes(), new.library) == (
        before.manifest, before.weights.tobytes(), old.library,
    )  # fmt: skip
    write_with_thread_counts(plain, plain, ({0: 1, 1: 2},))
    assert plain.read_bytes() == changed.read_bytes()
    x = np.ones(1000, np.float32)
    with kintune_runtime.open(plain) as model:
        np.testing.assert_array_equal(model.run(x)["out"], x + 2 * np.arange(1000, dtype=np.float32))


def test_the_error_is_written_where_something_computes_narrower(tmp_path: Path) -> None:
    path = write_model(tmp_path / "plain.kt")
    before = path.read_bytes()
    write_with_error(path, 0.003)
    assert path.read_bytes() == before
    package = Package.open(path)
    (variant,) = package.variants
    manifest = msgspec.structs.replace(variant.manifest, narrow=Narrow({"dense": "bf16"}, 0.01))
    write_package(path, [variant._replace(manifest=manifest)], package.weights)
    write_with_error(path, 0.003)
    assert read_manifest(path).narrow == Narrow({"dense": "bf16"}, 0.01, 0.003)
    assert Package.open(path).weights.tobytes() == package.weights.tobytes()
