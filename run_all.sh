#!/usr/bin/env bash
# Everything in one command, set-up included. See ./run_all.sh --help
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: ./run_all.sh [run options]      set up, run every notebook, compute the published runs of the quick profile again
                                       and compare them, build the report results/local/report/index.html
       ./run_all.sh test [--all] [pytest ...]
                                       set up, then ruff, import contracts, pytest and the nbval checks of the notebooks
       ./run_all.sh lab [options]      set up, then open JupyterLab on notebooks/
       ./run_all.sh verify [options]   set up, then compute any published run again and compare (sib verify --help)
       ./run_all.sh publish [options]  for maintainers: write facts, figures, tables, notebooks and README anew

run options:
  --profile quick|cpu|paper   how much to compute (quick: minutes, any machine; paper: a GPU and the full data sets)
  --only 02                   only this notebook, by number or part of its name; may be repeated
  --list                      say what would run, and why; run nothing
  --force                     run and compute again even what did not change
  --help                      this text

test:
  (no option)                 all tests but those marked exhaustive: minutes on two cores
  --all                       all tests, also two users, JupyterLab and the site in a browser, the probe: several minutes more
  -m 'not thorough and not exhaustive'
                              the working loop, as `pytest` alone runs it: below a minute on two cores
  anything else               goes to pytest, such as -k words or a file

What is computed and drawn goes to results/local/; tracked files are written by publish alone.
The environment: an active virtual or conda environment (other than conda's base) is used, else .venv is made here.
SIB_DATA    folder with data sets     SIB_DEVICE  cpu, cuda, cuda:1, mps (default: the best there is)
SIB_OUTPUT  folder in place of results/local
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
    die "no Python 3.10 or newer found on PATH; install one from your system's packages or https://www.python.org"
}

# Whether the environment that would be used has what this checkout needs, and this checkout itself.
is_set_up() {
    local prefix=${VIRTUAL_ENV:-$PWD/.venv}
    [[ -n ${CONDA_PREFIX:-} && ${CONDA_DEFAULT_ENV:-base} != base && -z ${VIRTUAL_ENV:-} ]] && prefix=$CONDA_PREFIX
    python=$prefix/bin/python
    [[ -x $python && -f $prefix/.sibcore-installed && $(<"$prefix/.sibcore-installed") == "$(wanted)" ]]
}

# What a finished installation is marked with: a hash of the requirements, and the checkout that is installed.
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
            echo "making .venv with $("$base" --version)"
            "$base" -m venv .venv || {
                rm -rf .venv
                die "could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv"
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
        echo "this environment held the checkout $(cut -d' ' -f2- "$stamp"); from now on it holds this one: use one for each"
    fi
    echo "installing the pinned packages (once; some minutes)"
    # The lock names every package there is need of, with its hashes: nothing else is looked for, nothing else accepted.
    local locked=("$python" -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps)
    # torch from a folder of wheels that pip knows (PIP_FIND_LINKS) comes first, if there is one: pip would rather take
    # a build whose hash an index states, which for Linux is one with CUDA.
    "${locked[@]}" --no-index -r <(sed -n '/^torch==/,/[^\\]$/p' requirements.txt) 2>/dev/null || true
    "${locked[@]}" -r requirements.txt ||
        die "pip could not install requirements.txt (see above); the README's FAQ has the common causes"
    if "$python" -c 'from importlib.metadata import requires; exit(not any("nvidia" in r for r in requires("torch")))'; then
        "${locked[@]}" -r requirements-cuda.txt || die "pip could not install the CUDA libraries of torch (see above)"
    fi
    "$python" -m pip install --disable-pip-version-check --quiet --no-deps -e . || die "pip could not install sibcore itself"
    echo "$wanted" >"$stamp"
}

# ruff, the unit tests, and every notebook executed from scratch and compared with its committed output. All are run, so
# that one log shows all that is wrong. Notebooks write to a scratch folder, never into the checkout.
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
    # A process for each core, and one thread in each: threads that wait for one another's cores cost more than they bring.
    OMP_NUM_THREADS=1 "$python" -m pytest -m "$which" "$@" || failed+=(pytest)
    SIB_OUTPUT=$scratch SIB_RECOMPUTE=1 OMP_NUM_THREADS=1 "$python" -m pytest --dist loadfile --nbval-lax --nbval-current-env \
        --nbval-cell-timeout=600 -p no:cacheprovider notebooks || failed+=(nbval)
    if ((${#failed[@]})); then
        printf 'FAILED: %s\n' "${failed[@]}"
        return 1
    fi
    echo "all checks passed"
}

cd "$(dirname "${BASH_SOURCE[0]}")"
# glibc gives large tensors' memory back after each operation and asks for it again; kept, pretraining was 1.7 times as fast.
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
            echo "would first set up the environment, for some minutes; then all notebooks would run"
            exit 0
        fi
        set_up
        exec "$python" -m sibrepro run --report "$@"
        ;;
    *) usage >&2 && die "there is no command '$1'" ;;
esac
