"""The pages of the report, written as a whole or not at all."""

from __future__ import annotations

import contextlib
import datetime
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup
from PIL import Image
from pygments.formatters import HtmlFormatter

from sibrepro import claims, paths
from sibrepro.facts import compare, provenance
from sibrepro.facts.experiment import STALE, recomputed
from sibrepro.site import sources, text
from sibrepro.site.maths import markdown, phrase
from sibrepro.site.notebook_pages import ASSETS, Page, readable, render

WIDTH = 560  # of a thumbnail, in pixels: twice what is shown, for sharp screens
INDEX = "index.html"


def build(out: Path | None = None, executed: Mapping[str, sources.Executed] | None = None) -> Path:
    """Write the report into the folder `out` (default `results/local/report`), replacing an older one; its front page.

    `executed` has notebooks as executed here, by name; the others are shown as they come with the project.
    """
    out = Path(out) if out else paths.local() / "report"
    if out.exists() and any(out.iterdir()) and not (out / INDEX).is_file():
        raise ValueError(f"{out} is no report and not empty: a report would replace it; name another folder")
    with _replacing(out) as folder:
        _Site(folder, executed or {}).write()
    return out / INDEX


class _Site:
    def __init__(self, folder: Path, executed: Mapping[str, sources.Executed]) -> None:
        self.folder = folder
        self.notebooks = sources.notebooks(executed)
        self.tables = dict(sorted(sources.tables().items(), key=lambda item: text.place(item[0])))
        self.records = sources.records()
        self.now = provenance.collect({}, 0.0)
        self.names = {notebook.name for notebook in self.notebooks}
        loader = jinja2.FileSystemLoader(ASSETS)
        self.templates = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
        self.templates.filters |= {"verdict": text.verdict, "slug": text.slug, "run_link": self.run_link}
        self.menu = [(INDEX, "Overview")]
        self.menu += [(f"{n.name}.html", f"{n.number} {n.title}") for n in self.notebooks]
        self.menu += [(f"table_{name}.html", text.TITLES.get(name, name)) for name in self.tables]
        self.menu += [("runs.html", "Runs")]

    def write(self) -> None:
        self.write_assets()
        pages = {notebook.name: render(notebook, self.names) for notebook in self.notebooks}
        for notebook in self.notebooks:
            self.write_notebook(notebook, pages[notebook.name])
        for name, table in self.tables.items():
            self.write_table(name, table)
        self.page("runs.html", "runs.html.j2", "Runs", runs=[text.run(r) for r in reversed(self.records.values())])
        self.write_index(pages)

    def write_assets(self) -> None:
        for name in ("STIXTwoMath.woff2", "STIXTwoMath-licence.txt"):
            shutil.copyfile(ASSETS / name, self.folder / name)
        light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("xcode", "github-dark"))
        colours = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        (self.folder / "style.css").write_text(colours + style, encoding="utf-8")

    def write_notebook(self, notebook: sources.Notebook, page: Page) -> None:
        for name, content in page.pictures.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(content)
        shown = {"body": Markup(page.body), "headings": {key: Markup(h) for key, h in page.headings.items()}}
        title = f"{notebook.number} · {notebook.title}"
        self.page(f"{notebook.name}.html", "notebook_page.html.j2", title, notebook=notebook, **shown)

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        rows = text.rows(table, self.run_link)
        counts = claims.counts(name) if name in claims.compared() else {}
        columns = [column.replace("_", " ") for column in text.columns(table)]
        title = text.TITLES.get(name, name)
        self.page(f"table_{name}.html", "table.html.j2", title, name=name, columns=columns, rows=rows, counts=counts)

    def write_index(self, pages: Mapping[str, Page]) -> None:
        groups = claims.claims()
        lines = [line for group in groups.values() for line in group]
        tally = {kind: sum(line.verdict == kind for line in lines) for kind in claims.KINDS}
        verdicts = recomputed()
        thumbnails = self.thumbnails(pages)
        self.page(
            INDEX,
            "index.html.j2",
            "SIB, reproduced",
            lead=Markup(markdown(text.LEAD)),
            groups={group: [self.line(finding) for finding in part] for group, part in groups.items()},
            tally={kind: number for kind, number in tally.items() if number},
            recomputed=compare.said(verdicts) if verdicts else "",
            disagreements=[str(verdict) for verdict in verdicts if not verdict.agrees],
            bars=[self.bar(name) for name in claims.compared()],
            kinds=claims.KINDS,
            notebooks=[
                {"number": n.number, "title": n.title, "page": f"{n.name}.html", "origin": n.origin}
                | {"thumbnails": [picture for picture in thumbnails if picture["notebook"] == n.number]}
                for n in self.notebooks
            ],
            provenance=text.provenance(list(self.records.values()), self.now),
        )

    def line(self, finding: claims.Claim) -> dict[str, Any]:
        """A claim with its texts as HTML and the page of its notebook, if there is one."""
        texts = {name: Markup(phrase(getattr(finding, name))) for name in ("claim", "where", "paper", "ours", "note")}
        page = next((f"{name}.html" for name in sorted(self.names) if name.startswith(finding.notebook)), None)
        return texts | {key: getattr(finding, key) for key in ("verdict", "runs", "notebook")} | {"page": page}

    def bar(self, name: str) -> dict[str, Any]:
        counts = claims.counts(name)
        page = f"table_{name}.html" if name in self.tables else None
        return {"name": text.TITLES[name], "page": page, "counts": counts, "total": sum(counts.values())}

    def thumbnails(self, pages: Mapping[str, Page]) -> list[dict[str, Any]]:
        """Small copies of the figures, each leading to where its notebook draws it."""
        (self.folder / "thumbnails").mkdir()
        return [self.thumbnail(file, pages) for file in sources.figures()]

    def thumbnail(self, file: Path, pages: Mapping[str, Page]) -> dict[str, Any]:
        number = file.name.partition("_")[0]
        name = next((name for name in pages if name.startswith(f"{number}_")), None)
        anchor = pages[name].figures.get(file.stem) if name else None
        small = f"thumbnails/{file.name}"
        with Image.open(file) as picture:
            if file.suffix == ".gif":  # a film stays as it is
                shutil.copyfile(file, self.folder / small)
                width, height = picture.size
            else:
                picture.thumbnail((WIDTH, WIDTH))
                picture.convert("RGB").quantize(128, Image.Quantize.FASTOCTREE).save(self.folder / small, optimize=True)
                width, height = picture.size
        target = (f"{name}.html" + (f"#{anchor}" if anchor else "")) if name else small
        about = {"notebook": number, "caption": readable(file.stem), "target": target}
        return about | {"file": small, "width": width, "height": height}

    def run_link(self, shown: str) -> Markup:
        """The link of a run as tables name it, perhaps with a dagger."""
        name = shown.removesuffix(STALE)
        if name not in self.records:
            return Markup('<span class="run">{} (record not here)</span>').format(name)
        return Markup('<a class="run" href="runs.html#{}">{}</a>').format(name, shown)

    def page(self, file: str, template: str, title: str, **content: Any) -> None:
        now = datetime.datetime.now(datetime.timezone.utc)
        about = {"title": title, "here": file, "menu": self.menu, "built": f"{now:%d %B %Y, %H:%M} UTC"}
        about |= {"commit": self.now["commit"], "dirty": self.now["dirty"]}
        html = self.templates.get_template(template).render(about | content)
        (self.folder / file).write_text(html, encoding="utf-8")


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
