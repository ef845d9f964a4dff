# Everything runs in .venv, which the first call makes. `make help` lists the targets.

# The first Python that is new enough; override with `make PYTHON=/path/to/python test`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO := out/demo
# Tests share the cores: a process for each, up to four, with one torch thread.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all lint docs bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: .venv/ready  ## train the environment IPA-GNN on programs of up to 10 lines and test it on up to 100 (minutes)
	$(BIN)/ipagnn sample --length 10 --seed 0 | $(BIN)/ipagnn inspect -
	$(BIN)/ipagnn demo $(DEMO)

test: .venv/ready .venv/chromium  ## run the tests, without the slow ones
	$(PYTEST)

test-all: .venv/ready-all .venv/chromium  ## run all tests; installs the other implementations they compare with
	$(PYTEST) -m ""

lint: .venv/ready docs  ## check style, types and the direction of imports, and build the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/ready  ## build the documentation site in out/docs; warnings, dead links and other hosts are errors
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs -d out/doctrees . out/docs
	$(BIN)/python docs/check_site.py out/docs

attack: .venv/ready  ## attack this installation for MINUTES (10): programs, requests, damaged files, kill -9; loopback only
	$(BIN)/python -m experiments.attack --minutes $(or $(MINUTES),10)

bench: .venv/ready  ## measure speed; asserts nothing
	$(BIN)/python benchmarks/run.py

clean:  ## remove the environment, caches and what the demo wrote
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found; install one, or name it: make PYTHON=/path/to/python." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) hatchling
	$(PIP) --no-build-isolation --editable '.[test]'
	@touch $@

# The browser that the page is tested in comes from the system, which only root may change.
.venv/chromium: | .venv/bin/python
	@command -v chromium >/dev/null && touch $@ || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get install --yes -qq chromium || { apt-get update -qq && apt-get install --yes -qq chromium; }; } \
		>/dev/null 2>&1 && touch $@; } || \
		echo "chromium is not here and cannot be installed, so the tests of the page in a browser are skipped."

.venv/ready-all: .venv/ready
	$(PIP) --no-build-isolation --editable '.[test-all]'
	@touch $@
