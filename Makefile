# Each target sets up .venv by itself; `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint types bench chaos clean setup
.DELETE_ON_ERROR:

demo: $(READY)
	@$(BIN)/kickoff demo

test: $(READY)
	$(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

setup: $(READY)

# The first line of output is the reason when Python is too old or lacks venv.
$(READY): requirements.txt functions/requirements.txt trainer/requirements.txt deploy/requirements.txt pyproject.toml
	@$(PYTHON) deploy/preflight.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info

# Every crash point, 300 invented histories, and 10,000 requests under random kills: half an hour on two cores.
chaos: $(READY)
	KICKOFF_CHAOS=full KICKOFF_HISTORIES=300 $(BIN)/pytest --timeout 1800 tests/chaos tests/kickoff/test_protocol_model.py
	$(BIN)/python -m bench.chaos --requests 10000
