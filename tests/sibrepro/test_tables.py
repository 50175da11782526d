from __future__ import annotations

import csv
import io
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sibrepro import paper, paths, tables
from sibrepro.facts import Record, manifest

NAN = float("nan")
SETTINGS = ["dataset", "backbone", "method", "transductive", "K", "eta", "shots"]
NUMBERS = ["paper", "paper_ci95", "ours", "ours_ci95", "episodes", "seeds", "run", "verdict"]


def run(**changes: object) -> dict[str, object]:
    base = {
        "dataset": "cifar-fs",
        "backbone": "conv4-64",
        "method": "SIB",
        "transductive": True,
        "K": 3,
        "eta": 1e-3,
        "shots": 1,
        "ours": 71.3168,
        "ours_ci95": 0.3946,
        "episodes": 5000,
        "seeds": 1,
        "run": "few_shot-1",
    }
    return base | changes


def of_run(table: pd.DataFrame, name: str) -> pd.Series:
    rows = table[table["run"] == name]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((59.2, 0.5, 59.7, 0.1), "inside the other's interval"),  # on the end of the paper's
        ((59.2, 0.1, 59.7, 0.5), "inside the other's interval"),  # on the end of ours
        ((59.2, 0.5, 59.8, 0.5), "above"),  # intervals overlap, but neither value lies in the other's
        ((59.2, 0.5, 58.6, 0.5), "below"),
        ((44.2, None, 44.2, None), "inside the other's interval"),
        ((44.2, NAN, 44.3, None), "above"),
        ((59.2, 0.5, None, None), "not measured here"),
        ((59.2, 0.5, NAN, NAN), "not measured here"),
        ((NAN, NAN, 60.0, 0.3), "not in the paper"),
        ((pd.NA, pd.NA, 60.0, 0.3), "not in the paper"),
    ],
)
def test_verdicts_by_hand(numbers, expected):
    assert tables.verdict(*numbers) == expected


accuracies, widths = st.integers(0, 10_000), st.integers(0, 500)


@given(accuracies, widths, accuracies, widths)
def test_a_verdict_is_that_of_whole_hundredths_and_turns_round_with_its_sides(p, p_ci95, o, o_ci95):
    """In whole hundredths of a percent, where nothing is rounded, as an oracle."""
    inside = o in range(p - p_ci95, p + p_ci95 + 1) or p in range(o - o_ci95, o + o_ci95 + 1)
    expected = tables.INSIDE if inside else tables.ABOVE if o > p else tables.BELOW
    numbers = [number / 100 for number in (p, p_ci95, o, o_ci95)]
    assert tables.verdict(*numbers) == expected
    turned = {tables.INSIDE: tables.INSIDE, tables.ABOVE: tables.BELOW, tables.BELOW: tables.ABOVE}
    assert tables.verdict(*numbers[2:], *numbers[:2]) == turned[expected]


def test_table_1_without_runs_is_the_papers_numbers_not_measured():
    table = tables.few_shot(pd.DataFrame())
    assert table.columns.tolist() == SETTINGS + NUMBERS
    assert table["paper"].tolist() == paper.few_shot()["value"].dropna().tolist()
    assert set(table["verdict"]) == {"not measured here"}


def test_a_run_of_sib_stands_beside_its_number_of_table_1():
    table = tables.few_shot(pd.DataFrame([run(), run(K=0, ours=59.0, run="few_shot-0")]))
    assert len(table) == len(tables.few_shot(pd.DataFrame()))
    row = of_run(table, "few_shot-1")
    assert (row["paper"], row["paper_ci95"], row["ours"], row["verdict"]) == (68.7, 0.6, 71.3168, "above")
    row = of_run(table, "few_shot-0")
    assert (row["paper"], row["transductive"], row["verdict"]) == (59.2, False, "inside the other's interval")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dataset": "glyphs"}, "not in the paper"),
        ({"K": 7}, "not in the paper"),
        ({"eta": 0.5}, "not in the paper"),
        ({"shots": 10}, "not in the paper"),
        ({"transductive": False}, "not in the paper"),
        ({"backbone": "conv4-128"}, "not in the paper"),
        ({"K": 5}, "only in the appendix"),
        ({"method": "inductive SIB", "transductive": False}, "only in the appendix"),
    ],
)
def test_a_run_with_other_settings_has_no_number_beside_it(changes, said):
    row = of_run(tables.few_shot(pd.DataFrame([run(**changes)])), "few_shot-1")
    assert pd.isna(row["paper"])
    assert row["verdict"] == said


