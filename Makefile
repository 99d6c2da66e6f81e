# `make run` and `make test` are all that you need to start.
PYTHON ?= python3
WORKSPACE ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# The name of a temporary directory that reveals assumptions about paths: it has spaces and non-ASCII letters, leaves no room for the
# path of a socket, and wraps every line in which it is printed.
ODD := Ünïcödé 空間 a-directory-name-that-leaves-no-room-for-the-path-of-a-socket-and-that-wraps-every-line-in-which-it-is-printed

# Where `make test` has its temporary files: in memory, if a gigabyte is free and programs may run there.
MEMORY := $(shell grep -s ' /dev/shm tmpfs rw' /proc/mounts | grep -qv noexec && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 1000000 { print $$6 }')

# Compiled files are kept, whatever the user's shell says: without them, each worker and each process of a test compiles all.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP)  ## set up or update the virtual environment

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kbtui needs Python 3.11 or later; say which with: make PYTHON=python3.11 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing. On Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --constraint constraints.txt --editable . --group dev
	@touch $@

run: $(STAMP)  ## open the TUI on the demo workspace, or WORKSPACE=path
	@if [ -n "$(WORKSPACE)" ]; then exec $(BIN)/kbtui -w "$(WORKSPACE)"; else exec $(BIN)/kbtui demo; fi

test: export TMPDIR := $(or $(TMPDIR),$(MEMORY),/tmp)
test: $(STAMP)  ## run the tests (about five minutes)
	$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-odd-path: $(STAMP)  ## run the tests in a directory with a long name, spaces and non-ASCII letters, without HOME
	@base=$$(mktemp -d); trap 'rm -rf "$$base"' EXIT; mkdir "$$base/$(ODD)" && \
	env -u HOME TMPDIR="$$base/$(ODD)" $(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

test-slow: $(STAMP)  ## run the slow tests (20 to 40 minutes)
	$(BIN)/python -m pytest -m slow -n 2 --dist worksteal $(ARGS)

man: $(STAMP)  ## write the manual page to build/kbtui.1
	@mkdir -p build
	@$(BIN)/kbtui man > build/kbtui.1 && echo "build/kbtui.1; to read it: man -l build/kbtui.1"

docs: $(STAMP)  ## update the generated documentation: tables of the guide, decisions, docs/api.md
	$(BIN)/python -m tests.documentation

screenshots: $(STAMP)  ## take the pictures of the README and the screens that tests compare
	$(BIN)/python -m tests.screenshots $(ARGS)

eval: $(STAMP)  ## measure search quality on the labelled sets
	$(BIN)/python -m tests.eval $(ARGS)

bench: $(STAMP)  ## measure speed, as ratios to baselines of the same run
	$(BIN)/python -m tests.bench $(ARGS)

fuzz: $(STAMP)  ## fuzz untrusted input, 2 minutes for each kind
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group fuzz
	$(BIN)/python -m tests.safety.fuzz $(ARGS)

soak: $(STAMP)  ## edit and search for MINUTES (10), and plot memory, files and disk space
	$(BIN)/python -m tests.safety.soak --minutes $(or $(MINUTES),10) $(ARGS)

audit: $(STAMP)  ## look up known vulnerabilities of the pinned packages
	$(BIN)/python -m tests.packaging.audit

check: $(STAMP)  ## check formatting, lint, types and import rules
	$(BIN)/ruff format --check kbtui tests
	$(BIN)/ruff check kbtui tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format the code and sort imports
	$(BIN)/ruff format kbtui tests
	$(BIN)/ruff check --fix kbtui tests

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

.PHONY: help setup run test test-odd-path test-slow man docs screenshots eval bench fuzz soak audit check format clean
