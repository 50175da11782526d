"""The report as people see it: every page in a real Chromium, from file://, wide and narrow, light and dark."""

from __future__ import annotations

import pytest
from chromium import browser, look, needs_chromium, requests

pytestmark = [pytest.mark.exhaustive, needs_chromium]

SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
LOADED = """
const done = arguments[0];
const pictures = [...document.images];
Promise.allSettled(pictures.map(image => image.decode())).then(() =>
    document.fonts.ready.then(() => done(pictures.filter(image => !image.naturalWidth).map(image => image.src))));
"""
FACTS = """
const visible = element => element.checkVisibility();
const prose = [...document.querySelectorAll("p, li, td, th, h1, h2, h3, figcaption")].filter(visible);
const text = prose.map(element => {
    const copy = element.cloneNode(true);
    copy.querySelectorAll("code, pre, math").forEach(part => part.remove());
    return copy.textContent;
}).join(" ");
const root = document.documentElement;
const maths = [...document.querySelectorAll("math")].filter(visible);
const colours = getComputedStyle(document.body);
return {
    overflow: root.scrollWidth - root.clientWidth,
    raw: (text.match(/\\$\\$|\\\\(frac|sum|theta|mathbb|mathrm)/g) || []),
    maths: maths.length,
    flat: maths.filter(m => !(m.getBoundingClientRect().width > 0 && m.getBoundingClientRect().height > 0)).length,
    font: maths.length ? getComputedStyle(maths[0]).fontFamily : "",
    fonts: [...document.fonts].filter(font => font.status == "loaded").length,
    background: colours.backgroundColor,
    ink: colours.color,
};
"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def seen(chromium, real_report):
    """What each page looks like on each screen in each scheme; the console and the network on the way."""
    facts = {}
    for page in sorted(real_report.glob("*.html")):
        for screen, size in SCREENS.items():
            look(chromium, *size, "light")
            chromium.get(page.as_uri())
            broken = chromium.execute_async_script(LOADED)
            for scheme in ("light", "dark"):  # one page sees both, as when evening comes
                look(chromium, *size, scheme)
                facts[page.name, screen, scheme] = chromium.execute_script(FACTS) | {
                    "broken": broken,
                    "console": [entry["message"] for entry in chromium.get_log("browser")],
                    "requests": requests(chromium),
                }
    return facts


def luminance(colour: str) -> float:
    red, green, blue = (float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_the_console_is_silent_and_nothing_but_files_is_asked_for(seen):
    assert {key: f["console"] for key, f in seen.items() if f["console"]} == {}
    asked = {address.split(":")[0] for f in seen.values() for address in f["requests"]}
    assert asked <= {"file", "data"}
    assert "file" in asked


def test_every_picture_is_there(seen):
    assert {key: f["broken"] for key, f in seen.items() if f["broken"]} == {}


def test_no_page_scrolls_sideways(seen):
    assert {key: f["overflow"] for key, f in seen.items() if f["overflow"] > 0} == {}


def test_maths_is_drawn_with_the_font_that_comes_along(seen):
    for key, facts in seen.items():
        assert facts["raw"] == [], key
        assert facts["flat"] == 0, key
        if facts["maths"]:
            assert facts["font"].startswith('"STIX Two Math subset"'), key
            assert facts["fonts"] == 1, key
    assert seen["01_elbo_and_information_bottleneck.html", "desktop", "light"]["maths"] > 200
    assert seen["index.html", "phone", "dark"]["maths"] > 5


def test_light_is_light_and_dark_is_dark_and_both_can_be_read(seen):
    for (page, _, scheme), facts in seen.items():
        paper, ink = luminance(facts["background"]), luminance(facts["ink"])
        assert (paper > 0.9 and ink < 0.2) if scheme == "light" else (paper < 0.15 and ink > 0.8), (page, scheme)


def test_a_reader_can_go_from_a_claim_to_its_run_and_from_a_thumbnail_to_its_figure(chromium, real_report):
    look(chromium, *SCREENS["desktop"], "light")
    chromium.get((real_report / "index.html").as_uri())
    chromium.execute_script("document.querySelector('.claims details').open = true")
    chromium.find_element("css selector", ".claims .run").click()
    assert "runs.html#" in chromium.current_url
    assert chromium.execute_script("return document.querySelector(':target') !== null")
    chromium.back()
    chromium.find_element("css selector", ".gallery a").click()
    assert chromium.execute_script("return document.querySelector(':target img') !== null")
