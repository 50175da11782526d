"""The site as people see it: every page in a real Chromium, from file://, wide and narrow, light and dark."""

from __future__ import annotations

import pandas as pd
import pytest
from axe import needs_axe, violations
from chromium import browser, look, needs_chromium, requests

from sibrepro import claims, paths

pytestmark = [pytest.mark.exhaustive, needs_chromium]

SCREENS = {"desktop": (1400, 900), "phone": (390, 844)}
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
const menu = [...document.querySelectorAll("nav.top a")];
return {
    menu: menu.map(entry => entry.textContent),
    outside: menu.filter(entry => entry.getBoundingClientRect().right > root.clientWidth
        || entry.scrollWidth > entry.clientWidth).map(entry => entry.textContent),
    wide: [...document.querySelectorAll("main p, main li, main pre, main table, main .scroll")].filter(visible)
        .filter(element => element.getBoundingClientRect().right > root.clientWidth && !element.closest(".scroll, pre"))
        .map(element => element.outerHTML.slice(0, 80)),
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


def test_the_whole_menu_can_be_read_on_every_page(seen):
    for key, facts in seen.items():
        assert facts["menu"][:3] == ["Start", "Notebooks", "Results"], key
        assert facts["outside"] == [], key
        assert facts["wide"] == [], key


def test_a_reader_can_go_from_a_claim_to_its_run_and_from_a_thumbnail_to_its_figure(chromium, real_report):
    look(chromium, *SCREENS["desktop"], "light")
    chromium.get((real_report / "claims.html").as_uri())
    chromium.execute_script("document.querySelector('.claims details').open = true")
    chromium.find_element("css selector", ".claims .run").click()
    assert "/runs_" in chromium.current_url
    assert chromium.execute_script("return document.querySelector(':target') !== null")
    chromium.get((real_report / "figures.html").as_uri())
    chromium.find_element("css selector", ".gallery a").click()
    assert chromium.execute_script("return document.querySelector(':target img') !== null")


ROWS = """
const rows = [...document.querySelectorAll(".explorer tbody tr")].filter(row => row.checkVisibility());
rows.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
return rows.map(row => [row.classList.contains("group"), row.textContent.trim(), row.dataset.verdict || "",
    row.dataset.notebook || ""]);
"""


def choose(driver, name, label):
    """Choose a filter's button by what it says, with the keyboard."""
    for button in driver.find_elements("css selector", f"input[name={name}]"):
        text = driver.execute_script(
            "return arguments[0].closest('label').firstElementChild.nextSibling.firstChild.data", button
        )
        if text.strip() == label:
            driver.execute_script("arguments[0].focus()", button)
            button.send_keys(" ")
            assert driver.execute_script("return arguments[0].checked", button)
            return
    raise AssertionError(f"no button {label} of {name}")


@pytest.mark.parametrize("screen", SCREENS)
def test_claims_can_be_filtered_and_sorted(chromium, real_report, screen):
    look(chromium, *SCREENS[screen], "light")
    chromium.get((real_report / "claims.html").as_uri())
    lines = [row for row in chromium.execute_script(ROWS) if not row[0]]
    expected = [line for group in claims.claims().values() for line in group]
    assert len(lines) == len(expected)
    kind = next(claim.verdict for _, claim in expected if claim.verdict != expected[0][1].verdict)
    choose(chromium, "verdict", kind)
    shown = chromium.execute_script(ROWS)
    assert len([row for row in shown if not row[0]]) == sum(claim.verdict == kind for _, claim in expected)
    for before, after in zip(shown, [*shown[1:], [True]], strict=True):
        assert not (before[0] and after[0]), "a heading without a claim under it"
    number = next(number for number, claim in expected if claim.verdict == kind)
    choose(chromium, "notebook", number)
    left = [pair for pair in expected if pair[0] == number and pair[1].verdict == kind]
    assert len([row for row in chromium.execute_script(ROWS) if not row[0]]) == len(left)
    choose(chromium, "verdict", "all")
    choose(chromium, "notebook", "all")
    for order in ("verdict", "notebook"):
        choose(chromium, "order", order)
        keys = [row[2 if order == "verdict" else 3] for row in chromium.execute_script(ROWS) if not row[0]]
        assert keys == sorted(keys), order
        assert len(keys) == len(expected)


def test_a_choice_that_leaves_nothing_says_so(chromium, real_report):
    look(chromium, *SCREENS["desktop"], "light")
    chromium.get((real_report / "claims.html").as_uri())
    there = {(claim.verdict, number) for group in claims.claims().values() for number, claim in group}
    kinds, numbers = ({pair[i] for pair in there} for i in range(2))
    kind, number = next(
        (kind, number) for kind in sorted(kinds) for number in sorted(numbers) if (kind, number) not in there
    )
    none = chromium.find_element("css selector", ".none")
    assert not none.is_displayed()
    choose(chromium, "verdict", kind)
    choose(chromium, "notebook", number)
    assert chromium.execute_script(ROWS) == []
    assert none.is_displayed()


def test_rows_of_a_table_can_be_filtered(chromium, real_report):
    look(chromium, *SCREENS["desktop"], "light")
    chromium.get((real_report / "table_few_shot.html").as_uri())
    table = pd.read_csv(paths.published() / "tables" / "few_shot.csv")
    assert len(chromium.execute_script(ROWS)) == len(table)
    choose(chromium, "f1", "cifar-fs")
    assert len(chromium.execute_script(ROWS)) == (table["dataset"] == "cifar-fs").sum()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@needs_axe
def test_no_serious_barrier_is_found_on_the_main_pages(chromium, real_report, screen, scheme):
    main = ["index.html", "notebooks.html", "claims.html", "figures.html", "table_few_shot.html", "runs.html"]
    notebooks = [file.with_suffix(".html").name for file in paths.notebooks().glob("*.ipynb")]
    documents = [f"{file.stem}.html" for file in (paths.root() / "docs").glob("*.md")]
    found = {}
    for page in [*main, *notebooks, *documents]:
        look(chromium, *SCREENS[screen], scheme)
        chromium.get((real_report / page).as_uri())
        if barriers := violations(chromium):
            found[page] = barriers
    assert found == {}
