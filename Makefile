# Each target sets up .venv by itself; `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test lint types bench chaos clean setup
.DELETE_ON_ERROR:

demo: $(READY)
	@$(BIN)/kickoff demo

# Most tests wait for processes, so three workers keep two cores busy.
test: $(READY)
	$(BIN)/pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

setup: $(READY)

# The first line of output is the reason when Python is missing, unfit or lacks venv.
$(READY): requirements.txt functions/requirements.txt trainer/requirements.txt deploy/requirements.txt pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON) here. Install Python 3.11 to 3.13," \
		"or name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" deploy/preflight.py $(MAKECMDGOALS)
	@echo "Setting up $(VENV): about 3 GB, TensorFlow is most of it; a few minutes, once."
	@"$(PYTHON)" -m venv $(VENV)
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps --editable .
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info

# Every crash point, 300 invented histories, and 10,000 requests under random kills: half an hour on two cores.
chaos: $(READY)
	KICKOFF_CHAOS=full KICKOFF_HISTORIES=300 $(BIN)/pytest --timeout 1800 tests/chaos tests/kickoff/test_protocol_model.py
	$(BIN)/python -m bench.chaos --requests 10000
