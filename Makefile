# Everything a person or CI does with this project. `make help` lists it.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Suites share one cluster, and set-up steps follow each other.
.NOTPARALLEL:

# An empty variable is as good as none.
export SUNFLEET_STATE := $(or $(SUNFLEET_STATE),$(HOME)/.local/state/sunfleet)
# Debian's interpreter: the embedded cluster's pods hold the same one, so the engine's environment works in both.
PYTHON ?= /usr/bin/python3
UV_VERSION := 0.13.9
UV := $(or $(shell command -v uv),$(SUNFLEET_STATE)/uv/bin/uv)
VENV := .venv
PY := $(VENV)/bin/python
CLUSTER := PYTHONPATH=e2e/cluster:crds $(PY) -m sunfleet_cluster
ENGINE_PY := PYTHONPATH=crds:worker_images/tuner $(SUNFLEET_STATE)/engine/bin/python
# Environments of packages that the tuner meets only when asked, and the versions that the documents name.
PACKAGES := $(SUNFLEET_STATE)/packages
PINS = PYTHONPATH=crds:worker_images/tuner $(PY) -c 'import sys; from sunfleet_tuner import packages; print(getattr(packages, sys.argv[1]))'
TYPED := crds operator router cli worker_images/vllm worker_images/weights worker_images/tuner e2e bench tests
PYTEST := $(PY) -m pytest -q
# A chart can only read its own folder, so it has copies.
CHART_FILES := manifests/helm/sunfleet/files

##@ Main
.PHONY: demo test check
demo: ## Set up everything and run the main job: a cluster, two manifests, an exact answer
	$(PYTHON) e2e/stages.py demo

test: ## Set up everything and run every test, within 70 minutes
	$(PYTHON) e2e/stages.py test

check: venv ## Format, lint, types, import layers, layout, generated files
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy $(TYPED)
	$(VENV)/bin/lint-imports
	PYTHONPATH=cli $(VENV)/bin/lint-imports cli/importlinter.toml
	PYTHONPATH=crds $(PY) -m sunfleet_api.generate --check
	$(PYTEST) tests/static

##@ Tests, one tier at a time
.PHONY: unit apiserver apiserver-short e2e e2e-packages e2e-smoke e2e-fleet e2e-exactness e2e-exactness-short e2e-exactness-local e2e-operator e2e-operator-short e2e-router e2e-autoscaling e2e-autoscaling-short e2e-tuning e2e-engine
unit: venv ## Unit tests: no processes beyond loopback sockets
	$(PYTEST) -n logical --dist loadfile tests/unit

apiserver: venv ## Tests against a real etcd and API server
	$(PYTEST) tests/apiserver

apiserver-short: venv ## The part of it that make test runs
	$(PYTEST) tests/apiserver -m "not long"

e2e: e2e-smoke e2e-fleet e2e-exactness e2e-operator e2e-router e2e-autoscaling e2e-tuning ## Every suite on the running cluster

e2e-smoke: ## The cluster itself: DNS, policies, GPUs, healing
	$(PYTEST) e2e/smoke

e2e-fleet: ## Two manifests become a fleet of real engines
	$(PYTEST) e2e/fleet

e2e-exactness: ## Token-exact against the reference, on real engines: everything, and a table of it
	$(PYTEST) e2e/exactness

e2e-exactness-short: ## The part of it that make test runs
	$(PYTEST) e2e/exactness -m "not long"

e2e-exactness-local: ## The part of it that needs no cluster, only engines on loopback
	$(PYTEST) e2e/exactness --ignore e2e/exactness/test_exactness.py

e2e-exactness-gpu: ## The same on a GPU: both schedulers and model runners, 16-bit and W4A16 (ONLY="not long" for less)
	$(VENV)/bin/python e2e/gpu.py $(if $(ONLY),-m "$(ONLY)")

e2e-operator: suite-images ## The operator on the real cluster, with the fake engine
	$(PYTEST) e2e/operator

e2e-operator-short: ## The part of it that make test runs
	$(PYTEST) e2e/operator -m "not long"

e2e-router: ## The router on the real cluster, with the fake engine
	$(PYTEST) e2e/router

