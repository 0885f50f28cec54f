"""The site of the documentation: its reference says what the code is, and its pages fetch nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    """A module of `tools/`."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_command_line_has_every_command_with_its_options() -> None:
    page = tool("reference_pages").command_line()
    assert "\n## kintune tune\n" in page
    assert "\n### kintune records export\n" in page
    assert "--max-error" in page


def test_python_has_what_is_exported_with_its_docstrings() -> None:
    import kintune

    page = tool("reference_pages").python()
    for name in kintune.__all__:
        assert name.startswith("_") or f"\n### kintune.{name}\n" in page
    assert "#### Client.submit" in page
    assert "**Raises**" in page
    assert "- `InputError`: " in page
    assert "\n### kintune_runtime.open\n" in page


def section_of(page: str, name: str) -> str:
    """What a page says of a class or function."""
    return page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_python_has_inherited_members_and_the_fields_of_tuples() -> None:
    page = tool("reference_pages").python()
    for name in ("evaluate", "inputs", "plans", "run", "save"):
        assert f"\n#### Executable.{name}\n" in section_of(page, "kintune.Executable")
    assert "\n#### Executable.evaluate\n" in section_of(page, "kintune_runtime.Executable")
    assert "| `p99_ms` | float | `0.0` |" in section_of(page, "kintune_runtime.Evaluation")
    assert "Initialize self" not in page  # what `object` says of itself


def test_python_has_types_and_defaults_as_code_writes_them() -> None:
    page = tool("reference_pages").python()
    fields = section_of(page, "kintune.TuneConfig")
    assert "| `minutes` | float \\| None | `None` | Stop after this many minutes. |" in fields
    assert "Annotated" not in fields
    together = section_of(page, "kintune.tune_all")
    assert "    *,\n    config: TuneConfig | None = None,\n    policy: PolicyName = 'predictive',\n" in together
    assert "\n) -> list[Result] | list[Result | KintuneError]\n" in together


def test_rest_has_every_route_and_document() -> None:
    page = tool("reference_pages").rest()
    assert "\n### POST /api/v1/jobs\n" in page
    assert "\n### GET /healthz\n" in page
    assert "\n### JobOut\n" in page
    assert "[JobOut](#jobout)" in page


def test_c_has_every_function_and_type_of_the_header() -> None:
    module = tool("reference_pages")
    page = module.c()
    for name in (
        "kt_open",
        "kt_run",
        "kt_status",
        "kt_tensor",
        "kt_context_close",
        "kt_parallel_for",
        "KT_VERSION_MAJOR",
    ):
        assert any(name in line for line in page.splitlines() if line.startswith("## ")), name
    assert "Opens a `.kt` file: the weights are mapped, and verified once." in page
    assert "KT_API kt_status kt_run(kt_context *context" in page
    assert "extern" not in page


def test_links_that_leave_the_docs_lead_to_pages_of_files(tmp_path: Path) -> None:
    module = tool("docs_site")
    pages = module.Pages(tmp_path)
    links = "[one](../examples/stock_tuner.py) [two](cli.md#a) [three](https://x.org) [four](../benchmarks)"
    text = f"{links}\n\n```\n[x](../a)\n```\n"
    relinked = pages._relinked(text, ROOT / "docs/page.md", tmp_path / "page.md")
    assert relinked == (
        "[one](files/examples/stock_tuner.py.md) [two](cli.md#a) [three](https://x.org) four (`benchmarks`)\n\n"
        "```\n[x](../a)\n```\n"
    )
    assert pages._relinked("[one](../cli.md)", ROOT / "docs/design/page.md", tmp_path / "design/page.md") == (
        "[one](../cli.md)"
    )


def test_what_pages_fetch_from_elsewhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link rel="canonical" href="https://a.org"><link rel="stylesheet" href="//b.org/x.css"><img src="x.png">'
        '<a href="https://c.org">c</a><script src="https://d.org/x.js"></script>'
    )
    (tmp_path / "b.css").write_text("@font-face { src: url('https://e.org/f.woff2') } p { background: url(x.png) }")
    (tmp_path / "c.js").write_text('load("https://unpkg.com/x"); see("https://f.org")')
    assert list(tool("docs_site").fetched_elsewhere(tmp_path)) == [
        "a.html: //b.org/x.css",
        "a.html: https://d.org/x.js",
        "b.css: https://e.org/f.woff2",
        'c.js: "https://unpkg.com/x"',
    ]


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"{page.name}\n" not in text]
    assert missing == []


@pytest.mark.slow
@pytest.mark.needs("mkdocs-material")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, ROOT / "tools" / "docs_site.py", site]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kt_open_variant" in (site / "reference" / "c.html").read_text()
    assert (site / "assets" / "mermaid" / "index.js").is_file()
    assert (site / "files" / "notebook" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.needs("mkdocs-material")
def test_a_link_to_no_heading_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tool("docs_site")
    prepare = module.Pages.prepare

    def spoilt(pages: object) -> None:
        prepare(pages)
        with (tmp_path / "docs" / "cli.md").open("a") as page:
            page.write("\n[x](#no-such-heading)\n")

    monkeypatch.setattr(module, "PREPARED", tmp_path / "docs")
    monkeypatch.setattr(module.Pages, "prepare", spoilt)
    with pytest.raises(SystemExit, match="'#no-such-heading', but there is no such anchor"):
        module.build(tmp_path / "site")
