"""A change of the code is noticed: whoever breaks the method is told so, and whoever edits a comment computes nothing.

Each test works in a copy of the project with one small notebook, whose published runs take seconds: a trained SIB on
1,000 test tasks, which needs the step, ξ, the episode sampler and the evaluation, and the optimum of the spinning
lines, which needs none of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from tiny_notebooks import KERNEL

from sibrepro import paths
from sibrepro.params import of_profile
from sibrepro.studies.few_shot.imbalance import UNBALANCED
from sibrepro.studies.few_shot.plan import FewShotNotebook
from sibrepro.studies.spinning_lines.plan import OPTIMUM, PAPER

pytestmark = pytest.mark.thorough

TRAINED = next(p for p in FewShotNotebook(**of_profile("quick", "03_few_shot_tables")).experiments() if p.K == 3)
NOTEBOOK = "90_two_runs"
CELLS = (
    "seed = 0",
    "from sibrepro.params import of_profile\n"
    "from sibrepro.studies.few_shot.imbalance import UNBALANCED\n"
    "from sibrepro.studies.few_shot.plan import FewShotNotebook\n"
    "from sibrepro.studies.spinning_lines.plan import OPTIMUM, PAPER\n"
    "quick = FewShotNotebook(**of_profile('quick', '03_few_shot_tables'))\n"
    "UNBALANCED.run(next(p for p in quick.experiments() if p.K == 3))\n"
    "OPTIMUM.run(PAPER)",
)
# a file, what stands there, and what a slip would make of it
MUTATIONS = {
    "the sign of a term of the step": ("sibcore/step.py", "error, features, alpha=-1)", "error, features, alpha=+1)"),
    "ξ": ("sibcore/xi.py", "F.relu(h, inplace=is_eager_evaluation())", "torch.tanh(h)"),
    "the episode sampler": ("sibcore/episodes.py", "torch.full((), self.seed,", "torch.full((), self.seed + 1,"),
    "the evaluation": ("sibcore/evaluate.py", "logits.max(-1).indices", "logits.min(-1).indices"),
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory) -> Path:
    """A copy of the project with the small notebook alone, and the published results, in which it was run."""
    root = paths.PACKAGE.parents[1]
    copied = tmp_path_factory.mktemp("copy") / "project"
    for folder in ("sibcore", "notebooks/sibrepro", "notebooks/params"):
        shutil.copytree(root / folder, copied / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", copied)
    (copied / "results").symlink_to(root / "results")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    cells[0].metadata["tags"] = ["parameters"]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=KERNEL)
    nbformat.write(notebook, copied / "notebooks" / f"{NOTEBOOK}.ipynb")
    for profile in paths.PROFILES:
        (copied / "notebooks" / "params" / profile / f"{NOTEBOOK}.yaml").write_text("seed: 0\n")
    code, said = sib(copied, "run")
    assert (code, "Recomputed 2 published runs: 2 of 2 agree" in said) == (0, True), said
    return copied


@pytest.fixture
def copy(computed, tmp_path) -> Path:
    """The same, for a test to change."""
    shutil.copytree(computed, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def sib(copy: Path, *arguments: str) -> tuple[int, str]:
    """Call `sib` of the copy, as `./run_all.sh` does; its exit code and what it printed."""
    path = os.pathsep.join(map(str, (copy, copy / "notebooks")))
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment["SIB_OUTPUT"] = str(copy / "output")
    command = [sys.executable, "-m", "sibrepro", *arguments]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def edit(copy: Path, file: str, old: str, new: str) -> None:
    text = (copy / file).read_text(encoding="utf-8")
    assert old in text, f"{file} no longer has {old!r}: choose another line to break"
    (copy / file).write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("what", MUTATIONS)
def test_whoever_breaks_the_method_is_told_so_though_the_run_was_computed_before(copy, what):
    edit(copy, *MUTATIONS[what])
    module = MUTATIONS[what][0].removesuffix(".py").replace("/", ".")
    code, said = sib(copy, "run")
    assert code == 1, said
    assert f"{UNBALANCED.id(TRAINED)}: DISAGREES" in said
    assert f"recomputed: 1 (code changed: {module})" in said
    assert "1 of 2 agree" in said, "the other run does not reach what was changed"
    code, said = sib(copy, "verify", UNBALANCED.id(TRAINED))
    assert (code, "DISAGREES" in said) == (1, True), said


def test_comments_and_modules_that_are_not_reached_make_nothing_be_computed(copy):
    before = {file: file.stat().st_mtime_ns for file in (copy / "output" / "runs").rglob("*.json")}
    assert before
    file = copy / "sibcore" / "sib.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(re.sub('^"""', '"""Said otherwise. ', text, count=1) + "\n# a remark\n", encoding="utf-8")
    edit(copy, "notebooks/sibrepro/studies/pacs/finetune.py", "MOMENTS = (", "MOMENTS = (*(),")
    code, said = sib(copy, "run")
    assert (code, f"{NOTEBOOK}: unchanged" in said) == (0, True), said
    assert "computed by an earlier command with the same code: 2" in said
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_verify_computes_whatever_lies_here(copy):
    name = OPTIMUM.id(PAPER)
    metrics = copy / "output" / "runs" / name / "metrics.json"
    metrics.write_text(metrics.read_text().replace("0.", "1."))
    code, said = sib(copy, "verify", name)
    assert code == 0, said
    assert re.search(r"sum/kl_posterior: 0\.76\d+ \(published 0\.76\d+, within 0\.0001\)", said)
    assert re.search(r"\d s, code [0-9a-f]{12}", said)
    assert (copy / "output" / "verified" / name / "done").is_file()


def test_a_run_of_other_code_can_be_kept_by_name_and_is_then_not_recomputed(copy):
    edit(copy, *MUTATIONS["the evaluation"])
    code, said = sib(copy, "run", "--keep", UNBALANCED.id(TRAINED))
    assert code == 0, said
    assert f"kept, not recomputed: {UNBALANCED.id(TRAINED)} (code changed: sibcore.evaluate)" in said
    assert "Recomputed 1 published run: 1 of 1 agree" in said
