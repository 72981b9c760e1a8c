#!/bin/sh
# Makes the environment of the libraries that are tried by the laws: tools/make_conformance.sh FOLDER [PYTHON]
# Those of tools/make_peers.sh, and more.
set -eu
venv=$1
python=${2:-python3}

sh tools/make_peers.sh "$venv" "$python"
rm "$venv/.installed"
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input --quiet"
echo "Installing $(grep -c '^[a-z]' tools/conformance.lock) packages from tools/conformance.lock ..."
$pip install --no-deps --require-hashes -r tools/conformance.lock
touch "$venv/.installed"
echo "Ready: $venv"
