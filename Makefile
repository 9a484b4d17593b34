# Every target sets itself up on a fresh machine: it creates $(VENV) and installs under the constraints.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help test examples demo lint types docs test-gpu benchmark clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e '.[dev,lightning,huggingface,sklearn,torchdata]'
	@touch $@

# Ray is as large as all the other frameworks together and slow to start its workers: its test is skipped
# by `make test`, with that reason, and its example runs here.
$(STAMP)-examples: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@touch $@

test: $(STAMP)  ## run the tests (doctests and README blocks included)
	$(BIN)/python -m pytest

examples: $(STAMP)-examples  ## run every example, with all the frameworks, and compare their accuracies
	$(BIN)/python examples/run_all.py

demo: $(STAMP)  ## show on noisy digits what emphasis gains
	$(BIN)/python -m activebias demo

lint: $(STAMP)  ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy --strict on src
	$(BIN)/mypy

benchmark: $(STAMP)  ## overhead, sampler and memory, side by side
	$(BIN)/python benchmarks/overhead.py

test-gpu:  ## the tests that need CUDA, with the Python at hand
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu tests/gpu -p no:cacheprovider

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