e2e-autoscaling: suite-images ## Scaling from a real Prometheus, with an HPA and KEDA too (compiles KEDA: half an hour the first time)
	$(PYTEST) e2e/autoscaling

e2e-autoscaling-short: ## The part of it that make test runs
	$(PYTEST) e2e/autoscaling -m "not long"

e2e-tuning: ## A dataset becomes a module, the module a task that is verified and served, on real engines (ten minutes)
	$(PYTEST) e2e/tuning

e2e-engine: ## Two real engines on loopback, without a cluster
	PYTHONPATH=crds:worker_images/vllm:worker_images/tuner $(PYTEST) tests/engine

e2e-packages: packages-env ## The tuner with the real llmcompressor, lm-eval, datasets and trackers, and its recipes (half an hour)
	PYTHONPATH=crds:worker_images/tuner:router $(PYTEST) tests/packages

##@ Cluster
.PHONY: cluster-up cluster-down cluster-status cluster-purge
cluster-up: venv ## Start the cluster (kind where Docker answers, else embedded); safe to repeat
	$(CLUSTER) up

cluster-down: venv ## Stop the cluster; images and downloads stay
	$(CLUSTER) down

cluster-status: venv ## Show the state of every part (OUTPUT=json for scripts); changes nothing
	@$(CLUSTER) status $(if $(OUTPUT),--output $(OUTPUT))

cluster-purge: venv ## Stop the cluster and delete its state
	$(CLUSTER) down --purge

##@ Set-up steps (demo and test run them)
.PHONY: setup venv preflight packages programs engine-env packages-env models images suite-images install uninstall demo-run
setup: ## All set-up steps
	$(PYTHON) e2e/stages.py setup

venv: $(VENV)/.stamp ## The project's Python environment, from the lock file

