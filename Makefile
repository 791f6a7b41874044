# Every task of the project. Python 3.11 or newer and make are all that must be there: each target makes and fills the
# virtual environment it needs, with pip alone. `make help` lists the targets.

SHELL := /bin/sh

# The interpreter the environment is made from: python3 if it is new enough, else the first python3.N that is.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c '$(NEW_ENOUGH)' 2>/dev/null && { command -v $$p; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := -qq --disable-pip-version-check --no-input
VERSIONS := 3.11 3.12 3.13 3.14

# One worker more than processors: many tests wait for a process or a clock.
WORKERS := $(shell "$(PYTHON)" -c 'import os; print(1 + (os.cpu_count() or 1))' 2>/dev/null || echo auto)

PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations=10
# The interop tests and the browser have targets of their own.
APART := --ignore=tests/interop --ignore=tests/browser
# With AGAIN=1, as CI runs it, what failed is run once more by itself and fails the run only if it fails twice, as for a
# journey in the browser. The first failure is shown in full either way.
define run_tests
@$(PYTEST) $(1) || { status=$$?; test -n "$(AGAIN)" && test $$status = 1 || exit $$status; \
	echo "WARNING: the tests above failed. They run once more; one that passes now is a flake: find its cause."; \
	$(PYTEST) $(1) $(2) --last-failed --last-failed-no-failures none; }
endef
# What was compiled once is kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

# The official TypeScript programs of the interop tests: the reference servers, both versions of the SDK, the Inspector.
INTEROP := .interop
SEED := 1
TIMES := 50
SECONDS := 120
# Where the tasks of `make kill-tasks` are: sqlite or redis.
BACKEND := sqlite
RUNS := 1000
COUNT := 20
NPM_SERVERS := $(foreach name,everything filesystem memory sequential-thinking,@modelcontextprotocol/server-$(name)@2026.8.31) \
	$(addprefix @modelcontextprotocol/server-,github@2025.4.8 slack@2025.4.25 postgres@0.6.2 redis@2025.4.25)
NPM_SDKS := $(addprefix @modelcontextprotocol/,sdk@1.32.2 client@2.4.0 server@2.4.0 node@2.1.2 ext-tasks@0.2.2) zod@4.6.7
NPM_INSPECTOR := @modelcontextprotocol/inspector@2.12.0
PYPI_SERVERS := mcp-server-time==2026.10.19 mcp-server-fetch==2026.10.24 mcp-server-git==2026.10.19
PYPI_ARCHIVED := mcp-server-sqlite==2025.4.25 mcp-server-sentry==2025.1.14 'mcp<2'
# FastMCP with its tasks, an extra of its own.
PYPI_FASTMCP := 'fastmcp[tasks]==4.1.2'
# The second type checker, for the public API alone.
PYRIGHT := $(INTEROP)/pyright/node_modules/.bin/pyright
NPM_PYRIGHT := pyright@1.1.414
# Checks the views of the console for accessibility.
NPM_AXE := axe-core@4.14.0
HAS_CHROMIUM := { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1
# The one file of others that the console ships; its licences stand beside it.
NPM_HTM := htm@3.1.1
VENDOR := src/trunkline/console/static/vendor
# The documentation site.
DOCS_ENV := .venvs/docs
DOCS_PORT := 8001
# What is released, each with a pyproject.toml of its own, all at one version; TAG=v1.2.3 checks that it is this one.
DISTRIBUTIONS := . servers compat
DIST_ENV := .venvs/dist
TAG :=
NPM_FLAGS := --no-save --no-audit --no-fund --loglevel=error

.DEFAULT_GOAL := help
.PHONY: help run services tour test test-slow coverage mutate check typecheck-public format test-all fresh bench interop conformance faults faults-all kill-tasks simulate soak fleet compat-tests compat-servers browser console-vendor docs docs-tools docs-build dist clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-11s %s\n", $$1, $$2 }'

# --- set-up: one stamp for what a user installs, one for what a developer adds -----------------------------------------

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "Trunkline needs Python 3.11 or newer, and none was found." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "$(PYTHON) is not a Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }

$(VENV)/.installed: pyproject.toml servers/pyproject.toml compat/pyproject.toml | $(BIN)/python
	@echo "Installing Trunkline into $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[host]' -e ./servers -e ./compat
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)"
	@$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements-dev.txt
	@touch $@

