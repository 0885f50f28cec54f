#!/usr/bin/env python3
"""The documentation as a site: `make docs`, or `python tools/docs_site.py SITE`.

The pages are those of `docs/`, prepared in `build/docs`: the reference is generated from the code, and a link to a file
outside of `docs/` leads to a page with that file's text.  mkdocs-material builds the site of them, without the network;
a link that leads nowhere fails the build, and so does a page that would fetch a script, font or picture from elsewhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PREPARED = ROOT / "build" / "docs"
NAVIGATION = "      # tools/docs_site.py lists the design pages here\n"

sys.path.insert(0, str(Path(__file__).parent))

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s#]+)(#[^)\s]*)?\)")
_SHOWN = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json", ".conf": "nginx", ".c": "c", "": "text"}
_SHOWN_BYTES = 100_000
_ELSEWHERE = re.compile(r"^\s*(?:https?:)?//", re.I)
_UNPKG = re.compile(r'"https://unpkg\.com/[^"]*"')


class Pages:
    """The pages as they are prepared, and the files outside of `docs/` that they lead to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: list[Path] = []
        self._known: set[Path] = set()

    def prepare(self) -> None:
        """Writes all pages anew."""
        import reference_pages

        shutil.rmtree(self.folder, ignore_errors=True)
        for source in sorted(DOCS.rglob("*")):
            target = self.folder / source.relative_to(DOCS)
            if source.suffix == ".md":
                self._write(target, self._relinked(source.read_text(), source, target))
            elif source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        self._lead_to(ROOT / "CHANGELOG.md")
        while self._waiting:
            self._write_file(self._waiting.pop())
        reference_pages.write(self.folder / "reference")
        copy_diagrams(self.folder / "assets")

    def _write(self, target: Path, text: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _relinked(self, text: str, source: Path, target: Path) -> str:
        """The text of a page in which links that leave `docs/` lead to pages of files, or are words."""
        parts, at = [], 0
        for fence in [*_FENCE.finditer(text), None]:
            end = fence.start() if fence else len(text)
            parts.append(_LINK.sub(lambda found: self._link(found, source, target), text[at:end]))
            if fence:
                parts.append(fence[0])
                at = fence.end()
        return "".join(parts)

    def _link(self, found: re.Match[str], source: Path, target: Path) -> str:
        words, name, anchor = found[1], found[2], found[3] or ""
        if "://" in name or name.startswith("mailto:"):
            return found[0]
        place = (source.parent / name).resolve()
        if place.is_relative_to(DOCS):
            inside = self.folder / place.relative_to(DOCS)
        elif (page := self._lead_to(place)) is not None:
            inside = page
        else:  # a folder, or data
            return f"{words[words.index('[') + 1 : -1]} (`{place.relative_to(ROOT)}`)"
        up = len(target.parent.relative_to(self.folder).parts)
        return f"{words}({'../' * up}{inside.relative_to(self.folder).as_posix()}{anchor})"

    def _lead_to(self, place: Path) -> Path | None:
        """The page of a file outside of `docs/`; None for a folder, or what cannot be shown."""
        suffix = place.suffix
        if not place.is_file() or suffix not in (*_SHOWN, ".md") or place.stat().st_size > _SHOWN_BYTES:
            return None
        if place not in self._known:
            self._known.add(place)
            self._waiting.append(place)
        name = place.relative_to(ROOT)
        return self.folder / "files" / (name if suffix == ".md" else name.with_name(f"{name.name}.md"))

    def _write_file(self, place: Path) -> None:
        page = self._lead_to(place)
        assert page is not None
        text = place.read_text()
        if place.suffix == ".md":
            self._write(page, self._relinked(text, place, page))
        else:
            shown = f"# {place.name}\n\n`{place.relative_to(ROOT)}`\n\n````{_SHOWN[place.suffix]}\n{text}\n````\n"
            self._write(page, shown)


def copy_diagrams(folder: Path) -> None:
    """Copies Mermaid, which draws diagrams, from NiceGUI, so that pages need not fetch it."""
    found = find_spec("nicegui")
    places = found.submodule_search_locations if found is not None else None
    drawing = Path(next(iter(places or ["."]))) / "elements" / "mermaid" / "dist"
    if not (drawing / "index.js").is_file():
        raise SystemExit("docs: what draws diagrams is missing: make setup, or pip install nicegui")
    shutil.copytree(drawing, folder / "mermaid", ignore=shutil.ignore_patterns("*.map"))


def configuration() -> Path:
    """`mkdocs.yml` with the design pages in its navigation, as a file beside it."""
    listed = []
    for page in sorted((DOCS / "design").glob("*.md")):
        if page.name != "README.md":
            listed.append(f"      - {page.read_text().splitlines()[0].lstrip('# ')!r}: design/{page.name}\n")
    text = (ROOT / "mkdocs.yml").read_text()
    if NAVIGATION not in text:
        raise SystemExit("docs: mkdocs.yml has no place for the design pages")
    path = ROOT / "build" / "mkdocs.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace(NAVIGATION, "".join(listed)).replace("docs_dir: build/docs", f"docs_dir: {PREPARED}"))
    return path


class _Fetched(HTMLParser):
    """Collects the addresses of what a page fetches by itself, without the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of one element."""
        said = {name: value or "" for name, value in attrs}
        names = ["src", "srcset", "data", "poster"]
        if tag == "link" and said.get("rel") != "canonical":
            names.append("href")
        self.addresses += [said[name] for name in names if name in said]


def fetched_elsewhere(site: Path) -> Iterator[str]:
    """Yields what pages, style sheets and scripts of a site would fetch from other servers, as "FILE: ADDRESS"."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            parser = _Fetched()
            parser.feed(path.read_text())
            found = [each for each in parser.addresses if _ELSEWHERE.match(each)]
        elif path.suffix == ".css":
            found = re.findall(r"(?:url\(|@import )\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text())
        elif path.suffix == ".js" and "mermaid" not in path.parts:
            found = _UNPKG.findall(path.read_text())
        else:
            continue
        yield from (f"{path.relative_to(site)}: {each}" for each in found)


def build(site: Path) -> None:
    """Builds the site.

    Raises:
        SystemExit: a link leads nowhere, or a page fetches something from elsewhere.
    """
    if find_spec("material") is None:
        raise SystemExit("docs: mkdocs-material is missing: make docs installs it, or pip install --group docs")
    Pages(PREPARED).prepare()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]  # --quiet would disable --strict
    command += ["--config-file", str(configuration()), "--site-dir", str(site)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of the theme, about another generator
    done = subprocess.run(command, env=quiet, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"docs: the site is not built:\n{done.stdout}{done.stderr}")
    for script in site.glob("assets/javascripts/*.js"):  # fallbacks of the theme for what is not used here
        text = script.read_text()
        script.write_text(_UNPKG.sub('""', text))
    if fetched := list(fetched_elsewhere(site)):
        raise SystemExit("docs: pages fetch from elsewhere:\n" + "\n".join(fetched))


def main() -> None:
    """Builds the site in the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: tools/docs_site.py SITE")
    site = Path(sys.argv[1]).resolve()
    build(site)
    print(f"docs: {site}/index.html; to search, serve it: python3 -m http.server --directory {site}")


if __name__ == "__main__":
    main()
