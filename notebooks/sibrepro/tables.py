"""Living tables: the paper's printed numbers beside ours, assembled from published runs.

A table has every number of the paper's and every number of ours, one row each, side by side where all settings agree,
and a verdict. Accuracies are in percent. What has no counterpart stays, with a verdict that says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sibcore.files import write_atomically
from sibrepro import paper, paths
from sibrepro.facts import Record, manifest
from sibrepro.facts.experiment import named
from sibrepro.statistics import Score

INSIDE, ABOVE, BELOW = "inside the other's interval", "above", "below"
NOT_MEASURED, NOT_IN_PAPER = "not measured here", "not in the paper"
IN_APPENDIX = "only in the appendix"  # of a number that Table 1 does not have, but `paper.synthetic_gradients` has
OUR_FEATURES = " (our features)"
COMMAND = "./run_all.sh --only 03 --profile paper"  # measures what Table 1 has of SIB

FEW_SHOT = ["dataset", "backbone", "method", "transductive", "K", "eta", "shots"]
SYNTHETIC_GRADIENTS = ["dataset", "backbone", "variant", "trained_shots", "tested_shots", "K", "eta"]
QUERY_SIZE = ["dataset", "backbone", "K", "eta", "n", "tested", "shots", "split"]
PAPER, OURS = ["paper", "paper_ci95"], ["ours", "ours_ci95"]

TYPES = {
    **dict.fromkeys((*paper.WHOLE, "episodes", "seeds", "steps"), "Int64"),
    **dict.fromkeys(("eta", *PAPER, *OURS), "float64"),
    "transductive": "boolean",
}
DATASETS = {"mini-imagenet": "mini-ImageNet", "cifar-fs": "CIFAR-FS"}
MISSING = "–"
# what pandas does not escape
LATEX = {"±": r"$\pm$", "×": r"$\times$", "η": r"$\eta$", "ξ": r"$\xi$", "α": r"$\alpha$", MISSING: "--"}


def verdict(paper: float | None, paper_ci95: float | None, ours: float | None, ours_ci95: float | None) -> str:
    """How ours stands to the paper's: inside if either value lies in the other's 95 % interval, ends included.

    That is |ours - paper| <= the wider of the two intervals; a missing interval counts as a point. It is a reading aid
    and no test of equality: the intervals are over test tasks and know nothing of other seeds or feature networks.
    """
    if pd.isna(ours):
        return NOT_MEASURED
    if pd.isna(paper):
        return NOT_IN_PAPER
    reach = max(0.0 if pd.isna(ci95) else ci95 for ci95 in (paper_ci95, ours_ci95))
    if abs(ours - paper) <= reach + 1e-9:  # printed decimals are not exact in binary
        return INSIDE
    return ABOVE if ours > paper else BELOW


def row(records: Sequence[Record], score: Score, **settings: Any) -> dict[str, Any]:
    """A number of ours for the tables below: `settings`, the score, and the runs behind it, whose seeds count."""
    p = records[0].params
    of_runs = {name: p[name] for name in ("dataset", "backbone", "steps") if name in p}
    seeds = len({record.params.get("seed") for record in records})
    numbers = {"ours": score.mean, "ours_ci95": score.ci95, "episodes": p.get("test_episodes"), "seeds": seeds}
    return of_runs | settings | numbers | {"run": named(records)}


def few_shot(runs: pd.DataFrame) -> pd.DataFrame:
    """Table 1. `runs` has the columns `FEW_SHOT`, ours, ours_ci95, episodes, seeds and run, as rows of `row` do.

    SIB is matched on all settings. Other methods of ours share our features and episodes, whereas the paper's had each
    a training of its own: they never stand beside one another, and ours are called "<method> (our features)".
    """
    if len(runs):
        others = ~runs["method"].str.contains("SIB")
        runs = runs.assign(method=runs["method"].mask(others, runs["method"] + OUR_FEATURES))
    table = _beside(paper.few_shot().dropna(subset="value"), runs, FEW_SHOT, ["episodes", "seeds", "run"])
    return table.assign(verdict=table["verdict"].mask(_in_appendix(table), IN_APPENDIX))


def synthetic_gradients(runs: pd.DataFrame) -> pd.DataFrame:
    """The appendix's table over K and eta; `runs` likewise, with `SYNTHETIC_GRADIENTS`, and steps."""
    return _beside(paper.synthetic_gradients(), runs, SYNTHETIC_GRADIENTS, ["episodes", "seeds", "steps", "run"])


