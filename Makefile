# One command a chore, the same here and in CI.  `make help` lists them.

SHELL := /bin/bash
# The folder of the environment.
VENV ?= .venv
# The Python to make it with, such as /usr/bin/python3.12; python3 by default.
PYTHON ?=
# Packages to install besides, such as "torch==2.13.0 openvino".
EXTRA_PACKAGES ?=
# What `make tune` tunes: a network of the zoo, or an ONNX file.
DEMO_MODEL ?= zoo:mobilenet_v1_0.5
# For how many minutes `make tune` tunes.
DEMO_MINUTES ?= 3
# Further options of pytest, such as "-k wire".
PYTEST_ARGS ?=
# How many processes share the tests; 0: all in one.
TEST_WORKERS ?= 2
# Further Pythons that `make release-check` tries, such as "/usr/bin/python3.10 /usr/bin/python3.13".
PYTHONS ?=

# Which part `make mutants` changes: core, search, scheduler, validate, records or readers; all by default.
PART ?=
# How many mutants of each part it draws.
COUNT ?= 500
# The commit whose kernels `make race-layers` races.
BEFORE ?= HEAD~1
# It races each how many-th layer.
EVERY ?= 1
# The seed of the draw, and of `make fuzz-reader`.
SEED ?= 1
# How many changed files `make fuzz-reader` opens.
INPUTS ?= 1000000

BIN := $(VENV)/bin
# Tests that start neither the compiler nor other processes.
FAST := tests/core tests/search tests/scheduler tests/terminal tests/partition tests/hardware tests/test_architecture.py tests/test_docs.py
# Subpackages whose coverage `make coverage` measures.
COVERED := core search scheduler compiler/kernels
comma := ,

# Tests start some thousands of processes, each of which would compile the sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup tune test test-fast coverage test-bare test-slow test-hosts mutants fuzz-reader race-layers lint format benchmarks-page dist release-check docs wheel clean

help: ## list the chores and their variables
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '  make %-15s %s\n' "$$name" "$$what"; done
	@printf "\nVariables, as in: make tune DEMO_MINUTES=1\n"
	@awk '/^# / {text = substr($$0, 3)} /^[A-Z_]+ [?]=/ {name = $$1; sub(/^[^=]*= */, ""); printf "  %-15s %s%s\n", name, text, $$0 ? " [" $$0 "]" : ""}' $(MAKEFILE_LIST)

setup: ## create the environment, or bring it up to date
	@VENV=$(VENV) tools/environment $(EXTRA_PACKAGES)

tune: setup ## tune a model of the zoo for a few minutes and say what was gained
	@$(BIN)/kintune tune $(DEMO_MODEL) --minutes $(DEMO_MINUTES)

test: setup lint ## check everything that is not slow
	@$(BIN)/python -m pytest -q -m "not slow" -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-fast: setup ## run the tests that need neither the compiler nor other processes, in less than a minute
	@$(BIN)/python -m pytest -q -m "not slow and not tvm and not needs" -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(FAST) $(PYTEST_ARGS)

coverage: override EXTRA_PACKAGES += coverage
coverage: setup ## say which lines of core, search, scheduler and the kernels no test of theirs reaches
	@$(BIN)/python -m coverage run --branch --source $(subst $() ,$(comma),$(COVERED:%=src/kintune/%)) -m pytest -q -n 0 -m "not slow" $(COVERED:%=tests/%) $(PYTEST_ARGS)
	@$(BIN)/python -m coverage report --show-missing --skip-covered

test-bare: setup ## see that tests are skipped where the optional tools they use are missing
	@KINTUNE_HIDE_TOOLS=all KINTUNE_FORBID_SKIPS= $(BIN)/python -m pytest -q -m "needs and not slow" $(PYTEST_ARGS)

test-slow: override EXTRA_PACKAGES += mutmut
test-slow: setup ## run the tests that take minutes, and property tests with all their examples
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q -m "slow or drawn" --timeout 1800 $(PYTEST_ARGS)

test-hosts: setup ## run the test with several hosts in network namespaces (as root)
	@.ci/postgres $(BIN)/python -m pytest -q tests/acceptance/test_hosts.py -m slow

mutants: override EXTRA_PACKAGES += mutmut
mutants: setup ## change one place of the sources at a time, and see whether tests notice; goes on where it ended
	@$(BIN)/python tools/mutants.py $(PART) --count $(COUNT) --seed $(SEED)

fuzz-reader: setup ## open results that were changed at random, under sanitizers (libFuzzer, with clang); goes on where it ended
	@PYTHONPATH=. $(BIN)/python -m tests.support.reader_fuzzer --inputs $(INPUTS) --seed $(SEED)

race-layers: setup ## race the kernels of an older state of the sources (BEFORE=COMMIT) against those of this one
	@rm -rf build/before && mkdir -p build/before && git archive $(BEFORE) src | tar -x -C build/before
	@$(BIN)/python benchmarks/race_layers.py --before build/before/src --every $(EVERY) --output build/race-layers.jsonl

lint: setup ## check style, types and the layers of imports
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check || { echo "make format puts it right"; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@PYTHONPATH=src $(BIN)/lint-imports --no-cache --no-logo

format: setup ## format the code
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

benchmarks-page: setup ## write docs/benchmarks.md from notebook/results
	@$(BIN)/python tools/benchmarks_page.py

dist: override EXTRA_PACKAGES += ziglang cyclonedx-python-lib
dist: setup ## build what a release consists of in dist/: wheels and sources of Kintune and its runtime
	@PYTHON=$(BIN)/python tools/distributions dist

release-check: override EXTRA_PACKAGES += ziglang cyclonedx-python-lib
release-check: setup ## build, install in an empty environment, tune, serve, and upgrade databases of the version before
	@$(BIN)/python tools/release_check.py $(PYTHONS:%=--python %)

docs: override EXTRA_PACKAGES += mkdocs-material
docs: setup ## build the documentation as a site in site/, offline
	@$(BIN)/python tools/docs_site.py site

wheel: override EXTRA_PACKAGES += ziglang
wheel: setup ## build only the wheels in dist/, those of the runtime for each platform among them
	@PYTHON=$(BIN)/python tools/runtime_wheels dist
	@$(BIN)/python -m build --wheel --no-isolation

clean: ## remove what the other chores have made, the environment included
	@rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -f runtime/src/kintune_runtime/*.so
	@find src runtime tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