@pytest.mark.parametrize("method", sorted(set(paper.few_shot()["method"]) - {"SIB"}))
def test_a_baseline_on_our_features_never_stands_beside_a_method_with_its_own_training(method):
    ours = run(method=method, transductive=False, K=None, eta=None)
    table = tables.few_shot(pd.DataFrame([ours]))
    row = of_run(table, "few_shot-1")
    assert row["method"] == f"{method} (our features)"
    assert pd.isna(row["paper"])
    assert row["verdict"] == "not in the paper"
    assert len(table) == len(tables.few_shot(pd.DataFrame())) + 1


settings = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["cifar-fs", "mini-imagenet", "glyphs"]),
        "backbone": st.sampled_from(["conv4-64", "wrn-28-10"]),
        "method": st.sampled_from(["SIB", "inductive SIB", "MAML", "nearest mean"]),
        "transductive": st.booleans(),
        "K": st.sampled_from([None, 0, 1, 3]),
        "eta": st.sampled_from([None, 1e-3, 1e-2]),
        "shots": st.sampled_from([1, 5]),
    }
)


@pytest.mark.thorough
@given(st.lists(settings, max_size=6))
def test_merging_loses_and_doubles_nothing(drawn):
    ours = pd.DataFrame([run(**changes, run=f"run-{i}", ours=50.0 + i) for i, changes in enumerate(drawn)])
    table = tables.few_shot(ours)
    assert sorted(table["run"].dropna()) == [f"run-{i}" for i in range(len(drawn))]
    printed = paper.few_shot().dropna(subset="value")
    once = table.dropna(subset="paper").drop_duplicates(["dataset", "backbone", "method", "K", "shots"])
    assert once["paper"].tolist() == printed["value"].tolist()
    assert table["verdict"].isin([tables.NOT_IN_PAPER, tables.IN_APPENDIX]).tolist() == table["paper"].isna().tolist()


def test_runs_that_lack_a_column_are_refused():
    with pytest.raises(ValueError, match=r"lack the columns \['episodes'\]"):
        tables.few_shot(pd.DataFrame([run()]).drop(columns="episodes"))


def test_the_wide_table_shows_paper_ours_and_verdict_and_how_to_measure_the_rest():
    ours = [run(ours=69.0, ours_ci95=0.41), run(method="nearest mean", K=None, eta=None, run="b", dataset="glyphs")]
    shown = tables.wide(tables.few_shot(pd.DataFrame(ours))).set_index(["method", "backbone"])
    assert len(shown) == len(paper.few_shot()) / 4 + 1, "four columns of numbers, and a row of ours"
    assert shown.columns.tolist() == [
        "transductive",
        *(f"{data} {shots}-shot" for data in ("mini-ImageNet", "CIFAR-FS") for shots in (1, 5)),
        "glyphs 1-shot",
        "to measure",
    ]
    sib = shown.loc[("SIB, η = 0.001, K = 3", "conv4-64")]
    assert sib["CIFAR-FS 1-shot"] == "68.7 ± 0.6 / **69.0 ± 0.4** (inside the other's interval)"
    assert sib["CIFAR-FS 5-shot"] == "77.1 ± 0.4 / not measured here"
    assert sib["to measure"] == "./run_all.sh --only 03 --profile paper"
    gnn = shown.loc[("GNN", "conv4-64")]
    assert (gnn["CIFAR-FS 1-shot"], gnn["glyphs 1-shot"], gnn["to measure"]) == ("61.9", "–", "")
    assert shown.loc[("nearest mean (our features)", "conv4-64"), "glyphs 1-shot"].startswith("– / **71.3 ± 0.4**")


