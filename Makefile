# The two commands of the README are `make demo` and `make test`; everything they need they install into .venv.
PYTHON ?= python3
BIN := .venv/bin
# More than there are cores: half of the time of a test of processes is waiting.
WORKERS ?= 4
# Where this is set, as in many images, each worker compiles all tests anew, and each process of a test all of Muster.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all test-versions test-interpreters soak siege bench lint format controlplane manifests image kind node audit release test-node test-node-full clean

help:  ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

# $(1): the requirements of what is set up, $(2): for what.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Muster needs Python 3.11 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@[ ! -L .venv ] || { echo "$$(pwd)/.venv is a link: what it leads to isn't emptied for $<; install there, or remove the link"; exit 1; }
	@echo "setting up .venv for $(2) (once, about a minute)"
	@$(PYTHON) -m venv --clear .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes $(1:%=-r requirements/%.txt)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
endef

.venv/.installed: requirements/dev.txt pyproject.toml
	$(call install,dev,the tests)

# What runs Muster, without linters and tests. Where what the tests need is there already, that has it too.
.venv/.runs: requirements/runtime.txt requirements/build.txt pyproject.toml
	$(call install,runtime build,the demo)

RUNS := $(if $(wildcard .venv/.installed),.venv/.installed,.venv/.runs)

demo: $(RUNS)  ## Play the story of the README on an embedded control plane
	@$(BIN)/muster demo

# What everybody's loop leaves out and CI doesn't: the sandbox's own proof, whole installations, every page's commands played from
# a fresh cluster on, commands as processes by the dozen, Muster's accounts through all that they do, every framework's objects,
# native groups on control planes of their own, all hostile objects at once and the bounds of each reader, what the ledger's histories
# would miss, real nodes (which `make test-node` has), and the load and the faults of `make soak`.
CI_ALONE := tests/sandbox tests/differential tests/node tests/deploy/test_installation.py tests/deploy/test_drop_in.py \
  tests/hostile/test_gate.py tests/hostile/test_bounded.py tests/ledger/histories/test_missing_rules.py \
  tests/rbac/test_accounts.py tests/rbac/test_collected_roles.py tests/certs/test_docs.py tests/project/test_verdict.py \
  tests/scheduler/simulator/test_shortcuts.py tests/certs/test_commands.py tests/cli/test_flags.py \
  tests/webhooks/test_workloads_on_apiserver.py tests/scheduler/test_evicting_admission.py \
  $(addprefix tests/story/test_,pages.py frameworks.py queue_commands.py up.py why.py kube_batch_example.py native_groups.py groups_of_either_kind.py)
LOOP := -n $(WORKERS) --dist loadgroup $(CI_ALONE:%=--ignore=%)

test: .venv/.installed lint controlplane  ## Lint, types, import contracts, and the tests, also on a real kube-apiserver
	MUSTER_LOOP=1 $(BIN)/pytest $(LOOP) -m "not soak"

test-fast: .venv/.installed  ## The tests that start no process: pure code, and the sandbox in virtual time
	MUSTER_LOOP=1 $(BIN)/pytest $(LOOP) -m "not soak and not processes"

test-all:  ## All that CI runs: also the sandbox's own proof, installations, and a little of `make soak`
	@WORKERS=$(WORKERS) .ci/run

# What a user meets first, on the oldest version of Kubernetes that is promised and on the one before the newest.
OLDER := v1.36.3 v1.30.14
STORIES := tests/story/test_story.py tests/scheduler/test_story.py tests/webhooks/test_on_apiserver.py
test-versions: .venv/.installed  ## The story, admission and gangs on older versions of Kubernetes, in three minutes once they are built
	@$(PYTHON) tests/controlplane/binaries.py versions
	@for version in $(OLDER); do \
	  echo "Kubernetes $$version" && MUSTER_KUBERNETES=$$version $(BIN)/python tests/support/verdict.py -n 2 --dist loadgroup -k kubernetes $(STORIES) || exit 1; \
	done

# How deep a decoder may go differs between versions: from 3.12 on the limit in C is another than sys.getrecursionlimit.
PYTHONS ?= $(wildcard $(HOME)/.pyenv/versions/3.1[1-4].*/bin/python)
DECODERS := tests/model/test_nesting.py tests/kube/test_client.py tests/webhooks/test_review.py tests/model/test_rules.py
test-interpreters:  ## The tests of what decodes, on other versions of Python (PYTHONS=…; those of pyenv if nothing is said)
	@[ -n "$(strip $(PYTHONS))" ] || { echo "no interpreter found; name some with: make test-interpreters PYTHONS='python3.12 python3.13'"; exit 1; }
	@for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') && env=.venv-$$version && \
	  { [ -x $$env/bin/pytest ] || { $$python -m venv --clear $$env && \
	    $$env/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt; }; } && \
	  echo "Python $$version" && PYTHONPATH=. $$env/bin/python -m pytest -q -n 0 -p no:cacheprovider $(DECODERS) || exit 1; \
	done

