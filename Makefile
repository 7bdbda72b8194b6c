# Both commands need Python (3.11 to 3.14) and make only: they create .venv themselves.
#
#   make audit MODEL=transformers:BertModel TORCH=2.13 MACOS=15.0 FORMAT=text
#   make test

PYTHON ?= python3
MODEL ?= transformers:BertModel
TORCH ?=
MACOS ?=
FORMAT ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Python keeps what it compiles, also where the environment forbids it: else each process that a test starts compiles
# opcheck again, and each worker of pytest all tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: audit test lint types test-all test-mac-build docs package clean

audit: $(VENV)/.models
	@$(BIN)/opcheck audit '$(MODEL)' $(if $(TORCH),--torch $(TORCH)) $(if $(MACOS),--macos $(MACOS)) $(if $(FORMAT),--format $(FORMAT))

test: lint types
	$(BIN)/python -m pytest -n 2

# Also what reads a real wheel (a download of some 100 MB), takes long or needs the libraries of the extra `programs`.
test-all: lint types docs package $(VENV)/.programs
	$(BIN)/python -m pytest -n 2 -m ""
	$(MAKE) test-mac-build

# The rooms that simulate, on a torch that looks like a Mac's: the same verdicts, and nothing of the device is reached.
test-mac-build: $(VENV)/.dev
	OPCHECK_TEST_MAC_BUILD=1 $(BIN)/python -m pytest -n 2 tests/simulator tests/capture tests/device/emulator tests/features/compile \
		tests/features/gate tests/features/sweep

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# For each system that the package runs on; side by side, because a run that finds no cache takes half a minute.
types: $(VENV)/.dev
	@$(BIN)/mypy & linux=$$!; \
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin & darwin=$$!; \
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 & win32=$$!; \
	ok=0; for each in $$linux $$darwin $$win32; do wait $$each || ok=1; done; exit $$ok

# The pages of docs/ as a web site in build/docs; a broken link or a page that is in no menu is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What a release uploads, in build/package, held against what package indexes ask for.
package: $(VENV)/.docs
	rm -rf build/package
	$(BIN)/python -m build --no-isolation --outdir build/package
	$(BIN)/check-wheel-contents build/package
	$(BIN)/twine check --strict build/package/*
	$(BIN)/pyroma --min 10 .

clean:
	rm -rf $(VENV)

# torch goes first and alone, torchvision second and without its dependencies: nothing later can
# then replace the torch build that pip chose for this machine.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==$(call pinned,torch)
	$(PIP) --no-deps torchvision==$(call pinned,torchvision)
	$(PIP) hatchling
	@touch $@

# --no-build-isolation: the pinned hatchling builds, not the newest one.
$(VENV)/.models: $(VENV)/.torch pyproject.toml
	$(PIP) --no-build-isolation --editable '.[models]'
	@touch $@

$(VENV)/.dev: $(VENV)/.models
	$(PIP) --no-build-isolation --editable '.[dask,kernels,metal,models,probe,sweep,wheels,dev]'
	@touch $@

$(VENV)/.programs: $(VENV)/.dev
	$(PIP) --no-build-isolation --editable '.[programs]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) --no-build-isolation --editable '.[docs,release]'
	@touch $@

pinned = $(shell sed -n 's/^$(1)==//p' constraints.txt)
