# Two commands on a fresh clone: `make demo` and `make test`. Needs python3.11+, make and a compiler.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
USABLE := $(VENV)/.usable
READY  := $(VENV)/.ready
DOCS   := $(VENV)/.docs
export OMP_NUM_THREADS ?= 2
unexport PYTHONDONTWRITEBYTECODE  # every command would compile the package again

.PHONY: demo test test-fast faults lint docs install clean
demo: $(USABLE)
	$(BIN)/latentalign reproduce --data demo --rows soft,variational-sample --jobs 2 --out demo-out \
	  --set training.epochs=2 --set training.threads=1

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=10

test-fast: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

faults: $(READY)
	PYTHONPATH=tests $(BIN)/python -m faults

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation site, in site/. It needs no network to build or to read; warnings are errors.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

install: $(READY)

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

$(USABLE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e ".[nmt,report]"
	touch $@

$(READY): $(USABLE)
	$(PIP) -e ".[dev,nmt,vqa,hf,report,serve]"
	touch $@

$(DOCS): $(USABLE)
	$(PIP) -e ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis site
