"""What the documentation tells its reader to type: every command exists, and those of the pages below run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import numpy as np
import pytest

from kintune.cli.root import root
from tests.support.doc_commands import CommandBlock, command_blocks, inline_commands, words_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
DONE_BEFORE = ("make setup", "source ")
"""How lines begin that make the environment, in which tests run already."""

FOLLOWED = {
    "deploy.md": "tests/test_deploy_page.py",
    "ci.md": "tests/acceptance/test_ci_recipes.py",
    "releases.md": "tests/acceptance/test_installing.py",
    "bench.md": "tests/kintune_lab",
    "compare.md": "tests/kintune_lab",
    "families.md": "tests/kintune_lab",
    "pools.md": "tests/kintune_lab",
    "simulate.md": "tests/kintune_lab",
    "scale.md": "tests/acceptance/test_remote_machines.py",
    "service.md": "tests/acceptance/test_service.py",
    "stock_tuner.md": "tests/examples",
}
"""Pages whose commands other tests run, word by word or in their own way."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def wrong_words(words: list[str]) -> str:
    """What of a command does not exist; "" if all of it does."""
    command: click.Command = root
    context = click.Context(root, info_name="kintune", **root.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(context, rest[0])
        if found is None:
            return f"no command {rest[0]}"
        command, context = found, click.Context(found, info_name=rest.pop(0), parent=context)
    known = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)} | {"-h"}
    given = [word.split("=")[0] for word in rest if re.match(r"--?[a-zA-Z]", word)]
    unknown = [word for word in given if word not in known]
    return f"{context.command_path} has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_exists(page: Path) -> None:
    text = page.read_text()
    commands = [command for block in command_blocks(text) for command in block.commands] + inline_commands(text)
    found = {command: wrong_words(words) for command in commands if (words := words_of(command)) and "|" not in words}
    assert {command: wrong for command, wrong in found.items() if wrong} == {}


def test_blocks_are_found_with_their_commands() -> None:
    text = (
        "# Title\n\n    kintune tune a.onnx   # says\n    kintune doctor\n\n    deeper text\n\nWords:\n\n    x = 1\n\n"
        "```console\n$ kintune run a.kt\nout\n```\n\n"
        "<!-- not run: it needs a board -->\n```sh\npip install \\\n  x\n```\n"
        "\n```python\nkintune = 1\n```\n\n<!-- not run: no host -->\n\n    kintune serve\n"
    )
    assert list(command_blocks(text)) == [
        CommandBlock(3, ("kintune tune a.onnx", "kintune doctor", "deeper text"), ""),
        CommandBlock(13, ("kintune run a.kt",), ""),
        CommandBlock(19, ("pip install   x",), "it needs a board"),
        CommandBlock(29, ("kintune serve",), "no host"),
    ]
    assert words_of("tuning/bin/kintune tune 'a b.onnx' --minutes 3 && ls") == ["tune", "a b.onnx", "--minutes", "3"]
    assert inline_commands("Use `kintune run a.kt`, `kintune export --to c|onnx` or `kintune: error`.") == [
        "kintune run a.kt"
    ]


def test_a_command_that_does_not_exist_is_found() -> None:
    assert wrong_words(["tune", "a.onnx", "--minutes", "3", "-o", "x"]) == ""
    assert wrong_words(["tune", "a.onnx", "--minute", "3"]) == "kintune tune has no --minute"
    assert wrong_words(["records", "lost"]) == "no command lost"


def test_every_page_with_commands_is_followed() -> None:
    with_commands = {page.name for page in PAGES if any(not each.not_run for each in command_blocks(page.read_text()))}
    assert with_commands - FOLLOWED.keys() == set(RUN)
    assert all((ROOT / place).exists() for place in FOLLOWED.values())


Prepare = Callable[[Path, str], None]
"""Makes in a folder what a command finds there."""


