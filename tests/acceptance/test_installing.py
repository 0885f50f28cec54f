"""From the files of a release to a tuned model, where there is nothing but Python: what `docs/releases.md` says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.doc_blocks import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "releases.md"

pytestmark = [pytest.mark.slow, pytest.mark.needs("ziglang"), pytest.mark.timeout(1500)]

LINES = """
set -e
mount --rbind /usr/lib {root}/usr/lib
mount --rbind /proc {root}/proc
mount --rbind /dev {root}/dev
mount --bind {reader} {root}/reader
for each in /usr/lib64 /usr/share /etc {named}; do
    [ ! -d $each ] || {{ mkdir -p {root}$each && mount --rbind $each {root}$each; }}
done
exec /usr/sbin/chroot {root} /usr/bin/sh -c 'cd /reader; '"$1"
"""


def run(*command: object, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload]


def printed(*command: object, **settings: object) -> str:
    done = run(*command, **settings)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` leaves."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    printed(ROOT / "tools" / "distributions", folder, env={**os.environ, "PYTHON": sys.executable})
    return folder


@pytest.fixture(scope="module", autouse=True)
def _network(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Packages can be had here."""
    folder = tmp_path_factory.mktemp("probe")
    done = run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "click")
    if done.returncode != 0:
        pytest.skip(f"pip gets no packages here: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


def commands() -> list[str]:
    """The commands of the page's first block."""
    first = next(block for block in blocks(PAGE) if block.heading == "Install")
    return first.text.splitlines()


def reachable_folders() -> list[str]:
    """The folders outside of the system's own in which pip finds packages and certificates."""
    told = run(sys.executable, "-m", "pip", "config", "list").stdout + " ".join(pip_variables().values())
    paths = {Path(each) for each in re.findall(r"(?<![\w:/])/[\w./+-]+", told)}
    folders = {str(path if path.is_dir() else path.parent) for path in paths if path.exists()}
    return sorted(each for each in folders if not each.startswith(("/etc", "/usr/lib", "/usr/share")))


def pip_variables() -> dict[str, str]:
    """What the environment says to pip."""
    wanted = re.compile(r"PIP_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE")
    return {name: value for name, value in os.environ.items() if wanted.fullmatch(name)}


def root_with_python_only(root: Path, reader: Path, reachable: Sequence[str]) -> list[str]:
    """The command that runs a line of shell where there are Python, a shell and the C library, and no compiler.

    The folders that are named in `reachable` are there as well: where pip finds packages.
    """
    (root / "usr" / "bin").mkdir(parents=True)
    base = Path(sys.base_prefix)  # is there at its place, unless it is the system's own
    system = base == Path("/usr")
    program = Path(os.path.realpath(base / "bin" / "python3"))
    for name in ("sh", "env", "uname", "ldconfig", *([program.name] if system else [])):
        if (found := shutil.which(name, path="/usr/bin:/usr/sbin")) is not None:
            shutil.copy(os.path.realpath(found), root / "usr" / "bin" / name)
    if system:
        (root / "usr" / "bin" / "python3").symlink_to(program.name)
    for name in ("usr/lib", "proc", "dev", "reader", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if (Path("/") / name).is_symlink():
            (root / name).symlink_to(os.readlink(f"/{name}"))
    script = LINES.format(root=root, reader=reader, named=" ".join([*reachable, *([] if system else [str(base)])]))
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    if run(*unshare, "true").returncode != 0:
        pytest.skip("no namespace of mounts may be made here")
    return [*unshare, "/bin/sh", "-c", script, "sh"]


def test_two_commands_lead_from_the_wheel_to_a_tuned_model(dist: Path, tmp_path: Path) -> None:
    reader = tmp_path / "reader"
    reader.mkdir()
    shutil.copytree(dist, reader / "dist")
    inside = root_with_python_only(tmp_path / "root", reader, reachable_folders())
    settings = Path.home() / ".config" / "pip" / "pip.conf"
    if settings.is_file():
        (reader / ".config" / "pip").mkdir(parents=True)
        shutil.copy(settings, reader / ".config" / "pip")
    environment = {**pip_variables(), "PATH": f"/usr/bin:{sys.base_prefix}/bin", "HOME": "/reader", "LANG": "C.UTF-8"}
    environment |= {"KINTUNE_RECORDS": "/reader/records.sqlite", "KINTUNE_LOCK_DIR": "/reader/locks"}
    assert run(*inside, "command -v cc gcc clang ld", env=environment).stdout == ""
    install, tune = commands()
    printed(*inside, install, env=environment)
    tune = tune.replace("--minutes 3", "--minutes 1")
    said = printed(
        *inside, f"KINTUNE_RECORDS=/reader/records.sqlite KINTUNE_LOCK_DIR=/reader/locks {tune}", env=environment
    )
    assert "model.kt" in said
    assert (reader / "model.kt").stat().st_size > 1000
    without = run(*inside, f"tuning/bin/pip uninstall --quiet --yes ziglang; {tune}", env=environment)
    assert without.returncode == 2
    (line,) = [line for line in without.stderr.splitlines() if line.startswith("kintune: error")]
    assert "no C compiler found to link programs with" in line
    assert "pip install ziglang" in line


def test_the_sources_install_by_themselves_where_a_compiler_is(dist: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    printed(sys.executable, "-m", "venv", home)
    constraints = ROOT / "constraints.txt"
    sources = sorted(dist.glob("*.tar.gz"))
    printed(home / "bin" / "pip", "install", "--quiet", "--constraint", constraints, *sources)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert "This machine can tune." in printed(home / "bin" / "kintune", "doctor", env=environment, cwd=tmp_path)


@pytest.mark.parametrize("extras", ["service,client,fleet", "compare,linker,bench,stock", "ray", "torch"])
def test_extras_can_be_installed_beside_each_other(dist: Path, tmp_path: Path, extras: str) -> None:
    (kintune,) = dist.glob("kintune-*.whl")
    (runtime,) = dist.glob("kintune_runtime-*.whl")
    printed(sys.executable, "-m", "venv", tmp_path / "environment")
    pip = [tmp_path / "environment" / "bin" / "pip", "install", "--quiet", "--dry-run"]
    printed(*pip, f"{kintune}[{extras}]", runtime)
