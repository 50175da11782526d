"""The report: a static site of what was claimed, what was measured and where it comes from.

`build()` writes `results/local/report/`, as a whole or not at all: a front page, a page for each notebook and each
table, one of all runs, and the reference of `sibcore`. What they say stands in `assets/*.html.j2`. They have no script
and load nothing from elsewhere, so they work from `file://` and can be copied as a folder.
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

WIDTH = 560  # of a thumbnail, in pixels: twice what is shown, for sharp screens
INDEX = "index.html"
REFERENCE = ["sibcore", "sibcore.apply.classifier", "sibrepro.rivals", "sibcore.datasets", "sibcore.vision.features"]


def build(
    out: Path | None = None, executed: Mapping[str, tuple[Path, str]] | None = None, reference: bool = False
) -> Path:
    """Write the report into the folder `out` (default `results/local/report`), replacing an older one; its front page.

    `executed` has notebooks as executed here, by name, and says how; the others are shown as they come. With
    `reference` there are pages of sibcore's modules, too, which take some seconds.
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
    """Every public module of `sibcore` from its docstrings, by pdoc: pages without script, `index.html` first."""
    version = f"sibcore {sibcore.__version__}"
    pdoc.render.configure(docformat="markdown", search=False, show_source=False, math=False, footer_text=version)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that sibcore imports when they are used: they are in their modules
        pdoc.pdoc(*REFERENCE, output_directory=folder)


class _Site:
    def __init__(self, folder: Path, executed: Mapping[str, tuple[Path, str]], reference: bool) -> None:
        self.folder = folder
        files = {file.stem: file for file in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb"))}
        as_it_comes = "as it comes with the project"
        shown = {name: executed.get(name, (file, as_it_comes)) for name, file in files.items()}
        self.notebooks = [render(name, *copy, shown) for name, copy in shown.items()]
        found = {file.stem: read_table(file) for file in sorted((paths.published() / "tables").glob("*.csv"))}
        declared = {name: table.title for name, table in all_tables().items()}
        self.titles = declared | {name: name.replace("_", " ").capitalize() for name in found if name not in declared}
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
        self.write_assets()
        for notebook in self.notebooks:
            for name, content in notebook.pictures.items():
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).write_bytes(content)
            title = f"{notebook.number} · {notebook.title}"
            self.page(notebook.page, "notebook_page.html.j2", title, notebook=notebook)
        for name, table in self.tables.items():
            self.write_table(name, table)
        latest_first = list(reversed(self.records.values()))
        self.page("runs.html", "runs.html.j2", "Runs", runs=latest_first, is_stale=is_stale)
        self.write_index()

    def write_assets(self) -> None:
        for name in ("STIXTwoMath.woff2", "STIXTwoMath-licence.txt"):
            shutil.copyfile(ASSETS / name, self.folder / name)
        light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark"))
        colours = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        (self.folder / "style.css").write_text(colours + style, encoding="utf-8")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        columns = [column for column in table if not column.endswith("_ci95")]  # which stand beside their numbers
        if "ours" in table:
            table = table.sort_values("ours", key=pd.isna, kind="stable")  # what was measured comes first
        content = {
            "name": name,
            "columns": sorted(columns, key=lambda column: column in ("run", "runs")),  # these are long
            "rows": table.astype(object).where(table.notna(), None).to_dict("records"),
            "counts": claims.counts(name) if name in claims.compared() else {},
            "kinds": {word: kind for word, kind in claim.OF_NUMBERS.items() if kind != claim.OPEN},
        }
        self.page(f"table_{name}.html", "table.html.j2", self.titles[name], **content)

    def write_index(self) -> None:
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
        """Small copies of the published figures, each leading to where its notebook draws it."""
        anchors = {notebook.number: (notebook.page, notebook.figures) for notebook in self.notebooks}
        (self.folder / "thumbnails").mkdir()
        shown = []
        for file in sorted(f for kind in ("png", "gif") for f in (paths.root() / "figures").glob(f"*.{kind}")):
            number, small = file.name.partition("_")[0], f"thumbnails/{file.name}"
            page, figures = anchors.get(number, (small, {}))
            target = f"{page}#{figures[file.stem]}" if file.stem in figures else page
            with Image.open(file) as picture:
                if file.suffix == ".gif":  # a film stays as it is
                    shutil.copyfile(file, self.folder / small)
                else:
                    picture.thumbnail((WIDTH, WIDTH))
                    few_colours = picture.convert("RGB").quantize(128, Image.Quantize.FASTOCTREE)
                    few_colours.save(self.folder / small, optimize=True)
                about = {"file": small, "width": picture.width, "height": picture.height}
            shown.append(about | {"notebook": number, "caption": readable(file.stem), "target": target})
        return shown

    def page(self, file: str, template: str, title: str, **content: Any) -> None:
        built = f"{datetime.datetime.now(datetime.timezone.utc):%d %B %Y, %H:%M} UTC"
        about = {"title": title, "here": file, "menu": self.menu, "built": built, "now": self.now}
        html = self.templates.get_template(template).render(about | content)
        (self.folder / file).write_text(html, encoding="utf-8")


def read_table(file: Path) -> pd.DataFrame:
    """A table with K and the like as whole numbers; a damaged file is an error that says what to do."""
    try:
        table = pd.read_csv(file)
        if "ours" in table:
            table["ours"] = pd.to_numeric(table["ours"])
        return table.convert_dtypes()
    except (ValueError, OverflowError) as error:  # pandas' parser errors are ValueErrors
        again = "take the committed one back with git checkout"
        raise ValueError(f"{paths.relative(file)} cannot be read ({error}); {again}") from error


def records() -> dict[str, Record]:
    """All published runs by id, in the order in which they were finished."""
    by_time = sorted(published.everything(), key=lambda record: (record.provenance.get("finished", ""), record.id))
    return {record.id: record for record in by_time}


def origins(records: list[Record]) -> dict[str, str]:
    """What can be said of all runs together."""
    kinds = Counter(experiment_of(record.id) for record in records)
    made = [record.provenance for record in records]
    data = {f"{name} {hash[:16]}…" for about in made for name, hash in about.get("data", {}).items()}
    times = [about.get("wall_seconds") for about in made]
    changed = sum(bool(about.get("dirty")) for about in made)
    return {
        "runs": f"{len(records)}: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())),
        "made": f"{date(made[0])} to {date(made[-1])}" if made else "nothing yet",
        "computing": f"{sum(filter(None, times)) / 3600:.1f} hours, {times.count(None)} runs of unknown time apart",
        "on": ", ".join(sorted({str(about["processor"]) for about in made if about.get("processor")})) or "–",
        "from commits": f"{len({about.get('commit') for about in made})}, {changed} runs with uncommitted changes",
        "data, sha256": ", ".join(sorted(data)) or "none",
    }


def listed(values: Mapping[str, Any]) -> str:
    """Names and values in a line, numbers to five digits."""
    shown = {
        n: f"{v:.5g}" if isinstance(v, float) else v if isinstance(v, str) else json.dumps(v) for n, v in values.items()
    }
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def date(made: Mapping[str, Any]) -> str:
    """When a run of this provenance was finished."""
    finished = made.get("finished")
    return f"{datetime.datetime.fromisoformat(finished):%d %B %Y}" if finished else "unknown date"


@contextlib.contextmanager
def _replacing(out: Path) -> Iterator[Path]:
    """A new folder that takes the place of `out` at the end; after an error `out` is as it was."""
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
