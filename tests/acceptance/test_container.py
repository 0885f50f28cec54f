"""The recipe of the container: what it says, and, where there is an engine, that it can be built and started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "Containerfile"
BASE = "KINTUNE_TEST_CONTAINER_BASE"
"""Names the image to build on where the one of the recipe cannot be had."""


def stages() -> list[list[str]]:
    """The instructions of each stage, without comments and what comes before the first."""
    lines = [line for line in RECIPE.read_text().splitlines() if line and not line.startswith("#")]
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("FROM "):
            found.append([])
        if found:
            found[-1].append(line)
    return found


def test_the_compiled_stage_is_left_behind_and_the_service_is_nobody() -> None:
    build, final = stages()
    assert build[0].endswith(" AS build")
    assert [line for line in final if line.startswith("COPY")] == ["COPY --from=build /opt/kintune /opt/kintune"]
    user = final.index("USER kintune")
    assert not any(line.startswith(("RUN", "COPY")) for line in final[user:])
    assert final[-2] == 'ENTRYPOINT ["tini", "--", "kintune"]'
    assert final[-1] == 'CMD ["serve", "--data", "/data", "--host", "0.0.0.0"]'


def test_orphans_are_reaped_and_shells_of_a_login_find_the_programs() -> None:
    """By the first process; and as Kubernetes starts Ray."""
    _, final = stages()
    installed = next(line for line in final if "apt-get install" in line)
    assert " tini " in installed
    (profile,) = (line for line in final if line.endswith("/etc/profile.d/kintune.sh"))
    (path,) = (line.removeprefix("ENV ") for line in final if line.startswith("ENV PATH="))
    assert f"'export {path}'" in profile


def test_what_is_copied_is_in_the_project_and_not_kept_from_the_engine() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in stages()[0] if line.startswith("COPY") for name in line.split()[1:-1]}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_no_registry_is_named() -> None:
    bases = re.findall(r"^ARG BASE=(.+)$", RECIPE.read_text(), re.M)
    assert bases == ["python:3.12-slim"]
    assert "://" not in "\n".join(line for stage in stages() for line in stage)


def engine() -> str:
    """An engine that works here; where none does, the test is skipped, with what it says."""
    said = []
    for name in ("podman", "docker"):
        if shutil.which(name) is None:
            continue
        done = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return name
        said.append(f"{name}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    pytest.skip(f"no engine for containers works here ({'; '.join(said)})")


@pytest.mark.slow
@pytest.mark.needs("container-engine")
@pytest.mark.timeout(1500)
def test_the_image_is_built_and_serves(tmp_path: Path) -> None:
    command = engine()
    base = os.environ.get(BASE, "python:3.12-slim")
    present = subprocess.run([command, "image", "inspect", base], capture_output=True, check=False).returncode == 0
    if not present and subprocess.run([command, "pull", base], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"the image {base} cannot be had here; {BASE} names another one")

    def run(*words: str) -> str:
        done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    options = os.environ.get("KINTUNE_TEST_CONTAINER_OPTIONS", "").split()
    image, volume = "kintune-test", f"kintune-test-{os.getpid()}"
    run("build", *options, "--build-arg", f"BASE={base}", "-f", str(RECIPE), "-t", image, str(ROOT))
    assert run("run", "--rm", image, "--version").startswith("kintune ")
    try:
        service = ("run", "--rm", "-v", f"{volume}:/data", image, "service")
        token = run(*service, "add-token", "--data", "/data", "--user", "anna", "--scope", "admin").split()[-1]
        started = run("run", "--detach", "-v", f"{volume}:/data", "-p", "127.0.0.1:18190:8190", image).strip()
        try:
            assert run("exec", started, "id", "-un").strip() == "kintune"
            deadline = time.monotonic() + 120
            while not answers("http://127.0.0.1:18190/readyz"):
                assert time.monotonic() < deadline, run("logs", started)
                time.sleep(0.5)
            assert answers("http://127.0.0.1:18190/api/v1/jobs", token)
            assert not answers("http://127.0.0.1:18190/api/v1/jobs")
        finally:
            run("stop", started)
            run("rm", "--force", started)
    finally:
        run("volume", "rm", "--force", volume)


def answers(url: str, token: str = "") -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True
