# Bare `make` prints the targets. `make demo` and `make test` do all the set-up they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
ARGS ?=
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help setup engine engines local-build prerequisites cluster-prerequisites browser page-picture page-pictures demo bench-tuner test test-fast test-cluster test-engine \
	test-e2e try-engine test-storms test-storms-bite draft-train bench-engine bench-parts bench-gpu bench-hook bench-pages bench-scale krew-archive mutants rbac-mutants one-by-one lint format verify regenerate known-names constraints dist clean

help: ## Print this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

prerequisites: ## Install what a bare Debian lacks (as root), or name the command that does
	@sh tools/prerequisites.sh

cluster-prerequisites:
	@sh tools/prerequisites.sh cluster

# pip's output is shown where it fails.
PIP_LOG := $(VENV)/pip.log
$(VENV)/.installed: pyproject.toml constraints.txt | prerequisites
	@echo "==> the Python environment, $(VENV) (once; about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@{ $(BIN)/pip install --disable-pip-version-check -c constraints.txt --upgrade pip \
		&& $(BIN)/pip install -c constraints.txt -e . --group dev; } >$(PIP_LOG) 2>&1 \
		|| { tail -n 20 $(PIP_LOG); ! grep -q ProxyError $(PIP_LOG) \
			|| echo "pip cannot use the proxy (HTTPS_PROXY is $${HTTPS_PROXY:-$$https_proxy}): correct or unset it."; exit 1; }
	@touch $@

browser: setup ## Install the browser that the tests of the page use (as root), or name the command
	@sh tools/prerequisites.sh browser

page-picture: browser ## Draw the picture of the page in the documentation anew
	@PYTHONPATH=tests $(BIN)/python -m support.page_picture docs/page.png

PICTURES ?= build/page/
page-pictures: browser ## Draw the page in every state, at three widths, light and dark, to look at
	@PYTHONPATH=tests $(BIN)/python -m support.page_picture $(PICTURES)
	@echo "==> $(PICTURES)"

setup: $(VENV)/.installed ## Set up the Python environment

engine: setup ## Install a real vLLM for the CPU and build the models that it serves here
	@$(BIN)/fathom local engine

engines: engine ## Install the oldest vLLM that is tested, too
	@$(BIN)/python -m local_cluster.engine.environment 0.28.0 >/dev/null

KUBERNETES ?=
local-build: setup ## Get (once) the control plane that `fathom local` runs; KUBERNETES=1.34.1: that one
	@$(BIN)/fathom local build $(if $(KUBERNETES),--version $(KUBERNETES))

demo: cluster-prerequisites setup ## The whole loop on this machine: a cluster, real vLLM, traffic, live depth
	@$(BIN)/fathom local demo $(ARGS)

bench-tuner: setup ## The tuner in simulated fleets, beside other policies and the clairvoyant
	@$(BIN)/python -m benchmarks tuner $(ARGS)

# The tests, in tiers: what can wait for each other shares one. `make test` runs what waits (cluster)
# beside what computes (light, then storms), and what starts engines (engine, e2e) by itself. Of each
# tier: what pytest is given, and its budget: the CPU seconds that its processes use on two quiet
# cores, and half as much again. Another tier is a name here, its two lines, and its place in `test`.
TIERS := light storms cluster engine e2e
# On both cores: what needs neither a cluster nor an engine.
light_TESTS := -n 2 --dist worksteal tests/unit tests/scenarios tests/property tests/golden \
	tests/contract -m "not cluster and not engine"
light_CPU_SECONDS := 850
# Histories of faults in the simulator; it uses both cores by itself.
storms_TESTS := -v tests/storms
storms_CPU_SECONDS := 500
# It waits more than it computes, hence more workers than cores; each has a cluster of its own.
cluster_TESTS := -n 4 --dist loadfile --no-loadscope-reorder tests/cluster tests/contract -m cluster
cluster_CPU_SECONDS := 850
# A vLLM starts on one core, and much is asked of one that only parses and configures. Those who
# share one are a group: tests/conftest.py.
engine_TESTS := -n 2 --dist loadgroup tests/engine tests/contract -m engine
engine_CPU_SECONDS := 820
# One fleet at a time: it is measured.
e2e_TESTS := -v tests/e2e
e2e_CPU_SECONDS := 1000

