# Every target sets up what it needs in .venv and says what it does; the second run is fast.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-covered test-others test-spark test-spark-long test-pipelines test-spark-kills test-long test-kill test-attack test-damage test-cluster test-sim raft-cases scale check format bench bench-local bench-broker bench-cluster bench-fanout bench-names bench-spark bench-recovery clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/demo.stamp  ## the levels at work, in two minutes; draws demo.png
	@$(BIN)/python -m hocket.demo

# All tests, as suites that run side by side, each a pytest of its own; the longest begin first. A
# suite that waits for brokers and timeouts leaves the processor to one that computes, so there are
# more at once than there are processors.
# Measuring coverage makes everything slower, so only the suites are measured that all of it is from;
# stress, models that reach nothing new, and cores with planted bugs run unmeasured.
COVERED := core local contract remote
SPARK   := spark-session spark-jobs spark-parts spark-pipelines
OTHERS  := broker-contract clients clusters commands models node simulator storage stress rest
SUITES  := spark-session node spark-jobs clusters simulator broker-contract spark-pipelines remote commands core clients models stress rest local spark-parts contract storage

SPARK_JOBS := tests/spark/test_connect.py tests/spark/test_exactly_once.py
SESSIONS   := $(shell grep -lE 'spark(: SparkSession)?, ' tests/spark/test_*.py)# who asks for the session
STRESS     := tests/local/test_local_stress.py tests/local/test_queue_stress.py
MODELS     := $(wildcard tests/core/partition/test_*_model.py tests/local/test_*_model.py) \
    tests/core/transactions/test_decider_model.py tests/core/raft/test_raft_model.py
PLANTED    := tests/core/sharing/test_dispatcher_model.py::test_the_story_finds_a_planted_bug

tests_of_broker-contract := tests/broker_contract
tests_of_clients         := tests/client tests/values tests/wire tests/log
tests_of_clusters        := tests/cluster# of real processes a slice: see test-cluster
tests_of_commands        := tests/cli tests/e2e tests/rpc
tests_of_contract        := tests/contract# of the worlds a slice: see test-long
tests_of_core            := tests/core $(MODELS:%=--ignore=%) --deselect=$(PLANTED)
tests_of_local           := tests/local $(STRESS:%=--ignore=%) $(MODELS:%=--ignore=%)
tests_of_models          := $(MODELS) $(PLANTED)
tests_of_node            := tests/node tests/plugins tests/metrics README.md docs# every snippet of README and docs is a test
tests_of_spark-pipelines := tests/pipelines# of those that start Spark one: see test-pipelines
tests_of_spark-jobs      := $(SPARK_JOBS)# each starts a Spark of its own
tests_of_spark-parts     := $(filter-out $(SPARK_JOBS) $(SESSIONS),$(wildcard tests/spark/test_*.py))
tests_of_spark-session   := $(SESSIONS)# one session serves them all
tests_of_simulator       := tests/sim# of the seeds and planted bugs a slice: see test-sim
tests_of_storage         := tests/damage# of the damaged stores a slice: see test-damage
tests_of_stress          := $(STRESS) tests/attack# of the attacks a slice: see test-attack
tests_of_remote          := tests/remote# over sockets a slice: see test-long
tests_of_rest            := tests/adapters tests/tracing $(wildcard tests/test_*.py)

# The inner loop: what needs no other process, no network and no disk. Every core against its traces
# and models, channels and queues without stress, a slice of the queues' contract, the wire, and the
# clients up to their sockets.
QUICK := quick-cores quick-rest

PURE := $(foreach module,deadline frames layout model timers,tests/test_$(module).py)

tests_of_quick-cores := tests/core
tests_of_quick-rest  := tests/local $(STRESS:%=--ignore=%) tests/wire tests/values tests/client $(PURE) \
    tests/contract/test_closing.py tests/contract/test_connecting.py tests/contract/test_messages.py

# The tests start some hundred interpreters. Where the environment forbids bytecode, each of them
# compiles the whole package again, which is half of what the start of a broker costs.
unexport PYTHONDONTWRITEBYTECODE

