#!/bin/sh
# Builds or mends a virtual environment from a lock file: tools/make_venv.sh FOLDER [LOCK]
# Needs a Python from 3.11 to 3.14 and nothing else. PYTHON=... chooses one.
set -eu
venv=$1
lock=${2:-requirements.lock}
suitable='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))'

find_python() {
    for name in ${PYTHON:-python3 python python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c "$suitable" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
    {
        echo "error: clew needs Python 3.11 to 3.14, and none was found."
        echo "Looked for: ${PYTHON:-python3, python, python3.14, python3.13, python3.12, python3.11}."
        echo "Install one, or name it: make venv PYTHON=/path/to/python3.12"
    } >&2
    exit 2
}

if ! "$venv/bin/python" -c "$suitable" >/dev/null 2>&1; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        echo "error: $python cannot make virtual environments (no venv or ensurepip module)." >&2
        echo "On Debian and Ubuntu: apt install python3-venv" >&2
        exit 2
    fi
    echo "Making $venv with $("$python" --version) ..."
    "$python" -m venv --clear "$venv"
fi

packages=$(grep -c '^[a-zA-Z0-9]' "$lock")
echo "Installing $packages packages from $lock (about 300 MB, once) ..."
end='\n'
if [ -t 1 ]; then end='\033[K\r'; fi
show_progress() {
    awk -v total="$packages" -v end="$end" '
        /^(Collecting|Processing) / {
            sub(/.*\//, "", $2)
            sub(/-(py|cp)[0-9].*/, "", $2)
            printf "  %d/%d %s" end, ++n, total, $2
        }
        /^Installing collected/ { print "  unpacking all of them (some 20 seconds) ..." }
        { fflush() }'
}
# The lock is complete and every file in it has a hash: nothing is left for pip to resolve, and
# a package that has no wheel for this machine is an error rather than a long build.
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input"
unfinished="$venv/.unfinished"
touch "$unfinished"
{
    $pip install --no-deps --require-hashes --only-binary=:all: -r "$lock" &&
        rm "$unfinished"
} | show_progress
if [ -e "$unfinished" ]; then
    echo "error: the packages could not be installed; the reason is above" >&2
    exit 1
fi
$pip install --quiet --no-deps --no-build-isolation --editable .
# The one source package, so it comes after what builds it.
$pip install --quiet --no-deps --require-hashes --no-build-isolation -r tools/bsuite.lock
conflicts=$($pip check | grep -v -e '^No broken' -e '^bsuite ' -e '^dm-env ' || true)
if [ -n "$conflicts" ]; then
    echo "$conflicts" >&2
    exit 1
fi
# Without a C++ compiler the same mathematics runs through XLA.
echo "Compiling the kernels (once for this machine) ..."
echo "  $("$venv/bin/python" -m clew.memory.kernels)"
echo "Ready: $venv"
