"""Gives the runtime files that were changed at random, under sanitizers: `python -m tests.support.reader_fuzzer`.

With clang it is libFuzzer that changes them, guided by the code that they reach; otherwise a driver of our own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall
from kintune.core.model import IndexCheck, Tensor
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.merging import merge
from tests.support.toy_hybrid import host_graph, hybrid_manifest, region_file
from tests.support.toy_model import adding, calling, planned, write_model
from tests.support.toy_open_model import summing

__all__ = ["FuzzProgram", "has_libfuzzer", "main", "write_corpus"]

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "fuzz-reader"
NATIVE = ROOT / "runtime" / "native"
SOURCES = ROOT / "tests" / "kintune_runtime"

_SANITIZERS = "address,undefined"
_CHUNK = 20_000  # inputs between two lines of progress
_LONGEST_S = 20  # of one input
_ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:detect_odr_violation=0"}


class FuzzProgram:
    """The runtime with a target for fuzzing, compiled in a folder, and the files to begin with."""

    def __init__(self, folder: Path, libfuzzer: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._libfuzzer = libfuzzer
        self._folder = folder
        self._program = folder / "fuzz"
        compiler = "clang" if libfuzzer else "cc"
        common = [compiler, "-std=gnu11", "-g", "-O1", "-fno-sanitize-recover=all", "-Wall", "-Wextra"]
        kernels = folder / "kernels.so"
        command = [*common, "-fsanitize=address", "-shared", "-fPIC", "-o", kernels, SOURCES / "fuzz_kernels.c", "-s"]
        subprocess.run([*map(str, command)], check=True)
        native = [path for path in sorted(NATIVE.glob("*.c")) if "onnx" not in path.name]
        own = "fuzzer," if libfuzzer else ""
        flags = [f"-fsanitize={own}{_SANITIZERS}", "-pthread", "-Dmmap=fuzz_mmap", "-Dmunmap=fuzz_munmap"]
        flags += [] if libfuzzer else ["-DOWN_DRIVER"]
        include = ["-I", NATIVE, "-I", NATIVE.parent / "src" / "kintune_runtime" / "include"]
        command = [*common, *flags, *include, "-o", self._program, SOURCES / "fuzz.c", *native, "-ldl"]
        subprocess.run([*map(str, command)], check=True)
        self.corpus = folder / "corpus"
        if not self.corpus.exists():
            self.corpus.mkdir()
            write_corpus(self.corpus, kernels.read_bytes())

    def run(self, seed: int, count: int) -> subprocess.CompletedProcess[str]:
        """Open so many inputs; where one fails, it is the file `crash` or `crash-DIGEST` in the folder."""
        if self._libfuzzer:
            options = [
                f"-seed={seed}",
                f"-runs={count}",
                f"-timeout={_LONGEST_S}",
                "-rss_limit_mb=4096",
                "-max_len=200000",
            ]
            command = [self._program, *options, "-print_final_stats=1", "-verbosity=0", self.corpus]
        else:
            command = [self._program, self.corpus, str(seed), str(count)]
        return self._run(command)

    def open(self, path: Path) -> subprocess.CompletedProcess[str]:
        """Open one file."""
        return self._run([self._program, path] if self._libfuzzer else [self._program, self.corpus, "0", "0", path])

    def _run(self, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **_ENVIRONMENT}
        return subprocess.run(
            [*map(str, command)], capture_output=True, text=True, errors="replace", env=environment, cwd=self._folder
        )


def has_libfuzzer() -> bool:
    """Whether there is a clang that links programs with libFuzzer and the sanitizers."""
    if shutil.which("clang") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d == 0 && n; }\n")
        command = ["clang", f"-fsanitize=fuzzer,{_SANITIZERS}", "-o", f"{folder}/empty", str(source)]
        return subprocess.run(command, capture_output=True).returncode == 0


def write_corpus(folder: Path, library: bytes) -> None:
    """Write small files of every kind that the reader knows; `library` has a kernel `add`."""
    w = np.arange(64, dtype=np.float32)
    numbers = np.arange(16, dtype=np.int64)
    plain = write_model(folder / "plain.kt", [adding(64)], [w], library=library)
    write_model(folder / "shapes.kt", [adding(16), adding(48)], [w], library=library)
    write_model(folder / "indexed.kt", [_indexed()], [], library=library)
    write_model(folder / "branching.kt", [_branching()], [w, numbers], library=library)
    write_model(folder / "open.kt", [summing(greatest=40)], [], library=library)
    given = [
        write_model(folder / "other.kt", [adding(64)], [w + 1], machine="riscv64", library=library),
        plain,
        write_model(folder / "new.kt", [adding(64)], [w], isa=["avx1024"], library=library),
    ]
    merge(given, folder / "merged.kt")
    (folder / "long.kt").write_bytes(_with_long_numbers(plain.read_bytes()))
    (folder / "signed.kt").write_bytes(_signed(plain.read_bytes()))
    described = hybrid_manifest([64])
    region = region_file(folder, "region.kt", [adding(64)], library=library)
    write_hybrid(folder / "hybrid.kt", described, host_graph(described), [region] * 2)


def _indexed() -> ExecutionPlan:
    """Indices that are given, and others that are computed and checked."""
    given = [Tensor("x", (4,), "float32"), Tensor("ids", (6,), "int64", bounds=(-10, 9))]
    given += [
        Tensor("row", (2,), "uint8"),
        Tensor("column", (3,), "int32", bounds=(0, 6)),
        Tensor("k", (), "uint16", bounds=(0, 4)),
    ]
    checks = (IndexCheck("gather", 0, (5, 7), 0, negative=True), IndexCheck("take", 1, (3,), 1, negative=False))
    hidden = [Tensor("pairs", (3, 2), "int64"), Tensor("columns", (4,), "int32")]
    made = [Tensor("out", (4,), "float32"), Tensor("mask", (2, 3), "bool")]
    return calling("add", given, made, checks=checks, hidden=hidden, title="Gather_1, Gather_2")


def _branching() -> ExecutionPlan:
    """Operations of each kind, on tensors at each place."""
    tensors = (
        planned("input", 0, (16,)),
        planned("weights", 0, (16,)),
        planned("weights", 256, (16,), "int64"),
        planned("arena", 0, (4, 4)),
        planned("arena", 64, (4, 4)),
        planned("output", 0, (16,)),
        planned("input", 1, (1,), "bool"),
        planned("output", 1, (8,)),
    )
    operations = (
        Branch(6, 3),
        KernelCall("add", (0, 1, 3), 1, "MatMul_1"),
        Jump(4),
        Copy(0, 3),
        KernelCall("add", (3, 2, 4)),
        Copy(4, 5),
        KernelCall("add", (4, 7)),
    )
    inputs = (Tensor("x", (16,), "float32"), Tensor("flag", (1,), "bool"))
    outputs = (Tensor("y", (16,), "float32"), Tensor("z", (8,), "float32"))
    return ExecutionPlan(tensors, operations, (0, 6), (5, 7), inputs, outputs, 128)


def _with_long_numbers(content: bytes) -> bytes:
    """The same file, whose directory has numbers of 64 bits, as in a file of more than 4 GB."""
    count, size, offset = struct.unpack_from("<HLL", content, len(content) - 12)
    directory, at = b"", offset
    while at < offset + size:
        packed, plain, name, extra, comment = struct.unpack_from("<LLHHH", content, at + 20)
        place, end = struct.unpack_from("<L", content, at + 42)[0], at + 46 + name + extra + comment
        numbers = struct.pack("<HHQQQ", 1, 24, plain, packed, place)
        directory += content[at : at + 20] + b"\xff" * 8 + struct.pack("<HHH", name, extra + len(numbers), comment)
        directory += content[at + 34 : at + 42] + b"\xff" * 4 + content[at + 46 : at + 46 + name] + numbers
        directory += content[at + 46 + name : end]
        at = end
    wide = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), offset)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, offset + len(directory), 1)
    end_record = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return content[:offset] + directory + wide + locator + end_record


def _signed(content: bytes) -> bytes:
    from kintune_runtime.signature import MAGIC, PLACE, SIZE

    return content[:PLACE] + MAGIC + bytes(range(SIZE - len(MAGIC))) + content[PLACE + SIZE :]


class Progress(msgspec.Struct):
    """How far a run of a seed has come."""

    seed: int
    inputs: int = 0
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Open inputs, on from where an earlier call has ended; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--inputs", type=int, default=1_000_000, help="how many to open, those of earlier calls included"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the changes")
    chosen = parser.parse_args(arguments)
    folder = WORK / f"seed-{chosen.seed}"
    libfuzzer = has_libfuzzer()
    program = FuzzProgram(folder, libfuzzer)
    kept = folder / "progress.json"
    progress = msgspec.json.decode(kept.read_bytes(), type=Progress) if kept.exists() else Progress(chosen.seed)
    while progress.inputs < chosen.inputs:
        began = time.monotonic()
        count = min(_CHUNK, chosen.inputs - progress.inputs)
        done = program.run(chosen.seed * 1_000_000 + progress.inputs // _CHUNK, count)
        progress.seconds += time.monotonic() - began
        if done.returncode:
            print(done.stderr[-8000:])
            print(f"after {progress.inputs:,} inputs one failed; it is in {folder}")
            return 1
        progress.inputs += count
        kept.write_bytes(msgspec.json.encode(progress))
        by = "libFuzzer" if libfuzzer else "the own driver"
        print(f"{progress.inputs:,} inputs in {progress.seconds / 60:.0f} min by {by}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
