"""The report: a static site that shows the claims, the measurements and the runs that they come from.

`build` writes `results/local/report/`: a front page, a page for each notebook and each table, a page of all runs, and
the reference of `sibcore`. The templates of the pages are `assets/*.html.j2`. The pages contain no script and load
nothing from elsewhere, so they can be opened from disk and copied as a folder.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import pdoc
from markupsafe import Markup
from PIL import Image
from pygments.formatters import HtmlFormatter

import sibcore
from sibrepro import claim, claims, paths, tables
from sibrepro.facts import Record, compare, provenance, published
from sibrepro.facts.experiment import STALE, is_stale, recomputed
from sibrepro.facts.record import experiment_of
from sibrepro.site.maths import markdown, phrase
from sibrepro.site.notebook_pages import ASSETS, readable, render
from sibrepro.study import all_tables

WIDTH = 560  # of a thumbnail, in pixels: twice the width at which it is shown, for screens of high resolution
INDEX = "index.html"
REFERENCE = ["sibcore", "sibcore.apply.classifier", "sibrepro.rivals", "sibcore.datasets", "sibcore.vision.features"]


def build(
    out: Path | None = None, executed: Mapping[str, tuple[Path, str]] | None = None, reference: bool = False
) -> Path:
    """Write the report and return the path of its front page. An older report is replaced once the new one is complete.

    Args:
        out: the report's folder, by default `results/local/report`.
        executed: by name, the notebooks that were executed here: the file, and a text that says so. Other notebooks are
            shown as they come with the project.
        reference: whether to write the reference of `sibcore` too, which takes some seconds.
    """
    out = Path(out) if out else paths.local() / "report"
    if out.exists() and any(out.iterdir()) and not (out / INDEX).is_file():
        raise ValueError(f"{out} is no report and not empty: a report would replace it; name another folder")
    with _replacing(out) as folder:
        _Site(folder, executed or {}, reference).write()
        if reference:
            _write_reference(folder / "api")
    return out / INDEX


def _write_reference(folder: Path) -> None:
    """Write the reference of the modules in `REFERENCE` from their docstrings, with pdoc."""
    version = f"sibcore {sibcore.__version__}"
    pdoc.render.configure(docformat="google", search=False, show_source=False, math=False, footer_text=version)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # about names that sibcore imports when they are used; their modules document them
        pdoc.pdoc(*REFERENCE, output_directory=folder)


class _Site:
    """The pages of a report.

    Args:
        folder: where to write them.
        executed: the notebooks that were executed here, see `build`.
        reference: whether the menu leads to the reference.
    """

    def __init__(self, folder: Path, executed: Mapping[str, tuple[Path, str]], reference: bool) -> None:
        self.folder = folder
        shown = {}
        for file in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb")):
            shown[file.stem] = executed.get(file.stem, (file, "as it comes with the project"))
        self.notebooks = [render(name, *copy, shown) for name, copy in shown.items()]
        found = {file.stem: read_table(file) for file in sorted((paths.published() / "tables").glob("*.csv"))}
        self.titles = {name: table.title for name, table in all_tables().items()}
        for name in found:
            self.titles.setdefault(name, name.replace("_", " ").capitalize())
        self.tables = {name: found[name] for name in self.titles if name in found}
        self.records = records()
        self.now = provenance.collect({}, 0.0)
        loader = jinja2.FileSystemLoader(ASSETS)
        self.templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self.templates.filters |= {"listed": listed, "date": date, "readable": tables.readable}
        self.templates.filters |= {"markdown": lambda t: Markup(markdown(t)), "phrase": lambda t: Markup(phrase(t))}
        self.templates.globals |= {
            "titles": self.titles,
            "tables": self.tables,
            "records": self.records,
            "stale": STALE,
        }
        self.menu = [(INDEX, "Overview")]
        self.menu += [(notebook.page, f"{notebook.number} {notebook.title}") for notebook in self.notebooks]
        self.menu += [(f"table_{name}.html", self.titles[name]) for name in self.tables]
        self.menu += [("runs.html", "Runs"), *([("api/index.html", "API")] if reference else [])]

    def write(self) -> None:
        """Write all pages, and the files that they load."""
        self.write_assets()
        for notebook in self.notebooks:
            for name, content in notebook.pictures.items():
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).write_bytes(content)
            title = f"{notebook.number} · {notebook.title}"
            self.page(notebook.page, "notebook_page.html.j2", title, notebook=notebook)
        for name, table in self.tables.items():
            self.write_table(name, table)
        latest_first = list(self.records.values())[::-1]
        self.page("runs.html", "runs.html.j2", "Runs", runs=latest_first, is_stale=is_stale)
        self.write_index()

    def write_assets(self) -> None:
        """Write the style sheet and the font of formulae."""
        for name in ("STIXTwoMath.woff2", "STIXTwoMath-licence.txt"):
            shutil.copyfile(ASSETS / name, self.folder / name)
        light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark"))
        colours = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        (self.folder / "style.css").write_text(colours + style, encoding="utf-8")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write the page of a table."""
        columns = [column for column in table if not column.endswith("_ci95")]  # intervals are shown with their numbers
        if "ours" in table:
            table = table.sort_values("ours", key=pd.isna, kind="stable")  # measured numbers come first
        content = {
            "name": name,
            "columns": sorted(columns, key=lambda column: column in ("run", "runs")),  # long ones come last
            "rows": table.astype(object).where(table.notna(), None).to_dict("records"),
            "counts": claims.counts(name) if name in claims.compared() else {},
            "kinds": {word: kind for word, kind in claim.OF_NUMBERS.items() if kind != claim.OPEN},
        }
        self.page(f"table_{name}.html", "table.html.j2", self.titles[name], **content)

    def write_index(self) -> None:
        """Write the front page."""
        groups = claims.claims()
        verdicts = recomputed()
        self.page(
            INDEX,
            "index.html.j2",
            "SIB, reproduced",
            groups=groups,
            tally=Counter(claim.verdict for group in groups.values() for _, claim in group),
            recomputed=compare.said(verdicts) if verdicts else "",
            disagreements=[str(verdict) for verdict in verdicts if not verdict.agrees],
            bars={name: claims.counts(name) for name in claims.compared()},
            kinds=claim.KINDS,
            notebooks=self.notebooks,
            page_of={notebook.number: notebook.page for notebook in self.notebooks},
            pictures=self.thumbnails(),
            provenance=origins(list(self.records.values())) | {"report built with": listed(self.now["versions"])},
        )

    def thumbnails(self) -> list[dict[str, Any]]:
        """Write small copies of the published figures, and return what the front page shows of them.

        Returns:
            for each figure its file, size and caption, and where the link leads: to the cell that draws the figure.
        """
        anchors = {notebook.number: (notebook.page, notebook.figures) for notebook in self.notebooks}
        (self.folder / "thumbnails").mkdir()
        published_figures = paths.root() / "figures"
        shown = []
        for file in sorted([*published_figures.glob("*.png"), *published_figures.glob("*.gif")]):
            number = file.name.partition("_")[0]
            small = f"thumbnails/{file.name}"
            page, figures = anchors.get(number, (small, {}))
            target = f"{page}#{figures[file.stem]}" if file.stem in figures else page
            with Image.open(file) as picture:
                if file.suffix == ".gif":  # an animation is not reduced
                    shutil.copyfile(file, self.folder / small)
                else:
                    picture.thumbnail((WIDTH, WIDTH))
                    few_colours = picture.convert("RGB").quantize(128, Image.Quantize.FASTOCTREE)
                    few_colours.save(self.folder / small, optimize=True)
                about = {"file": small, "width": picture.width, "height": picture.height}
            shown.append(about | {"notebook": number, "caption": readable(file.stem), "target": target})
        return shown

    def page(self, file: str, template: str, title: str, **content: Any) -> None:
        """Write a page.

        Args:
            file: its file in the report's folder.
            template: the name of its template.
            title: its title.
            content: the variables of the template.
        """
        built = f"{datetime.datetime.now(datetime.timezone.utc):%d %B %Y, %H:%M} UTC"
        about = {"title": title, "here": file, "menu": self.menu, "built": built, "now": self.now}
        html = self.templates.get_template(template).render(about | content)
        (self.folder / file).write_text(html, encoding="utf-8")


