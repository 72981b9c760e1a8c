#!/bin/sh
# Builds or mends the environment of the newest versions: tools/make_newest.sh FOLDER
# With the newest Python from 3.12 to 3.14 that is found; PYTHON=... chooses one.
set -eu
venv=$1
lock=tools/newest.lock

# One line for each: its version in three words, and where it is.
suitable_pythons() {
    for name in ${PYTHON:-python3.14 python3.13 python3.12 python3 python} $kept; do
        "$name" -c 'import sys; v = sys.version_info[:3]
if (3, 12) <= v < (3, 15): print(*v, sys.executable)' 2>/dev/null || true
    done
}

# Where pyenv and uv keep Pythons that are not on the path.
kept=
if [ -z "${PYTHON:-}" ]; then
    kept=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-4].*/bin/python \
        "${XDG_DATA_HOME:-$HOME/.local/share}"/uv/python/cpython-3.1[2-4].*/bin/python3 \
        2>/dev/null || true)
fi
python=$(suitable_pythons | sort -k1,1n -k2,2n -k3,3n | tail -n 1 | cut -d ' ' -f 4-)
if [ -z "$python" ]; then
    {
        echo "error: the newest versions need Python 3.12 to 3.14, and none was found."
        echo "NumPy 2.5 and JAX 0.12 have no wheel for 3.11, so $lock has none either."
        echo "Looked for: ${PYTHON:-python3.14 to 3.12, python3, python, and those of pyenv and uv}."
        echo "Install one, or name it: make test-newest PYTHON=/path/to/python3.13"
    } >&2
    exit 2
fi

made_of="$("$python" -V) $(cat "$lock" pyproject.toml tools/bsuite.lock tools/make_venv.sh | cksum)"
[ "$made_of" = "$(cat "$venv/.installed" 2>/dev/null)" ] && exit
rm -f "$venv/.installed"
[ "$("$python" -V)" = "$("$venv/bin/python" -V 2>/dev/null)" ] || rm -rf "$venv"
PYTHON="$python" sh tools/make_venv.sh "$venv" "$lock"
echo "$made_of" >"$venv/.installed"
