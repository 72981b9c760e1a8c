#!/bin/sh
# Makes the environment of the other libraries: tools/make_peers.sh FOLDER [PYTHON]
# Apart from clew's own, whose versions theirs must not decide.
set -eu
venv=$1
python=${2:-python3}
torch=2.13.0

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --no-input --quiet"
echo "Installing $(grep -c '^[a-z]' tools/peers.lock) packages from tools/peers.lock into $venv ..."
$pip install --no-deps --require-hashes --only-binary=:all: -r tools/peers.lock
# With its dependencies: a build for GPUs asks for many, the one for processors for none that is new.
echo "Installing PyTorch $torch (200 MB; where pip knows no build for processors, several GB) ..."
$pip install "torch==$torch"
touch "$venv/.installed"
echo "Ready: $venv"