# Histories of the quota ledger, thousands of objects under a rotation of certificates, minutes of hostile objects.
SOAK ?= 20
IN_FLIGHT ?= 8
soak: .venv/.installed controlplane  ## For as long as it takes: random histories, a real one under faults, load under a rotation, hostile objects, fuzzing
	HYPOTHESIS_PROFILE=random MUSTER_SOAK=$(SOAK) $(BIN)/pytest -n 0 -o log_cli=true --log-cli-level=INFO \
	  tests/ledger/histories tests/linearizable tests/certs/test_under_load.py tests/hostile

# Its API server keeps what tenants write of megabytes, and nobody else's runs beside it.
siege: .venv/.installed controlplane  ## Hostile objects alone, for SOAK minutes with IN_FLIGHT requests of each tenant at once
	GOGC=1000 GOMEMLIMIT=8GiB MUSTER_SOAK=$(SOAK) MUSTER_IN_FLIGHT=$(IN_FLIGHT) $(BIN)/pytest -n 0 -o log_cli=true --log-cli-level=INFO tests/hostile/test_soak.py

bench: .venv/.installed controlplane  ## The goals of speed, each beside its limit, in 15 minutes; RECORD=1 adds the run to benchmarks/history.jsonl; ONLY="reviews creations" measures a part
	@PYTHONPATH=tests/controlplane:tests/support $(BIN)/python benchmarks/bench.py $(if $(RECORD),--record) $(if $(ONLY),--only $(ONLY))

lint: .venv/.installed  ## ruff, mypy, import-linter, retired words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=tests/controlplane:tests/support $(BIN)/mypy --follow-imports silent benchmarks/*.py
	$(BIN)/lint-imports
	$(BIN)/python tests/project/test_words.py

format: .venv/.installed  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

controlplane:  ## Get the real control plane's binaries: find them, or build them with Go
	@$(PYTHON) tests/controlplane/binaries.py || [ $$? -eq 3 ]

manifests: .venv/.installed controlplane  ## Make the chart's copies of what is decided elsewhere, and the plain manifest
	@PYTHONPATH=tests/controlplane $(BIN)/python tests/support/chart.py

IMAGE ?= muster:0.2.0
ENGINE ?= docker
image:  ## Build the image (IMAGE=…, ENGINE=podman or buildah, BASE=…@sha256:…)
	@$(ENGINE) info > /dev/null 2>&1 || { echo "make image: no container engine ($(ENGINE)) answers here; start one, or name another with ENGINE=…"; exit 1; }
	$(ENGINE) build $(BASE:%=--build-arg BASE=%) --build-arg REVISION="$$(git describe --always --dirty)" --tag $(IMAGE) .

# The tools of a release are no one else's, so they have an environment of their own.
.venv-release/.installed: requirements/build.txt requirements/release.txt
	@$(PYTHON) -m venv --clear .venv-release
	@.venv-release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@.venv-release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	@touch $@

audit: .venv-release/.installed  ## Known vulnerabilities of the pinned packages, where the advisories can be had
	@.venv-release/bin/python deploy/release/audit.py

release: .venv-release/.installed  ## What a release consists of, in dist/: packages, chart, bill of materials, checksums, provenance (ENGINE=…, URL=…)
	@.venv-release/bin/python deploy/release/make.py "$(ENGINE)" "$(URL)"

NODES ?= 2
node: .venv/.installed  ## A real cluster in namespaces of this machine, with the image and the chart in it, until Ctrl-C (needs root)
	@PYTHONPATH=tests/controlplane:tests/node $(BIN)/python tests/node/up.py $(NODES)

test-node: .venv/.installed  ## What only real nodes show: the image, its user and limits, real containers, upgrade, drain (needs root)
	@PYTHONPATH=tests/controlplane:tests/node $(BIN)/python tests/node/up.py --check
	$(BIN)/pytest -n 0 tests/node --ignore=tests/node/full

test-node-full: .venv/.installed  ## What platforms ask on real nodes, ten minutes more: IPv6, restarts and restores, policies, Prometheus
	@PYTHONPATH=tests/controlplane:tests/node $(BIN)/python tests/node/up.py --check
	@$(PYTHON) tests/support/prometheus.py
	$(BIN)/pytest -n 0 tests/node/full

kind:  ## Make a cluster with kind, install the chart there, play the story
	@IMAGE=$(IMAGE) ENGINE=$(ENGINE) deploy/kind/up.sh

clean:  ## Remove what the other targets made here
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