NOTES   := .test-notes
AT_ONCE ?= $(shell expr $$(nproc) + 2)

test: $(VENV)/dev.stamp $(VENV)/spark.jsa  ## all tests, the documentation's snippets, and branch coverage
	@echo "==> $(words $(SUITES)) suites, $(AT_ONCE) at a time; each is shown when it is done"
	@rm -rf $(NOTES)
	@$(BIN)/python -m tests.support.suites $(NOTES) $(MAKE) --no-print-directory --keep-going \
	  --jobs=$(AT_ONCE) --output-sync=target $(SUITES:%=test-%) test-covered

EACH := $(SUITES:%=test-%) $(QUICK:%=test-%)
.PHONY: $(EACH)
$(EACH): test-%: $(VENV)/dev.stamp
	@echo "==> $*: $(tests_of_$*)"
	@mkdir -p $(NOTES)
	@$(RUN) -m pytest -p tests.support.suites --note-durations=$(NOTES)/$*.json $(tests_of_$*) $(PYTEST_ARGS)

$(EACH): RUN = $(BIN)/python
$(COVERED:%=test-%): RUN = $(BIN)/coverage run --data-file=$(NOTES)/$*.coverage

test-covered: $(COVERED:%=test-%)  ## channels, queues and cores, with branch coverage
	@echo "==> branch coverage of channels, queues and cores"
	@$(BIN)/coverage combine --quiet $(COVERED:%=$(NOTES)/%.coverage)
	@$(BIN)/coverage report --include='src/hocket/local/*,src/hocket/core/*' --fail-under=100

test-others: $(OTHERS:%=test-%)  # clients and commands, the wire, the log, the simulator, and the broker's contract in every world

test-spark: $(SPARK:%=test-%)  ## the data source and the sink in a real Spark (needs Java 17)

test-quick: $(VENV)/dev.stamp  ## the inner loop: cores, channels and queues, wire, clients; a minute on two processors
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target $(QUICK:%=test-%)

test-spark-long: $(VENV)/dev.stamp  ## a declarative pipeline run twice, secrets looked for wherever Spark shows options, and each node of three killed
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/spark/test_pipelines.py tests/spark/test_secrets.py tests/spark/test_exactly_once.py tests/spark/test_spread.py $(PYTEST_ARGS)

test-pipelines: $(VENV)/dev.stamp  ## pipelines killed and run again, each built-in one, a million records, a cluster of Spark's; half an hour
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/pipelines $(PYTEST_ARGS)

test-spark-kills: $(VENV)/dev.stamp  ## kill -9 of Spark, of the broker and of a leader's node at every stage; 96 kills, an hour
	@$(BIN)/python -m tests.spark.kills

test-long: $(VENV)/dev.stamp  ## the stress suites and simulated lives at full length, and the queue contract 20 times over
	@echo "==> stress at full length"
	@HOCKET_STRESS=long $(BIN)/python -m pytest -m stress
	@for round in $$(seq 1 20); do \
	  echo "==> queue contract, round $$round of 20"; \
	  HOCKET_STRESS=long $(BIN)/python -m pytest -q tests/contract || exit 1; \
	done

test-kill: $(VENV)/dev.stamp  ## kill -9 of the broker under load, 50 rounds
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/e2e/test_kill.py

test-attack: $(VENV)/dev.stamp  ## hostile inputs of every kind against a served broker, and every planted bug found
	@$(BIN)/python -m tests.attack

test-damage: $(VENV)/dev.stamp  ## every field of a small store damaged, and a broker on each; a quarter of an hour
	@$(BIN)/python -m tests.damage

test-cluster: $(VENV)/dev.stamp  ## ten broker processes in one ring, killed, stopped, cut apart and back, and idle; the broker contract, and kills in turn, with partitions on three nodes; the contract with three replicas while nodes are killed; who dies at which step; a hundred faults with three and five replicas; two hours
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/cluster $(PYTEST_ARGS)
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/broker_contract -k cluster $(PYTEST_ARGS)
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/broker_contract -k killed $(PYTEST_ARGS)

