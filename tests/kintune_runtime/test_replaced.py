"""Files that are replaced, overwritten or cut while a process has them open; and what is opened from memory."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kintune
import kintune_runtime
from kintune_runtime import InputError
from tests.kintune_runtime.test_stress import INCLUDE, NATIVE
from tests.kintune_runtime.test_threads import write_gathering
from tests.support.toy_hybrid import X, expected, one_region, write_toy_hybrid
from tests.support.toy_model import adding, write_model

REPLACED = Path(__file__).with_name("replaced.c")
COUNT = 100_000
W = np.arange(COUNT, dtype=np.float32)
LARGE = np.ones(COUNT, np.float32)
CHANGED = "was changed in place while it was open; open it again, and replace such files by renaming"
OPEN: list[Callable[..., Any]] = [kintune_runtime.open, kintune.open]


def write_large(path: Path) -> Path:
    return write_model(path, [adding(COUNT)], [W])


def build(folder: Path, *flags: str) -> Path:
    program = folder / "replaced"
    sources = [str(REPLACED), *(str(each) for each in sorted(NATIVE.glob("*.c")) if "onnx" not in each.name)]
    command = ["cc", "-std=gnu11", "-g", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", *flags, "-I", str(INCLUDE)]
    subprocess.run([*command, "-o", str(program), *sources, "-ldl"], check=True)
    return program


def in_c(program: Path, *more: str) -> subprocess.CompletedProcess[str]:
    folder = program.parent / "changed"
    folder.mkdir(exist_ok=True)
    command = [str(program), str(write_large(program.parent / "large.kt")), str(folder)]
    command += [str(write_gathering(program.parent / "gathering.kt", COUNT)), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_in_c_notices_what_happens_to_its_files(tmp_path: Path) -> None:
    program = build(tmp_path)
    done = in_c(program)
    assert done.stdout == "done\n", done.stderr
    assert in_c(program, "default").returncode == -signal.SIGBUS  # a fault elsewhere ends it, as before


def test_a_program_in_cpp_opens_files_and_memory(tmp_path: Path) -> None:
    program, library = tmp_path / "opened", Path(kintune_runtime.__file__).parent
    source = Path(__file__).with_name("opened.cpp")
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", INCLUDE, source, "-o", program]
    subprocess.run([*map(str, command), f"-L{library}", "-lkintune", f"-Wl,-rpath,{library}"], check=True)
    command = [program, write_model(tmp_path / "model.kt")]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:3] == ["21"] * 3
    assert done.stdout.splitlines()[3] in ("9", "4")  # not signed, or there is no libcrypto


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_sanitizers_find_nothing(tmp_path: Path, sanitizer: str) -> None:
    done = in_c(build(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"))
    assert done.stdout == "done\n", done.stderr[-3000:]


@pytest.mark.parametrize("open_model", OPEN)
def test_a_file_may_be_replaced_by_renaming(tmp_path: Path, open_model: Callable[..., Any]) -> None:
    path = write_large(tmp_path / "model.kt")
    model = open_model(path)
    os.replace(write_model(tmp_path / "other.kt"), path)
    np.testing.assert_array_equal(model.run(LARGE)["out"], LARGE + W + W)
    assert open_model(path).inputs[0].shape == (1000,)


@pytest.mark.parametrize("open_model", OPEN)
def test_a_file_that_is_overwritten_is_refused_from_then_on(tmp_path: Path, open_model: Callable[..., Any]) -> None:
    path = write_large(tmp_path / "model.kt")
    model, private = open_model(path), open_model(path, private=True)
    context = model.context()
    path.write_bytes(write_model(tmp_path / "other.kt", [adding(COUNT)], [W + 1]).read_bytes())
    for run in (model.run, context.run, model.profile, context.profile, model.context(threads=1).run):
        with pytest.raises(InputError, match=f"^{path}: {CHANGED}"):
            run(LARGE)
    np.testing.assert_array_equal(private.run(LARGE)["out"], LARGE + W + W)
    np.testing.assert_array_equal(open_model(path).run(LARGE)["out"], LARGE + W + W + 2)


def test_threads_of_a_process_outlive_a_cut(tmp_path: Path) -> None:
    """In a process of its own, whose descriptors are closed: only the signal tells that the file was cut."""
    path = write_large(tmp_path / "model.kt")
    code = f"""
        import os, sys, threading
        import numpy as np
        import kintune_runtime
        x = np.ones({COUNT}, np.float32)
        model = kintune_runtime.open({str(path)!r})
        if sys.argv[1] == "closed":
            os.closerange(3, 100)
        said, running = [], threading.Barrier(5)
        def work(threads):
            with model.context(threads=threads) as context:
                context.run(x)
                running.wait()
                try:
                    while True:
                        context.run(x)
                except kintune_runtime.InputError as error:
                    said.append(str(error))
        workers = [threading.Thread(target=work, args=(1 + number % 2,)) for number in range(4)]
        for worker in workers:
            worker.start()
        running.wait()
        os.truncate({str(path)!r}, 8192)
        for worker in workers:
            worker.join()
        print(len(said), set(said) == {{said[0]}}, said[0])
    """
    content = path.read_bytes()
    for kind in ("open", "closed"):
        path.write_bytes(content)
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code), kind], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"4 True {path}: {CHANGED}")


def test_regions_notice_it_in_onnxruntime(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)
    model, private = kintune_runtime.open(path), kintune.open(path, private=True)
    os.utime(path)  # its time alone makes no difference
    for threads in (0, 2):
        np.testing.assert_array_equal(model.run(X, threads=threads)["out"], expected(X))
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InputError, match=f"^first add: {path}: region0.kt: {CHANGED}"):
        model.run(X)
    with pytest.raises(InputError, match=f"^{path}: {CHANGED}"):
        model.run(X, threads=1)  # a session of its own, for which the host graph is read
    for threads in (0, 1):
        np.testing.assert_array_equal(private.run(X, threads=threads)["out"], expected(X))


def test_a_process_with_regions_outlives_a_cut(tmp_path: Path) -> None:
    """Its libraries are loaded and unloaded with the sessions, and with them the handlers of the signal."""
    path = one_region(tmp_path, adding(COUNT))
    (tmp_path / "temporary").mkdir()
    code = f"""
        import os, sys
        import numpy as np
        import kintune_runtime
        x = np.ones({COUNT}, np.float32)
        content = open({str(path)!r}, "rb").read()
        for turn in range(3):
            with open({str(path)!r}, "wb") as file:
                file.write(content)
            first, second = kintune_runtime.open({str(path)!r}), kintune_runtime.open({str(path)!r})
            first.run(x), second.run(x)
            if turn:
                first.close()
                del first
            os.closerange(3, 100) if turn == 2 else None
            os.truncate({str(path)!r}, 8192)
            try:
                second.run(x)
            except kintune_runtime.InputError as error:
                print(error)
            del second
        sys.stdout.flush()
        os._exit(0)  # with its descriptors closed, onnxruntime takes half a minute to end
    """
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert [CHANGED in line for line in done.stdout.splitlines()] == [True] * 3, done.stdout


@pytest.mark.parametrize("open_model", OPEN)
def test_bytes_and_file_objects_are_opened(tmp_path: Path, open_model: Callable[..., Any]) -> None:
    path = write_model(tmp_path / "model.kt")
    content = path.read_bytes()
    with path.open("rb") as file:
        opened = [
            open_model(each)
            for each in (content, bytearray(content), memoryview(content)[:], io.BytesIO(content), file)
        ]
    path.unlink()
    for model in opened:
        np.testing.assert_array_equal(model.run(X)["out"], X + W[:1000] + W[:1000])


def test_results_of_onnxruntime_are_opened_from_bytes(tmp_path: Path) -> None:
    content = write_toy_hybrid(tmp_path).read_bytes()
    for open_model in OPEN:
        model = open_model(io.BytesIO(content))
        for threads in (0, 1):
            np.testing.assert_array_equal(model.run(X, threads=threads)["out"], expected(X))


@pytest.mark.parametrize("open_model", OPEN)
def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path, open_model: Callable[..., Any]) -> None:
    (tmp_path / "text.kt").write_text("no model")
    with (
        (tmp_path / "text.kt").open() as file,
        pytest.raises(InputError, match=r"text\.kt: was opened as text; open it as"),
    ):
        open_model(file)
    with pytest.raises(InputError, match=r"^\(memory\): not a Kintune executable"):
        open_model(b"no model" * 10)
    with pytest.raises(InputError, match="opened from a path, bytes or a file object, not from int"):
        open_model(7)
    with pytest.raises(InputError, match=f"^{tmp_path / 'none.kt'}: [Nn]o such file"):
        open_model(tmp_path / "none.kt", private=True)
    with pytest.raises(InputError, match=f"^{tmp_path}: not a regular file"):
        open_model(tmp_path, private=True)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_opened_models_are_neither_copied_nor_pickled(tmp_path: Path, copied: Callable[[Any], Any]) -> None:
    plain, hybrid = write_model(tmp_path / "model.kt"), write_toy_hybrid(tmp_path)
    for open_model in OPEN:
        for model in (open_model(plain), open_model(hybrid)):
            for each in (model, model.context()):
                with pytest.raises(InputError, match="neither copied nor pickled: give the other process the path"):
                    copied(each)
            model.run(X)


def test_a_model_is_opened_whole_or_not_at_all(tmp_path: Path) -> None:
    """Another process writes one of two models over the file in place, again and again: out = x + 2 w, or x + 4 w."""
    path = write_large(tmp_path / "model.kt")
    other = write_model(tmp_path / "other.kt", [adding(COUNT)], [2 * W])
    (tmp_path / "first.kt").write_bytes(path.read_bytes())
    code = f"""
        import hashlib, itertools, sys
        contents = [open(name, "rb").read() for name in sys.argv[1:]]
        print("begins", flush=True)
        for content in itertools.cycle(contents):
            with open({str(path)!r}, "r+b") as file:
                file.write(content)
            hashlib.sha256(content * 5)  # for some milliseconds the file stays as it is
    """
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "first.kt"), str(other)], stdout=subprocess.PIPE
    )
    counts, said = {"opened": 0, "ran": 0, "refused": 0}, set()
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        for _ in range(300):
            try:
                model = kintune_runtime.open(path)
                counts["opened"] += 1
                for _ in range(3):
                    out = model.run(LARGE)["out"]
                    assert any(np.array_equal(out, LARGE + factor * W) for factor in (2, 4))
                    counts["ran"] += 1
            except InputError as error:
                said.add(str(error).partition(";")[0].removeprefix(f"{path}: "))
                counts["refused"] += 1
    finally:
        writer.kill()
        writer.communicate()
    assert counts["refused"], counts
    assert all(each.startswith(("damaged", "truncated", CHANGED.partition(";")[0])) for each in said), said
    np.testing.assert_array_equal(kintune_runtime.open(other).run(LARGE)["out"], LARGE + 4 * W)
