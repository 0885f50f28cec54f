"""Counts the lines of `src/kintune/compiler` by part, as docs/design/kernels.md has them.

    python tools/compiler_lines.py

Lines of code are those with a token of Python that is no comment and no docstring.
"""

from __future__ import annotations

import io
import tokenize
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "kintune" / "compiler"

PARTS = {
    "micro-kernels, instructions, copies": "kernels/{microkernel,instructions,unpacking,copies,calls}.py",
    "nest, rows, packing": "kernels/{nest,rows,tiled_rows,image_tiles,images,packing,loops,statements,stages}.py",
    "reading of sums, prologues, epilogues": "kernels/{contraction,reading,blocks,cutting,padding_block,epilogue}.py",
    "estimates": "kernels/cost.py",
    "products in fp32, bf16, bytes, few bits": "programs/{vector,panel,byte,blockwise,prologue}*.py",
    "attention": "programs/{attention,narrow_attention,kernel_writer,powers}*.py",
    "Winograd's convolution": "programs/winograd*.py",
    "recurrent layers": "programs/recurrent*.py",
    "depthwise convolutions": "programs/depthwise*.py",
    "norms, softmax, element-wise functions": "programs/{row,statistics,nan_tests,wrapping}*.py",
    "frame of programs": "programs/{program,registry,tiling_program,choice_lists,__init__}.py",
    "tensors in bf16, or within others": "programs/{kept,placed}*.py",
    "records of earlier programs": "programs/earlier.py",
    "graph: integers": "graph/{integer,quantised}*.py",
    "graph: layouts, views, pieces": "graph/{absorb,layout,needed,permutations,pieces,reshaping,strided}*.py",
    "graph: plans, building, provenance": "graph/{arena,assemble,call,executable,k,plan,provenance}*.py",
    "graph: recognising, fusing, lowering": "graph/*.py",
    "MetaSchedule's space": "space/*.py",
    "proof of bounds": "bounds.py",
    "building of candidates": "*.py",
}
"""The first pattern that a file matches says its part; braces list alternatives."""


def alternatives(pattern: str) -> list[str]:
    """The patterns without braces."""
    before, brace, rest = pattern.partition("{")
    if not brace:
        return [pattern]
    inner, _, after = rest.partition("}")
    return [before + each + after for each in inner.split(",")]


def code_lines(text: str) -> int:
    """The lines with code."""
    found: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in skipped and not is_docstring:
            found.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return len(found)


def main() -> None:
    """Print the table."""
    counts = {part: [0, 0, 0] for part in PARTS}
    for path in sorted(ROOT.rglob("*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        part = next(
            part for part, pattern in PARTS.items() if any(fnmatch(name, each) for each in alternatives(pattern))
        )
        for at, number in enumerate((1, len(text.splitlines()), code_lines(text))):
            counts[part][at] += number
    print("| part | files | lines | of code |\n|---|---|---|---|")
    for part, numbers in counts.items():
        print(f"| {part} | {' | '.join(f'{number:,}' for number in numbers)} |")
    kernels = [n for part, n in counts.items() if PARTS[part].startswith(("kernels", "programs"))]
    for name, some in (("kernels and programs", kernels), ("all", list(counts.values()))):
        print(f"| *{name}* | {' | '.join(f'{sum(column):,}' for column in zip(*some, strict=True))} |")


if __name__ == "__main__":
    main()
