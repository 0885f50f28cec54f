"""Documentation: links lead somewhere, files and classes exist, sentences of the design pages are short."""

import re
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DESIGN = DOCS / "design"
CODE = ("src", "runtime", "tests", "benchmarks", "examples", "tools")
MAX_WORDS = 30

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_CLASS = re.compile(r"_?(?:[A-Z][a-z0-9]+){2,}")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +")
_END = re.compile(r"[.!?][)*_\"]*(?: +|$)")


def tracked(pattern: str) -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", pattern]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(ROOT / name for name in names if name and (ROOT / name).is_file())


@cache
def sources() -> tuple[frozenset[str], frozenset[str]]:
    """Returns the paths of all Python files, and every name that occurs in them."""
    files = [path for top in CODE for path in tracked(f"{top}/*.py")]
    names = {name for file in files for name in re.findall(r"\b_?[A-Z]\w+", file.read_text())}
    return frozenset(file.relative_to(ROOT).as_posix() for file in files), frozenset(names)


def current_pages() -> list[Path]:
    """Pages about the present state: all of docs but the notebook, which is history, and what is generated."""
    pages = [*DOCS.glob("*.md"), *DESIGN.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    return sorted(page for page in pages if page.name != "benchmarks.md")


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to the headings of a page."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ +(.+)$", _FENCE.sub("", page.read_text()), re.M):
        text = _LINK.sub(r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return names


def broken_links(page: Path) -> list[str]:
    broken = []
    for _, target in _LINK.findall(_QUOTED.sub("", _FENCE.sub("", page.read_text()))):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        missing = not file.exists()
        if missing or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    return broken


def sentences(text: str) -> list[str]:
    """Splits prose into sentences. Code blocks, tables and headings are left out; inline code is one word."""
    text = _LINK.sub(r"\1", _QUOTED.sub("code", _FENCE.sub("", text)))
    paragraphs: list[str] = []
    current: list[str] = []
    indented = False
    for line in [*text.splitlines(), ""]:
        code = line.startswith("    ") and (indented or not current)
        if not line.strip() or code or line.lstrip().startswith(("#", "|", ">")) or _ITEM.match(line):
            if current:
                paragraphs.append(" ".join(current))
            current = []
        if line.strip() and not code and not line.lstrip().startswith(("#", "|")):
            current.append(_ITEM.sub("", line).strip())
        indented = code
    return [part.strip() for paragraph in paragraphs for part in _END.split(paragraph) if part.strip()]


def words(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


@pytest.mark.parametrize("page", tracked("*.md"), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", current_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_classes_exist(page: Path) -> None:
    paths, names = sources()
    quoted = [part for code in _QUOTED.findall(_FENCE.sub("", page.read_text())) for part in code.split()]
    files = {part for part in quoted if re.fullmatch(r"[\w/.-]+\.py", part) and not part.startswith(".")}
    classes = {name for part in quoted for name in _CLASS.findall(part) if _CLASS.fullmatch(part.split(".")[0])}
    assert [file for file in sorted(files) if not any(f"/{path}".endswith(f"/{file}") for path in paths)] == []
    assert sorted(classes - names) == []


@pytest.mark.parametrize("page", sorted(DESIGN.glob("*.md")), ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    assert [f"{words(part)}: {part}" for part in sentences(page.read_text()) if words(part) > MAX_WORDS] == []


def test_a_long_sentence_is_found() -> None:
    long = "word " * (MAX_WORDS + 1)
    text = f"# Title\n\nShort. {long}\nand more.\n\n    {long}\n\n| {long} |\n\n* `{long}` is code.\n"
    assert [words(part) for part in sentences(text)] == [1, MAX_WORDS + 3, 3]


def test_the_index_lists_every_design_page() -> None:
    listed = [target for _, target in _LINK.findall((DESIGN / "README.md").read_text()) if "/" not in target]
    assert sorted(listed) == sorted(page.name for page in DESIGN.glob("*.md") if page.name != "README.md")


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(), re.M)[1:]
    assert all(one.lower() < other.lower() for one, other in pairwise(term for term in terms if term.strip("- ")))
