"""A real headless Chromium for tests. Where there is none, tests marked `needs_chromium` are skipped and say so."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium import webdriver

# Distributions call the program differently.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver on PATH (Debian: apt install chromium-driver)"
)


@contextlib.contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """Start a Chromium that logs its console and network. It is closed at the end, also after an error."""
    from selenium import webdriver  # takes a second, which most runs of the tests can do without

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.add_argument("--headless=new")
    options.add_argument("--no-sandbox")  # containers run as root, which the sandbox refuses
    options.add_argument("--disable-dev-shm-usage")  # containers have little shared memory
    options.add_argument("--disable-gpu")
    options.add_argument("--hide-scrollbars")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def look(driver: webdriver.Chrome, width: int, height: int, scheme: str) -> None:
    """Make the browser a screen of this size in pixels, whose user prefers the colour scheme "light" or "dark"."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    preference = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)


def requests(driver: webdriver.Chrome) -> list[str]:
    """Return every address that the browser asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
