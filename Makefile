# The two commands of the README are `make demo` and `make test`; everything they need they install into .venv.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test soak lint format controlplane manifests image kind clean

help:  ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

.venv/.installed: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Muster needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@[ ! -L .venv ] || { echo "$$(pwd)/.venv is a link: what it leads to isn't emptied for $<; install there, or remove the link"; exit 1; }
	@echo "setting up .venv (once, about a minute)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: .venv/.installed  ## Play the story of the README on an embedded control plane
	@$(BIN)/muster demo

# What runs on real processes may have bad luck on a busy machine: three tests at most get a second try, and are shown.
AGAIN := --reruns 1 --max-suite-reruns 3 --rerun-show-tracebacks

test: .venv/.installed lint controlplane  ## Lint, types, import contracts, then every test
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(AGAIN)

SOAK ?= 20
soak: .venv/.installed controlplane  ## Break the quota ledger for as long as it takes: random histories, and a real history under faults
	HYPOTHESIS_PROFILE=random MUSTER_SOAK=$(SOAK) $(BIN)/pytest -n 0 -o log_cli=true --log-cli-level=INFO \
	  tests/ledger/histories tests/linearizable

lint: .venv/.installed  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

controlplane:  ## Get the real control plane's binaries: find them, or build them with Go
	@$(PYTHON) tests/controlplane/binaries.py || [ $$? -eq 3 ]

manifests: .venv/.installed controlplane  ## Make the chart's copies of what is decided elsewhere, and the plain manifest
	@$(BIN)/python tests/support/chart.py

IMAGE ?= muster:0.1.0
ENGINE ?= docker
image:  ## Build the image (IMAGE=…, ENGINE=podman)
	@$(ENGINE) info > /dev/null 2>&1 || { echo "make image: no container engine ($(ENGINE)) answers here; start one, or name another with ENGINE=…"; exit 1; }
	$(ENGINE) build --build-arg REVISION="$$(git describe --always --dirty)" --tag $(IMAGE) .

kind:  ## Make a cluster with kind, install the chart there, play the story
	@IMAGE=$(IMAGE) ENGINE=$(ENGINE) deploy/kind/up.sh

clean:  ## Remove what the other targets made here
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
