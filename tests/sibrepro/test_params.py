from __future__ import annotations

from typing import Annotated, Literal
from xml.etree import ElementTree

import pytest
from IPython.lib.pretty import pretty
from pydantic import Field

from sibrepro.params import Count, NonNegative, ParameterError, Positive, as_text, check, one_or_several, parameters


@parameters
class Example:
    K: NonNegative = Field(3, description="steps")
    eta: Positive = 1e-3
    n: Count = 32
    mu: float = 0.0
    reduction: Literal["sum", "mean"] = "sum"


def test_good_values_are_taken_and_missing_ones_have_their_default():
    p = check(Example, {"K": 5, "n": 64})
    assert (p.K, p.n, p.eta, p.reduction) == (5, 64, 1e-3, "sum")


def test_the_parameters_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        check(Example, {}).K = 4


def test_a_whole_number_serves_as_a_float():
    assert check(Example, {"mu": 1}).mu == 1.0


def test_a_misspelt_name_is_refused_and_all_parameters_are_listed():
    with pytest.raises(ParameterError) as error:
        check(Example, {"Kk": 5})
    message = str(error.value)
    assert "Kk: there is no such parameter" in message
    assert all(name in message for name in ("K ", "eta", "n ", "mu", "reduction"))
    assert "whole number >= 0" in message
    assert "'sum' | 'mean'" in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("K", -1),
        ("K", 2.0),
        ("K", True),
        ("K", "3"),
        ("K", None),
        ("eta", 0.0),
        ("eta", -1e-3),
        ("eta", float("nan")),
        ("eta", float("inf")),
        ("n", 0),
        ("mu", True),
        ("mu", "0"),
        ("reduction", "median"),
        ("reduction", 1),
    ],
)
def test_wrong_types_and_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(ParameterError, match=rf"(?m)^  {name}: .*{str(value)[:3]}"):
        check(Example, {name: value})


def test_several_problems_are_told_at_once():
    with pytest.raises(ParameterError) as error:
        check(Example, {"K": -1, "eta": 0.0, "nn": 1})
    assert all(f"  {name}:" in str(error.value) for name in ("K", "eta", "nn"))


def test_what_ipython_and_imports_put_into_a_namespace_is_no_parameter():
    namespace = {
        "In": [],
        "Out": {},
        "_": 1,
        "__name__": "__main__",
        "get_ipython": print,
        "pytest": pytest,
        "f": check,
    }
    assert check(Example, namespace) == Example()


def test_running_the_check_again_does_not_take_results_for_parameters():
    namespace = {"K": 4, "In": ["", "K = 4", "p = check(Example, globals())"]}
    check(Example, namespace)
    namespace["figure"] = 17
    namespace["In"].append("figure = draw()")
    assert check(Example, namespace).K == 4


def test_a_misspelling_in_an_edited_parameters_cell_is_seen_when_the_check_runs_again():
    namespace = {"K": 4, "n": 8, "In": ["", "K = 4\nn = 8"]}
    check(Example, namespace)
    namespace["Kk"] = 5
    namespace["In"].append("Kk = 5\nn = 8")
    with pytest.raises(ParameterError, match="Kk: there is no such parameter"):
        check(Example, namespace)


def test_a_notebook_shows_its_parameters_as_a_table_that_marks_what_was_changed():
    table = ElementTree.fromstring(check(Example, {"eta": 0.5})._repr_html_())
    rows = ["".join(row.itertext()) for row in table.iter("tr")]
    assert len(rows) == 1 + 5
    assert rows[1] == "K3whole number >= 0steps"
    assert rows[2] == "eta0.5 (default 0.001)number > 0"
    assert [bold.text or "".join(bold.itertext()) for bold in table.iter("b")] == ["0.5"]


def test_where_there_is_no_html_parameters_are_wrapped_between_one_and_the_next():
    shown = pretty(check(Example, {}))
    assert shown == "Example(K=3, eta=0.001, n=32, mu=0.0, reduction='sum')"
    lines = as_text(check(Several, {"K": list(range(9))}), width=20).splitlines()
    assert lines == ["Several(K=[0, 1, 2, 3, 4, 5, 6, 7, 8])"], "a value is not broken"
    wrapped = as_text(check(Example, {}), width=30).splitlines()
    assert max(map(len, wrapped)) <= 30
    assert " ".join(map(str.strip, wrapped)) == shown


@parameters
class Several:
    K: Annotated[list[NonNegative], one_or_several] = Field([0, 3], min_length=1)


def test_a_list_may_be_given_as_one_value_and_its_entries_are_checked():
    assert Several(K=5).K == [5]
    assert Several(K=[1, 2]).K == [1, 2]
    for wrong in (-1, [1, -1], [], 0.5, "1"):
        with pytest.raises(ParameterError, match="one or several of: whole number >= 0"):
            check(Several, {"K": wrong})