def test_the_wide_table_refuses_two_numbers_for_one_cell():
    table = tables.few_shot(pd.DataFrame([run(), run(run="few_shot-2")]))
    with pytest.raises(ValueError, match=r"few_shot-2.*give the methods different names"):
        tables.wide(table)


def test_the_table_of_synthetic_gradients_is_matched_on_all_its_settings():
    ours = {
        "dataset": "cifar-fs",
        "backbone": "conv4-64",
        "variant": "SIB",
        "trained_shots": 5,
        "tested_shots": 5,
        "K": 3,
        "eta": 1e-3,
        "ours": 78.5,
        "ours_ci95": 0.2,
        "episodes": 5000,
        "seeds": 1,
        "steps": 40_000,
        "run": "a",
    }
    no_step = {"variant": "inductive SIB", "K": 0, "eta": 1e-2, "trained_shots": 1, "tested_shots": 1, "run": "b"}
    other = {"K": 4, "run": "c"}
    table = tables.synthetic_gradients(pd.DataFrame([ours, ours | no_step, ours | other]))
    assert len(table) == len(paper.synthetic_gradients()) + 1
    assert of_run(table, "a")[["paper", "verdict", "steps"]].tolist() == [78.4, tables.INSIDE, 40_000]
    assert of_run(table, "b")[["paper", "verdict"]].tolist() == [59.7, tables.ABOVE]
    assert of_run(table, "c")["verdict"] == tables.NOT_IN_PAPER
    assert (table["verdict"] == tables.NOT_MEASURED).sum() == len(paper.synthetic_gradients()) - 2


def test_the_table_of_query_sizes_is_matched_on_its_data_set_too():
    ours = {
        "dataset": "mini-imagenet",
        "backbone": "conv4-128",
        "K": 3,
        "eta": 1e-3,
        "n": 10,
        "tested": 15,
        "shots": 1,
        "split": "test",
        "ours": 60.0,
        "ours_ci95": 0.4,
        "episodes": 2000,
        "seeds": 3,
        "steps": 1000,
        "run": "a",
    }
    table = tables.query_size(pd.DataFrame([ours, ours | {"dataset": "cifar-fs", "run": "b"}]))
    assert len(table) == len(paper.query_size()) + 1
    assert of_run(table, "a")[["paper", "verdict"]].tolist() == [63.22, tables.BELOW]
    assert of_run(table, "b")["verdict"] == tables.NOT_IN_PAPER


def test_a_table_is_written_exactly_as_csv_and_for_reading_and_noted(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_MANIFEST", str(tmp_path / "manifest"))
    table = tables.few_shot(pd.DataFrame([run(ours=200 / 3)]))
    files = tables.write(table, "table_1", Record("few_shot-1", 1, {}, {}, {}, {}, None))
    assert files == [paths.local() / "tables" / f"table_1.{kind}" for kind in ("csv", "md", "tex")]
    header, *rows = csv.reader(io.StringIO(files[0].read_text(encoding="utf-8")))
    assert header == table.columns.tolist()
    for row, numbers in zip(rows, table.itertuples(index=False), strict=True):
        for cell, value in zip(row, numbers, strict=True):
            missing = pd.isna(value)
            number = isinstance(value, float) and not missing
            assert (float(cell) if number else cell) == (value if number else "" if missing else str(value))
    markdown, latex = (file.read_text(encoding="utf-8") for file in files[1:])
    assert len(markdown.splitlines()) == len(table) + 2 + 2
    assert "| 66.67 | 0.39 | 5000 |" in markdown
    assert r"few\_shot-1" in latex
    assert "few_shot-1" in latex.splitlines()[0]
    notes = manifest.read(tmp_path / "manifest")
    assert [note["what"] for note in notes] == [f"tables/table_1.{kind}" for kind in ("csv", "md", "tex")]
    assert {(note["kind"], note["runs"]) for note in notes} == {("table", "few_shot-1")}


def body(table: pd.DataFrame) -> list[list[str]]:
    """The cells of the Markdown table's rows."""
    lines = tables.markdown(table).splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])] for line in lines]


