# Each target sets itself up: a virtual environment in .venv with the package built from this checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WHEELS := build/wheels
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml meson.build README.md tools/version.py \
	$(shell find src -type f -not -path '*/__pycache__/*' -not -name '*.so')

.PHONY: demo test lint docs test-minimum dist bench fuzz fuzz-files sanitize clean

demo: $(VENV)/installed ## what error bars are worth, on data that scikit-learn has; a report
	$(BIN)/gaussguru demo --force

test: $(VENV)/installed-test lint ## every check: lint, types, tests, the documentation
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadgroup

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/support/user.py

docs: $(VENV)/installed-test ## the site, with its gallery, in docs/_build/html; warnings are errors
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -j auto -b html docs docs/_build/html

dist: $(VENV)/installed-test ## sdist and wheel in dist/, the same bits every time
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --outdir dist

# The oldest versions that pyproject.toml allows; their own deprecation warnings are no errors. A check of scikit-learn 1.6
# relabels the two halves of its comparison differently, and is left out.
MINIMUM := build/minimum
test-minimum: $(WHEELS)/built ## the tests with the oldest versions of what is needed
	$(PYTHON) -m venv $(MINIMUM)
	$(BIN)/python tools/minimum.py > $(MINIMUM)/constraints.txt
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check -c $(MINIMUM)/constraints.txt \
	  "$$(echo $(WHEELS)/*.whl)[cli,dask]" pytest pytest-xdist hypothesis mpmath cvxpy astropy uncertainties
	OPENBLAS_NUM_THREADS=1 $(MINIMUM)/bin/python -m pytest -n auto --dist loadgroup -W default \
	  -k "not check_sample_weight_equivalence" tests/guru tests/measured tests/rows \
	  tests/tables

bench: $(VENV)/installed ## times against scikit-learn, in one run, and passes over X against their budgets
	$(BIN)/python benchmarks/run.py
	PYTHONPATH=tests $(BIN)/python benchmarks/budgets.py

MINUTES ?= 30
fuzz: $(VENV)/installed-test ## random problems and measurements: what is promised of them, checked; half of the time each
	status=0; for kind in problems measured; do PYTHONPATH=tests OPENBLAS_NUM_THREADS=1 \
	  $(BIN)/python -m fuzz.$$kind --minutes $$(awk 'BEGIN { print $(MINUTES) / 2 }') || status=1; done; exit $$status

CALLS ?= 10000
fuzz-files: $(VENV)/installed-test ## hostile and damaged files for the command, Linux only; an hour
	PYTHONPATH=tests $(BIN)/python -m fuzz.files --calls $(CALLS)

# With GCC: checks of addresses, of undefined behaviour and of the bounds of containers in the compiled module. Leaks are
# not looked for: Python frees little when it ends. What is found ends the process, and is written to files, because
# pytest keeps back what is printed.
SANITIZED := $(CURDIR)/build/sanitized
SANITIZED_TESTS := tests/test_losses.py tests/test_noise.py tests/rows tests/guru/problems tests/guru/solvers \
	tests/guru/test_kernel.py tests/guru/test_error_bars.py
SANITIZED_PYTHON = LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:halt_on_error=1:log_path=$(SANITIZED)/found \
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:log_path=$(SANITIZED)/found \
	PYTHONPATH=$(SANITIZED)/package:tests PYTHONMALLOC=malloc OPENBLAS_NUM_THREADS=1 $(BIN)/python
NOTHING_FOUND = status=$$?; ! cat $(SANITIZED)/found.* 2>/dev/null && exit $$status

sanitize: $(VENV)/installed-test ## the tests of the compiled module and random problems, with sanitizers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade . \
	  --target $(SANITIZED)/package --config-settings=build-dir=$(SANITIZED)/meson \
	  --config-settings=setup-args=-Db_sanitize=address,undefined --config-settings=setup-args=-Db_lundef=false \
	  --config-settings=setup-args='-Dcpp_args=-D_GLIBCXX_ASSERTIONS -fsanitize=float-cast-overflow -fno-omit-frame-pointer' \
	  --config-settings=setup-args=-Doptimization=1 --config-settings=setup-args=-Ddebug=true
	rm -f $(SANITIZED)/found.*
	$(SANITIZED_PYTHON) -c 'from gaussguru._native._binding import __file__ as module; \
	  assert b"__asan_init" in open(module, "rb").read(), f"{module} has no sanitizers"'
	$(SANITIZED_PYTHON) -m pytest -n auto $(SANITIZED_TESTS); $(NOTHING_FOUND)
	$(SANITIZED_PYTHON) -m fuzz.problems --problems 500; $(NOTHING_FOUND)

$(VENV)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"Python >= 3.11 is needed, this is {sys.version}"'
	$(PYTHON) -m venv $(VENV)
	touch $@

# Built once, and installed as users have it, not editable: what is tested is what a wheel contains. The directory of the
# build is kept, so that only what changed is compiled again.
$(WHEELS)/built: $(VENV)/python $(SOURCES)
	@echo "Building gaussguru: its compiled part takes about a minute, once."
	rm -rf $(WHEELS)
	$(PIP) wheel --no-deps --wheel-dir $(WHEELS) --config-settings=build-dir=build/meson .
	touch $@

# Dependencies first: of a package of the same version pip would keep the old files.
$(VENV)/installed: $(WHEELS)/built
	@echo "Installing gaussguru and what it needs."
	$(PIP) install "$$(echo $(WHEELS)/*.whl)[cli]"
	$(PIP) install --no-deps --force-reinstall $(WHEELS)/*.whl
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	@echo "Installing what the tests and the documentation need."
	$(PIP) install "$$(echo $(WHEELS)/*.whl)[test]"
	touch $@

clean:
	rm -rf $(VENV) build dist docs/_build docs/auto_examples docs/api/generated .mypy_cache .pytest_cache .ruff_cache