# What each needs on the machine.
tier-light tier-storms: setup
tier-cluster: local-build browser
tier-engine: engines
tier-e2e: local-build engine

tier-%:
	@MAKEFLAGS= $(BIN)/python -m maintenance.tier $* --budget $($*_CPU_SECONDS) -- \
		$(PYTEST) $($*_TESTS) --durations=10 $(ARGS)

test: setup ## Every check and every test, real parts included
	@$(MAKE) --no-print-directory -j3 -Oline local-build engines browser lint
	@$(MAKE) --no-print-directory verify
	@$(MAKE) --no-print-directory -j2 tier-cluster one-by-one TIERS="light storms"
	@$(MAKE) --no-print-directory one-by-one TIERS="engine e2e"

one-by-one:
	@set -e; for tier in $(TIERS); do $(MAKE) --no-print-directory tier-$$tier; done

test-fast: setup ## What needs neither a cluster nor an engine: a few minutes
	@$(PYTEST) -q $(light_TESTS) $(ARGS)

test-cluster: local-build browser ## Tests against a real control plane
	@$(PYTEST) $(cluster_TESTS) $(ARGS)

test-engine: engines ## Tests against a real vLLM
	@$(PYTEST) $(engine_TESTS) $(ARGS)

SEEDS ?= 5000
test-storms: setup ## SEEDS=5000 histories of faults in the simulator, beyond the 100 of `make test`
	@PYTHONPATH=tests $(BIN)/python -m storms 1-$(SEEDS) $(ARGS)
	@PYTHONPATH=tests $(BIN)/python -m storms "hosts 1-$(SEEDS)" $(ARGS)

test-storms-bite: setup ## Old faults are put back, one at a time: does the simulator find them?
	@PYTHONPATH=tests $(BIN)/python -m storms.bite $(ARGS)

try-engine: engine ## Every check of another vLLM release that needs no GPU: VERSION=0.33.0
	@$(BIN)/python -m maintenance.try_engine "$(VERSION)"

test-e2e: local-build engine ## The whole loop, as a user meets it
	@$(PYTEST) $(e2e_TESTS) $(ARGS)

draft-train: local-build engine ## A real trainer without a GPU: what its drafts are worth, and a draft's life on a cluster
	@PYTHONPATH=tests $(BIN)/python -m training $(ARGS)

bench-engine: engine ## Live depth on real vLLM against every static depth; ARGS="--json FILE"
	@$(BIN)/python -m benchmarks engine $(ARGS)

bench-parts: engine ## What each part of what makes an engine tunable costs; ARGS="--json FILE"
	@$(BIN)/python -m benchmarks parts $(ARGS)

bench-gpu: setup ## Live depth on your GPU: VLLM_PYTHON=/path/to/venv; ARGS=--cpu: without one
	@$(BIN)/python -m benchmarks gpu $(if $(VLLM_PYTHON),--python "$(VLLM_PYTHON)") $(ARGS)

bench-hook: engine ## What the hook adds to a step of vLLM's own scheduler; fails beyond its bounds
	@$(BIN)/python -m benchmarks hook $(ARGS)

bench-scale: setup ## One operator beside 100, 300 and 1000 resources; ARGS="--json FILE"
	@$(BIN)/python -m benchmarks scale $(ARGS)

bench-job: local-build engine ## A Job of `fathom bench` on a local cluster: is the known acceptance found?
	@$(BIN)/python -m benchmarks job $(ARGS)

bench-pages: setup ## What a pod's metrics cost the operator in a window; fails beyond its bound
	@$(BIN)/python -m benchmarks pages $(ARGS)

lint: setup ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini tests
	@$(BIN)/lint-imports --no-cache >/tmp/fathom-lint-imports.$$$$ 2>&1 \
		|| { cat /tmp/fathom-lint-imports.$$$$; exit 1; }

format: setup ## Format the code
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

