"""The benchmarks page is what the raw data says, and the README's figures stand on it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.test_docs_site import tool

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "notebook/results"
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="a source distribution has no raw data")


def run(page: Path, results: Path = RESULTS, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools/benchmarks_page.py", "--page", page, "--results", results, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_of_the_repository_is_up_to_date(tmp_path: Path) -> None:
    page = Path(shutil.copy(ROOT / "docs/benchmarks.md", tmp_path / "page.md"))
    shutil.copy(ROOT / "docs/benchmarks_service.md", tmp_path)
    assert run(page, RESULTS, "--check").returncode == 0
    assert len(page.read_text().splitlines()) <= 190


def test_a_figure_that_changes_is_told_and_written(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.md"
    shutil.copytree(RESULTS, results)
    assert run(page, results, "--check").returncode == 1  # there is none
    assert run(page, results).returncode == 0
    path = max(results.glob("compiled-*.json"))
    document = json.loads(path.read_text())
    times = document["rows"][0]["latency_ms"]
    times["tuned"] = [2 * each for each in times["tuned"]]
    path.write_text(json.dumps(document))
    outdated = run(page, results, "--check")
    assert outdated.returncode == 1
    assert "not up to date" in outdated.stderr
    assert run(page, results).returncode == 0
    assert run(page, results, "--check").returncode == 0


def test_comparisons_stand_on_the_page(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.md"
    shutil.copytree(RESULTS, results)
    shutil.rmtree(min(results.glob("compare-*")))  # the page is as long as it may be
    against = {
        "other": "onnxruntime", "files": 3, "mean": 0.8, "whole": 2, "mean_whole": 0.7, "worst": 1.5,
        "worst_file": "gru",
        "won": ["a"], "level": ["b"], "lost": ["gru"],
    }  # fmt: skip
    comparison = {"setting": "", "summary": {"against": [against]}}
    document = {"cpus": ["a CPU"], "days": ["2026-11-26"], "comparisons": [comparison]}
    (results / "mine").mkdir()
    (results / "mine/comparison.json").write_text(json.dumps(document))
    assert run(page, results).returncode == 0
    line = "| mine | 2026-11-26 | 3 | 0.80 | 0.70 (2) |  |  | 1.50 (gru) | 1 | 1 | 1 |"
    assert line in page.read_text()


def test_a_comparison_without_onnxruntime_claims_nothing_beside_it(tmp_path: Path) -> None:
    openvino = {
        "other": "openvino", "files": 2, "mean": 0.5, "whole": 2, "mean_whole": 0.5, "worst": 1.5, "worst_file": "gru",
        "won": ["a"], "level": [], "lost": ["gru"],
    }  # fmt: skip
    of_one_file = {**openvino, "files": 1}
    for name, against in (("one", [openvino]), ("other", []), ("single", [of_one_file])):
        (tmp_path / name).mkdir()
        comparison = {"setting": "", "summary": {"against": against}}
        document = {"days": ["2026-11-26"], "comparisons": [comparison]}
        (tmp_path / name / "comparison.json").write_text(json.dumps(document))
    one, other = tool("benchmarks_page").comparisons(tmp_path)[-2:]
    assert one == "| one | 2026-11-26 | 2 |  |  | 0.50 | 0.50 (2) |  |  |  |  |"
    assert other == "| other | 2026-11-26 | 0 |  |  |  |  |  |  |  |  |"


def test_a_race_that_was_lost_stands_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "race").mkdir()
    (tmp_path / "race/cells.csv").write_text("cell,started\nc,2026-11-26T10:00:00Z\n")
    (tmp_path / "race/results.csv").write_text(
        "cell,model,seed,method,active_seconds,seconds_to_quality,time_ratio,quality_ratio,network_quality_ratio\n"
        "c,zoo:bert_base,0,stock,900.4,800.4,1.1,1.0,1.0\nc,zoo:bert_base,0,own cold,900.4,,,0.9,\n"
    )
    headline = {"races": {"race": {"page": "page.md", "machine": "Zen 5"}}}
    lines = tool("benchmarks_page").races(tmp_path, headline)
    assert "| [bert_base](page.md), seed 0 | Zen 5 | 2026-11-26 | 900 | 800 | never | never | 0.90 |  |" in lines


def test_the_figures_of_the_readme_stand_on_the_page() -> None:
    words = (ROOT / "README.md").read_text().splitlines()
    head = next(i for i, line in enumerate(words) if line.startswith("| network | machine |"))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in words[head + 2 : head + 8]]
    page = (ROOT / "docs/benchmarks.md").read_text()
    for network, _, onnxruntime, openvino, kintune, ratio in table:
        assert f"| {network} | {kintune} | {onnxruntime} | {openvino} | {ratio} |" in page
    assert len(table) == 6


def test_links_of_the_documentation_lead_to_files() -> None:
    for document in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in links(document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def links(text: str) -> list[str]:
    found = [part.split(")")[0].split("#")[0] for part in text.split("](")[1:]]
    return [target for target in found if target and "://" not in target]
