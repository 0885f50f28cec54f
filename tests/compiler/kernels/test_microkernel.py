"""The micro-kernels of all instructions: valid for their CPUs, right where this one has them, and nothing else touched.

The cases are the table of instructions by shapes: rows, vectors, segments, steps that are written out, further sums.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler.programs.test_touched_bytes import library_of
from tests.support.emulator import FOR_AARCH64, run_emulated
from tests.support.targets import native_target
from tests.support.touching import Call, first_that_touches_more

pytestmark = pytest.mark.tvm

ARM = {"usdot", "sdot", "bfdot"}
TILES = {"tdpbf16ps", "tdpbusd"}
ROWS = {"fma16", "fma8", "fma4", "vdpbf16ps", "vpdpbusd16", "vpdpbusd8", *TILES, *ARM}
FMA_NEEDS = {16: ("avx512f",), 8: ("avx2", "fma"), 4: ("sse2",)}


def instruction(name: str) -> Any:
    """The row of the table of that name, which ends with the lanes where there are several."""
    from kintune.compiler.kernels.instructions import BYTES, PAIRS, fused

    values = [
        fused(lanes, registers)._replace(needs=FMA_NEEDS[lanes]) for lanes, registers in ((16, 32), (8, 16), (4, 16))
    ]
    known = [*values, *PAIRS, *BYTES]
    found = {each.name if each.name == name else f"{each.name}{each.lanes}": each for each in known}
    assert set(found) >= {name}
    return found[name]


def shapes(name: str) -> dict[str, Any]:
    """The kernels of an instruction that are tried, by what is special in them."""
    from kintune.compiler.kernels.microkernel import Kernel, Segments

    row = instruction(name)
    if row.tiles:
        plain = Kernel(row, 2, 2, 3, pitch=256, height=13, words=12)
        return {
            "plain": plain,
            "one tile": plain._replace(rows=1, vectors=1, height=16, words=16),
            "three tiles, a register again": plain._replace(rows=3, vectors=1, height=4),
            "segments": plain._replace(segments=Segments(6, 3, 200, 4096), pitch=48, ahead=512),
            "joined, more sums": plain._replace(joined=True, adds=True, lines=2),
            "counted": plain._replace(joined=True, counted=True),
        }
    plain = Kernel(row, 3, 2, 12, 4)
    return {
        "plain": plain,
        "one row": plain._replace(rows=1, vectors=1, unroll=1),
        "segments": plain._replace(segments=Segments(6, 3, 60, 500), ahead=256),
        "a pitch, more sums": plain._replace(pitch=1000, adds=True, unroll=1, lines=3),
        "counted": plain._replace(pitch=96, counted=True, unroll=1),
    }


COMMON = ("plain", "segments", "counted")
OF_VECTORS = [(name, each) for name in sorted(ROWS - TILES) for each in (*COMMON, "one row", "a pitch, more sums")]
OF_TILES = [
    (name, each)
    for name in sorted(TILES)
    for each in (*COMMON, "one tile", "three tiles, a register again", "joined, more sums")
]


def is_here(row: Any) -> bool:
    """Whether this CPU has an instruction; the kernel of Linux must permit tiles."""
    from kintune.compiler.kernels.instructions import is_available
    from kintune.hardware.amx import permit_amx

    return is_available(row, native_target()) and (not row.tiles or permit_amx())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_text_is_valid(name: str, tmp_path: Path) -> None:
    """For the CPUs that have it, whatever this CPU has."""
    from kintune.compiler.kernels.microkernel import text_of

    texts = [text_of(kernel) for kernel in shapes(name).values()]
    made = object_of(name, texts, tmp_path).read_bytes()
    assert all(each.name.encode() in made for each in texts)


def object_of(name: str, texts: list[Any], folder: Path) -> Path:
    """The kernels of an instruction, compiled for CPUs that have it."""
    import tvm  # noqa: F401 - registers what reads texts of LLVM
    import tvm_ffi

    from kintune.compiler.kernels.microkernel import together

    row = instruction(name)
    triple = "aarch64-unknown-linux-gnu" if name in ARM else "x86_64-unknown-linux-gnu"
    wide = ["+avx512f,+avx512bw,+avx512vl"] if row.lanes == 16 else []
    features = ",".join([*wide, *(f"+{need}" for need in row.needs)])
    text = together(texts).replace(") {\n", ") #0 {\n")
    source, made = folder / "inner.ll", folder / "inner.o"
    attributes = f'\nattributes #0 = {{ "target-features"="{features}" }}\n'
    source.write_text(f'target triple = "{triple}"\n{text}{attributes}')
    tvm_ffi.load_module(str(source)).write_to_file(str(made), "o")
    return made


@pytest.mark.parametrize(("name", "special"), [*OF_VECTORS, *OF_TILES])
def test_sums_are_right(name: str, special: str, tmp_path: Path) -> None:
    """Bytes exactly; floats as sums in another order are."""
    from kintune.compiler.kernels.microkernel import text_of

    kernel = shapes(name)[special]
    if not is_here(kernel.instruction):
        pytest.skip(f"this CPU has no {name}")
    text = text_of(kernel)
    library = ctypes.CDLL(str(library_of(text.whole, tmp_path)))
    memory, panel, sums = operands(kernel)
    wanted = expected(kernel, memory, panel, sums)
    given = [each.ctypes.data_as(ctypes.c_void_p) for each in (*memory, panel, sums)]
    if kernel.lines:
        given.append(panel.ctypes.data_as(ctypes.c_void_p))
    frame = kernel.instruction.tiles
    if frame:
        getattr(library, f"{text.name}_begin")()
    assert getattr(library, text.name)(*given, *([ctypes.c_int32(kernel.steps)] if kernel.counted else [])) == 0
    if frame:
        getattr(library, f"{text.name}_end")()
    agree(sums, wanted)


@pytest.mark.needs("ziglang", "qemu-aarch64")
@pytest.mark.parametrize("name", sorted(ARM))
def test_sums_are_right_in_an_emulator(name: str, tmp_path: Path) -> None:
    """A program calls all kernels of an instruction of Arm on operands from a file, and writes them to another."""
    from kintune.compiler.kernels.microkernel import text_of

    texts, whole, calls, wanted = [], bytearray(), [], []
    for kernel in shapes(name).values():
        texts.append(text_of(kernel))
        memory, panel, sums = operands(kernel)
        places = []
        for each in (*memory, panel, sums):
            whole += bytes(-len(whole) % 64)
            places.append(f"memory + {len(whole)}")
            whole += each.tobytes()
        wanted.append((len(whole) - sums.nbytes, sums.nbytes, expected(kernel, memory, panel, sums)))
        given = [*places, *(["memory"] if kernel.lines else []), *([str(kernel.steps)] if kernel.counted else [])]
        calls.append(f"  bad += {texts[-1].name}({', '.join(given)});")
    declared = "\n".join(f"int {each.name}();" for each in texts)
    (tmp_path / "main.c").write_text(_PROGRAM.format(declared=declared, size=len(whole), calls="\n".join(calls)))
    (tmp_path / "operands").write_bytes(whole)
    made = object_of(name, texts, tmp_path)
    subprocess.run([*FOR_AARCH64, "-std=c11", "-w", "main.c", made, "-o", "program"], cwd=tmp_path, check=True)
    done = run_emulated(["./program"], tmp_path, cpu="max")
    assert (done.returncode, done.stderr) == (0, "")
    result = np.frombuffer((tmp_path / "results").read_bytes(), np.uint8)
    for start, nbytes, sums in wanted:
        agree(result[start : start + nbytes], sums)


_PROGRAM = """#include <stdio.h>
{declared}
static _Alignas(64) unsigned char memory[{size}];
int main(void) {{
  int bad = 0;
  FILE *from = fopen("operands", "rb"), *to = fopen("results", "wb");
  bad += fread(memory, 1, sizeof memory, from) != sizeof memory;
{calls}
  bad += fwrite(memory, 1, sizeof memory, to) != sizeof memory;
  return bad + fclose(to);
}}
"""


def operands(kernel: Any) -> tuple[list[Any], Any, Any]:
    """The bytes of the rows, of a panel of weights, and of the sums before."""
    rng, row = np.random.default_rng(3), kernel.instruction
    memory = [draw(rng, kernel.row_bytes, row.element, data=True) for _ in range(kernel.addresses)]
    panel = draw(rng, kernel.panel_bytes, row.element, data=False)
    return memory, panel, draw(rng, kernel.sums_bytes, row.total, data=False)


def agree(sums: Any, wanted: Any) -> None:
    """Bytes exactly; floats as sums in another order and another rounding do."""
    found = sums.view(wanted.dtype).reshape(wanted.shape)
    if wanted.dtype.kind == "i":
        assert np.array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)


def test_capabilities_know_each_instruction() -> None:
    """A target that has one computes in the precision that it is for."""
    from kintune.compiler.kernels.instructions import BYTES, PAIRS
    from kintune.core.capabilities import Capabilities

    for precision, rows in (("bf16", PAIRS), ("int8", [each for each in BYTES if not each.tiles])):
        assert all(precision in Capabilities(extensions=each.extensions).precisions for each in rows)


def draw(rng: np.random.Generator, nbytes: int, kind: str, *, data: bool) -> Any:
    """Bytes that hold values of a type."""
    if kind == "float":
        return rng.standard_normal(nbytes // 4).astype(np.float32).view(np.uint8)
    if kind == "bfloat":
        return (
            (rng.standard_normal(nbytes // 2).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        )
    if kind == "i32":
        return rng.integers(-1000, 1000, nbytes // 4, dtype=np.int32).view(np.uint8)
    del data
    return rng.integers(0, 256, nbytes, dtype=np.uint8)


def values(memory: Any, kind: str, *, data: bool) -> Any:
    """What bytes hold, as float64 or int64."""
    if kind == "float":
        return memory.view(np.float32).astype(np.float64)
    if kind == "bfloat":
        return (memory.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return memory.view(np.uint8 if data else np.int8).astype(np.int64)


def expected(kernel: Any, memory: list[Any], panel: Any, sums: Any) -> Any:
    """The sums, from what the kernel says of itself, row by row."""
    row = kernel.instruction
    columns, segments = kernel.vectors * row.lanes, kernel.segments
    weights = values(panel, row.element, data=False).reshape(
        segments.number, kernel.steps * kernel.words, columns, row.step
    )
    high = kernel.height if row.tiles else 1
    total = np.int32 if row.total == "i32" else np.float32
    result = np.zeros((kernel.rows * high, columns), np.int64 if total is np.int32 else np.float64)
    for number in range(kernel.rows * high):
        address, below = divmod(number, high) if row.tiles else (number, 0)
        if kernel.addresses == 1:
            address, below = 0, number
        for at in range(segments.number):
            place = at // segments.inner * segments.far + at % segments.inner * segments.near + below * kernel.pitch
            run = values(memory[address][place : place + kernel.steps * kernel.words * 4], row.element, data=True)
            result[number] += np.einsum("ks,kcs->c", run.reshape(-1, row.step), weights[at])
    if kernel.adds:
        result = result + sums.view(total).reshape(result.shape)
    return result.astype(total)


@pytest.mark.parametrize(("name", "special"), OF_VECTORS)
def test_a_kernel_touches_what_it_says(name: str, special: str, tmp_path: Path) -> None:
    from kintune.compiler.kernels.microkernel import text_of

    kernel = shapes(name)[special]
    if not is_here(kernel.instruction):
        pytest.skip(f"this CPU has no {name}")
    text = text_of(kernel)
    numbers: list[int | list[int]] = [kernel.steps] if kernel.counted else []
    nbytes = [
        *[kernel.row_bytes] * kernel.addresses,
        kernel.panel_bytes,
        kernel.sums_bytes,
        *([0] if kernel.lines else []),
    ]
    call: Call = (text.name, [*([each] for each in nbytes), *numbers])
    library = library_of(text.whole, tmp_path)
    assert first_that_touches_more(library, [call]) is None
    short: Call = (text.name, [[nbytes[0] - 1], *([each] for each in nbytes[1:]), *numbers])
    assert first_that_touches_more(library, [short]) == short


@pytest.mark.parametrize(("tiles", "vectors"), [(tiles, vectors) for tiles in (1, 2, 3, 4) for vectors in (1, 2)])
def test_no_tile_register_has_two_uses(tiles: int, vectors: int) -> None:
    from kintune.compiler.kernels.instructions import TILES
    from kintune.compiler.kernels.microkernel import Kernel, registers_for, text_of

    if registers_for(tiles, vectors) > TILES:
        return
    text = text_of(Kernel(instruction("tdpbusd"), tiles, vectors, 1, pitch=64, words=16)).text
    products = [
        line.split("tdpbusd(")[1].rstrip(")") for line in text.splitlines() if "tdpbusd(" in line and "call" in line
    ]
    registers = [tuple(int(each.split()[1]) for each in product.split(", ")) for product in products]
    sums, data, weights = ({each[place] for each in registers} for place in range(3))
    assert len(sums) == len(products) == tiles * vectors
    assert len(sums) + len(data) + len(weights) == len(sums | data | weights)
    assert sums | data | weights <= set(range(TILES))


def test_another_shape_has_another_name() -> None:
    from kintune.compiler.kernels.microkernel import text_of

    assert len({text_of(kernel).name for kernel in shapes("vpdpbusd16").values()}) == len(shapes("vpdpbusd16"))
