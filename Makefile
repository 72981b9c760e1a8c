# All common tasks of clew. Needs make and Python 3.11 to 3.14; `make` lists the tasks.
# Variables can be set: make test PYTEST_ARGS="-k lstm", make venv PYTHON=python3.12

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHON ?=
WORKERS ?= 2
PYTEST_ARGS ?=
TENTH ?= $(shell git rev-list --count HEAD)
MINUTES ?= 9
NEWEST ?= tests/agents tests/bridges tests/cli tests/deploy tests/interact tests/memory tests/run
BENCH_ARGS ?=
FAULTS_ARGS ?=
CONFORMANCE_ARGS ?= --output results/conformance

# Always keep bytecode: otherwise each interpreter that a test starts would compile clew again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-slow-tenth test-ray test-memory-maze test-onnx test-jaxenvs test-newest lint format docs faults bench bench-torch bench-peers conformance lock lock-newest clean

help:  ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED)  ## build .venv from the lock file (the other tasks do this automatically)
	@echo "$(VENV) is up to date; clew is $(BIN)/clew"

$(INSTALLED): requirements.lock pyproject.toml tools/make_venv.sh tools/bsuite.lock
	@PYTHON="$(PYTHON)" sh tools/make_venv.sh $(VENV)
	@touch $@

demo: $(INSTALLED)  ## train AReLiT and a memoryless control on a short T-Maze and plot both
	@$(BIN)/clew demo

# One more worker, because some tests wait for processes that they have started.
test: $(INSTALLED)  ## run the fast tests
	@$(BIN)/python -m pytest -n $$(($(WORKERS) + 1)) --dist worksteal $(PYTEST_ARGS)

test-slow: $(INSTALLED)  ## run every test, including those that train for minutes
	@$(BIN)/python -m pytest -n $(WORKERS) --slow $(PYTEST_ARGS)

test-slow-tenth: $(INSTALLED)  ## run a tenth of the slow tests (TENTH=0 to 9, by default the commit's); none begins after MINUTES (9)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --slow-tenth $(TENTH) --slow-minutes $(MINUTES) $(PYTEST_ARGS)

test-ray: $(INSTALLED)  ## install Ray (270 MB) into .venv and run the tests on clusters of two nodes
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r tools/ray.lock
	@$(BIN)/python -m pytest --slow tests/lab/test_study_ray.py tests/run/test_async_ray.py $(PYTEST_ARGS)

test-memory-maze: $(INSTALLED)  ## install Memory Maze (560 MB) into .venv and compare it with the original
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r tools/memory_maze.lock
	@$(BIN)/python -m pytest --slow tests/bridges/test_memory_maze.py $(PYTEST_ARGS)

test-onnx: $(INSTALLED)  ## install ONNX Runtime (110 MB) into .venv and compare exports with it
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r tools/onnx.lock
	@$(BIN)/python -m pytest tests/deploy $(PYTEST_ARGS)

test-jaxenvs: $(VENV)-jaxenvs/.installed  ## install six packages of environments (1 GB), five of them in JAX, and compare them with clew's form of them
	@PYTHONPATH=src:tests $(VENV)-jaxenvs/bin/python -m pytest --slow tests/bridges/test_gymnax_real.py tests/bridges/test_jax_packages_real.py tests/bridges/test_pettingzoo.py tests/bridges/test_flax_network.py $(PYTEST_ARGS)

$(VENV)-jaxenvs/.installed: tools/jaxenvs.lock | $(INSTALLED)
	@test -x $(VENV)-jaxenvs/bin/python || $(BIN)/python -m venv $(VENV)-jaxenvs
	@$(VENV)-jaxenvs/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r tools/jaxenvs.lock
	@$(VENV)-jaxenvs/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Not a file for make, which could not see that PYTHON names another one.
test-newest:  ## install the newest JAX, NumPy and so on (1 GB) into .venv-newest and run the fast tests that depend on versions
	@PYTHON="$(PYTHON)" sh tools/make_newest.sh $(VENV)-newest
	@$(VENV)-newest/bin/python -m pytest -n $$(($(WORKERS) + 1)) --dist worksteal $(NEWEST) $(PYTEST_ARGS)

lint: $(INSTALLED)  ## check style and types, and find unused code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright --warnings
	@$(BIN)/vulture

format: $(INSTALLED)  ## fix style errors that can be fixed automatically
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(INSTALLED)  ## build the documentation into site/; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Built site/index.html"

faults: $(INSTALLED)  ## inject faults into runs for an hour (FAULTS_ARGS="--minutes 5") and count what is lost
	@PYTHONPATH=tests $(BIN)/python -m faults $(FAULTS_ARGS)

bench: $(INSTALLED)  ## measure every memory's speed (BENCH_ARGS=--json for JSON)
	@$(BIN)/clew bench $(BENCH_ARGS)

bench-torch: $(INSTALLED)  ## compare a study's speed with the published loop in PyTorch (about 5 minutes, on Linux)
	@test -x $(VENV)-torch/bin/python || { $(BIN)/python -m venv $(VENV)-torch && \
		$(VENV)-torch/bin/python -m pip --disable-pip-version-check install --quiet torch==2.13.0 numpy; }
	@$(BIN)/python -m benchmarks.against_torch --torch-python $(VENV)-torch/bin/python $(BENCH_ARGS)

bench-peers: $(INSTALLED) $(VENV)-peers/.installed  ## compare with other libraries' memories (about 8 minutes)
	@$(BIN)/python benchmarks/peers/bench_peers.py $(BENCH_ARGS)

$(VENV)-peers/.installed: tools/peers.lock tools/make_peers.sh
	@sh tools/make_peers.sh $(VENV)-peers $(BIN)/python

conformance: $(VENV)-conformance/.installed  ## test other libraries' memories against the laws (about 40 minutes)
	@PYTHONPATH=src $(VENV)-conformance/bin/python -m benchmarks.conformance $(CONFORMANCE_ARGS)

$(VENV)-conformance/.installed: tools/peers.lock tools/conformance.lock tools/make_peers.sh tools/make_conformance.sh | $(INSTALLED)
	@sh tools/make_conformance.sh $(VENV)-conformance $(BIN)/python

lock: $(INSTALLED)  ## update requirements.lock to the newest versions, with hashes
	@$(BIN)/python tools/lock.py

lock-newest: $(INSTALLED)  ## update tools/newest.lock, which test-newest installs
	@$(BIN)/python tools/lock.py newest

clean:  ## remove everything that these tasks made, except runs
	rm -rf $(VENV) $(VENV)-torch $(VENV)-peers $(VENV)-conformance $(VENV)-jaxenvs $(VENV)-newest site dist build .pytest_cache .ruff_cache .jax_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
