"""The instructions that multiply and add, a row each: what they need, their vectors, and how they are written.

An instruction takes some values of a sum at once (`step`) for each of its `lanes`: the same ones of the data in each
lane, and those of a filter of its own in each lane.  It adds the products of a lane to that lane's sum.

Instructions of vectors read the data of a row as a word of four bytes, which goes to all lanes.  Those of tiles read up
to 16 rows of up to 64 bytes.

CPUs with AVX-512 VNNI multiply bytes in 16 lanes (`vpdpbusd`), those with AVX-VNNI in 8, and those of Arm with I8MM in
4 (`usdot`).  Older CPUs of Arm multiply signed bytes alone (`sdot`).  There the data is taken less 128, and a further
row, all of whose bytes are -128, sums what that takes from each filter; it is subtracted at the end.

CPUs of Arm with BF16 multiply pairs in 4 lanes (`bfdot`).  Those without FEAT_EBF16 round its sums to odd and take
denormal numbers for zero, so results differ from those of x86 in the last bits of fp32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kintune.errors import BuildError

if TYPE_CHECKING:
    import tvm

__all__ = [
    "BYTES",
    "BY_TEXT",
    "LINE_BYTES",
    "PAIRS",
    "PERMUTE",
    "ROUND",
    "TILES",
    "TILE_ROWS",
    "WORD_BYTES",
    "Helper",
    "Instruction",
    "best",
    "byte_instruction",
    "fused",
    "is_available",
]

WORD_BYTES = 4
"""Bytes of a word of the data, and of a sum."""

LINE_BYTES = 64
"""A line of the caches, and a row of a tile."""

TILES, TILE_ROWS = 8, 16
"""The tile registers of a core with AMX, and the rows of one, at most."""


class Instruction(NamedTuple):
    """An instruction: `name` is the processor's, `variant` that of the programs which use it.

    `needs` are the extensions that have it, in LLVM's spelling.  A vector has `lanes` sums of the type `total`, and
    there are so many vector `registers`.  It multiplies `step` values of the type `element` a lane, by LLVM's
    `function`; without a function by a product and a sum, which become one instruction where the CPU has it.  `signed`
    tells that bytes of the data must be signed.  One with `tiles` multiplies tiles of the data by tiles of weights.

    A core multiplies `rate` vectors, or rows of tiles, a cycle; a product takes `latency` cycles until it is added.
    """

    name: str
    variant: str
    needs: tuple[str, ...]
    lanes: int
    registers: int
    element: str
    step: int
    total: str
    function: str = ""
    signed: bool = False
    tiles: bool = False
    rate: float = 2.0
    latency: float = 5.0

    @property
    def extensions(self) -> tuple[str, ...]:
        """What it needs, as `hardware.cpu.extensions` spells it."""
        return tuple(need.replace("-", "") for need in self.needs)

    @property
    def converts(self) -> bool:
        """Whether its CPUs round two vectors of 16 floats to bf16 by one instruction (avx512_bf16)."""
        return set(ROUND.needs).issubset(self.needs)

    @property
    def sums(self) -> str:
        """LLVM's type of a vector of sums."""
        return f"<{self.lanes} x {self.total}>"

    @property
    def operand(self) -> str:
        """LLVM's type of a vector of weights."""
        return f"<{self.lanes * self.step} x {self.element}>"

    @property
    def vector_bytes(self) -> int:
        """The bytes of a vector of sums, or of weights."""
        return self.lanes * WORD_BYTES

    @property
    def adding(self) -> str:
        """LLVM's operation that adds two vectors of sums."""
        return "add" if self.total == "i32" else "fadd"

    @property
    def declaration(self) -> str:
        """LLVM's declaration of the function; empty where there is none."""
        if not self.function or self.tiles:
            return ""
        return f"declare {self.sums} @{self.function}({self.sums}, {self.operand}, {self.operand})"

    def product(self, target: str, total: str, data: str, weights: str) -> list[str]:
        """The lines that set `target` to `total` plus the products of two vectors; all four are names of values."""
        if self.function:
            given = f"{self.sums} %{total}, {self.operand} %{data}, {self.operand} %{weights}"
            return [f"  %{target} = call {self.sums} @{self.function}({given})"]
        return [
            f"  %{target}_p = fmul contract {self.sums} %{data}, %{weights}",
            f"  %{target} = fadd contract {self.sums} %{target}_p, %{total}",
        ]


