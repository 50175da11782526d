"""The site: complete, self-contained, true to tables and records, and never half-written."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import json
import re

import nbformat
import pandas as pd
import pytest
from made_up import as_if_computed
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pages import Page, pages
from PIL import Image

from sibcore.sib import SIB
from sibrepro import __main__, claims, paths
from sibrepro import site as report
from sibrepro.claim import OPEN
from sibrepro.facts import Record, publish
from sibrepro.run import pipeline
from sibrepro.site import maths
from sibrepro.studies.spinning_lines.plan import OPTIMUM, PAPER

pytestmark = pytest.mark.thorough

RESULTS = paths.PACKAGE.parents[1] / "results"
STORY = r"# 7 · A story" + "\n\n" + r"Since $\frac{a}{b}=\log p$, so [there](02_other.ipynb) and [not there](../x.py)."


@pytest.fixture(scope="module")
def site(real_report):
    return pages(real_report)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A project of one notebook, without tables and runs."""
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    monkeypatch.delenv("SIB_OUTPUT")
    write(tmp_path / "notebooks" / "01_story.ipynb", "as committed")
    for profile in paths.PROFILES:
        parameters = tmp_path / "notebooks" / "params" / profile / "01_story.yaml"
        parameters.parent.mkdir(parents=True)
        parameters.touch()
    pipeline._facts.cache_clear()
    return tmp_path


def fact(version=1, **metrics):
    """A made-up run of a real experiment."""
    made = {"data": {}, "commit": "0" * 40, "wall_seconds": 1.0, "finished": "2026-01-01T00:00:00+00:00"}
    return Record(OPTIMUM.id(PAPER), version, dataclasses.asdict(PAPER), metrics, made, {}, None)


def write(file, word):
    cells = [new_markdown_cell(STORY), new_markdown_cell("## A section"), new_code_cell("print(1)")]
    cells[-1].outputs = [
        new_output("stream", name="stdout", text=word),
        new_output("stream", name="stderr", text="2 minutes left"),
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), file)


def test_every_notebook_and_every_table_has_a_page(site):
    notebooks = {file.stem for file in (paths.PACKAGE.parents[1] / "notebooks").glob("*.ipynb")}
    tabled = {f"table_{file.stem}" for file in (RESULTS / "tables").glob("*.csv")}
    own = {"index", "notebooks", "claims", "figures", "runs"}
    runs = {f"runs_{file.stem}" for file in (RESULTS / "facts").glob("*.jsonl")}
    written = {file.stem for file in (RESULTS.parent / "docs").glob("*.md")} | {"contributing", "changelog"}
    assert {name.removesuffix(".html") for name in site} == notebooks | tabled | own | runs | written


def check_links(folder, site):
    """Every link of these pages leads to a file of the site, and to an anchor that is there."""
    for name, page in site.items():
        here = folder / name
        for target in [*page.links, *(r for r in page.resources if not r.startswith("data:"))]:
            if target is None or (target.startswith(("https://", "http://", "mailto:")) and target in page.links):
                continue  # a reader may go there; nothing is loaded
            path, _, anchor = target.partition("#")
            file = (here.parent / path).resolve() if path else here.resolve()
            assert file.is_file(), f"{name}: {target}"
            if anchor:
                there = site[file.relative_to(folder.resolve()).as_posix()]
                assert anchor in there.ids, f"{name}: {target}"
        if not name.startswith("api/"):  # pdoc's pages name a member that a class inherits twice
            assert len(page.ids) == len(set(page.ids)), f"{name}: an anchor stands twice"


def test_every_link_and_every_picture_leads_to_something_inside_the_site(site, real_report):
    check_links(real_report, site)


def test_nothing_is_loaded_from_elsewhere_and_there_is_no_script(site, real_report):
    for page in site.values():
        assert not [r for r in page.resources if re.match(r"(https?:)?//", r)]
        assert "script" not in page.tags
        assert "iframe" not in page.tags
    style = (real_report / "style.css").read_text()
    assert re.findall(r"url\(([^)]*)\)", style) == ['"STIXTwoMath.woff2"']
    assert "@import" not in style


def test_no_formula_is_left_as_latex(site):
    for page in site.values():
        assert "$$" not in page.text
        assert not re.search(r"\\(frac|mathbb|theta|sum|hat)\b", page.text), page.file.name
        assert 'class="latex"' not in page.file.read_text()
    assert site["01_elbo_and_information_bottleneck.html"].tags.count("math") > 200


