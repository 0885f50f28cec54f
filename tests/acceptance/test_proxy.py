"""The service behind a server that knows TLS, by the recipes of `deploy/`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service as Driver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from kintune.testing.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEPLOY = Path(__file__).parents[2] / "deploy"
NETWORK = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def program(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    assert path is not None
    return path


class Front(NamedTuple):
    """A server that knows TLS: how to start it, where it answers, and which certificate vouches for it."""

    command: list[str]
    name: str
    certificate: Path
    environment: dict[str, str]

    @property
    def url(self) -> str:
        return f"https://{self.name}"


def nginx(service: Serving, door: str, place: Path) -> Front:
    """Our configuration, with a certificate that we sign ourselves, in a file that makes it whole."""
    port = free_port()
    key, certificate = place / "key.pem", place / "certificate.pem"
    command = [program("openssl"), *["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    site = (DEPLOY / "nginx.conf").read_text()
    for ours, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("tuning.example.org", "localhost"),
        ("/etc/ssl/kintune.pem", str(certificate)),
        ("/etc/ssl/kintune.key", str(key)),
        ("http://127.0.0.1:8190", service.url),
        ("http://127.0.0.1:8191", f"http://{door}"),
    ):
        assert ours in site
        site = site.replace(ours, here)
    whole = place / "whole.conf"
    paths = "".join(
        f"{each}_temp_path {place}/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole.write_text(f"daemon off;\npid {place}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n")
    return Front([program("nginx"), "-c", str(whole), "-e", "stderr"], f"localhost:{port}", certificate, {})


def caddy(service: Serving, door: str, place: Path) -> Front:
    """Our configuration as it is; for `localhost` Caddy signs a certificate itself."""
    name = f"localhost:{free_port()}"
    environment = {
        "KINTUNE_NAME": name,
        "KINTUNE_PORT": service.url.rpartition(":")[2],
        "KINTUNE_AGENTS": door.rpartition(":")[2],
        "HOME": str(place),
        "XDG_DATA_HOME": str(place),
    }
    certificate = place / "caddy/pki/authorities/local/root.crt"
    return Front([program("caddy"), "run", "--config", str(DEPLOY / "Caddyfile")], name, certificate, environment)


@contextmanager
def standing(front: Front, place: Path) -> Iterator[None]:
    """While the block runs, the server stands in front."""
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(front.command, env=os.environ | front.environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while not answers(front.url):
            late = time.monotonic() > deadline or process.poll() is not None
            assert not late, (place / "log").read_text()
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Serving]:
    with serving(tmp_path / "data", "--part", "web", ready="/healthz") as running:
        yield running


@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.needs(each.__name__)) for each in (nginx, caddy)])
def proxy(request: pytest.FixtureRequest, service: Serving, tmp_path: Path) -> Iterator[str]:
    """Where the world reaches the service."""
    make: Callable[[Serving, str, Path], Front] = request.param
    front = make(service, "127.0.0.1:9", tmp_path)
    with standing(front, tmp_path):
        yield front.url


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", verify=False).status_code == 200
    except (httpx.TransportError, ssl.SSLError):
        return False


def token_of(service: Serving, scope: str = "admin") -> str:
    """A token, the first of its scope."""
    command = [sys.executable, "-m", "kintune", "service", "add-token", "--data", str(service.data), "--user", "anna"]
    said = subprocess.run([*command, "--scope", scope], check=True, capture_output=True, text=True).stdout
    found = re.search(r"kt_\S+", said)
    assert found
    return found.group()


def test_a_program_does_all_it_does_without(proxy: str, service: Serving) -> None:
    with httpx.Client(base_url=proxy, verify=False, timeout=20) as stranger:
        assert stranger.get("/api/v1/me").status_code == 401
        assert stranger.get("/api/v1/me", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 401
        token = token_of(service)
        form = {"token": token}
        foreign = stranger.post("/sign-in", data=form, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        own = stranger.post("/sign-in", data=form, headers={"Origin": proxy})
        assert own.status_code == 303
        assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(own.headers["set-cookie"].split("; "))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=proxy, verify=False, timeout=20, headers=headers) as friend:
        large = friend.post("/api/v1/models", params={"name": "large.onnx"}, content=bytes(8 << 20))
        assert large.status_code in (201, 422), large.text  # the service's own word on what it was sent
        model = friend.post("/api/v1/models", params={"name": "one.onnx"}, content=NETWORK.read_bytes()).json()["id"]
        job = friend.post("/api/v1/jobs", json={"model": model, "wanted": {"minutes": 1}}).json()["id"]
        with friend.stream("GET", f"/api/v1/jobs/{job}/events") as events:
            assert next(events.iter_lines()) == "event: job"  # sent at once, not when much has come together


@pytest.mark.needs("chromium")
def test_a_browser_shows_pages_that_live(proxy: str, service: Serving) -> None:
    options = Options()
    options.binary_location = program("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--ignore-certificate-errors"):
        options.add_argument(argument)
    token = token_of(service)
    browser = webdriver.Chrome(options=options, service=Driver(program("chromedriver")))
    try:
        browser.get(f"{proxy}/")
        waiting = WebDriverWait(browser, 30)
        waiting.until(lambda page: page.find_elements(By.NAME, "token"))[0].send_keys(token, "\n")
        button = "//button[contains(translate(., 'NEWJOB', 'newjob'), 'new job')]"
        waiting.until(lambda page: page.find_elements(By.XPATH, button))
        time.sleep(1)  # until the page's WebSocket stands
        browser.find_element(By.XPATH, button).click()  # handled by the server, which sends the browser on
        waiting.until(lambda page: page.current_url == f"{proxy}/models")
    finally:
        browser.quit()


@pytest.mark.tvm
@pytest.mark.parametrize(
    "make", [pytest.param(each, marks=pytest.mark.needs(each.__name__)) for each in (nginx, caddy)]
)
def test_a_machine_joins_by_tls(make: Callable[[Serving, str, Path], Front], tmp_path: Path) -> None:
    """It is vouched for by the certificate; one that knows another is not joined."""
    door = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(tmp_path / "data", "--agents", door))
        front = make(service, door, tmp_path)
        stack.enter_context(standing(front, tmp_path))
        token = tmp_path / "token"
        token.write_text(token_of(service, "machine"))
        command = [sys.executable, "-m", "kintune", "worker", "start", "--service", f"wss://{front.name}"]
        command += ["--token-file", str(token), "--name", "host-2", "--cores", "1"]
        said = tmp_path / "said"
        for trusted, words in ((None, "certificate verify failed"), (front.certificate, "joined as host-2")):
            with said.open("wb") as err:
                environment = {**os.environ, "KINTUNE_LOCK_DIR": str(tmp_path / "locks")}  # another machine's cores
                environment |= {"SSL_CERT_FILE": str(trusted)} if trusted else {}
                worker = subprocess.Popen(command, env=environment, stderr=err)
            stack.callback(worker.wait, 30)
            stack.callback(worker.terminate)
            deadline = time.monotonic() + 60
            while words not in said.read_text():
                assert worker.poll() is None or trusted is None, said.read_text()
                assert time.monotonic() < deadline, said.read_text()
                time.sleep(0.1)
            if trusted is None:
                worker.terminate()
                worker.wait(30)
        standings = httpx.get(f"{service.url}/api/v1/resources", timeout=20).json()["resources"]
        assert "host-2" in str(standings)
