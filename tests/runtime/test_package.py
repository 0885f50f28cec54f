import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintune.core.model import Tensor
from kintune.errors import InputError
from kintune.runtime.package import ALIGNMENT, PAGE, Block, Manifest, Package, read_manifest, write_package

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


def block(*shape: int, dtype: str = "float32", seed: int = 0) -> Block:
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Block(shape, dtype, np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8))


def content(package: Package) -> tuple[object, ...]:
    return package.manifest, package.library, [(b.shape, b.dtype, b.data.tobytes()) for b in package.weights]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.kt"
    write_package(path, MANIFEST, LIBRARY, [block(3, 5), block(7, dtype="int8", seed=1), block(2, 2, seed=2)])
    return path


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    library=st.binary(max_size=300),
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=5),
    name=st.text(max_size=20),
)
def test_what_is_written_is_read(tmp_path: Path, library: bytes, shapes: list[tuple[int, ...]], name: str) -> None:
    manifest = msgspec.structs.replace(MANIFEST, model_name=name)
    weights = [block(*shape, seed=i) for i, shape in enumerate(shapes)]
    write_package(tmp_path / "f.kt", manifest, library, weights)
    assert content(Package.open(tmp_path / "f.kt")) == content(Package(manifest, library, tuple(weights)))
    assert read_manifest(tmp_path / "f.kt") == manifest


def test_weights_are_mapped_at_aligned_addresses(saved: Path) -> None:
    addresses = [b.data.__array_interface__["data"][0] for b in Package.open(saved).weights]
    assert addresses[0] % PAGE == 0
    assert [address % ALIGNMENT for address in addresses] == [0, 0, 0]


def test_writing_to_mapped_weights_leaves_the_file_alone(saved: Path) -> None:
    before = saved.read_bytes()
    Package.open(saved).weights[0].data[:] = 0
    assert saved.read_bytes() == before


def test_the_same_content_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    package = Package.open(saved)
    write_package(tmp_path / "again.kt", package.manifest, package.library, package.weights)
    assert (tmp_path / "again.kt").read_bytes() == saved.read_bytes()


def test_an_opened_file_may_be_replaced(saved: Path) -> None:
    package = Package.open(saved)
    before = content(package)
    write_package(saved, MANIFEST, b"another", [block(1)])
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


def test_another_format_is_refused_by_number(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "new.kt", "w") as archive:
        archive.writestr("manifest.json", '{"format": 99, "unheard_of": true}')
    with pytest.raises(InputError, match="written in format 99, this Kintune reads format 1"):
        Package.open(tmp_path / "new.kt")


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.kt: no such file"):
        Package.open(tmp_path / "none.kt")
    with pytest.raises(InputError, match="a directory"):
        Package.open(tmp_path)


class FailsHalfway:
    """A block whose bytes cannot be had."""

    shape, dtype = (1 << 20,), "uint8"

    class data:
        nbytes = 1 << 20

        def __class_getitem__(cls, item: slice) -> None:
            raise OSError(28, "No space left on device")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_package(saved, MANIFEST, LIBRARY, [block(3), FailsHalfway()])  # type: ignore[list-item]
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_unwritable_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_package(tmp_path / "no" / "such.kt", MANIFEST, LIBRARY, [])
    with pytest.raises(InputError, match="cannot be written: not a regular file"):
        write_package(tmp_path, MANIFEST, LIBRARY, [])
