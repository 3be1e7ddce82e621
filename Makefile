# Two commands set a fresh machine up and do something useful: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo

# without a GPU, TORCH=cpu spares gigabytes of CUDA libraries
INDEX := $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/$(TORCH))
define INSTALL
$(PYTHON) -m venv $(VENV)
@echo "installing into $(VENV), once$(if $(TORCH),,; without a GPU stop this and add TORCH=cpu, which leaves out gigabytes of CUDA)"
$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(INDEX) -e ".[$(1)]"
@touch $@
endef

NPM := build/npm
NPM_READY := $(NPM)/.ready

.PHONY: demo test docs site npm lint types format clean help

help:
	@echo "make demo    train, scale and show a small reasoner (about three minutes on two cores)"
	@echo "make test    lint, types and the whole test suite (minutes on two cores)"
	@echo "make docs    these pages and the Python reference as a site in build/docs"
	@echo "make site    the page as a static site in site/, with the shipped models (needs npm)"
	@echo "make npm     what the site and the browser tests need from npm, in build/npm"
	@echo "make format  rewrite the sources in the house style"
	@echo "TORCH=cpu behind a command installs PyTorch without CUDA, gigabytes less"
	@echo "make clean   remove the virtual environment and caches (runs/ is kept)"

$(READY): pyproject.toml constraints.txt
	$(call INSTALL,dev)

# the demo writes figures, and needs neither Ray nor ONNX nor what the docs and tests are made with
$(DEMO_READY): pyproject.toml constraints.txt
	$(call INSTALL,plots)

demo: $(DEMO_READY)
	$(BIN)/eqr demo

$(NPM_READY): Makefile
	npm install --silent --no-save --no-audit --no-fund --prefix $(NPM) onnxruntime-web@1.30.0 axe-core@4.14.0
	@touch $(NPM_READY)

npm: $(NPM_READY)

site: $(READY) $(NPM_READY)
	$(BIN)/eqr site --overwrite

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/mkdocs build --strict --site-dir build/docs

# the tests on Ray share one cluster of three nodes, which needs both cores
test: lint types
	$(BIN)/python -m pytest -n 2 --ignore tests/cluster
	$(BIN)/python -m pytest tests/cluster

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build src/*.egg-info