# --- the two commands of the README ------------------------------------------------------------------------------------

run: $(VENV)/.installed ## the console over all reference servers and a sample project; without a terminal, a tour of a host
	@$(BIN)/python -m examples.host_tour.start

ifdef FAST
test: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.fast
else
test: $(VENV)/.installed-dev services check ## check, then run all tests but the slow ones; FAST=1: only what is near the change
	@echo "== the tests"
	$(call run_tests,-m "not slow" $(APART))
	@echo "OK: ruff, mypy and pytest all passed on $$($(BIN)/python -V)."
endif

test-slow: $(VENV)/.installed-dev services ## the tests that must be slow: kills in a loop, real timeouts, many processes
	$(call run_tests,-m slow $(APART))

# What the tests of some reference servers talk to. Where it is missing and may not be installed, those are skipped.
services: ## install git, redis-server, PostgreSQL, bubblewrap, nginx and chromium for the tests, where that is allowed
	@missing=""; \
	command -v git >/dev/null 2>&1 || missing="$$missing git"; \
	command -v redis-server >/dev/null 2>&1 || missing="$$missing redis-server"; \
	command -v postgres >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 \
		|| missing="$$missing postgresql"; \
	command -v bwrap >/dev/null 2>&1 || test "$$(uname)" != Linux || missing="$$missing bubblewrap"; \
	command -v nginx >/dev/null 2>&1 || test -x /usr/sbin/nginx || missing="$$missing nginx"; \
	test -z "$$missing" && exit 0; \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
		echo "Installing$$missing for the tests"; \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } \
			>/dev/null 2>&1 && exit 0; \
	fi; \
	echo "Missing:$$missing (not root, or no apt-get). The tests that need them are skipped; install them to run all tests."
	@$(HAS_CHROMIUM) && exit 0; \
	if command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
		echo "Installing chromium for the tests in a browser"; \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
			>/dev/null 2>&1 && exit 0; \
	fi; \
	echo "Missing: chromium (not root, or no such package). The tests in a browser are skipped; install it to run them."

tour: $(VENV)/.installed ## walk through the weather server, message by message, in every protocol revision
	@$(BIN)/python -m examples.weather.tour

coverage: $(VENV)/.installed-dev services ## branch coverage of every package, held to the floors of tests/architecture/ratchet.toml
	$(call run_tests,-m "not slow" $(APART) --cov=trunkline --cov=trunkline_servers --cov-report=,--cov-append)
	@$(BIN)/python -m tests.architecture.coverage_floors

mutate: $(VENV)/.installed-dev services ## change the source in COUNT=n places drawn with SEED=n: which tests notice?
	@$(BIN)/python -m tests.mutation --seed $(SEED) --count $(COUNT)

# --- parts and more ----------------------------------------------------------------------------------------------------

check: $(VENV)/.installed-dev ## lint, formatting and types
	@echo "== ruff check"
	@$(BIN)/ruff check --quiet
	@echo "== ruff format"
	@$(BIN)/ruff format --check --quiet || { $(BIN)/ruff format --check; exit 1; }
	@echo "== mypy --strict"
	@$(BIN)/mypy --no-error-summary --num-workers auto

typecheck-public: $(VENV)/.installed-dev ## pyright: every exported name is completely typed; skipped where npm is not
	@command -v npm >/dev/null 2>&1 || { echo "npm is not here: pyright cannot be installed, nothing was checked."; exit 0; }; \
	test -x $(PYRIGHT) || { mkdir -p $(INTEROP)/pyright \
		&& npm install --prefix $(INTEROP)/pyright $(NPM_FLAGS) $(NPM_PYRIGHT); } \
		|| { echo "pyright could not be installed, nothing was checked."; exit 0; }; \
	echo "== pyright --verifytypes"; $(BIN)/python -m tests.architecture.public_types $(PYRIGHT)

format: $(VENV)/.installed-dev ## fix what ruff can fix
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format