MODULE ?= rollout
SEED ?= 1
COUNT ?= 120
WORKERS ?= 1

# Cosmic Ray's operators, on a copy of this checkout; why not mutmut: tools/mutants/__init__.py.
mutants: $(VENV)/.mutants ## Break a module in small ways, see which no test notices: MODULE= SEED=
	@PYTHONPATH=tools $(BIN)/python -m mutants $(MODULE) --seed $(SEED) --count $(COUNT) \
		--workers $(WORKERS)

$(VENV)/.mutants: $(VENV)/.installed constraints-mutants.txt
	@$(BIN)/pip install -q -c constraints.txt -c constraints-mutants.txt --group mutants
	@touch $@

KREW := build/krew
KREW_ARCHIVE = build/kubectl-fathom_$$(uname -s | tr A-Z a-z)_$$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/').tar.gz
krew-archive: setup ## The archive of `kubectl fathom` for krew, on the platform where it is built
	@rm -rf $(KREW) && mkdir -p $(KREW)
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt --target $(KREW)/lib .
	@cp packaging/krew/kubectl-fathom LICENSE $(KREW)/
	@ln -s kubectl-fathom $(KREW)/kubectl_complete-fathom
	@tar -czf $(KREW_ARCHIVE) -C $(KREW) . && sha256sum $(KREW_ARCHIVE)

rbac-mutants: local-build ## Take each of the operator's rights away: does anything miss it? (minutes)
	@PYTHONPATH=tests $(BIN)/python -m rights $(ARGS)

GENERATED := crds charts/fathom/files/crds charts/fathom/README.md deploy/kustomize docs/api.md docs/api-tuner.md docs/alarms.md \
	docs/tuning-constants.md docs/rules.md docs/schemas operator/fathom/manifests/pod_schema.json packaging/operatorhub

regenerate: setup ## Regenerate everything generated
	@$(BIN)/fathom crd > crds/fathom.dev_speculativedeployments.yaml
	@$(BIN)/fathom crd SpeculationTuner > crds/fathom.dev_speculationtuners.yaml
	@cp crds/fathom.dev_*.yaml charts/fathom/files/crds/
	@$(BIN)/python -m generators.api_reference > docs/api.md
	@$(BIN)/python -m generators.api_reference SpeculationTuner > docs/api-tuner.md
	@$(BIN)/python -m generators.pod_schema > operator/fathom/manifests/pod_schema.json
	@$(BIN)/python -m generators.alarm_reference > docs/alarms.md
	@$(BIN)/python -m generators.tuning_constants > docs/tuning-constants.md
	@$(BIN)/python -m generators.rule_reference > docs/rules.md
	@$(BIN)/python -m generators.chart_values > charts/fathom/README.md
	@$(BIN)/python -m generators.kustomize_base deploy/kustomize
	@$(BIN)/python -m generators.operatorhub packaging/operatorhub
	@$(BIN)/python -m generators.document_schemas docs/schemas

known-names: engine ## Ask each vLLM release which options it knows, for `fathom check`
	@$(BIN)/python -m generators.known_names > known_names.json
	@mv known_names.json operator/fathom/engine/known_names.json
	@$(BIN)/python -m generators.release_gates > release_gates.json
	@mv release_gates.json operator/fathom/engine/release_gates.json

verify: regenerate ## Regenerate everything generated, and fail if it differs
	@git diff --exit-code -- $(GENERATED) \
		|| { echo "Generated files were stale; they are fresh now: commit them."; exit 1; }

constraints: ## Record the versions that are installed now
	@{ sed -n '1,/^[^#]/{/^#/p}' constraints.txt; \
	   $(BIN)/pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' \
	   | grep -vFxf constraints-mutants.txt | sort -f; \
	   $(BIN)/pip list --format freeze | grep -E '^pip=='; } > constraints.new
	@mv constraints.new constraints.txt

dist: setup ## What a release hands out beside image and chart: the wheel and its SBOM, in dist/
	@rm -rf dist
	@SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" $(BIN)/python -m maintenance.dist dist

clean: ## Remove the environments and caches of this checkout
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