$(VENV)/.stamp: uv.lock pyproject.toml $(wildcard router/native/*) | $(UV)
	$(UV) sync --quiet --frozen --extra operator --extra router --extra tracing --extra weights --extra cli --python $(PYTHON)
	$(PY) router/native/build.py router/sunfleet_router
	touch $@

$(SUNFLEET_STATE)/uv/bin/uv:
	$(PYTHON) -m venv $(SUNFLEET_STATE)/uv || { echo "python3-venv is missing: apt-get install python3-venv" >&2; exit 1; }
	$(@D)/pip install --quiet uv==$(UV_VERSION)

preflight: venv ## Say what this machine lacks for cluster and fleet; changes nothing
	$(CLUSTER) preflight

packages: venv ## Debian packages of the embedded cluster
	$(CLUSTER) packages

programs: venv ## The cluster's programs, compiled from pinned Go modules
	$(CLUSTER) programs

engine-env: venv ## The engine's Python environment (7 GB; DEVICE=cuda: the one for suites on a GPU)
	$(CLUSTER) engine-env $(if $(DEVICE),--device $(DEVICE))

packages-env: venv ## Environments that only e2e-packages uses: lm-eval and trackers beside the tuner; llmcompressor
	UV_PROJECT_ENVIRONMENT=$(PACKAGES)/tuner $(UV) sync --quiet --frozen --inexact --no-install-project --no-default-groups \
	  --extra tuner --extra tuner-hub --python $(PYTHON)
	$(UV) pip install --quiet --python $(PACKAGES)/tuner/bin/python $$($(PINS) LM_EVAL) $$($(PINS) WANDB)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(PACKAGES)/compressor
	$(UV) pip install --quiet --python $(PACKAGES)/compressor/bin/python $$($(PINS) COMPRESSOR) torch==2.13.0

models: engine-env ## A small real base model and the samples' prefill modules
	$(CLUSTER) models

images: venv ## Build and load the images; unchanged ones are skipped
	$(CLUSTER) images

suite-images: venv ## Images that only suites use: Prometheus
	$(CLUSTER) images prometheus

install: venv ## CRDs, operator and router
	$(CLUSTER) install

uninstall: venv ## Resources first, then router, operator and CRDs
	$(CLUSTER) uninstall

demo-run: venv ## The demo itself, on an installed fleet
	PYTHONPATH=e2e/demo:e2e/cluster:e2e:crds $(PY) -m sunfleet_demo

##@ Other
.PHONY: format generate bench-autoscaling bench-handover bench-operator soak-operator bench-router inside-router scale-router soak-router bench-times bench-tuner tuner-claims help
format: venv ## Rewrite to the project's format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

generate: venv ## Regenerate crds/*.yaml and docs/api.md from the models, and the Helm chart's copies
	PYTHONPATH=crds $(PY) -m sunfleet_api.generate
	cp manifests/components/alerts/rules.yaml $(CHART_FILES)/alerts.yaml
	cp manifests/components/monitors/podmonitors.yaml $(CHART_FILES)/
	cp manifests/components/dashboards/*.json $(CHART_FILES)/dashboards/

bench-autoscaling: venv ## The scaler against fixed targets and an oracle, simulated (KEEP=1 keeps the table; SEEDS=21,22; ONLY=Sunfleet)
	PYTHONPATH=bench:cli:operator:crds $(PY) -m autoscaling $(if $(KEEP),--keep) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(ONLY),--only "$(ONLY)")

bench-handover: ## SUN's two legs against vLLM's ordinary prefill/decode flow, on engines of this machine
	PYTHONPATH=bench:crds:e2e:e2e/cluster $(PY) -m handover

bench-operator: ## The operator with 50, 200 and 500 SunModels: times, requests, memory (SIZES=50 for less)
	PYTHONPATH=bench:crds:operator:e2e/cluster:tests/support $(PY) -m operator_scale $(if $(SIZES),--sizes $(SIZES)) $(if $(OUTPUT),--output $(OUTPUT))

soak-operator: ## SunModels made, changed and deleted for MINUTES (10): the operator's memory and objects must stay flat
	PYTHONPATH=bench:crds:operator:e2e/cluster:tests/support $(PY) -m operator_scale.soak $(if $(MINUTES),--minutes $(MINUTES))

bench-progress-delay: ## NIXL's polling delay: what an idle engine burns against what a hand-over waits
	PYTHONPATH=bench:crds:e2e:e2e/cluster $(PY) -m handover.progress_delay

bench-tuner: ## Prefill-only tuning against full fine-tuning: accuracy, step time, memory (hours; QUICK=1: five minutes)
	PYTHONPATH=bench:crds:worker_images/tuner $(SUNFLEET_STATE)/engine/bin/python -W ignore -m tuner \
	  --base $(SUNFLEET_STATE)/models/base --folder $(SUNFLEET_STATE)/bench/tuner $(if $(QUICK),--quick)

tuner-claims: ## The short part of bench-tuner from the beginning; fails when a bar is missed
	PYTHONPATH=bench:crds:worker_images/tuner $(SUNFLEET_STATE)/engine/bin/python -W ignore -m tuner \
	  --base $(SUNFLEET_STATE)/models/base --folder $(SUNFLEET_STATE)/bench/tuner-claims --quick --check

bench-router: venv ## The router beside a direct run and haproxy (PEERS=1: also vllm-router; QUICK=1: a minute; OUTPUT=json)
	@PYTHONPATH=bench/router $(PY) -m sunfleet_routerbench bench $(if $(PEERS),--peers) $(if $(QUICK),--quick) --output $(or $(OUTPUT),table)

inside-router: venv ## What Python costs the router a request, without sockets (SCENARIO=a or d; PROFILE=1: by function)
	@PYTHONPATH=bench/router:router:crds $(PY) -m sunfleet_router_inside --scenario $(or $(SCENARIO),a) $(if $(PROFILE),--profile)

scale-router: venv ## One router with 5,000 streams, then 100,000 requests of which clients leave 10,000; two processes beside one
	@PYTHONPATH=bench/router $(PY) -m sunfleet_routerbench scale $(if $(SHARE),--share $(SHARE))

soak-router: venv ## The router for MINUTES (10) on engines that refuse, hang, die and preempt: nothing may be lost silently
	@PYTHONPATH=bench/router $(PY) -m sunfleet_routerbench soak $(if $(MINUTES),--minutes $(MINUTES))

bench-times: ## Keep the times of the last demo and test runs in bench/results/
	$(PYTHON) bench/times.py

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-21s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