class Helper(NamedTuple):
    """An instruction that multiplies nothing: what it needs, LLVM's function for it, and the types of that."""

    needs: tuple[str, ...]
    function: str
    result: str
    operands: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """LLVM's declaration of the function."""
        return f"declare {self.result} @{self.function}({', '.join(self.operands)})"


PERMUTE = Helper(("avx512f",), "llvm.x86.avx512.permvar.sf.512", "<16 x float>", ("<16 x float>", "<16 x i32>"))
"""Looks up 16 numbers in a table of 16: of each index the lowest four bits count."""

ROUND = Helper(
    ("avx512bf16",), "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "<32 x bfloat>", ("<16 x float>", "<16 x float>")
)
"""Rounds two vectors to bf16, of which the second one becomes the lower half."""


def fused(lanes: int, registers: int) -> Instruction:
    """The product and sum of fp32 in vectors of so many lanes."""
    return Instruction("fma", f"{lanes}x{registers}", (), lanes, registers, "float", 1, "float", latency=4.0)


_DOT, _AMX_16, _AMX_8 = "llvm.x86.avx512bf16.dpbf16ps.512", "llvm.x86.tdpbf16ps", "llvm.x86.tdpbusd"

_ARM = "llvm.aarch64.neon"

_AMX_BF16 = ("amx-bf16", "amx-tile", "avx512bf16")  # the last one rounds

_TILES: Any = {"tiles": True, "rate": 1.0, "latency": 52.0}

PAIRS = (
    Instruction("tdpbf16ps", "amx", _AMX_BF16, 16, 32, "bfloat", 2, "float", _AMX_16, **_TILES),
    Instruction("vdpbf16ps", "dot", ("avx512bf16",), 16, 32, "bfloat", 2, "float", _DOT, rate=1.0),
    Instruction("bfdot", "bfdot", ("bf16",), 4, 32, "bfloat", 2, "float", f"{_ARM}.bfdot.v4f32.v8bf16"),
)
"""The instructions that multiply pairs of bf16, the best first."""

_VPDPBUSD = "llvm.x86.avx512.vpdpbusd"

BYTES = (
    Instruction("tdpbusd", "amx", ("amx-int8", "amx-tile"), 16, 32, "i8", 4, "i32", _AMX_8, **_TILES),
    Instruction("vpdpbusd", "vnni", ("avx512vnni",), 16, 32, "i8", 4, "i32", f"{_VPDPBUSD}.512"),
    Instruction("vpdpbusd", "vnni256", ("avxvnni",), 8, 16, "i8", 4, "i32", f"{_VPDPBUSD}.256"),
    Instruction("usdot", "usdot", ("i8mm",), 4, 32, "i8", 4, "i32", f"{_ARM}.usdot.v4i32.v16i8"),
    Instruction("sdot", "sdot", ("dotprod",), 4, 32, "i8", 4, "i32", f"{_ARM}.sdot.v4i32.v16i8", signed=True),
)
"""The instructions that multiply four bytes of the data (uint8) by four weights (int8), the best first."""


BY_TEXT = frozenset(
    {"amxfp16", *(each for row in (*PAIRS, *BYTES) if row.tiles for each in row.extensions), *ROUND.needs}
)
"""Extensions that LLVM does not use by itself: only kernels that name their instructions do."""


def best(rows: tuple[Instruction, ...], target: tvm.target.Target, *, tiles: bool = False) -> Instruction | None:
    """The first of the rows that the target has; those of tiles only with `tiles`.  None where it has none."""
    return next((each for each in rows if each.tiles == tiles and is_available(each, target)), None)


def is_available(instruction: Instruction, target: tvm.target.Target) -> bool:
    """Whether a target has all extensions that an instruction needs."""
    from tvm.target import codegen  # here, so that the table can be read without the compiler

    from kintune.runtime.target import capabilities

    has = codegen.target_has_features
    return capabilities(target).llvm_kernels and all(has(need, target) for need in instruction.needs)


def byte_instruction(variant: str) -> Instruction:
    """The instruction of vectors of bytes whose programs are of this variant.

    Raises:
        BuildError: there is none.
    """
    vectors = [each for each in BYTES if not each.tiles]
    for each in vectors:
        if each.variant == variant:
            return each
    known = ", ".join(each.variant for each in vectors)
    raise BuildError(f"no instruction of vectors has the variant {variant}: there are {known}")
