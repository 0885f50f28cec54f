"""Files that are truncated or changed are refused, and never crash the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kintune_runtime
from kintune.runtime.package import EncodedPlan, Variant, write_package
from kintune_runtime import InputError, RunError
from tests.support.toy_model import ADDING, encoded, kernels, manifest, packed, write_model

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


@given(place=st.integers(0, len(PLAN) - 1), value=st.integers(0, 255), more=st.binary(max_size=40))
def test_a_plan_of_any_content_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int, more: bytes
) -> None:
    """With a right checksum, so that the checks behind it are what is tried."""
    from kintune_runtime.library import checksum

    plan = bytearray(PLAN)
    plan[place] = value
    plan[place + 1 : place + 1 + len(more)] = more
    plan = plan[: len(PLAN)]
    plan[16:24] = (checksum(bytes(plan[:16])) ^ checksum(bytes(plan[24:]))).to_bytes(8, "little")
    path = tmp_path_factory.mktemp("fuzz") / "fuzz.kt"
    write_package(path, [Variant(manifest(ADDING), (EncodedPlan(bytes(plan), kernels()),))], WEIGHTS)
    try:
        model = kintune_runtime.open(path)
    except InputError:
        return
    try:
        model.context(threads=1).close()
    except RunError as error:  # an arena of any size is fine, if there is the memory
        assert "no memory" in str(error)  # noqa: PT017
    model.close()