@pytest.mark.parametrize("name", sorted(file.stem for file in (RESULTS / "tables").glob("*.csv")))
def test_every_measured_number_stands_in_one_row_with_its_runs(site, name):
    with (RESULTS / "tables" / f"{name}.csv").open(encoding="utf-8") as file:
        measured = [row for row in csv.DictReader(file) if row.get("ours")]
    shown = site[f"table_{name}.html"].rows
    for row in measured:
        number = f"{float(row['ours']):.2f} ± {float(row['ours_ci95']):.2f}" if row["ours_ci95"] else row["ours"][:4]
        parts = [number, *row.get("run", row.get("runs")).split()]
        assert any(all(part in text for part in parts) for text in shown), row


def test_claims_numbers_figures_and_provenance_are_shown(site):
    for name, words in {
        "claims.html": ("Theorem 1", "Table 1", "not measured", "PACS"),
        "runs.html": ("sha256", "torch", "spinning_lines"),
        "index.html": ("./run_all.sh test", "queries", "agrees"),
    }.items():
        for word in words:
            assert word in site[name].text + " ".join(site[name].rows) or word in site[name].file.read_text(), (
                name,
                word,
            )
    published = {file.stem for file in (RESULTS.parent / "figures").glob("*.png")}
    shown = {resource.removeprefix("thumbnails/") for resource in site["figures.html"].resources}
    assert {f"{name}.png" for name in published} <= shown
    assert "thumbnails/02_spinning_lines.gif" in site["index.html"].resources
    table = pd.read_csv(RESULTS / "tables" / "few_shot.csv").query("method == 'SIB' and K == 3")
    ours = table.query("dataset == 'cifar-fs' and backbone == 'conv4-64' and shots == 1")["ours"].item()
    assert f"{ours:.1f} ± " in next(row for row in site["claims.html"].rows if "68.7 ± 0.6" in row)


def test_without_tables_and_runs_everything_is_honestly_not_measured(tiny):
    front = report.build()
    assert front == tiny / "results" / "local" / "report" / "index.html"
    site = pages(front.parent)
    measured = [claim for group in claims.claims().values() for _, claim in group if claim.verdict != OPEN]
    assert [claim.where for claim in measured] == ["eq. (vae)", "section 3"], "identities, which need no run"
    own = {"index.html", "notebooks.html", "claims.html", "figures.html", "runs.html"}
    assert set(site) == own | {"01_story.html"}
    assert "nothing yet" in site["runs.html"].text


def test_links_to_other_notebooks_are_kept_if_they_have_a_page_and_to_other_files_are_not(tiny):
    report.build()
    assert "02_other.html" not in pages(tiny / "results/local/report")["01_story.html"].links
    write(tiny / "notebooks" / "02_other.ipynb", "other")
    report.build()
    story = pages(tiny / "results/local/report")["01_story.html"]
    assert "02_other.html" in story.links
    assert "not there" in story.text
    assert not [link for link in story.links if "x.py" in link]


def execute(word, profile="quick"):
    """What `./run_all.sh` leaves of a run with success."""
    (job,) = pipeline.jobs(profile)
    write(job.executed, word)
    state = {"content": job.content(), "code": job.code, "seconds": 3.0, "products": []}
    job.state.write_text(json.dumps(state))


def story():
    """The notebook's page after `sib report`."""
    assert __main__.main(["report"]) == 0
    return (paths.local() / "report" / "01_story.html").read_text()


def test_a_notebook_is_shown_as_executed_here_with_the_fullest_profile(tiny):
    execute("words of quick")
    execute("words of cpu", "cpu")
    shown = story()
    assert "words of cpu" in shown
    assert "executed here, profile cpu, 3 s" in shown
    assert "as committed" not in shown
    assert "minutes left" not in shown, "progress lines are for the one who waits"


def test_a_notebook_is_shown_as_it_comes_if_it_failed_or_is_not_the_present_one(tiny):
    assert "as it comes with the project" in story()
    execute("words of quick")
    assert "words of quick" in story()
    publish.add(OPTIMUM, [fact(x=1.0)])
    pipeline._facts.cache_clear()  # another process would not remember
    assert "as committed" in story(), "facts changed"
    execute("words of quick")
    assert "words of quick" in story()
    write(tiny / "notebooks" / "01_story.ipynb", "as committed, later")
    assert "words of quick" in story(), "only outputs changed"
    (tiny / "notebooks" / "params" / "quick" / "01_story.yaml").write_text("a: 2")
    assert "as committed, later" in story(), "parameters changed"
    execute("words of quick")
    (pipeline.jobs("quick")[0]).state.unlink()
    assert "as committed, later" in story(), "its last run failed"