test-all: ## the suite on every Python from 3.11 to 3.14 found here, each in its own environment
	@passed=""; failed=""; absent=""; \
	for version in $(VERSIONS); do \
		python=""; \
		for found in python$$version "$$HOME"/.pyenv/versions/$$version.*/bin/python \
			"$$HOME"/.local/share/uv/python/cpython-$$version.*/bin/python; do \
			"$$found" -c 'import ensurepip, venv' 2>/dev/null && { python="$$found"; break; }; \
		done; \
		if [ -z "$$python" ]; then absent="$$absent $$version"; continue; fi; \
		echo "== Python $$version"; env=".venvs/$$version"; \
		if { [ -x "$$env/bin/python" ] || "$$python" -m venv "$$env"; } \
			&& "$$env/bin/python" -m pip install $(PIP_FLAGS) -e ".[host]" -e ./servers -e ./compat -r requirements-dev.txt \
			&& "$$env/bin/python" -m pytest -q -n auto --dist worksteal -p no:cacheprovider --ignore=tests/browser; \
		then passed="$$passed $$version"; else failed="$$failed $$version"; fi; \
	done; \
	echo "passed:$${passed:- none}   failed:$${failed:- none}   not found here:$${absent:- none}"; \
	test -n "$$passed" && test -z "$$failed"

$(DIST_ENV)/.installed: requirements-dist.txt | $(BIN)/python
	@echo "Installing the tools that build distributions into $(DIST_ENV)"
	@$(BIN)/python -m venv $(DIST_ENV)
	@$(DIST_ENV)/bin/python -m pip install $(PIP_FLAGS) -r requirements-dist.txt
	@touch $@

