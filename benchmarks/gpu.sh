#!/usr/bin/env bash
# All that needs a graphics card, in one call of under ten minutes. What has a result is not run
# again: call it until it says that nothing is left.
#
#     benchmarks/gpu.sh                    # into runs/gpu
#     benchmarks/gpu.sh --list             # what it would run
#     benchmarks/gpu.sh --tiny --output X  # a try of every stage in five minutes, without a GPU
#
# It takes a JAX that is installed and sees a GPU: PYTHON, if given, else .venv or python3. clew
# itself runs from the checkout. Where packages are missing and nothing can be downloaded, put their
# wheels into build/wheels (`pip download --no-deps -d build/wheels tyro gymnasium ...` elsewhere).
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
python=${PYTHON:-}
for one in .venv/bin/python python3; do
    [ -z "$python" ] && "$one" -c 'import jax, sys; sys.exit(jax.default_backend() == "cpu")' \
        2>/dev/null && python=$one
done
[ -n "$python" ] || for one in .venv/bin/python python3; do
    [ -z "$python" ] && "$one" -c 'import jax' 2>/dev/null && python=$one
done
[ -n "$python" ] || { echo "error: neither .venv/bin/python nor python3 has JAX" >&2; exit 2; }
if [ -d build/wheels ]; then
    [ -d build/gpu-packages ] || "$python" -m pip install --quiet --no-index --no-deps \
        --target build/gpu-packages build/wheels/*.whl
    export PYTHONPATH="$PYTHONPATH:$PWD/build/gpu-packages"
fi
exec "$python" -m benchmarks.gpu "$@"
