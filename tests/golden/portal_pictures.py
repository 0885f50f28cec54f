"""Draws the pictures of the portal anew that `docs/service.md` shows: `python -m tests.golden.portal_pictures`.

All but that of the devices show jobs that never ran.  That one shows a service that tunes two networks for a minute.
It needs Chromium.
"""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path

from PIL import Image
from selenium import webdriver

from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.service.client import Client
from kintune.testing.serving import serving
from tests.support.browsing import open_browser, prefer, wait_until_shown, widen
from tests.support.portal_pages import portal_pages

_PICTURES = Path(__file__).parents[2] / "docs/pictures"
_SCREEN = 1280  # pixels
_WIDTH = 1000  # of a picture, in pixels
_HEIGHTS = {"jobs": 760, "job": 1760, "new-job": 720, "compare": 1500, "devices": 1040}
"""The most of each page that is shown, in pixels of the screen."""
_NETWORKS = ("zoo:mobilenet_v1_0.5?image=64", "zoo:mobilenet_v2_0.5?image=64")
_TUNED_S = 50.0


def main() -> None:
    """Draws all of them."""
    with tempfile.TemporaryDirectory() as made, open_browser() as browser:
        prefer(browser, "light")
        with portal_pages(Path(made)) as pages:
            paths = pages.paths
            shown = {"jobs": "jobs", "job": "job-done", "new-job": "new-form", "compare": "compare"}
            for name, page in shown.items():
                _draw(browser, pages.url + paths[page], name)
        _draw_devices(browser, Path(made) / "live")


def _draw_devices(browser: webdriver.Chrome, place: Path) -> None:
    """The page of the devices while two jobs share one device."""
    place.mkdir()
    with serving(place, "--minutes", "1") as service, Client(service.url) as client:
        for network in _NETWORKS:
            file = load(parse_ref(network, [])).onnx_path
            assert file is not None
            client.submit(client.upload(file)["id"])
        time.sleep(_TUNED_S)
        _draw(browser, f"{service.url}/devices", "devices")


def _draw(browser: webdriver.Chrome, address: str, name: str) -> None:
    widen(browser, _SCREEN)
    browser.get(address)
    wait_until_shown(browser)
    time.sleep(1.0)  # charts and times of the live parts
    tall = browser.execute_script("return document.documentElement.scrollHeight")
    widen(browser, _SCREEN, tall)
    image = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    image = image.crop((0, 0, _SCREEN, min(tall, _HEIGHTS[name])))
    size = (_WIDTH, round(image.height * _WIDTH / image.width))
    image = image.resize(size, Image.Resampling.LANCZOS).quantize(256, kmeans=3, dither=Image.Dither.NONE)
    image.save(_PICTURES / f"portal-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
