# Each target sets itself up: a virtual environment in .venv with the package built from this checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml meson.build $(shell find src -type f -not -path '*/__pycache__/*')

.PHONY: demo test lint bench fuzz-files clean

demo: $(VENV)/installed ## fit, certify, compare with a support vector machine under noise; a report
	$(BIN)/gaussguru demo --force

test: $(VENV)/installed-test lint ## every check: lint, types, tests
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed ## times against scikit-learn, in one run
	$(BIN)/python benchmarks/run.py

CALLS ?= 10000
fuzz-files: $(VENV)/installed-test ## hostile and damaged files for the command, Linux only; an hour
	$(BIN)/python tests/fuzz_files.py --calls $(CALLS)

$(VENV)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"Python >= 3.11 is needed, this is {sys.version}"'
	$(PYTHON) -m venv $(VENV)
	touch $@

# Installed as users have it, not editable: what is tested is what a wheel contains.
$(VENV)/installed: $(VENV)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[cli]'
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache
