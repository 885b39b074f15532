# The two commands of the README are `make demo` and `make test`; everything else serves them.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
MINIMUM := .venv-minimum

.PHONY: install test lint types contract unit test-all test-minimum demo docs pictures reproduce campaign bench-micro bench-check dist first-hour clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

test: lint types contract unit

lint: install
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: install
	$(BIN)/mypy

contract: install
	$(BIN)/lint-imports

# A process that has done its half takes tests from the other: no core is idle while a long file ends.
unit: install
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --dist worksteal

test-all: install
	$(BIN)/python -m pytest

# The tests with the lowest versions that pyproject.toml declares; their own dependencies are the latest of a
# fixed day, so that the result does not change by itself. Old versions may use what is deprecated. The
# numbers on the page of the command line are those of the latest versions.
test-minimum: $(MINIMUM)/.installed
	$(MINIMUM)/bin/python -m pytest -m "not slow" --numprocesses auto --dist worksteal \
	  -W ignore::DeprecationWarning \
	  --deselect "tests/test_docs.py::test_code_of_a_page_runs[docs/command-line.md]"

$(MINIMUM)/.installed: pyproject.toml Makefile
	$(PYTHON) -m venv --clear $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet uv
	$(MINIMUM)/bin/uv pip install --quiet --python $(MINIMUM)/bin/python --resolution lowest-direct \
	  --exclude-newer 2026-11-01 --editable '.[dev]'
	touch $@

# The demo needs a tenth of what development does; if that is there, it is enough.
demo: $(VENV)/.demo
	$(BIN)/python -m cavity demo

$(VENV)/.demo: pyproject.toml
	test -e $(VENV)/.installed || $(PYTHON) -m venv $(VENV)
	test -e $(VENV)/.installed || $(BIN)/python -m pip install --quiet --upgrade pip
	test -e $(VENV)/.installed || $(BIN)/python -m pip install --quiet --editable '.[cli]'
	touch $@

docs: install
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "open docs/_build/index.html"

pictures: install
	$(BIN)/python docs/images/draw.py

# Every benchmark in its quick form: with the real data if CAVITY_DATA names them, else with stand-ins.
reproduce: install
	$(BIN)/python -m benchmarks run all --quick $(if $(CAVITY_DATA),,--stand-ins)

# Attacks on the product, in their long form: damaged files, extreme fits, odd tables, kills, signals, and
# workers and disks that fail.
campaign: install
	cd tests && ../$(BIN)/python -m campaign.model_files --seed 0 --count 3000
	cd tests && ../$(BIN)/python -m campaign.checkpoints --seed 0 --count 2000
	cd tests && ../$(BIN)/python -m campaign.fits --seed 0 --count 10000
	cd tests && ../$(BIN)/python -m campaign.tables --seed 0 --count 500
	cd tests && ../$(BIN)/python -m campaign.kills --seed 0 --count 100
	cd tests && ../$(BIN)/python -m campaign.signals --seed 0 --count 100
	cd tests && ../$(BIN)/python -m campaign.faults --seed 0 --count 20

bench-micro: install
	$(BIN)/python -m pytest benchmarks/micro --benchmark-max-time=0.5

# Fails if the working tree is slower than BASE beyond the noise of this very run.
BASE ?= main~1
bench-check: install
	$(BIN)/python -m benchmarks.compare $(BASE)

# The wheel and the source distribution, in dist/.
dist: install
	rm -rf dist
	$(BIN)/python -m build

# What a stranger does with the wheel and a fresh environment, and tests of the installed wheel.
first-hour: dist
	cd tests && ../$(BIN)/python -m first_hour ../dist

clean:
	rm -rf $(VENV) $(MINIMUM) dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
