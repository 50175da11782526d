"""The site: a static site that is the project's documentation and shows the claims, measurements and runs behind it.

`build` writes `results/local/report/`. Its pages stand in seven sections: Start, Notebooks, Results (claims, tables,
figures and runs), Use it, Extend it and Promises (the documents in `docs/`), and API (the reference of `sibcore`). The
templates of the pages are `assets/*.html.j2`. The pages contain no script and load nothing from elsewhere, so they can
be opened from disk and copied as a folder.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from pygments.formatters import HtmlFormatter

from sibrepro import claim, claims, paths, tables
from sibrepro.facts import Record, compare, provenance, published
from sibrepro.facts.experiment import STALE, is_stale, recomputed
from sibrepro.facts.record import experiment_of
from sibrepro.site import doc_pages, filters, reference, thumbnails
from sibrepro.site.doc_pages import EXTEND, PROMISES, RESULTS, USE
from sibrepro.site.links import Links
from sibrepro.site.maths import markdown, phrase
from sibrepro.site.notebook_pages import ASSETS, Notebook, render
from sibrepro.study import all_tables

START, NOTEBOOKS, API = "Start", "Notebooks", "API"
INDEX = "index.html"
OWN = {
    INDEX: START,
    "notebooks.html": NOTEBOOKS,
    "claims.html": RESULTS,
    "figures.html": RESULTS,
    "runs.html": RESULTS,
}
"""The site's own pages, by file, and the sections that they belong to."""
FILM = "02_spinning_lines"  # the moving picture of the front page
RUNS = ("run", "runs")  # columns of tables with the ids of runs, if they are texts
MEASURED = ("ours", "gain")  # columns of tables whose numbers are ours; the first there is leads to a row's runs
ROWS = 20  # a table with more rows has filters
FILTERS = 3  # and at most as many


def build(
    out: Path | None = None, executed: Mapping[str, tuple[Path, str]] | None = None, reference: bool = False
) -> Path:
    """Write the site and return the path of its front page. An older site is replaced once the new one is complete.

    Args:
        out: the site's folder, by default `results/local/report`.
        executed: by name, the notebooks that were executed here: the file, and a text that says so. Other notebooks are
            shown as they come with the project.
        reference: whether to write the reference of `sibcore` too, which takes some seconds.
    """
    out = Path(out) if out else paths.local() / "report"
    if out.exists() and any(out.iterdir()) and not (out / INDEX).is_file():
        raise ValueError(f"{out} is no report and not empty: a report would replace it; name another folder")
    with _replacing(out) as folder:
        _Site(folder, executed or {}, reference).write()
    return out / INDEX