def read_table(file: Path) -> pd.DataFrame:
    """Return a published table, with whole numbers as such, or raise a ValueError if the file is damaged."""
    try:
        table = pd.read_csv(file)
        if "ours" in table:
            table["ours"] = pd.to_numeric(table["ours"])
        return table.convert_dtypes()
    except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
        again = "take the committed one back with git checkout"
        raise ValueError(f"{paths.relative(file)} cannot be read ({error}); {again}") from error


def records() -> dict[str, Record]:
    """Return all published runs by id, in the order in which they were finished."""
    by_time = sorted(published.everything(), key=lambda record: (record.provenance.get("finished", ""), record.id))
    return {record.id: record for record in by_time}


def origins(records: list[Record]) -> dict[str, str]:
    """Return what the front page says of all runs together, as texts by their heading."""
    kinds = Counter(experiment_of(record.id) for record in records)
    made = [record.provenance for record in records]
    data = {item for about in made for item in about.get("data", {}).items()}
    times = [about.get("wall_seconds") for about in made]
    hours = sum(filter(None, times)) / 3600
    processors = {str(about["processor"]) for about in made if about.get("processor")}
    commits = {about.get("commit") for about in made}
    changed = sum(bool(about.get("dirty")) for about in made)
    return {
        "runs": f"{len(records)}: " + ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds)),
        "made": f"{date(made[0])} to {date(made[-1])}" if made else "nothing yet",
        "computing": f"{hours:.1f} hours, {times.count(None)} runs of unknown time apart",
        "on": ", ".join(sorted(processors)) or "–",
        "from commits": f"{len(commits)}, {changed} runs with uncommitted changes",
        "data, sha256": ", ".join(f"{name} {sha256[:16]}…" for name, sha256 in sorted(data)) or "none",
    }


def listed(values: Mapping[str, Any]) -> str:
    """Return names and values as a text, with numbers to five digits."""
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    """Return a value as a text."""
    if isinstance(value, float):
        return f"{value:.5g}"
    return value if isinstance(value, str) else json.dumps(value)


def date(made: Mapping[str, Any]) -> str:
    """Return the day on which a run with this provenance was finished."""
    finished = made.get("finished")
    return f"{datetime.datetime.fromisoformat(finished):%d %B %Y}" if finished else "unknown date"


@contextlib.contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `out` at the end. After an error `out` is as it was."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        yield new
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except OSError:
            old.rename(out)
            raise
