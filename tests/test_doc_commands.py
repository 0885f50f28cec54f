"""What the documentation tells its reader to type: every command exists, and those of the pages below run."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from kintune.cli.root import root
from tests.support import doc_pages
from tests.support.doc_commands import CommandBlock, command_blocks, inline_commands, python_blocks, words_of
from tests.support.doc_reader import Reader

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
DONE_BEFORE = ("make setup", "source ")
"""How lines begin that make the environment, in which tests run already."""

FOLLOWED = {
    "ci.md": "tests/acceptance/test_ci_recipes.py",
    "deploy.md": "tests/test_deploy_page.py",
    "fuzz.md": "tests/kintune_lab/cli/test_fuzz.py",
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
    program = CommandBlock(3, ("import a\n\na.b()",), "")
    assert list(python_blocks("# Title\n\n    import a\n\n    a.b()\n\nWords\n\n    a = 1\n")) == [program]
    assert list(python_blocks("```python\nimport a\n\na.b()\n```\n")) == [program._replace(line=2)]
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
    assert with_commands - FOLLOWED.keys() == set(doc_pages.PAGES)
    assert all((ROOT / place).exists() for place in FOLLOWED.values())


SHORTER = {
    r"(kintune (?:tune|submit) .*)--minutes \d+": r"\g<1>--trials 8",
    r"zoo:\w+": "model.onnx",
    r"cpu:3": "cpu:0",
    r"--until (8|'onnxruntime\*0.8')(?!\S)": "--trials 8",
    r"minutes=\d+|until=8": "trials=8",
}
"""What is written in place of what would take long, or a machine of another size."""


def shorter(text: str, page: str) -> str:
    """A command of a page with less to do; where the page exports to C, a result is not to run in onnxruntime."""
    for pattern, instead in SHORTER.items():
        text = re.sub(pattern, instead, text)
    if "--trials" not in text:
        text = text.replace("kintune tune ", "kintune tune --trials 8 ")
    return text.replace("kintune tune ", "kintune tune --no-onnxruntime ") if "--to c " in page else text


@pytest.mark.may_use("torch", "openvino", "ray", "ziglang")
@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", doc_pages.PAGES)
def test_the_commands_of_a_page_run_in_order(name: str, tmp_path: Path) -> None:
    text = (ROOT / name if name == "README.md" else DOCS / name).read_text()
    followed = doc_pages.PAGES[name]
    (tmp_path / ".config" / "fish" / "completions").mkdir(parents=True)
    with Reader(tmp_path, followed.own) as reader:
        for command in followed.before:
            followed.prepare(reader.folder, "")
            reader.type_in(command)
        programs = list(python_blocks(text))
        for block in sorted([*command_blocks(text), *programs]):
            for each in () if block.not_run else block.commands:
                if block in programs:
                    reader.run_python(shorter(each, text))
                elif not each.startswith(DONE_BEFORE):
                    followed.prepare(reader.folder, shorter(each, text))
                    reader.type_in(shorter(each, text))