class _Site:
    """The pages of a site.

    Args:
        folder: where to write them.
        executed: the notebooks that were executed here, see `build`.
        with_reference: whether the reference is among them.
    """

    def __init__(self, folder: Path, executed: Mapping[str, tuple[Path, str]], with_reference: bool) -> None:
        self.folder = folder
        self.now = provenance.collect({}, 0.0)
        self.records = records()
        found = {file.stem: read_table(file) for file in sorted((paths.published() / "tables").glob("*.csv"))}
        self.declared = all_tables()
        self.titles = {name: table.title for name, table in self.declared.items()}
        for name in found:
            self.titles.setdefault(name, name.replace("_", " ").capitalize())
        self.tables = {name: found[name] for name in self.titles if name in found}
        shown = {}
        for file in sorted(paths.notebooks().glob("[0-9][0-9]_*.ipynb")):
            shown[file.stem] = executed.get(file.stem, (file, "as it comes with the project"))
        documents = doc_pages.sources(paths.root())
        self.reference = reference.pages() if with_reference else {}
        self.addresses = self._addresses(list(shown), documents)
        self.copied: dict[str, Path] = {}
        self.notebooks = []
        for name, (file, origin) in shown.items():
            self.notebooks.append(render(name, file, origin, self._links(f"notebooks/{name}.ipynb")))
        self.documents = [doc_pages.render(source, self._links(source)) for source in documents]
        self.sections = self._sections()
        self.templates = self._templates()

    def _addresses(self, notebooks: list[str], documents: list[str]) -> dict[str, str]:
        """Return the pages that show files and folders of the checkout, by their path."""
        found = {"README.md": INDEX, "notebooks": "notebooks.html", "figures": "figures.html"}
        found |= {"results": "claims.html", "results/tables": "claims.html#tables", "results/facts": "runs.html"}
        found |= {f"notebooks/{name}.ipynb": f"{name}.html" for name in notebooks}
        for name in self.tables:
            found |= dict.fromkeys((f"results/tables/{name}.csv", f"results/tables/{name}.md"), f"table_{name}.html")
        for kind in self._by_experiment():
            found[f"results/facts/{kind}.jsonl"] = runs_page(kind)
        for source in documents:
            if doc_pages.page_of(source) in OWN:
                raise ValueError(
                    f"{source}: the site has a page {doc_pages.page_of(source)} of its own; rename the file"
                )
            found[source] = doc_pages.page_of(source)
        return found | self.reference

    def _links(self, source: str) -> Links:
        """Return the links of a file of the checkout."""
        return Links(paths.root(), source, self.addresses, self.copied)

    def _sections(self) -> dict[str, list[tuple[str, str]]]:
        """Return the pages of each section, as pairs of file and name. The first is what the menu leads to."""
        found = {START: [(INDEX, START)]}
        found[NOTEBOOKS] = [("notebooks.html", "All notebooks")]
        found[NOTEBOOKS] += [(notebook.page, f"{notebook.number} {notebook.title}") for notebook in self.notebooks]
        documents: dict[str, list[tuple[str, str]]] = {}
        for document in self.documents:
            documents.setdefault(document.section, []).append((document.page, document.title))
        found[RESULTS] = [("claims.html", "Claims"), *documents.get(RESULTS, []), ("figures.html", "Figures")]
        found[RESULTS] += [(f"table_{name}.html", self.titles[name]) for name in self.tables]
        found[RESULTS] += [("runs.html", "Runs")]
        found |= {section: documents[section] for section in (USE, EXTEND, PROMISES) if section in documents}
        return found | ({API: [(reference.INDEX, API)]} if self.reference else {})

    def _templates(self) -> jinja2.Environment:
        """Return the environment of the templates."""
        loader = jinja2.FileSystemLoader(ASSETS)
        found = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        found.filters |= {"listed": listed, "date": date, "readable": tables.readable}
        found.filters |= {"markdown": lambda t: Markup(markdown(t)), "phrase": lambda t: Markup(phrase(t))}
        found.globals |= {
            "titles": self.titles,
            "tables": self.tables,
            "records": self.records,
            "stale": STALE,
            "runs_page": lambda name: runs_page(experiment_of(name)),
            "kinds": claim.KINDS,
            "menu": [(pages[0][0], section) for section, pages in self.sections.items()],
        }
        return found

    def write(self) -> None:
        """Write all pages, and the files that they load."""
        self._write_assets()
        self._write_notebooks()
        self._write_results()
        for name, table in self.tables.items():
            self._write_table(name, table)
        self._write_runs()
        for document in self.documents:
            self._page(document.page, "document.html.j2", document.title, document.section, document=document)
        self._write_start()
        if self.reference:
            reference.write(self.folder, self.templates.globals["menu"])

    def _write_assets(self) -> None:
        """Write the style sheet, the font of formulae and the pictures of pages."""
        for name in ("STIXTwoMath.woff2", "STIXTwoMath-licence.txt"):
            shutil.copyfile(ASSETS / name, self.folder / name)
        light, dark = (
            HtmlFormatter(style=style).get_style_defs([".highlight", ".pdoc-code"])
            for style in ("xcode", "github-dark")
        )
        colours = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        (self.folder / "style.css").write_text(colours + style, encoding="utf-8")
        drawn = {name: content for notebook in self.notebooks for name, content in notebook.pictures.items()}
        for name, content in (drawn | {name: file.read_bytes() for name, file in self.copied.items()}).items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(content)
        self.pictures = thumbnails.write(self.folder / "thumbnails", self.notebooks)

    def _write_start(self) -> None:
        """Write the front page."""
        verdicts = recomputed()
        headlines = [(number, line) for number, line in self._claims() if line.headline]
        film = next((picture for picture in self.pictures if picture.name == FILM), None)
        content = {
            "film": film,
            "headlines": headlines,
            "recomputed": compare.said(verdicts) if verdicts else "",
            "disagreements": [str(verdict) for verdict in verdicts if not verdict.agrees],
            "cards": self._cards(),
        }
        self._page(INDEX, "start.html.j2", "SIB, reproduced", START, **content, **self._counted())

    def _write_notebooks(self) -> None:
        """Write the index of notebooks and their pages."""
        self._page("notebooks.html", "notebooks.html.j2", NOTEBOOKS, NOTEBOOKS, cards=self._cards())
        for notebook in self.notebooks:
            title = f"{notebook.number} · {notebook.title}"
            self._page(notebook.page, "notebook_page.html.j2", title, NOTEBOOKS, notebook=notebook)

    def _write_results(self) -> None:
        """Write the pages of claims and of figures."""
        content = self._arranged(self._claims()) | self._counted()
        bars = {name: claims.counts(name) for name in claims.compared()}
        about = {name: self.declared[name].how for name in self.tables if name in self.declared}
        self._page("claims.html", "claims.html.j2", "Claims", RESULTS, bars=bars, about=about, **content)
        self._page(
            "figures.html", "figures.html.j2", "Figures", RESULTS, notebooks=self.notebooks, pictures=self.pictures
        )

    def _write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write the page of a table."""
        if "ours" in table:
            table = table.sort_values("ours", key=pd.isna, kind="stable")  # measured numbers come first
        ids = [column for column in RUNS if column in table and not pd.api.types.is_numeric_dtype(table[column])]
        columns = [column for column in table if not column.endswith("_ci95") and column not in ids]
        columns = [column for column in columns if not (column == "ci95" and "gain" in table)]
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        chosen = []
        if len(rows) > ROWS:
            few = [
                column for column in columns if column not in MEASURED and 1 < table[column].nunique() <= filters.MOST
            ]
            chosen = sorted(few, key=lambda column: column != "verdict")[:FILTERS]  # verdicts first
        shown = [{column: _shown(column, row[column]) for column in chosen} for row in rows]
        offered = [
            filters.of(f"f{i}", column.replace("_", " "), [row[column] for row in shown])
            for i, column in enumerate(chosen)
        ]
        entries = [{filter.name: row[column] for filter, column in zip(offered, chosen, strict=True)} for row in shown]
        content = {
            "name": name,
            "how": self.declared[name].how if name in self.declared else "",
            "columns": columns,
            "number": next((column for column in MEASURED if column in columns), ""),
            "rows": [(row, self._runs_of(name, row), entry) for row, entry in zip(rows, entries, strict=True)],
            "filters": offered,
            "rules": filters.rules(offered, entries),
            "counts": claims.counts(name) if name in claims.compared() else {},
            "verdicts": {word: kind for word, kind in claim.OF_NUMBERS.items() if kind != claim.OPEN},
        }
        self._page(f"table_{name}.html", "table.html.j2", self.titles[name], RESULTS, **content)

    def _runs_of(self, name: str, row: Mapping[str, Any]) -> list[str]:
        """Return the runs behind a row of a table, as the table names them."""
        for column in RUNS:
            if isinstance(row.get(column), str):
                return row[column].split()
        declared = self.declared.get(name)
        return [record.id for record in declared.behind(row)] if declared and declared.behind else []

    def _write_runs(self) -> None:
        """Write the page that lists experiments, and a page of the runs of each."""
        by_experiment = self._by_experiment()
        about = origins(list(self.records.values())) | {"site built with": listed(self.now["versions"])}
        content = {"summaries": [summary(kind, found) for kind, found in by_experiment.items()], "provenance": about}
        self._page("runs.html", "runs.html.j2", "Runs", RESULTS, **content, notebooks=self.notebooks)
        for kind, found in by_experiment.items():
            title = f"Runs: {kind.replace('_', ' ')}"
            content = {"kind": kind, "runs": found[::-1], "is_stale": is_stale}  # the latest first
            self._page(runs_page(kind), "runs_of.html.j2", title, RESULTS, **content)

    def _by_experiment(self) -> dict[str, list[Record]]:
        """Return all published runs by the name of their experiment."""
        found: dict[str, list[Record]] = {}
        for record in self.records.values():
            found.setdefault(experiment_of(record.id), []).append(record)
        return dict(sorted(found.items()))

    def _claims(self) -> list[tuple[str, claim.Claim]]:
        """Return all claims, each with the number of its notebook."""
        return [pair for group in claims.claims().values() for pair in group]

    def _counted(self) -> dict[str, Any]:
        """Return how many claims have each verdict, and the pages of notebooks by their number."""
        return {
            "tally": Counter(line.verdict for _, line in self._claims()),
            "page_of": {notebook.number: notebook.page for notebook in self.notebooks},
        }

    def _arranged(self, pairs: list[tuple[str, claim.Claim]]) -> dict[str, Any]:
        """Return what the page of claims needs to filter them and to show them in three orders.

        Args:
            pairs: the claims, each with the number of its notebook.
        """
        names = {notebook.number: f"{notebook.number} · {notebook.title}" for notebook in self.notebooks}
        offered = [
            filters.of("verdict", "verdict", [line.verdict for _, line in pairs], claim.KINDS),
            filters.of("notebook", "notebook", [number for number, _ in pairs], sorted(names)),
        ]
        keys = {  # what a claim stands under in each order
            "subject": [line.part for _, line in pairs],
            "notebook": [names.get(number, number) for number, _ in pairs],
            "verdict": [line.verdict for _, line in pairs],
        }
        entries = [{"verdict": line.verdict, "notebook": number} for number, line in pairs]
        headings, places, under = [], [], {}
        for order, column in keys.items():
            groups = list(dict.fromkeys(column)) if order == "subject" else sorted(set(column))
            if order == "verdict":
                groups = [kind for kind in claim.KINDS if kind in groups]
            for i, group in enumerate(groups):
                anchor = f"by-{order}-{i}"
                inside = [entry for entry, key in zip(entries, column, strict=True) if key == group]
                under[anchor] = inside
                headings.append({"anchor": anchor, "by": order, "text": group, "place": 1000 * i, "entries": inside})
            places.append([1000 * groups.index(key) + 1 + i for i, key in enumerate(column)])
        return {
            "filters": offered,
            "rules": filters.rules(offered, entries) + filters.orphans(offered, under),
            "groups": headings,
            "orders": list(keys),
            "lines": [
                {"notebook": number, "claim": line, "entry": entry, "places": dict(zip(keys, several, strict=True))}
                for (number, line), entry, several in zip(pairs, entries, zip(*places, strict=True), strict=True)
            ],
        }

    def _cards(self) -> list[tuple[Notebook, thumbnails.Thumbnail | None]]:
        """Return each notebook with a picture: of the first figure that it draws."""
        by_name = {picture.name: picture for picture in self.pictures if not picture.moves}
        return [
            (notebook, next((by_name[name] for name in notebook.figures if name in by_name), None))
            for notebook in self.notebooks
        ]

    def _page(self, file: str, template: str, title: str, section: str, **content: Any) -> None:
        """Write a page.

        Args:
            file: its file in the site's folder.
            template: the name of its template.
            title: its title.
            section: the section of the menu that it belongs to.
            content: the variables of the template.
        """
        built = f"{datetime.datetime.now(datetime.timezone.utc):%d %B %Y, %H:%M} UTC"
        about = {"title": title, "here": file, "section": section, "siblings": self.sections.get(section, [])}
        html = self.templates.get_template(template).render(about | {"built": built, "now": self.now} | content)
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
    """Return what the page of runs says of all runs together, as texts by their heading."""
    made = [record.provenance for record in records]
    data = {item for about in made for item in about.get("data", {}).items()}
    times = [about.get("wall_seconds") for about in made]
    hours = sum(filter(None, times)) / 3600
    processors = {str(about["processor"]) for about in made if about.get("processor")}
    commits = {about.get("commit") for about in made}
    changed = sum(bool(about.get("dirty")) for about in made)
    return {
        "runs": f"{len(records)} of {len({experiment_of(record.id) for record in records})} experiments",
        "made": f"{date(made[0])} to {date(made[-1])}" if made else "nothing yet",
        "computing": f"{hours:.1f} hours, {times.count(None)} runs of unknown time apart",
        "on": ", ".join(sorted(processors)) or "–",
        "from commits": f"{len(commits)}, {changed} runs with uncommitted changes",
        "data, sha256": ", ".join(f"{name} {sha256[:16]}…" for name, sha256 in sorted(data)) or "none",
    }


def summary(kind: str, found: list[Record]) -> dict[str, Any]:
    """Return what the page of runs says of an experiment: its runs, their hours and when the last was finished."""
    times = [record.provenance.get("wall_seconds") for record in found]
    hours = sum(filter(None, times)) / 3600
    return {
        "kind": kind,
        "page": runs_page(kind),
        "runs": len(found),
        "hours": hours,
        "last": date(found[-1].provenance),
    }


def runs_page(kind: str) -> str:
    """Return the name of the page of an experiment's runs."""
    return f"runs_{kind}.html"


def _shown(column: str, value: Any) -> str:
    """Return the value of a column as a filter names it."""
    if column == "verdict" and value in claim.OF_NUMBERS:
        return claim.OF_NUMBERS[value]
    return tables.readable(value)


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
