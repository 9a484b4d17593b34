# Every target sets itself up on a fresh machine: it creates $(VENV) and installs under the constraints.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help reproduction peers test browser examples demo lint types docs test-gpu test-floors benchmark clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# What a user installs to run the experiments: quick, and all that the demo needs.
$(VENV)/.lab: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing torch and the rest into $(VENV): the download may take some minutes, without a word."
	$(INSTALL) -e '.[lab]'
	@touch $@

# What the tests need on top: the frameworks of the integrations and the developer's tools.
$(STAMP): $(VENV)/.lab
	$(INSTALL) -e '.[dev,report,lightning,huggingface,sklearn,torchdata]'
	@touch $@

# Ray is as large as all the other frameworks together and slow to start its workers: its test is skipped
# by `make test`, with that reason, and its example runs here.
$(STAMP)-examples: $(STAMP)
	$(INSTALL) -e '.[ray]'
	@touch $@

# The report is tested in a browser. Where it can be installed, it is; where not, those tests say why they are skipped.
browser:  ## install Debian's Chromium and its driver, where apt-get and the right to use it are at hand
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null; } \
	|| echo "No Chromium here and no way to install it: the report's page is not tested."

test: $(STAMP) browser  ## run the tests (doctests and README blocks included)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

examples: $(STAMP)-examples  ## run every example, with all the frameworks, and compare their accuracies
	$(BIN)/python examples/run_all.py

demo: $(VENV)/.lab  ## show on noisy digits what emphasis gains
	$(BIN)/python -m activebias demo

lint: $(STAMP)  ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy --strict on src
	$(BIN)/mypy

docs: $(STAMP)  ## build the documentation into out/site; a broken link is an error
	$(BIN)/mkdocs build --strict

benchmark: $(STAMP)  ## overhead, sampler and memory, side by side
	$(BIN)/python benchmarks/overhead.py

reproduction: $(STAMP)  ## docs/reproduction.md and its figures, and docs/reproduction.html, from results/
	$(BIN)/python -m activebias.lab.reproduction results docs/reproduction.md
	$(BIN)/activebias reproduce --trials 0 --out results --html docs/reproduction.html --json > /dev/null

peers: $(STAMP)  ## docs/peers.md, from results/peers (trained by benchmarks/peers.py)
	$(BIN)/python -m activebias.lab.peer_page results/peers docs/peers.md

# With FLOOR_TORCH=2.4.1 torch is as old too; its wheel comes with several GB of CUDA, and runs on a CPU.
FLOOR_TORCH ?= 2.13.0
test-floors:  ## the tests of core and adapters with the oldest versions that work, in .venv-floors
	$(PYTHON) -m venv .venv-floors
	.venv-floors/bin/pip install --quiet --disable-pip-version-check torch==$(FLOOR_TORCH) 'numpy<2.4' -r floors.txt \
	  pytest pytest-timeout pytest-xdist hypothesis
	PYTHONPATH=src .venv-floors/bin/python -m pytest -n 2 -o filterwarnings= tests/integrations tests/test_core_against_reference.py \
	  tests/test_loss.py tests/test_indexing.py tests/test_sampler.py tests/test_resume.py tests/test_ranks.py

test-gpu:  ## the tests that need CUDA, with the Python at hand
	PYTHONPATH=src:tests/helpers $(PYTHON) -m pytest -c /dev/null --rootdir=. -p no:cacheprovider tests/gpu

clean:
	rm -rf $(VENV) .venv-floors .pytest_cache .mypy_cache .ruff_cache .hypothesis