@pytest.mark.parametrize(
    "content", [b"", b"ours,verdict\nmany,above\n", b"a,b\n1,2\n1,2,3\n", b"ours\n\xff\xfe\n", b"ours\n" + b"9" * 400]
)
def test_a_damaged_table_is_named_and_the_old_report_stays(tiny, content, capsys):
    front = report.build()
    before = front.read_bytes()
    (tiny / "results" / "tables").mkdir()
    (tiny / "results" / "tables" / "few_shot.csv").write_bytes(content)
    assert __main__.main(["report"]) == 2
    assert "results/tables/few_shot.csv cannot be read" in capsys.readouterr().err
    assert front.read_bytes() == before
    assert [file.name for file in paths.local().glob(".*")] == []


def test_a_damaged_fact_is_named_and_the_old_report_stays(tiny, capsys):
    publish.add(OPTIMUM, [fact(x=1.0)])
    front = report.build()
    before = front.read_bytes()
    file = tiny / "results" / "facts" / "spinning_lines_optimum.jsonl"
    file.write_text(file.read_text().replace("1.0", "2.0"))
    claims.claims.cache_clear()
    assert __main__.main(["report"]) == 2
    assert "results/facts/spinning_lines_optimum.jsonl, line 1 is damaged" in capsys.readouterr().err
    assert front.read_bytes() == before


def test_a_run_of_an_older_version_is_marked(tiny):
    publish.add(OPTIMUM, [fact(version=OPTIMUM.version - 1, x=1.0)])
    page = f"runs_{OPTIMUM.name}.html"
    assert "of an older version (0)" in pages(report.build().parent)[page].text
    publish.add(OPTIMUM, [fact(x=1.0)])
    assert "of an older version" not in pages(report.build().parent)[page].text


@pytest.mark.parametrize(("here", "agree"), [(1.0, 1), (2.0, 0)])
def test_the_front_page_says_how_runs_computed_here_compare_with_the_published(tiny, monkeypatch, here, agree):
    publish.add(OPTIMUM, [fact(x=1.0)])
    assert "Recomputed" not in pages(report.build().parent)["index.html"].text
    monkeypatch.setenv("SIB_RECOMPUTE", "1")
    as_if_computed(OPTIMUM, PAPER, ({"x": here}, {}))
    index = report.build().read_text()
    assert f"Recomputed 1 published run: {agree} of 1 agree" in index
    assert ("DISAGREES with the published run: x 1 -&gt; 2" in index) is not bool(agree)


