# Every target sets up what it needs in .venv and says what it does; the second run is fast.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-covered test-others test-spark test-spark-long test-spark-kills test-long test-kill test-sim scale check format bench bench-local bench-broker bench-spark bench-recovery clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/spark.stamp  ## the levels at work, in less than a minute
	@$(BIN)/python -m hocket.demo

# Measuring coverage makes everything slower, so it is done where all of it is demanded.
COVERED := tests/contract tests/core tests/local tests/node docs README.md
OTHERS  := tests/adapters tests/broker_contract tests/cli tests/client tests/e2e tests/log tests/rpc tests/sim tests/wire \
           $(wildcard tests/test_*.py)

SPARK   := tests/spark  # its guide too: one Spark session serves them all

test: $(VENV)/dev.stamp  ## all tests, the documentation's snippets, and branch coverage
	@echo "==> three suites side by side, some minutes each; each is shown when it is done"
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-covered test-others test-spark

test-covered: $(VENV)/dev.stamp  # channels, queues, cores and node, and every snippet of README and docs
	@echo "==> channels, queues, cores and node, and every snippet of README and docs, with branch coverage"
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(COVERED) $(PYTEST_ARGS)
	@$(BIN)/coverage report --include='src/hocket/local/*,src/hocket/core/*' --fail-under=100

test-others: $(VENV)/dev.stamp
	@echo "==> wire, log, clients, command line, RPC, simulated clusters, and the broker's contract in every world"
	@$(BIN)/python -m pytest $(OTHERS) $(PYTEST_ARGS)

test-spark: $(VENV)/dev.stamp  ## the data source and the sink in a real Spark (needs Java 17)
	@echo "==> Spark: data source, exactly-once sink, and every snippet of its guide"
	@$(BIN)/python -m pytest $(SPARK) $(PYTEST_ARGS)

test-spark-long: $(VENV)/dev.stamp  ## a declarative pipeline run twice, and secrets looked for wherever Spark shows options
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/spark/test_pipelines.py tests/spark/test_secrets.py $(PYTEST_ARGS)

test-spark-kills: $(VENV)/dev.stamp  ## kill -9 of Spark and of the broker at every stage; 64 kills, half an hour
	@$(BIN)/python -m tests.spark.kills

test-long: $(VENV)/dev.stamp  ## the stress suites at full length, and the queue contract 20 times over
	@echo "==> stress at full length"
	@HOCKET_STRESS=long $(BIN)/python -m pytest -m stress
	@for round in $$(seq 1 20); do \
	  echo "==> queue contract, round $$round of 20"; \
	  $(BIN)/python -m pytest -q tests/contract || exit 1; \
	done

test-kill: $(VENV)/dev.stamp  ## kill -9 of the broker under load, 50 rounds
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/e2e/test_kill.py

test-sim: $(VENV)/dev.stamp  ## 500 seeds of a simulated cluster, and every planted bug found; a quarter of an hour
	@$(BIN)/hocket sim --seeds 500
	@HOCKET_STRESS=long $(BIN)/python -m pytest tests/sim/test_mutants.py $(PYTEST_ARGS)

scale: $(VENV)/bench.stamp  ## a ring of 10,000 nodes, simulated; writes docs/internals/scale.md and its plots
	@$(BIN)/hocket sim ring --nodes 10000 --write docs/internals

check: $(VENV)/dev.stamp  ## ruff, mypy --strict, import-linter
	@echo "==> ruff";          $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> mypy --strict"; $(BIN)/mypy
	@echo "==> import-linter"; $(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## let ruff lay the code out
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: bench-local bench-broker  ## every benchmark

bench-local: $(VENV)/bench.stamp  ## channels, pump and queues against their peers
	@$(BIN)/python -m benchmarks.local $(BENCH_ARGS)

bench-broker: $(VENV)/bench.stamp  ## the broker on one node, against the least a broker could do
	@$(BIN)/python -m benchmarks.broker $(BENCH_ARGS)

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
	@$(PIP) -e '.[dev,bench]' && touch $@ $(VENV)/spark.stamp $(VENV)/bench.stamp  # all of these

$(VENV)/spark.stamp: $(VENV)/base.stamp
	@echo "==> installing Spark for Python (500 MB)"
	@$(PIP) -e '.[spark]' && touch $@

$(VENV)/bench.stamp: $(VENV)/base.stamp
	@echo "==> installing the peers that the benchmarks measure against"
	@$(PIP) -e '.[bench,spark]' && touch $@

clean:  ## remove what the targets made
	@rm -rf $(VENV) .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