dist: $(DIST_ENV)/.installed ## build wheel and sdist of all distributions into dist/ and check them: metadata, contents, an installation; TAG=v1.2.3
	@rm -rf dist; set -e; work="$$(mktemp -d)"; trap 'rm -rf "$$work"' EXIT INT TERM; \
	echo "== building $(DISTRIBUTIONS)"; \
	for project in $(DISTRIBUTIONS); do \
		$(DIST_ENV)/bin/python -m build --outdir dist $$project >"$$work/build.log" 2>&1 || { cat "$$work/build.log"; exit 1; }; \
	done; \
	echo "== twine check"; $(DIST_ENV)/bin/python -m twine --no-color check --strict dist/*; \
	echo "== metadata and contents"; $(DIST_ENV)/bin/python -m tests.release.check dist $(if $(TAG),--tag "$(TAG)"); \
	echo "== installing the wheels into an empty environment"; \
	$(BIN)/python -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install $(PIP_FLAGS) dist/*.whl; \
	cd "$$work"; venv/bin/trunkline --version; venv/bin/python -m pip check --disable-pip-version-check

fresh: dist ## make dist, then install the wheels into an empty environment step by step, and run the tour and the smoke tests
	@set -e; root="$$PWD"; work="$$(mktemp -d)"; trap 'rm -rf "$$work"' EXIT INT TERM; cp -R dist "$$work/dist"; \
	echo "== installing the wheel of trunkline into an empty environment"; \
	$(BIN)/python -m venv "$$work/venv"; \
	"$$work/venv/bin/python" -m pip install $(PIP_FLAGS) "$$work"/dist/trunkline-[0-9]*.whl; \
	"$$work/venv/bin/python" -m pip list --disable-pip-version-check --format=freeze; \
	programs="$$(ls "$$work/venv/bin" | grep -c '^trunkline')"; \
	test "$$programs" = 1 || { echo "a plain install puts $$programs programs of ours on PATH, not one"; exit 1; }; \
	mkdir "$$work/tests"; cp -R "$$root/examples" "$$work/examples"; cp -R "$$root/tests/smoke" "$$work/tests/smoke"; \
	cp "$$root/tests/__init__.py" "$$root/tests/support.py" "$$work/tests/"; cp "$$root/pyproject.toml" "$$root/conftest.py" "$$work/"; \
	cd "$$work"; \
	echo "== the tour"; venv/bin/python -m examples.weather.tour </dev/null; \
	echo "== the smoke tests"; \
	venv/bin/python -m pip install $(PIP_FLAGS) pytest pytest-timeout; \
	venv/bin/python -m pytest -q -p no:cacheprovider tests/smoke; \
	echo "== the same with HTTP"; \
	venv/bin/python -m pip install $(PIP_FLAGS) "$$(echo dist/trunkline-[0-9]*.whl)[http]"; \
	venv/bin/python -m examples.weather.tour </dev/null; \
	venv/bin/python -m pytest -q -p no:cacheprovider tests/smoke; \
	echo "== the same with the reference servers"; \
	venv/bin/python -m pip install $(PIP_FLAGS) --find-links dist "$$(echo dist/trunkline-[0-9]*.whl)[servers]"; \
	venv/bin/python -m pytest -q -p no:cacheprovider tests/smoke; \
	echo "== trunkline-compat in an empty environment of its own"; \
	"$$root/$(BIN)/python" -m venv compat-venv; mkdir compat; cp -R "$$root/compat/tests" compat/tests; \
	compat-venv/bin/python -m pip install $(PIP_FLAGS) --find-links dist dist/trunkline_compat-[0-9]*.whl pytest pytest-timeout; \
	compat-venv/bin/python -m pytest -q -p no:cacheprovider compat/tests; \
	echo "OK: the built wheels run the tour and pass the smoke tests: plain, with HTTP, with the reference servers; compat passes its tests."

bench: $(VENV)/.installed-dev ## measure ours, the peers and the bare floor in one run
	@$(BIN)/python -m benchmarks

interop: $(VENV)/.installed-dev ## the official Python SDK, FastMCP and, where npm is, the TypeScript SDKs, servers and Inspector
	@if command -v npm >/dev/null 2>&1; then \
		echo "== npm install $(NPM_SERVERS) $(NPM_SDKS) $(NPM_INSPECTOR)"; mkdir -p $(INTEROP)/inspector; \
		npm install --prefix $(INTEROP) $(NPM_FLAGS) $(NPM_SERVERS) $(NPM_SDKS) \
		|| echo "The TypeScript servers and SDKs could not be installed: their tests are skipped."; \
		npm install --prefix $(INTEROP)/inspector $(NPM_FLAGS) $(NPM_INSPECTOR) \
		|| echo "The Inspector could not be installed: its tests are skipped."; \
	else echo "npm is not here: the tests against TypeScript programs are skipped."; fi
	@{ test -x $(INTEROP)/python-servers/bin/python || $(BIN)/python -m venv $(INTEROP)/python-servers; } \
	&& $(INTEROP)/python-servers/bin/python -m pip install $(PIP_FLAGS) $(PYPI_SERVERS) \
	|| echo "The Python reference servers could not be installed: their tests are skipped."
	@{ test -x $(INTEROP)/archived-servers/bin/python || $(BIN)/python -m venv $(INTEROP)/archived-servers; } \
	&& $(INTEROP)/archived-servers/bin/python -m pip install $(PIP_FLAGS) $(PYPI_ARCHIVED) \
	|| echo "The archived Python reference servers could not be installed: their tests are skipped."
	@{ test -x $(INTEROP)/fastmcp/bin/python || $(BIN)/python -m venv $(INTEROP)/fastmcp; } \
	&& $(INTEROP)/fastmcp/bin/python -m pip install $(PIP_FLAGS) $(PYPI_FASTMCP) \
	|| echo "FastMCP could not be installed: its tests are skipped."
	@$(BIN)/python -m pytest -q -n auto --dist worksteal tests/interop

browser: $(VENV)/.installed-dev services ## the console in a real browser, click by click; pictures in build/browser; skipped where chromium is not
	@$(HAS_CHROMIUM) || { echo "SKIPPED: chromium is not here, so nothing was tried in a browser."; exit 0; }; \
	test -e $(INTEROP)/axe/node_modules/axe-core/axe.min.js || { command -v npm >/dev/null 2>&1 && mkdir -p $(INTEROP)/axe \
		&& npm install --prefix $(INTEROP)/axe $(NPM_FLAGS) $(NPM_AXE); } \
		|| echo "SKIPPED: axe-core cannot be installed here, so the views are not checked for accessibility, and no pictures are taken."; \
	$(BIN)/python -m pytest -q -n 2 --dist load tests/browser; code=$$?; \
	printf 'files of the page: %s bytes\n' "$$(find src/trunkline/console/static -type f -exec cat {} + | wc -c)"; \
	exit $$code

faults: $(VENV)/.installed-dev ## thirty servers that are killed, hung and lying, under one gateway; SEED=n decides how
	@$(BIN)/python -m tests.faults --seed $(SEED)

faults-all: $(VENV)/.installed-dev ## twenty seeds of it in a row
	@for seed in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
		$(BIN)/python -m tests.faults --seed $$seed || exit 1; done

kill-tasks: $(VENV)/.installed-dev ## kill a server fifty times in the middle of its tasks, and count what became of them; TIMES=n, SEED=n, BACKEND=redis
	@$(BIN)/python -m tests.server.tasks.kill --times $(TIMES) --seed $(SEED) --backend $(BACKEND)

simulate: $(VENV)/.installed-dev ## run several workers in a deterministic simulation, from a seed on; RUNS=n, SEED=n
	@$(BIN)/python -m tests.simulation --runs $(RUNS) --seed $(SEED)

soak: $(VENV)/.installed-dev services ## 4 workers and 2,000 sessions while workers and Redis are killed; SECONDS=n, SEED=n
	@command -v redis-server >/dev/null 2>&1 || { echo "SKIPPED: redis-server is not here, so nothing was soaked."; exit 0; }; \
	$(BIN)/python -m tests.soak --seconds $(SECONDS) --seed $(SEED)

# What runs servers of other frameworks: its tests, and its coverage, are its own.
compat-tests: $(VENV)/.installed-dev ## the tests of trunkline-compat, and its coverage by them alone
	$(call run_tests,compat/tests --cov=trunkline_compat --cov-config=compat/coverage.toml --cov-report=,--cov-append)
	@$(BIN)/python -m tests.architecture.coverage_floors compat

compat-servers: $(VENV)/.installed-dev ## published servers, unedited, with their framework and with ours: equal? how much faster? NAMES="a b", JSON=file
	@$(BIN)/python -m compat.tests.servers $(NAMES) $(if $(JSON),--json $(JSON))

fleet: $(VENV)/.installed-dev ## public servers and clients from npm and PyPI, directly and behind the gateway; ONLY=name, SEED=n, DOCS=1
	@$(BIN)/python -m tests.fleet --seed $(SEED) $(if $(ONLY),--only "$(ONLY)") $(if $(DOCS),--write-docs) $(FLEET_FLAGS)

conformance: $(VENV)/.installed-dev ## the official conformance suite, where node and npm are
	@$(BIN)/python tests/conformance/run.py

console-vendor: ## fetch the console's vendored module again, from npm, and check it
	@work="$$(mktemp -d)"; trap 'rm -rf "$$work"' EXIT INT TERM; \
	npm pack --silent --pack-destination "$$work" $(NPM_HTM) >/dev/null \
	&& tar -xzf "$$work"/htm-*.tgz -C "$$work" package/preact/standalone.module.js \
	&& cp "$$work/package/preact/standalone.module.js" $(VENDOR)/preact-htm.module.js \
	&& cd $(VENDOR) && sha256sum -c checksums.txt

# --- the documentation site: an environment of its own -----------------------------------------------------------------

$(DOCS_ENV)/.installed: requirements-docs.txt | $(BIN)/python
	@echo "Installing the documentation tools into $(DOCS_ENV)"
	@$(BIN)/python -m venv $(DOCS_ENV)
	@$(DOCS_ENV)/bin/python -m pip install $(PIP_FLAGS) -r requirements-docs.txt
	@touch $@

docs-tools: $(DOCS_ENV)/.installed

docs: $(DOCS_ENV)/.installed ## build the documentation site and serve it on this machine; DOCS_PORT=n
	@echo "The documentation is served at http://127.0.0.1:$(DOCS_PORT)/ as soon as it is built; Ctrl-C stops it."
	@NO_MKDOCS_2_WARNING=1 $(DOCS_ENV)/bin/mkdocs serve --quiet --dev-addr 127.0.0.1:$(DOCS_PORT)

docs-build: $(DOCS_ENV)/.installed ## build the documentation site into build/site; a broken link or anchor fails, and a search that hides the guides
	@NO_MKDOCS_2_WARNING=1 $(DOCS_ENV)/bin/mkdocs build --quiet --strict
	@if command -v node >/dev/null 2>&1; then node tests/docs/first_hits.mjs build/site; \
	else echo "SKIPPED: node is not here, so the search of the site was not tried."; fi
	@echo "OK: the documentation site is in build/site."

clean: ## remove everything that was made here, the environments included
	rm -rf $(VENV) .venvs $(INTEROP) .conformance .fleet .compat benchmarks/.venvs benchmarks/node_modules build dist .coverage .coverage.* htmlcov
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src servers compat tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