def test_a_markdown_table_has_a_header_a_rule_and_rows_and_no_padding():
    table = pd.DataFrame({"method": ["a", "bb"], "K": pd.array([1, None], dtype="Int64"), "x": [1.5, 2.25]})
    header, rule, *rows = tables.markdown(table).splitlines()
    assert header == "| method | K | x |"
    assert re.fullmatch(r"\|:-+\|-+:\|-+:\|", rule), "numbers are aligned at the right"
    assert rows == ["| a | 1 | 1.50 |", "| bb | – | 2.25 |"]


def test_a_latex_table_has_the_rules_of_booktabs():
    table = pd.DataFrame({"method": ["a"], "yes": [True], "x": [1.0]})
    expected = r"\begin{tabular}{llr} \toprule method & yes & x \\ \midrule a & yes & 1.00 \\ \bottomrule \end{tabular}"
    assert tables.latex(table).split() == expected.split()


def test_a_table_without_rows_has_its_header():
    table = pd.DataFrame({"a": [], "b": []})
    assert tables.markdown(table).startswith("| a | b |\n")
    assert r"a & b \\" in tables.latex(table)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (59.2, "59.20"),
        (71.3168, "71.32"),
        (0.0001, "0.0001"),
        (0.000123456, "0.000123"),
        (40000.0, "40,000"),
        (0.0, "0"),
        (40000, "40000"),
        (NAN, "–"),
        (pd.NA, "–"),
        (None, "–"),
        (True, "yes"),
        (False, "no"),
        ("two\n lines", "two lines"),
    ],
)
def test_numbers_are_rounded_for_reading_and_what_is_missing_is_a_dash(value, shown):
    assert body(pd.DataFrame({"x": [value]}, dtype=object)) == [[shown]]


def test_a_missing_number_does_not_turn_whole_numbers_into_others():
    table = pd.DataFrame({"K": pd.array([3, None], dtype="Int64"), "t": pd.array([True, None], dtype="boolean")})
    assert body(table) == [["3", "yes"], ["–", "–"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("few_shot-12 & 50% #1 $x$ {y}", r"few\_shot-12 \& 50\% \#1 \$x\$ \{y\}"),
        ("59.2 ± 0.5 / **61.9 ± 0.3** (above)", r"59.2 $\pm$ 0.5 / \textbf{61.9 $\pm$ 0.3} (above)"),
        ("SIB, η = 1, α = 0, ξ, 2 × 3", r"SIB, $\eta$ = 1, $\alpha$ = 0, $\xi$, 2 $\times$ 3"),
        ("./run --only x-y", r"./run -{}-{}only x-y"),
        ("a – b", "a -- b"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_is_escaped(text, expected):
    line = tables.latex(pd.DataFrame({"a_b": [text]})).splitlines()
    assert line[2] == r"a\_b \\"
    assert line[4] == expected + r" \\"


@pytest.mark.thorough
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_any_text_stays_in_its_cell(text):
    table = pd.DataFrame({"a": [text], "b": ["end"]})
    rows = body(table)
    assert len(rows) == 1
    assert len(rows[0]) == 2
    (row,) = tables.latex(table).splitlines()[4:-2]
    signs = r"\\textbackslash|\\textascii\w+|\\space|\\textbf|\\[{}$&#_%]|\$\\(pm|times|eta|xi|alpha)\$"
    bare = re.sub(signs, "", row)
    assert bare.count("&") == 1
    assert not set(bare.removesuffix(r" \\")) & set("\\$#_%^")
