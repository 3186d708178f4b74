# Each target sets up its own virtual environment first; PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := uv==0.13.8
LOWEST_TESTS := $(patsubst %,tests/test_%.py,losses storage backbones classifiers lite winograd learner resume photos \
	report model_file own_classifier estimator export timm loggers search studio)

.PHONY: demo test test-lowest campaign cov lint format bench docs wheel lock sbom clean

$(READY): pyproject.toml constraints.txt src/podnet/nets/winograd.cpp
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "podnet needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)  ## PODNet beside fine-tuning and replay on the embedded digits: 5 classes, then one more a step
	$(BIN)/podnet demo

test: $(READY)
	$(BIN)/pytest -n 3 --dist worksteal  # on two cores: many tests wait for processes of their own

test-lowest: export PYTHONPATH :=
test-lowest:  ## a part of the tests with the lowest versions that pyproject.toml allows; downloads some GB
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) scripts/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -r .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	.venv-lowest/bin/pytest -W default $(LOWEST_TESTS)  # old versions warn of what was mended since

campaign: $(READY)  ## thousands of kills, bad files and histories, for hours; goes on after an interruption (docs/reliability.md)
	$(BIN)/python tests/campaign/run.py

cov: $(READY)  ## the tests with branch coverage, printed; slower than make test
	$(BIN)/coverage erase
	$(BIN)/pytest -n 3 --dist worksteal --cov --cov-report=term

bench: $(READY)  ## how fast it is here, in ratios: podnet bench --quick takes a few minutes
	$(BIN)/podnet bench

docs: $(READY)  ## the site, into build/docs; open build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: export PYTHONPATH :=
wheel: $(READY)  ## sdist and wheel into dist/; the wheel is tried in an environment of its own, in an empty folder
	rm -rf dist .venv-wheel
	$(BIN)/python -m build --outdir dist
	$(BIN)/python scripts/check_dist.py dist
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	root=$$PWD; folder=$$(mktemp -d) && cd $$folder && $$root/.venv-wheel/bin/python $$root/scripts/smoke.py; \
		failed=$$?; rm -rf $$folder; exit $$failed

lock:  ## requirements/*.txt: the versions of constraints.txt with hashes
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check $(UV)
	PATH="$$PWD/.venv-lock/bin:$$PATH" $(PYTHON) scripts/lock.py

sbom: $(READY)  ## build/sbom.cdx.json (CycloneDX), and docs/licences.md: what podnet consists of and needs
	$(BIN)/python scripts/sbom.py

clean:
	rm -rf $(VENV) .venv-wheel .venv-lowest .venv-lock build dist .coverage .coverage.* src/*.egg-info src/podnet/nets/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis
