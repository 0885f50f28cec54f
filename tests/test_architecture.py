"""Rules that hold for the whole repository."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "migrations" not in path.parts)
"""All modules; migrations are scripts that Alembic runs, and offer nothing."""

FRONT_SIDE = re.compile(
    r"kintune(_lab)?\.(api|bench|cli|core|doctor|errors|experiment|families|files|hardware|pools|race|records|scheduler|search"
    r"|simulate|spec_document|terminal|transfer|tuning\.(estimation|front)|wire|workers\.(engine|fleet))\b"
)
"""Rooms that start without the compiler."""

KIND_QUESTIONS = {"kintune/core/measurement_protocol.py": 1, "kintune/runtime/target.py": 1}
"""The places that ask of which kind a target or device is; all others ask what it can do (`core/capabilities.py`)."""

REGISTRIES = r"pypi\.org|pythonhosted\.org|download\.pytorch|docker\.io|ghcr\.io|quay\.io|registry\.npmjs"
PLACES = r"/root/|/home/\w|/Users/\w"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def text_files() -> list[Path]:
    """Every text file that is, or is about to be, part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def lines_that_match(pattern: str) -> list[str]:
    found = []
    for path in text_files():
        if path != Path(__file__).resolve():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [
                f"{path.relative_to(ROOT)}:{i}: {line}" for i, line in enumerate(lines, 1) if re.search(pattern, line)
            ]
    return found


def test_no_file_names_a_place_of_one_machine() -> None:
    assert lines_that_match(PLACES) == []


def test_no_file_names_a_registry() -> None:
    assert lines_that_match(REGISTRIES) == []


def test_the_product_does_not_name_the_laboratory() -> None:
    assert [str(path) for path in (ROOT / "src/kintune").rglob("*.py") if "kintune_lab" in path.read_text()] == []


def test_a_module_lists_what_it_offers() -> None:
    silent = []
    for path in SOURCES:
        body = ast.parse(path.read_text()).body
        offers = any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_" for node in body)
        assigned = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
        lists = any(isinstance(target, ast.Name) and target.id == "__all__" for target in assigned)
        if offers and not lists:
            silent.append(module_name(path))
    assert silent == []


def asks_for_a_kind(node: ast.AST) -> bool:
    """Whether an expression compares a target's kind, or the name or protocol of a device, with one that it knows."""

    def is_known(side: ast.AST) -> bool:
        inner = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
        known = ({"llvm", "cuda"}, {"CPU", "GPU", "FLUSHED"})
        return any(
            (isinstance(each, ast.Constant) and each.value in known[0]) or ast.unparse(each).split(".")[-1] in known[1]
            for each in inner
        )

    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(is_known(side) or ast.unparse(side).endswith(("kind.name", ".noun")) for side in sides)
    if isinstance(node, ast.MatchValue):
        return is_known(node.value)
    is_method = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return is_method and node.func.attr in ("startswith", "endswith") and any(map(is_known, node.args))


def test_the_name_of_a_public_class_occurs_once() -> None:
    """Those of the compiler's programs and kernels apart."""
    names: dict[str, list[str]] = {}
    for path in SOURCES:
        if not {"compiler", "models"} & set(path.parts):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    names.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        ('target.kind.name != "llvm"', True),
        ("target.kind.name in names", True),
        ("config.get('kind') == GPU", True),
        ("device.protocol.endswith(FLUSHED)", True),
        ("device.startswith((HOST, capabilities.GPU))", True),
        ("kind in ('cuda', 'metal')", True),
        ("device.capabilities.noun == 'board'", True),
        ("_RESOLVERS.get(target.kind.name)", False),
        ("ScheduleRule.create(target.kind.name)", False),
        ("node.kind == 'constant'", False),
        ("f'{GPU}:{number}'", False),
    ],
)
def test_a_question_for_a_kind_is_seen(code: str, asks: bool) -> None:
    assert any(map(asks_for_a_kind, ast.walk(ast.parse(code)))) == asks


def test_nothing_asks_for_the_kind_of_a_device() -> None:
    found = {
        str(path.relative_to(ROOT / "src")): sum(map(asks_for_a_kind, ast.walk(ast.parse(path.read_text()))))
        for path in SOURCES
    }
    assert {name: number for name, number in found.items() if number} == KIND_QUESTIONS


def test_the_state_of_tvm_is_changed_in_one_place() -> None:
    writers = re.compile(r"\b(register_op_attr|reset_attr|register_intrin_lowering|(register|remove)_global_func)\b")
    places = [str(path.relative_to(ROOT / "src")) for path in SOURCES if writers.search(path.read_text())]
    assert places == ["kintune/runtime/tvm_state.py"]


@pytest.mark.tvm
@pytest.mark.may_use("torch")
def test_what_a_module_lists_is_there_and_documented() -> None:
    wrong = []
    for name in map(module_name, SOURCES):
        if name.endswith("__main__"):
            continue
        if name.startswith("kintune.models.torch_converters") and find_spec("torch") is None:
            continue  # they are imported where PyTorch is
        module = importlib.import_module(name)
        for offered in getattr(module, "__all__", ()):
            value = getattr(module, offered, None)
            ours = (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith(
                ("kintune.", "kintune_lab.")
            )
            if value is None or (ours and not inspect.getdoc(value)):
                wrong.append(f"{name}.{offered}")
    assert wrong == []


def test_the_front_side_starts_without_the_compiler() -> None:
    front_side = [name for name in map(module_name, SOURCES) if FRONT_SIDE.match(name)]
    assert front_side
    code = f"""
import importlib, sys
for name in {front_side!r}:
    importlib.import_module(name)
    guilty = sorted({{'tvm', 'tvm_ffi'}} & set(sys.modules))
    assert not guilty, (name, guilty)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