def written(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def test_documents_are_pages_of_their_section_and_links_between_them_lead_to_pages(tiny):
    written(
        tiny,
        "docs/use.md",
        "# Use it\n\n[cards](cards.md#data), [why](../README.md), [it](../notebooks/01_story.ipynb)",
    )
    written(tiny, "docs/cards.md", "# Cards\n\n## Data\n\n[code](../sibcore/sib.py) and [away](https://example.org)")
    written(tiny, "docs/extend.md", "# Extend it\n\n| a | b |\n|---|---|\n| $x^2$ | <script>alert(1)</script> |")
    written(tiny, "docs/promises.md", "# Promises\n\n[cards](./cards.md)")
    site = pages(report.build().parent)
    assert {"use.html", "cards.html", "extend.html", "promises.html"} <= set(site)
    assert {"cards.html#data", "index.html", "01_story.html"} <= set(site["use.html"].links)
    assert site["cards.html"].ids.count("data") == 1
    assert "https://example.org" in site["cards.html"].links
    assert not [link for link in site["cards.html"].links if link and "sib.py" in link]
    assert "code" in site["cards.html"].text
    assert {"math", "table"} <= set(site["extend.html"].tags)
    assert "script" not in site["extend.html"].tags
    menu = site["index.html"].links[1 : 1 + 6]  # after the link that skips the menu
    assert menu == ["index.html", "notebooks.html", "claims.html", "use.html", "extend.html", "promises.html"]
    check_links(tiny / "results" / "local" / "report", site)


def test_pictures_of_documents_come_along(tiny):
    (tiny / "figures").mkdir()
    Image.new("RGB", (4, 4)).save(tiny / "figures" / "02_dots.png")
    Image.new("RGB", (4, 4)).save(tiny.parent / "secret.png")
    written(
        tiny, "docs/use.md", "# Use\n\n![dots](../figures/02_dots.png) ![no](../../secret.png) ![none](missing.png)"
    )
    folder = report.build().parent
    page = pages(folder)["use.html"]
    assert [r for r in page.resources if "png" in r] == ["pictures/figures-02_dots.png"]
    assert (folder / "pictures" / "figures-02_dots.png").is_file()


def test_a_document_named_like_a_page_of_the_site_is_refused(tiny):
    written(tiny, "docs/claims.md", "# Claims")
    with pytest.raises(ValueError, match=r"docs/claims\.md: the site has a page claims\.html of its own"):
        report.build()


def shown_story(tiny, cells):
    nbformat.write(new_notebook(cells=[new_markdown_cell("# A story"), *cells]), tiny / "notebooks" / "01_story.ipynb")
    return (report.build().parent / "01_story.html").read_text()


def tagged(source, *tags):
    return new_code_cell(source, metadata={"tags": list(tags)})


def test_code_is_folded_unless_it_is_the_subject(tiny):
    shown = shown_story(tiny, [tagged("draw()"), tagged("step()", "subject")])
    assert shown.count("<details>") == 1
    assert "step" not in shown[shown.index("<details>") : shown.index("</details>")]


@pytest.mark.parametrize(("injected", "cells"), [("", 1), ("n = 3\n", 1), ("n = 4\n", 2)])
def test_parameters_are_shown_once(tiny, injected, cells):
    table = '<table class="parameters"><tbody><tr><th>n</th><td>3</td></tr></tbody></table>'
    check = new_code_cell(
        "check()", outputs=[new_output("execute_result", {"text/html": table, "text/plain": "P(n=3)"})]
    )
    several = [tagged("n = 3", "parameters")]
    several += [tagged(f"# Parameters\n{injected}", "injected-parameters")] if injected else []
    shown = shown_story(tiny, [*several, check])
    assert shown.count("cell of parameters") == cells, "a cell that changes nothing is left out"
    assert shown.count("<details>") == cells + 1, "all are folded: the table shows them"
    assert shown.count("Parameters of this run") == 1
    assert "P(n=3)" not in shown


def test_a_notebook_is_announced_by_its_result(tiny):
    text = "# A story\n\nThe claim.\n\n**Result.** It [holds](x.ipynb), by $2$ points."
    nbformat.write(new_notebook(cells=[new_markdown_cell(text)]), tiny / "notebooks" / "01_story.ipynb")
    front = report.build().read_text()
    assert "<p>It holds, by <math" in front
    assert "The claim" not in front


HOSTILE = [
    '<img src="x.png" onerror="alert(1)">',
    "<svg onload=alert(1)><text>drawn</text></svg>",
    '<iframe src="https://elsewhere.example/"></iframe>',
    "<script>alert(1)</script>",
    '<a href="javascript:alert(1)">go</a>',
    "<a href='data:text/html,<script>alert(1)</script>'>go</a>",
    '<img src="https://elsewhere.example/a.png">',
    '<img src="//elsewhere.example/a.png" srcset="//elsewhere.example/b.png">',
    '<form action="https://elsewhere.example/"><button formaction="x">go</button></form>',
    '<meta http-equiv="refresh" content="0; url=https://elsewhere.example/"><base href="//elsewhere.example/">',
    '<object data="https://elsewhere.example/"></object><embed src="https://elsewhere.example/">',
    '<p style="background: url(https://elsewhere.example/)" onclick="alert(1)">text</p>',
    '<p title="<table onclick=alert(1)>">text</p>',
    '<p title="<a href=&quot;x.py&quot; onclick=alert(1)>">text</a></p>',
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "## A <b onmouseover=alert(1)>heading</b> <svg onload=alert(1)>",
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda html: re.sub(r"\W+", "-", html)[:30])
@pytest.mark.parametrize("place", ["text/html", "text/markdown", "image/svg+xml", "text/latex", "cell"])
def test_a_notebook_brings_no_script_and_nothing_from_elsewhere_into_its_page(tiny, place, hostile):
    cells = [new_markdown_cell("# A story"), new_code_cell("draw()"), new_markdown_cell("## The end")]
    if place == "cell":
        cells[0] = new_markdown_cell(f"# A story\n\n{hostile}")
    else:
        cells[1].outputs = [new_output("display_data", {place: hostile, "text/plain": "plain"})]
    nbformat.write(new_notebook(cells=cells), tiny / "notebooks" / "01_story.ipynb")
    page = pages(report.build().parent)["01_story.html"]
    assert not [name for name in page.attributes if name.startswith(("on", "formaction", "srcset"))]
    assert not {"script", "iframe", "svg", "object", "embed", "form", "base"} & set(page.tags)
    assert page.tags.count("meta") == pages(report.build().parent)["index.html"].tags.count("meta")
    assert not [r for r in page.resources if re.match(r"(https?:)?//", r)]
    assert not [link for link in page.links if re.match(r"\s*(javascript|data):", link)]
    assert "elsewhere.example/)" not in page.file.read_text(), "a style that loads"
    assert "The end" in page.text


def test_what_a_notebook_should_show_stays(tiny):
    table = pd.DataFrame({"a": [1.5], "b": ["x & y"]})
    shown = table.style.set_table_attributes('style="color: red"')._repr_html_()
    html = [
        table._repr_html_(),
        shown,
        '<td style="background-color: #ff0000; position: fixed">1</td>',
        '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt="a film">',
    ]
    cells = [new_markdown_cell("# A story\n\n$\\frac{a}{b}$, [site](https://example.org) and <sub>low</sub>")]
    cells.append(new_code_cell("draw()", outputs=[new_output("display_data", {"text/html": h}) for h in html]))
    nbformat.write(new_notebook(cells=cells), tiny / "notebooks" / "01_story.ipynb")
    page = pages(report.build().parent)["01_story.html"]
    source = page.file.read_text()
    assert {"math", "mfrac", "table", "th", "td", "sub"} <= set(page.tags)
    assert any("1.5" in row and "x & y" in row for row in page.rows)
    assert 'style="color:red"' in source
    assert "https://example.org" in page.links
    assert 'src="data:image/gif;base64,R0lGODlhAQABAAAAACw="' in source
    assert source.count('<div class="scroll" tabindex="0"><table') == 2


def test_an_error_while_writing_leaves_the_old_report_and_no_remains(tiny, monkeypatch):
    front = report.build()
    (front.parent / "mark").write_text("old")
    monkeypatch.setattr("sibrepro.site.render", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.build()
    assert (front.parent / "mark").read_text() == "old"
    monkeypatch.undo()


def test_a_new_report_replaces_the_old_one_as_a_whole(tiny, capsys):
    front = report.build()
    (front.parent / "mark").write_text("old")
    assert __main__.main(["report"]) == 0
    assert str(front) in capsys.readouterr().out
    assert not (front.parent / "mark").exists()
    assert [file.name for file in paths.local().iterdir()] == ["report"]


def test_running_the_notebooks_ends_with_the_report_and_listing_them_does_not(tiny, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "jobs", lambda *_: [])
    assert __main__.main(["run", "--report", "--list"]) == 0
    assert not (tiny / "results").exists()
    assert __main__.main(["run", "--report"]) == 0
    assert str(tiny / "results" / "local" / "report" / "index.html") in capsys.readouterr().out


def test_a_folder_that_is_no_report_is_not_replaced(tiny):
    (tiny / "thesis").mkdir()
    (tiny / "thesis" / "chapter.tex").touch()
    with pytest.raises(ValueError, match="is no report and not empty"):
        report.build(tiny / "thesis")
    assert (tiny / "thesis" / "chapter.tex").exists()


def test_a_formula_becomes_mathml_with_the_spacing_of_tex():
    assert "<mfrac>" in maths.mathml(r"\frac{a}{b}")
    assert 'display="block"' in maths.mathml("a", "block")
    assert '<mi>log</mi><mspace width="0.167em" />' in maths.mathml(r"\log p")
    assert 'form="prefix">−' in maths.mathml(r"[-a]")
    assert 'form="prefix"' not in maths.mathml(r"b-a")
    assert "𝒩" in maths.mathml(r"x\sim\mathcal N(0,1)")
    assert "munder" in maths.mathml(r"\min_x f", "block")


def test_latex_that_cannot_be_converted_is_shown_as_written():
    assert maths.mathml(r"\left( a<b") == r'<code class="latex">\left( a&lt;b</code>'


def test_a_comma_stays_on_the_line_of_its_formula():
    assert maths.phrase("so $a$, and").startswith('so <span class="tied"><math')


def test_the_reference_has_every_module_and_no_script(tiny):
    folder = report.build(reference=True).parent
    assert "api/index.html" in pages(folder)["index.html"].links
    model = (folder / "api" / "sibcore" / "sib.html").read_text()
    assert inspect.getdoc(SIB).splitlines()[0] in model
    assert (folder / "api" / "sibcore" / "apply" / "classifier.html").is_file()
    api = {file.relative_to(folder).as_posix(): Page(file) for file in (folder / "api").rglob("*.html")}
    assert not [name for name, page in api.items() if "script" in page.tags]
    assert not [name for name, page in api.items() if "../index.html" not in " ".join(filter(None, page.links))]
    check_links(folder, pages(folder) | api)
