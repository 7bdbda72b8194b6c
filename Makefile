# Both commands need Python (3.11 to 3.13) and make only: they create .venv themselves.
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

.PHONY: audit test lint types test-all clean

audit: $(VENV)/.models
	@$(BIN)/opcheck audit '$(MODEL)' $(if $(TORCH),--torch $(TORCH)) $(if $(MACOS),--macos $(MACOS)) $(if $(FORMAT),--format $(FORMAT))

test: lint types
	$(BIN)/python -m pytest -n 2

# Also what reads a real wheel (a download of some 100 MB), takes long or needs the libraries of the extra `programs`.
test-all: lint types $(VENV)/.programs
	$(BIN)/python -m pytest -n 2 -m ""

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev
	$(BIN)/mypy

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

pinned = $(shell sed -n 's/^$(1)==//p' constraints.txt)
