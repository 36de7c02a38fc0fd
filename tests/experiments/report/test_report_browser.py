"""Reports in a real browser: nothing is fetched, nothing fails, everything fits and everything is drawn.

Needs Chromium and its driver (`apt-get install chromium chromium-driver`); without them the tests fail.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from specsched.experiments.report.page import write_report

pytestmark = pytest.mark.browser

WIDTHS = (1280, 390)
PAGES = ("run", "compared", "sweeps", "tuning")
PAPER = 688
"""Width of an A4 page without its margins, CSS pixels."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)

LOOK = """
const box = (each) => { const b = each.getBoundingClientRect(); return b.width > 0 && b.height > 0; };
const marks = '[id*="mark-"], g[id*="-axes_"] > g[id*="line2d_"], g[id*="-axes_"] > g[id*="Collection_"]';
// In a figure that a run has drawn, filled patches of its axes are the background and bars; edges have no filling.
const filled = (each) => each.id.includes("-patch_") && getComputedStyle(each.querySelector("path")).fill !== "none";
const bars = (svg) => [...svg.querySelectorAll('g[id*="-axes_"]')].some((axes) =>
  [...axes.children].filter(filled).length > 1);
const drawn = (svg) => bars(svg) || [...svg.querySelectorAll(marks)].some((each) => {
  const b = each.getBoundingClientRect(); return b.width > 0 || b.height > 0; });
return {
  width: window.innerWidth,
  page: document.documentElement.scrollWidth,
  images: [...document.images].filter((each) => !each.complete || !each.naturalWidth).map((each) => each.outerHTML),
  flat: [...document.querySelectorAll("svg")].filter((each) => !box(each)).length,
  bare: [...document.querySelectorAll("svg")].filter((each) => box(each) && !drawn(each)).length,
  svgs: document.querySelectorAll("svg").length,
  tables: document.querySelectorAll("table").length,
};
"""

CUT = """
return [...document.querySelectorAll(".scroll, pre, .drawing")].filter((each) =>
  each.scrollHeight > each.clientHeight + 1 || each.scrollWidth > each.clientWidth + 1).length;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.fail("no chromium or chromedriver here; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chromium = webdriver.Chrome(options=options, service=Service(driver))
    yield chromium
    chromium.quit()


def problems(browser: Any, file: Path, width: int) -> list[str]:
    """Return every rule that a page breaks on a screen of this width."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    show(browser, file)
    seen = browser.execute_script(LOOK)
    found = [f"console: {entry['message']}" for entry in browser.get_log("browser")]
    found += [f"request: {url}" for url in requests(browser) if url != file.as_uri()]
    if seen["width"] != width:
        found.append(f"inner width: {seen['width']}")
    if seen["page"] > width:
        found.append(f"page width: {seen['page']}")
    found += [f"image: {each}" for each in seen["images"]]
    found += [f"{kind} svg: {seen[key]}" for kind, key in (("empty", "flat"), ("bare", "bare")) if seen[key]]
    if not seen["svgs"] or not seen["tables"]:
        found.append("no figure or no table")
    return found


def show(browser: Any, file: Path) -> None:
    """Open a file and wait until all of it is there."""
    browser.get(file.as_uri())
    end = time.monotonic() + 30
    while browser.execute_script("return document.readyState") != "complete":
        assert time.monotonic() < end, f"{file} does not finish loading"
        time.sleep(0.05)


def cut_in_print(browser: Any, file: Path) -> int:
    """Return how many tables, texts or figures of a page do not fit on paper; its width must."""
    screen = {"width": PAPER, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    show(browser, file)
    cut: int = browser.execute_script(CUT)
    return cut


def requests(browser: Any) -> list[str]:
    """Return what was asked for since the last call; what a page holds itself (``data:``) is not asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [each["params"]["request"]["url"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith("data:")]


@pytest.fixture(scope="module")
def files(report_runs: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a run, of two compared, of sweeps with few and with many combinations, and of tunings."""
    folder = tmp_path_factory.mktemp("pages")
    wanted = {
        "run": [report_runs.plain],
        "compared": [report_runs.plain, report_runs.other],
        "sweeps": [report_runs.sweep, report_runs.wide],
        "tuning": [report_runs.tuned, report_runs.pareto, report_runs.nothing],
    }
    return {name: write_report(runs, folder / f"{name}.html") for name, runs in wanted.items()}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_report_is_sound(browser: Any, files: dict[str, Path], name: str, width: int) -> None:
    assert problems(browser, files[name], width) == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_in_print(browser: Any, files: dict[str, Path], name: str) -> None:
    assert cut_in_print(browser, files[name]) == 0


def insert(piece: str) -> Callable[[str, Path], str]:
    """Return a change of a page: a piece more, and leave for it to do what it likes."""

    def changed(page: str, folder: Path) -> str:
        free = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
        assert free != page
        return free.replace("<main>", f"<main>{piece}", 1)

    return changed


def with_file(page: str, folder: Path) -> str:
    """Show a sound picture that lies beside the page."""
    figure = Figure(figsize=(1, 1))
    figure.savefig(folder / "beside.png")
    return insert('<img src="beside.png" alt="">')(page, folder)


BROKEN: dict[str, tuple[Callable[[str, Path], str], str]] = {
    "console error": (insert("<script>console.error('no')</script>"), "console: "),
    "page error": (insert("<script>throw new Error('no')</script>"), "console: "),
    "request of a file": (with_file, "request: "),
    "request of a host": (insert('<link rel="stylesheet" href="http://127.0.0.1:9/x.css">'), "request: "),
    "page too wide": (insert('<div style="width: 3000px">no</div>'), "page width: "),
    "no viewport": (lambda page, _: re.sub(r'<meta name="viewport"[^>]*>', "", page), "inner width: "),
    "image without a picture": (insert('<img src="data:image/png;base64,AAAA" alt="">'), "image: "),
    "svg without marks": (insert('<svg width="90" height="90"><rect width="9" height="9"/></svg>'), "bare svg: 1"),
    "svg without a box": (insert('<svg width="0" height="0"><rect id="mark-0"/></svg>'), "empty svg: 1"),
    "svg whose marks were lost": (lambda page, _: page.replace("r1-frontier-mark-", "r1-frontier-x"), "bare svg: 1"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_report_is_noticed(browser: Any, files: dict[str, Path], tmp_path: Path, rule: str) -> None:
    breaking, expected = BROKEN[rule]
    page = files["run"].read_text(encoding="utf-8")
    broken = breaking(page, tmp_path)
    assert broken != page
    file = tmp_path / "broken.html"
    file.write_text(broken, encoding="utf-8")
    found = problems(browser, file, 390)
    assert any(each.startswith(expected) for each in found), found


def test_a_table_cut_in_print_is_noticed(browser: Any, files: dict[str, Path], tmp_path: Path) -> None:
    page = files["run"].read_text(encoding="utf-8")
    file = tmp_path / "broken.html"
    file.write_text(page.replace("</style>", ".scroll { max-height: 40px !important }</style>"), encoding="utf-8")
    assert cut_in_print(browser, file) > 0
