#!/usr/bin/env bash
# Install what the project needs and run it. See ./run_all.sh --help
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: ./run_all.sh [options]          run every notebook, recompute published runs and compare them, build the
                                       documentation in results/local/report/index.html
       ./run_all.sh test [options]     check the code, then run every notebook and compare it with its committed output
       ./run_all.sh lab [options]      open JupyterLab on the notebooks
       ./run_all.sh verify [options]   recompute any published runs and compare them, see sib verify --help
       ./run_all.sh publish [options]  for maintainers: rewrite facts, figures, tables, notebooks and documents

Each command first installs the pinned packages, once. It uses the active virtual or conda environment. If there is none,
or only conda's base, it makes .venv here.

options:
  --profile quick|cpu|paper   how much to compute (quick: minutes on any machine, the default; cpu: hours;
                              paper: the full protocol, on a GPU with the full data sets)
  --only 02                   run this notebook only, by its number or a part of its name; may be repeated
  --list                      list the notebooks that would run, and why; run nothing
  --force                     run every notebook again and recompute all its runs, even if nothing changed
  --help                      show this text

options of test:
  (none)                      ruff, import contracts, all tests but those marked exhaustive, all notebooks
  --all                       also the exhaustive tests: two users at once, JupyterLab and the documentation in a browser
  anything else               is passed to pytest: -k words, a file, or the fast tests alone, which take a minute:
                              -m 'not thorough and not exhaustive'

Everything that you compute goes to results/local/. Only publish writes files that git tracks.

environment variables:
  SIB_DATA    the folder with your data sets
  SIB_DEVICE  cpu, cuda, cuda:1 or mps (default: the best one available)
  SIB_OUTPUT  a folder to use instead of results/local
TEXT
}

die() {
    echo "run_all.sh: $*" >&2
    exit 2
}

# The first Python that is new enough.
find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "no Python 3.10 or newer on PATH: install one with your system's package manager or from https://www.python.org"
}

# Succeeds if the environment that would be used has this checkout and everything that it needs.
is_set_up() {
    local prefix=${VIRTUAL_ENV:-$PWD/.venv}
    [[ -n ${CONDA_PREFIX:-} && ${CONDA_DEFAULT_ENV:-base} != base && -z ${VIRTUAL_ENV:-} ]] && prefix=$CONDA_PREFIX
    python=$prefix/bin/python
    [[ -x $python && -f $prefix/.sibcore-installed && $(<"$prefix/.sibcore-installed") == "$(wanted)" ]]
}

# The content of the stamp of a finished installation: a hash of the requirements, and the checkout that is installed.
wanted() {
    "$python" - <<'PY'
import hashlib, pathlib
files = "requirements.txt", "requirements-cuda.txt", "pyproject.toml"
print(hashlib.sha256(b"".join(pathlib.Path(f).read_bytes() for f in files)).hexdigest(), pathlib.Path.cwd())
PY
}

set_up() {
    if [[ -n ${VIRTUAL_ENV:-} || (-n ${CONDA_PREFIX:-} && ${CONDA_DEFAULT_ENV:-base} != base) ]]; then
        python=$(find_python)
    else
        if [[ ! -x .venv/bin/python ]]; then
            local base
            base=$(find_python)
            echo "Making .venv with $("$base" --version)."
            "$base" -m venv .venv || {
                rm -rf .venv
                die "could not make a virtual environment: on Debian and Ubuntu, apt install python3-venv"
            }
        fi
        python=$PWD/.venv/bin/python
    fi
    PATH=$(dirname "$python"):$PATH
    export PATH JUPYTER_PREFER_ENV_PATH=1
    install
}

# Install once, and again when the requirements change. The stamp is written last, so a broken install is redone.
install() {
    local stamp wanted
    stamp=$("$python" -c 'import sys; print(sys.prefix)')/.sibcore-installed
    wanted=$(wanted)
    [[ -f $stamp && $(<"$stamp") == "$wanted" ]] && return
    if [[ -f $stamp && $(<"$stamp") != *" $PWD" ]]; then
        echo "This environment had sibcore from $(cut -d' ' -f2- "$stamp"). It now gets this checkout instead."
        echo "To keep both, make an environment for each checkout."
    fi
    echo "Installing the pinned packages. This takes a few minutes, once."
    # The lock lists every package with its hashes, so pip neither resolves versions nor accepts any other file.
    local locked=("$python" -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps)
    # If a folder of wheels (PIP_FIND_LINKS) has torch, install it from there first. Otherwise pip prefers a build whose
    # hash an index states, and for Linux that is one with CUDA.
    "${locked[@]}" --no-index -r <(sed -n '/^torch==/,/[^\\]$/p' requirements.txt) 2>/dev/null || true
    "${locked[@]}" -r requirements.txt ||
        die "pip could not install requirements.txt, see above; docs/troubleshooting.md lists common causes"
    if "$python" -c 'from importlib.metadata import requires; exit(not any("nvidia" in r for r in requires("torch")))'; then
        "${locked[@]}" -r requirements-cuda.txt || die "pip could not install the CUDA libraries of torch, see above"
    fi
    "$python" -m pip install --disable-pip-version-check --quiet --no-deps -e . || die "pip could not install sibcore itself"
    echo "$wanted" >"$stamp"
}

# Run ruff, the import contracts and the tests, then execute every notebook and compare it with its committed output. A
# failure stops nothing, so that one log shows all failures. Notebooks write to a scratch folder, never into the checkout.
run_tests() {
    local failed=() which="not exhaustive"
    if [[ ${1:-} == --all ]]; then
        which=""
        shift
    fi
    scratch=$(mktemp -d) # global: the trap runs after this function is gone
    trap 'rm -rf "$scratch"' EXIT
    ruff check . || failed+=("ruff check")
    ruff format --check . || failed+=("ruff format")
    lint-imports || failed+=("import contracts")
    # One process per core with one thread each: more threads than cores wait for one another and are slower.
    OMP_NUM_THREADS=1 "$python" -m pytest -m "$which" "$@" || failed+=(pytest)
    SIB_OUTPUT=$scratch SIB_RECOMPUTE=1 OMP_NUM_THREADS=1 "$python" -m pytest --dist loadfile --nbval-lax --nbval-current-env \
        --nbval-cell-timeout=600 -p no:cacheprovider notebooks || failed+=(nbval)
    if ((${#failed[@]})); then
        printf 'FAILED: %s\n' "${failed[@]}"
        return 1
    fi
    echo "All checks passed."
}

cd "$(dirname "${BASH_SOURCE[0]}")"
# glibc returns the memory of large tensors after each operation. Keeping it made pretraining 1.7 times as fast.
export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-1073741824} MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-4294967296}
case ${1:-} in
    -h | --help | help) usage ;;
    test)
        shift
        set_up
        run_tests "$@"
        ;;
    lab)
        shift
        set_up
        exec "$python" -m jupyterlab --notebook-dir=notebooks "$@"
        ;;
    verify | publish)
        set_up
        exec "$python" -m sibrepro "$@"
        ;;
    "" | -*)
        if [[ " $* " == *" --list "* ]] && ! is_set_up; then
            echo "Packages have to be installed first. ./run_all.sh would do that (a few minutes), then run every notebook."
            exit 0
        fi
        set_up
        exec "$python" -m sibrepro run --report "$@"
        ;;
    *) usage >&2 && die "there is no command '$1'" ;;
esac