test-sim: $(VENV)/dev.stamp  ## 500 seeds of a simulated cluster, and every planted bug found; a quarter of an hour
	@$(BIN)/hocket sim --seeds 500
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/sim/test_mutants.py tests/sim/test_run.py $(PYTEST_ARGS)

raft-cases: $(VENV)/dev.stamp  ## reference cases for Raft replayed on our core: make raft-cases CASES=DIR; a minute
	@$(BIN)/python -m tests.support.core.raft_cases $(CASES)

scale: $(VENV)/bench.stamp  ## a ring of 10,000 nodes, simulated; writes docs/internals/scale.md and its plots
	@$(BIN)/hocket sim ring --nodes 10000 --write docs/internals

check: $(VENV)/dev.stamp  ## ruff, mypy --strict (for Linux and macOS), import-linter, generated files
	@echo "==> ruff";          $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy --strict"; $(BIN)/mypy
	@echo "==> mypy for macOS"; $(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	@echo "==> import-linter"; $(BIN)/lint-imports
	@echo "==> faces";         $(BIN)/python tools/blocking_faces.py --check

format: $(VENV)/dev.stamp  ## write the generated files anew, and let ruff lay the code out
	@$(BIN)/python tools/blocking_faces.py; $(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: bench-local bench-broker bench-cluster bench-fanout  ## every benchmark

bench-local: $(VENV)/bench.stamp  ## channels, pump and queues against their peers
	@$(BIN)/python -m benchmarks.local $(BENCH_ARGS)

bench-broker: $(VENV)/bench.stamp  ## the broker on one node, against the least a broker could do
	@$(BIN)/python -m benchmarks.broker $(BENCH_ARGS)

bench-cluster: $(VENV)/bench.stamp  ## partitions on three nodes, against the same ones on one node
	@$(BIN)/python -m benchmarks.cluster $(BENCH_ARGS)

bench-fanout: $(VENV)/bench.stamp  ## 1 to 1,000 consumers of one topic, on five nodes, against all at its leader, NATS and Redis; six minutes
	@$(BIN)/python -m benchmarks.fanout $(BENCH_ARGS)

bench-names: $(VENV)/bench.stamp  ## two processes that talk by name, against pyzmq and multiprocessing.connection
	@$(BIN)/python -m benchmarks.names $(BENCH_ARGS)

bench-spark: $(VENV)/bench.stamp  ## Spark with the broker, Parquet and a real Kafka; 20 minutes, needs Java 17
	@$(BIN)/python -m benchmarks.spark $(BENCH_ARGS)

bench-recovery: $(VENV)/base.stamp  ## how long a broker takes to open its data again, at 0.1, 1 and 5 GiB
	@$(BIN)/python -m benchmarks.recovery --json benchmarks/results/recovery.json

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Hocket needs Python 3.11 or newer: install it (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Hocket needs Python 3.11 or newer; $(PYTHON) is older. Set it with: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "==> creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "The venv module is missing (Debian: apt-get install python3-venv)"; exit 1; }

$(VENV)/base.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "==> installing hocket"
	@$(PIP) -e . && touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp
	@echo "==> installing the tools for tests and checks, and the peers the benchmarks measure against"
	@$(PIP) -e '.[dev,bench]' && touch $@ $(VENV)/demo.stamp $(VENV)/bench.stamp  # all of these

$(VENV)/demo.stamp: $(VENV)/base.stamp
	@echo "==> installing Spark for Python (500 MB)"
	@$(PIP) -e '.[demo]' && touch $@

$(VENV)/spark.jsa: $(VENV)/dev.stamp
	@echo "==> an archive of Spark's classes, with which it starts in half the time"
	@$(BIN)/python -m tests.spark.programs.class_archive 2>$(VENV)/spark.log || { cat $(VENV)/spark.log; exit 1; }

$(VENV)/bench.stamp: $(VENV)/base.stamp
	@echo "==> installing the peers that the benchmarks measure against"
	@$(PIP) -e '.[bench,spark]' && touch $@

clean:  ## remove what the targets made
	@rm -rf $(VENV) $(NOTES) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