def query_size(runs: pd.DataFrame) -> pd.DataFrame:
    """The appendix's table over n; `runs` likewise, with `QUERY_SIZE`, and steps."""
    return _beside(paper.query_size(), runs, QUERY_SIZE, ["episodes", "seeds", "steps", "run"])


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """`few_shot(...)` for reading: a row a method, a column a data set and number of shots.

    A cell is the paper's, then **ours** and the verdict. Of methods other than SIB the paper's number stands alone; a
    number of SIB that is not measured says so, and the column "to measure" has the command that measures it.
    """
    rows, numbers = ["method", "backbone", "transductive"], list(table.itertuples())
    columns = [f"{DATASETS.get(number.dataset, number.dataset)} {number.shots}-shot" for number in numbers]
    labels, texts = ([of(number) for number in numbers] for of in (_label, _cell))
    cells = table.assign(method=labels, column=columns, cell=texts)
    for twice in cells[cells.duplicated([*rows, "column"])].itertuples():
        raise ValueError(
            f"two numbers of ours for {twice.method}, {twice.backbone}, {twice.column}, the second from {twice.run}: "
            "name the methods apart"
        )
    columns = [f"{dataset} {shots}-shot" for dataset in DATASETS.values() for shots in (1, 5)] + columns
    order = pd.MultiIndex.from_frame(cells[rows].drop_duplicates())
    shown = cells.pivot(index=rows, columns="column", values="cell").reindex(order)[[*dict.fromkeys(columns)]]
    open_ = shown.apply(lambda row: row.str.contains(NOT_MEASURED).any(), axis=1)
    return shown.fillna(MISSING).assign(**{"to measure": open_.map({True: COMMAND, False: ""})}).reset_index()


def readable(value: Any) -> str:
    """A cell for reading: numbers rounded to two decimals, or to three digits where that would leave none."""
    if pd.isna(value):
        return MISSING
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.3g}"
    return " ".join(str(value).split())


def markdown(table: pd.DataFrame) -> str:
    """The table in GitHub's Markdown, without its index; a cell may hold `**bold**`."""
    cells = table.astype(object).map(readable).map(lambda text: text.replace("|", r"\|"))
    sides = ["right" if right else "left" for right in _numbers(table)]
    text = cells.to_markdown(index=False, disable_numparse=True, colalign=sides)
    return re.sub(" +", " ", text) + "\n"  # not padded: a new row changes no other


def latex(table: pd.DataFrame) -> str:
    """The table as a `tabular` with the rules of the package booktabs, without its index; `**bold**` is bold."""
    sides = "".join("r" if right else "l" for right in _numbers(table))
    text = table.astype(object).map(readable).to_latex(index=False, escape=True, column_format=sides)
    text = text.replace("--", "-{}-{}")  # not a dash
    for sign, code in LATEX.items():
        text = text.replace(sign, code)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)


def write(table: pd.DataFrame, name: str, *records: Record) -> list[Path]:
    """Write `<name>.csv` (exact), `.md` and `.tex` (rounded, with the runs' ids); without its index."""
    runs = ", ".join(record.id for record in records)
    contents = {
        "csv": table.to_csv(index=False, lineterminator="\n"),
        "md": markdown(table) + (f"\n<!-- runs: {runs} -->\n" if runs else ""),
        "tex": (f"% runs: {runs}\n" if runs else "") + latex(table),
    }
    files = []
    for kind, text in contents.items():
        path = paths.tables() / f"{name}.{kind}"
        write_atomically(path, text.encode())
        manifest.note("table", paths.relative(path), runs=runs)
        files.append(path)
    return files


