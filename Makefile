# `make help` lists the targets. Everything runs in one virtual environment, made on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# One thread a worker: the tables are byte-identical for any number, and two workers share two cores.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 POLARS_MAX_THREADS=1

# A run never overwrites another: the folder is runs/frontier, then runs/frontier-2, and so on.
OUT ?= $(shell n=1; d=runs/frontier; while [ -e "$$d" ]; do n=$$((n+1)); d=runs/frontier-$$n; done; echo $$d)

.PHONY: help frontier picture test test-kernels test-deep browser lint format types imports check-frontier gate clean

help:
	@echo "make frontier        install the core, run experiments/frontier.yaml, print the table and the figure's path"
	@echo "                     OUT=DIR picks the folder; OUT=DIR ARGS=--resume goes on where a run stopped"
	@echo "make picture         regenerate docs/frontier: the README's picture and the points it is drawn from"
	@echo "make test            install the test tools, run the tests; ARGS='-k word' passes options on to pytest"
	@echo "make test-kernels    install torch and Triton too, run the tests of the kernel lab"
	@echo "make test-deep       the tests that are slow: many seeds, killed workers, every page's commands"
	@echo "make browser         look at reports in Chromium, which must be installed with its driver"
	@echo "make lint            ruff: rules and format          make format   let ruff rewrite the files"
	@echo "make types           mypy, strict, every module      make imports  who may import whom"
	@echo "make check-frontier  re-run the frontier's smallest load, compare it with the committed picture's points"
	@echo "make gate            compile the kernels for sm_90 (one form of each) and judge the machine code"
	@echo "make clean           remove the environment and caches; runs/ stays"

frontier: $(VENV)/.core
	$(BIN)/specsched run experiments/frontier.yaml -o $(OUT) $(ARGS)

PICTURE := config.yaml points.parquet summary.json frontier.svg frontier.png

picture: $(VENV)/.core
	rm -rf build/picture
	$(BIN)/specsched run experiments/frontier.yaml -o build/picture
	mkdir -p docs/frontier
	cp $(addprefix build/picture/,$(PICTURE)) docs/frontier/

# Every test is in one of four parts (.ci/check_parts.py). Only `test-kernels` needs torch, which it installs; reading
# tests/kernels imports it, so the others do not look there.
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest
TWO_WORKERS := -n 2
NO_TORCH := --ignore=tests/kernels

test: $(VENV)/.test
	$(PYTEST) $(TWO_WORKERS) $(NO_TORCH) -m 'not kernels and not deep and not browser' $(ARGS)

test-kernels: $(VENV)/.kernels
	$(PYTEST) $(TWO_WORKERS) -m kernels $(ARGS)

test-deep: $(VENV)/.test
	$(PYTEST) $(TWO_WORKERS) $(NO_TORCH) -m 'deep and not kernels' $(ARGS)

browser: $(VENV)/.test
	$(PYTEST) $(NO_TORCH) -m 'browser and not deep and not kernels' $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.kernels
	$(BIN)/python .ci/check_types.py

imports: $(VENV)/.test
	PYTHONPATH=.typing $(BIN)/lint-imports --no-cache

check-frontier: $(VENV)/.core
	$(ONE_THREAD) $(BIN)/python benchmarks/check_frontier.py

gate: $(VENV)/.kernels
	$(BIN)/specsched kernels compile --arch sm_90 --first 1

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "specsched needs Python 3.11 or newer, and PYTHON=$(PYTHON) is $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The stamps say what is installed: the core, the core with the test tools, or these with torch and Triton.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	@touch $@ $(VENV)/.core

$(VENV)/.kernels: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test,kernels]'
	@touch $@ $(VENV)/.test $(VENV)/.core
