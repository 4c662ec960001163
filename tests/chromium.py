"""A headless Chromium for tests and screenshots, where the machine has one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

PROGRAMS = ("chromium", "chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",  # Chromium refuses its sandbox to root, which containers run as
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--hide-scrollbars",
)


def missing() -> str:
    """What is not installed; empty where a browser can be started."""
    return ", ".join(name for name in PROGRAMS if not shutil.which(name))


@contextmanager
def open_chromium(profile: Path, width: int = 1200, height: int = 900) -> Iterator[Chrome]:
    """A browser with an empty profile, gone afterwards."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = ChromeService(executable_path=str(shutil.which("chromedriver")))
    browser = Chrome(options=options, service=service)
    browser.set_page_load_timeout(30)
    try:
        yield browser
    finally:
        browser.quit()


def emulate(browser: Chrome, scheme: str = "light", width: int = 0, height: int = 844, scale: float = 1) -> None:
    """Dark or light, and the width of a phone; 0: the window's own."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    if width:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": True}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    else:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
