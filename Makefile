# Everything a person types: `make help` lists it.  Targets create what they need by themselves.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO_BASE ?= .demo
DIR ?= .nodes
NODE ?= 1
NODES ?= 3
DESTDIR ?=
HTML ?= build/html
PREFIX ?= /usr
UNITDIR ?= $(PREFIX)/lib/systemd/system
PYTEST_ARGS ?=
# More than processors: many tests wait.  With four the tests of high availability starve each other.
TEST_PROCESSES ?= 3
TEST_NODES ?=
TEST_MINUTES ?= 40
SEED ?= 1
MINUTES ?= 10
JOURNAL ?=
BEGUN := $(shell date +%s)
INSTALL ?= yes
QUICK ?=
WITHOUT := test/unit/bootstrap $(addprefix test/cluster/test_,config_commands.py instances.py disks.py cluster_identity.py)
ALLOCATORS := $(wildcard tools/iallocators/*)
ALL_TOOLS := $(filter-out tools/iallocators,$(wildcard tools/*))
TOOLS := $(filter-out tools/demo tools/make-docs tools/launcher,$(ALL_TOOLS))
# A plain path entry instead of an import hook: the hook costs every process 8 ms at its start.
EDITABLE := --config-settings editable_mode=compat
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt $(EDITABLE)

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-stop nodes-up nodes-shell nodes-cut nodes-start nodes-down test test-nodes test-real test-storage test-long campaign golden conformance lint format pictures bench docs install deb clean-sources clean

help:  ## Say what there is to make
	@echo "Ganeti cluster manager.  Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20
	@echo "Variables: DEMO_BASE=$(DEMO_BASE) NODES=$(NODES) DIR=$(DIR) NODE=$(NODE) VENV=$(VENV) PYTHON=$(PYTHON)"
	@echo "As root, demo and test install the Debian packages that they lack; INSTALL=no does without."

$(BIN)/python:
	@echo "--- creating the virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py .ci/constraints.txt | $(BIN)/python
	@echo "--- installing what the programs need into $(VENV)"
	@$(PIP_INSTALL) --editable .
	@$(BIN)/python -m compileall -q ganeti
	@touch $@

$(VENV)/.installed-for-tests: setup.py .ci/constraints.txt | $(BIN)/python
	@echo "--- installing what the tests need into $(VENV)"
	@$(PIP_INSTALL) --editable '.[test]'
	@$(BIN)/python -m compileall -q ganeti
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-for-docs: setup.py .ci/constraints.txt | $(VENV)/.installed
	@echo "--- installing what the book needs into $(VENV)"
	@$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

venv: $(VENV)/.installed  ## Create the virtual environment that everything runs in

demo: $(VENV)/.installed  ## Make a virtual cluster, run a virtual machine on it, leave it running
	@INSTALL=$(INSTALL) $(PYTHON) test/machine.py demo
	@DEMO_BASE=$(DEMO_BASE) NODES=$(NODES) $(BIN)/python tools/demo

demo-stop: $(VENV)/.installed  ## Stop the demo's cluster and remove all of it
	@$(BIN)/python tools/vcluster destroy $(DEMO_BASE)

nodes-up: $(VENV)/.installed-for-tests  ## Start three machines with LVM and DRBD that are a cluster, to play with; needs root
	@PYTHONPATH=test $(BIN)/python -m rig.nodes up $(DIR)

nodes-shell:  ## Open a shell on one of them (NODE=2)
	@PYTHONPATH=test $(BIN)/python -m rig.nodes shell $(DIR) $(NODE)

nodes-cut:  ## Pull the plug of one of them: what was not flushed to its disks is lost
	@PYTHONPATH=test $(BIN)/python -m rig.nodes cut $(DIR) $(NODE)

nodes-start:  ## Switch it on again
	@PYTHONPATH=test $(BIN)/python -m rig.nodes start $(DIR) $(NODE)

nodes-down:  ## Switch them off and remove all of them
	@PYTHONPATH=test $(BIN)/python -m rig.nodes down $(DIR)

lint: $(VENV)/.installed-for-tests  ## Check style, format, types and import contracts
	@echo "--- ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@echo "--- mypy"
	@$(BIN)/mypy ganeti daemons/daemon-launcher tools/launcher
	@MYPYPATH=test $(BIN)/mypy --follow-imports=silent bench
	@echo "--- import contracts"
	@$(BIN)/lint-imports --no-cache > build-contracts.log || { cat build-contracts.log; exit 1; }
	@rm -f build-contracts.log

format: $(VENV)/.installed-for-tests  ## Format the sources
	@$(BIN)/ruff format --quiet .

# The test modules are compiled meanwhile, and not by each of the processes that run them.
test: $(VENV)/.installed-for-tests  ## Run everything that must pass: style, types, contracts, all tests
	@$(BIN)/pytest --collect-only > /dev/null & $(MAKE) --no-print-directory lint; status=$$?; wait; exit $$status
	@INSTALL=$(INSTALL) $(PYTHON) test/machine.py test
	@echo "--- tests"
	@$(BIN)/pytest --numprocesses=$(TEST_PROCESSES) --dist=loadfile $(PYTEST_ARGS)
	@echo "--- tests as on a machine without QEMU, Chromium and the htools of Ganeti 3.0"
	@env -u GANETI_TEST_REQUIRE_QEMU -u GANETI_TEST_REQUIRE_BROWSER GANETI_TEST_WITHOUT=1 $(BIN)/pytest --numprocesses=$(TEST_PROCESSES) --dist=loadfile $(WITHOUT)
	@$(MAKE) --no-print-directory test-nodes LIMITS="$(BEGUN) $(TEST_MINUTES)"

test-real: $(VENV)/.installed-for-tests  ## Install it on real machines (containers, virtual ones) and try it there; needs root
	@GANETI_TEST_REAL=1 $(BIN)/pytest test/real --ignore-glob='*/test_storage*' $(PYTEST_ARGS)

test-nodes: $(VENV)/.installed-for-tests  ## The shortest form of test-storage, where this machine can have real nodes
	@PYTHONPATH=test $(BIN)/python -m rig.nodes short $(LIMITS)

test-storage: $(VENV)/.installed-for-tests  ## Try LVM and DRBD on three real nodes, with power cuts (TEST_NODES=.nodes: on those of nodes-up); needs root
	@GANETI_TEST_REAL=1 GANETI_TEST_NODES=$(TEST_NODES) $(BIN)/pytest test/real/test_storage*.py $(PYTEST_ARGS)

test-long: export GANETI_TEST_ROUNDS = 20
test-long: test-real  ## Run all that takes long: test-real with 20 losses of nodes, 100 kills of maintenance, 50 of agents, 100 rounds of damage, 5000 random losses, each cut of a merge, four campaigns, and test-storage with 50 power cuts
	@GANETI_TEST_KILLS=100 $(BIN)/pytest test/fault/test_maintd_kills.py
	@GANETI_TEST_KILLS=50 $(BIN)/pytest test/fault/test_ha_partitions.py test/fault/test_ha_kills.py test/fault/test_ha_lease_disk.py
	@GANETI_TEST_ROUNDS=100 $(BIN)/pytest test/fault/test_luxid_campaign.py
	@GANETI_TEST_ROUNDS=100 $(BIN)/pytest test/daemon/test_kvm_taps.py
	@GANETI_TEST_FIRMWARE=1 $(BIN)/pytest test/daemon/test_kvm_firmware.py
	@GANETI_TEST_SCENARIOS=5000 $(BIN)/pytest test/unit/availability/test_simulator.py
	@GANETI_TEST_CUTS=1 $(BIN)/pytest test/cluster/test_cluster_merge.py
	@for seed in 1 2 3; do $(MAKE) --no-print-directory campaign SEED=$$seed MINUTES=10 || exit 1; done
	@$(MAKE) --no-print-directory campaign SEED=4 MINUTES=10 JOURNAL=1
	@GANETI_TEST_ROUNDS=50 $(MAKE) test-storage

campaign: $(VENV)/.installed-for-tests  ## Break five working nodes in all ways there are for MINUTES, as SEED decides (JOURNAL=1: with --config-journal); says how long each took
	@GANETI_TEST_SEED=$(SEED) GANETI_TEST_MINUTES=$(MINUTES) GANETI_TEST_JOURNAL=$(JOURNAL) $(BIN)/pytest test/fault/test_campaign.py

golden: $(VENV)/.installed-for-tests  ## Play the recorded command lines of Ganeti 3.0.2 and show each difference
	@$(BIN)/python test/compat/golden.py --show

conformance: $(VENV)/.installed-for-tests  ## Write doc/conformance.md: the promises of the designs and the tests that show them
	@$(BIN)/python test/conformance/promises.py

pictures: $(VENV)/.installed-for-tests  ## Walk through the dashboard in Chromium, for the pictures of doc/dashboard.md
	@$(BIN)/pytest -n0 test/cluster/walk_dashboard.py

bench: $(VENV)/.installed-for-tests  ## Measure everything into doc/performance: half an hour, on a quiet machine; QUICK=1: small sizes, minutes, into build/performance
	@$(BIN)/python bench/scoreboard.py $(if $(QUICK),--quick,--into doc/performance)

docs: $(VENV)/.installed-for-docs  ## Write manual pages and tables, and the book as HTML into HTML (build/html); no warning is allowed
	@$(BIN)/python tools/make-docs
	@$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees doc $(HTML)
	@echo "$(HTML)/index.html"

# The wheel brings manual pages, completion, units, tools and examples; what names the interpreter or
# the prefix is written here again.  PREFIX must be one that PYTHON imports from: /usr, or that of a
# virtual environment.  pip writes the interpreter into the programs that it makes, and ours get the
# same one; the variable keeps Debian's Python from adding "local" to the prefix.
install: INTERPRETER = $(shell $(PYTHON) -c 'import sys; print(sys.executable)')
install: venv  ## Install into DESTDIR with PREFIX, for PYTHON: package, daemons, tools, units, manual pages
	@echo "--- building the package"
	@rm -rf build
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	@echo "--- installing below $(DESTDIR)$(PREFIX)"
	@DEB_PYTHON_INSTALL_LAYOUT=deb $(BIN)/pip --quiet --python $(INTERPRETER) install --disable-pip-version-check --ignore-installed \
		--no-deps --no-warn-script-location --root=$(or $(DESTDIR),/) --prefix=$(PREFIX) build/wheel/*.whl
	@install -d $(DESTDIR)$(PREFIX)/sbin
	@for program in $(wildcard daemons/ganeti-*) $(ALLOCATORS) $(TOOLS); do \
		case $$program in daemons/*) to=sbin ;; tools/iallocators/*) to=lib/ganeti/iallocators ;; *) to=lib/ganeti/tools ;; esac; \
		to=$(DESTDIR)$(PREFIX)/$$to/$${program##*/}; \
		case $$program in tools/*) test -e $$to || continue ;; esac; \
		sed "1s|.*|#!$(INTERPRETER)|" $$program > $$to && chmod 755 $$to || exit 1; \
	done
	@install -d $(DESTDIR)$(UNITDIR)
	@for unit in systemd/*; do \
		rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/$${unit##*/}; \
		sed "s|/usr/sbin/|$(PREFIX)/sbin/|" $$unit > $(DESTDIR)$(UNITDIR)/$${unit##*/} || exit 1; \
	done
	@rm -rf build

# It fetches the libraries as pip.conf says, for Debian's own Python, and installs nothing here.
deb:  ## Build the Debian package ganeti-python into dist/ (needs debhelper and python3-venv)
	@rm -rf dist/deb && mkdir -p dist/deb
	@$(MAKE) --no-print-directory clean-sources TO=dist/deb/source
	@cd dist/deb/source && dpkg-buildpackage --build=binary --no-sign $(DEB_ARGS)
	@mv dist/deb/*.deb dist/ && rm -rf dist/deb
	@ls dist/*.deb

clean-sources:
	@mkdir -p $(TO)
	@tar --create --exclude=./.git --exclude=./.venv --exclude=./dist --exclude=./build --exclude='./.[a-z]*_cache' --exclude='./.demo*' --exclude='./.nodes*' --exclude=__pycache__ . | tar --extract --directory $(TO)

clean:  ## Remove what was built (not a running demo)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