def images(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model, write_resize_model, write_samples, write_text_model

    model = folder / "model.onnx"
    if "--constant sizes=" in command:
        write_resize_model(model)
    elif "--shape" in command and "ids=" in command:
        write_text_model(model)
    elif "--shape" in command:
        write_image_model(model, shape=(1, 3, "height", "width"))
    else:
        write_image_model(model)
    drawn = np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)
    write_samples(folder / "samples", [{"input": drawn}, {"input": drawn + 1}])
    if not (folder / "x.npz").exists():
        np.savez(folder / "x.npz", input=drawn)


def scored(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model, write_samples

    write_image_model(folder / "model.onnx", name="images", output="scores", shape=(1, 3, 32, 32))
    drawn = np.random.default_rng(0).standard_normal((4, 1, 3, 32, 32), np.float32)
    write_samples(folder / "samples", [{"images": each} for each in drawn])
    (function,) = re.findall(r"^    def accuracy.*?(?=^\S)", (DOCS / "precision.md").read_text(), re.M | re.S)
    loads = "def load_samples():\n    return numpy.ones((2, 3, 32, 32), 'float32'), numpy.array([0, 0])\n"
    lines = "\n".join(line[4:] for line in function.splitlines())
    (folder / "score.py").write_text(f"import numpy\n\n{loads}\n{lines}\n")


def texts(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_text_model

    write_text_model(folder / "model.onnx")
    np.savez(folder / "x.npz", ids=np.ones((1, 64), np.int64), mask=np.ones((1, 64), np.int64))


def in_parts(folder: Path, command: str) -> None:
    import onnx

    from tests.support.partitions import parse

    if not (folder / "model.onnx").exists():
        text = "m (float[64, 512] x) => (float[64, 512] y, int64[2, N] z) { a = Relu(x) y = Sigmoid(a) z = NonZero(a) }"
        onnx.save(parse(text), folder / "model.onnx")


def several(folder: Path, command: str) -> None:
    from tests.support.doc_models import write_image_model

    for name in ("a", "b", "model"):
        write_image_model(folder / f"{name}.onnx", shape=(1, 3, 32, 32))


RUN: Mapping[str, Prepare] = {
    "README.md": images,
    "cli.md": images,
    "hybrid.md": in_parts,
    "precision.md": scored,
    "profile.md": images,
    "quickstart.md": images,
    "shapes.md": texts,
    "tasks.md": images,
    "together.md": several,
}
"""The pages whose commands are run here, in order and in one folder, and what makes the files that they name."""

SHORTER = {
    r"--minutes \d+": "--trials 8",
    r"zoo:\w+": "model.onnx",
    r"cpu:3": "cpu:0",
    r"--until 8": "--trials 8",
}
"""What is written in place of what would take long, or a machine of another size."""


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", RUN)
def test_the_commands_of_a_page_run_in_order(name: str, tmp_path: Path) -> None:
    page = ROOT / name if name == "README.md" else DOCS / name
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "KINTUNE_RECORDS": str(tmp_path / "records.sqlite"),
        "KINTUNE_LOCK_DIR": str(tmp_path / "locks"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    (tmp_path / "bin").mkdir()
    for program, module in (("kintune", " -m kintune"), ("python", "")):
        path = tmp_path / "bin" / program
        path.write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        path.chmod(0o755)
    folder = tmp_path / "reader"
    folder.mkdir()
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    if name in ("hybrid.md", "profile.md"):  # these speak of a result that is there already
        RUN[name](folder, "")
        type_in(folder, "kintune compile model.onnx --output model.kt", environment)
    for block in command_blocks(page.read_text()):
        for command in () if block.not_run else block.commands:
            if command.startswith(DONE_BEFORE):
                continue
            for pattern, shorter in SHORTER.items():
                command = re.sub(pattern, shorter, command)
            RUN[name](folder, command)
            type_in(folder, command, environment)


def type_in(folder: Path, command: str, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