def _numbers(table: pd.DataFrame) -> list[bool]:
    """Which columns are numbers, to be aligned at the right."""
    kinds = pd.api.types
    return [kinds.is_numeric_dtype(kind) and not kinds.is_bool_dtype(kind) for kind in table.dtypes]


def _beside(printed: pd.DataFrame, runs: pd.DataFrame, settings: list[str], details: list[str]) -> pd.DataFrame:
    """Every row of `printed`, each of our runs beside it if all `settings` agree; then our other runs.

    Two runs of ours with the same settings both stand beside the paper's number, which is then there twice.
    """
    columns = [*settings, *OURS, *details]
    lacking = [column for column in columns if column not in runs]
    if lacking and len(runs):
        raise ValueError(f"our runs lack the columns {lacking}; expected are {columns}")
    ours = _no_step(_typed(runs.reindex(columns=columns))).assign(row=range(len(runs)))
    printed = _no_step(printed.rename(columns={"value": "paper", "ci95": "paper_ci95"}))
    matched = printed.merge(ours, on=settings, how="left")
    alone = ours[~ours["row"].isin(matched["row"])]
    table = pd.concat([matched, alone], ignore_index=True)[[*settings, *PAPER, *OURS, *details]]
    verdicts = [verdict(*numbers) for numbers in table[[*PAPER, *OURS]].itertuples(index=False)]
    return _typed(table).assign(verdict=verdicts)


def _no_step(table: pd.DataFrame) -> pd.DataFrame:
    """With K = 0 no step is taken: there is no eta, and the queries are not looked at."""
    none = table["K"].eq(0).fillna(False).astype(bool)
    table = table.assign(eta=table["eta"].mask(none))
    return table.assign(transductive=table["transductive"].mask(none, False)) if "transductive" in table else table


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype({name: kind for name, kind in TYPES.items() if name in table})


def _in_appendix(table: pd.DataFrame) -> pd.Series:
    """Which numbers without a counterpart in Table 1 have one in the appendix, trained and tested on the same shots."""
    appendix = paper.synthetic_gradients().query("trained_shots == tested_shots")
    appendix = appendix.rename(columns={"variant": "method", "tested_shots": "shots"})
    appendix["transductive"] = (appendix["method"] == "SIB") & (appendix["K"] > 0)
    found = table.merge(appendix[FEW_SHOT], on=FEW_SHOT, how="left", indicator="side")["side"] == "both"
    return found & (table["verdict"] == NOT_IN_PAPER)


def _label(number: Any) -> str:
    """The method with its K and eta, such as "SIB, η = 0.001, K = 3"."""
    eta = "" if pd.isna(number.eta) else f", η = {number.eta:g}"
    return number.method + eta + ("" if pd.isna(number.K) else f", K = {number.K}")


def _cell(number: Any) -> str:
    printed, ours = interval(number.paper, number.paper_ci95), f"**{interval(number.ours, number.ours_ci95)}**"
    if number.verdict in (INSIDE, ABOVE, BELOW):
        return f"{printed} / {ours} ({number.verdict})"
    if number.verdict == NOT_MEASURED:
        return f"{printed} / {NOT_MEASURED}" if "SIB" in number.method else printed
    return f"{MISSING} / {ours} ({number.verdict})"


def interval(value: float, ci95: float | None, decimals: int = 1) -> str:
    """Return a number with its interval for reading, such as "73.6 ± 0.2"; without one where there is none."""
    half = "" if ci95 is None or pd.isna(ci95) else f" ± {ci95:.{decimals}f}"
    return f"{value:.{decimals}f}{half}"
