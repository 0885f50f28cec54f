"""Functions in LLVM's language touch no more than they say: each runs with just that between untouchable pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.targets import native_target
from tests.support.touching import Call, first_that_touches_more

pytestmark = pytest.mark.tvm


def library_of(text: str, folder: Path) -> Path:
    """A shared library of the functions of a text, for this machine."""
    import tvm  # noqa: F401 - it knows how to load LLVM's text
    import tvm_ffi
    from tvm.target import codegen

    from kintune.runtime.artifact import library_of_objects
    from kintune.runtime.target import architecture_of, triple_of

    target = native_target()
    features = ",".join(
        f"+{each}" for each in ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512bf16", "avxvnni")
        if codegen.target_has_features(each, target)
    )  # fmt: skip
    attributes = f'\nattributes #0 = {{ "target-features"="{features}" }}\n'
    source, made, library = folder / "inner.ll", folder / "inner.o", folder / "inner.so"
    triple = f'target triple = "{triple_of(target)}"\n'
    source.write_text(triple + text.replace(") {\n", ") #0 {\n") + attributes)
    tvm_ffi.load_module(str(source)).write_to_file(str(made), "o")
    library.write_bytes(library_of_objects([made.read_bytes()], architecture_of(target)))
    return library


def needs(*features: str) -> None:
    """Skip the test where this machine lacks an extension."""
    from tvm.target import codegen

    if missing := [each for each in features if not codegen.target_has_features(each, native_target())]:
        pytest.skip(f"this CPU has no {missing[0]}")


def call_of(name: str, pointers: str, numbers: Sequence[int], less: int = 0) -> Call:
    """A call with as many bytes as it says that it touches; `pointers` has "p" where its arguments are pointers.

    It is given `less` bytes less of the last.
    """
    from kintune.compiler.kernels.copies import touched_bytes

    nbytes = [int(each) for each in touched_bytes(name, numbers)]
    nbytes[-1] -= less
    of_pointers, of_numbers = iter(nbytes), iter(numbers)
    return name, [[next(of_pointers)] if each == "p" else next(of_numbers) for each in pointers]


COPIES = ("kt_round", "kt_put", "kt_copy")


def test_copies_touch_what_they_say(tmp_path: Path) -> None:
    from kintune.compiler.kernels.copies import copying_text

    needs("avx512bf16")
    calls = [
        call_of(name, "ppnn", (number, 64 + more))
        for name in COPIES
        for number in (1, 31, 32, 33, 64, 95)
        for more in (0, 64)
        if not (name == "kt_put" and more)
    ]
    calls.append(call_of("kt_zero", "pn", (37,)))
    library = library_of(copying_text(converts=False).whole, tmp_path)
    assert first_that_touches_more(library, calls) is None


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_with_a_byte_less_is_seen(name: str, tmp_path: Path) -> None:
    from kintune.compiler.kernels.copies import copying_text

    needs("avx512bf16")
    call = call_of(name, "ppnn", (40, 64), less=1)
    assert first_that_touches_more(library_of(copying_text(converts=False).whole, tmp_path), [call]) == call


def test_pairs_touch_what_they_say(tmp_path: Path) -> None:
    from kintune.compiler.kernels.copies import copying_text, pairing_text
    from kintune.compiler.kernels.microkernel import together

    needs("avx512bf16")
    calls = [call_of(name, "pppnn", (n, 128 + 64)) for name in ("kt_pair", "kt_join") for n in (1, 32, 33, 80)]
    assert (
        first_that_touches_more(library_of(together([copying_text(converts=True), pairing_text()]), tmp_path), calls)
        is None
    )


@pytest.mark.parametrize(("bits", "zeros"), [(bits, zeros) for bits in (2, 4, 8) for zeros in ("", "packed", "real")])
def test_products_with_few_bits_touch_what_they_say(bits: int, zeros: str, tmp_path: Path) -> None:
    from kintune.compiler.kernels.microkernel import together
    from kintune.compiler.kernels.unpacking import Packing, product_text, unpacking_text
    from kintune.models.blockwise import PACKED, REAL

    needs("avx512f")
    packing = Packing(bits, 16, 2, 32, 3, {"": "", "packed": PACKED, "real": REAL}[zeros], bits < 8)
    kernel, made, unpacked = packing.kernel(3), product_text(packing, 3), unpacking_text(packing)
    pointers = [[each] for each in (*[kernel.row_bytes] * kernel.rows, *packing.panel_bytes, kernel.sums_bytes)]
    calls: list[Call] = [
        (made.name, pointers),
        (unpacked.name, [[each] for each in (*packing.panel_bytes, packing.floats_bytes)]),
    ]
    assert first_that_touches_more(library_of(together([made, unpacked]), tmp_path), calls) is None
