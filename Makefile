# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test quick check docs dist setup fmt clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and the development set into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,demo,dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

# Two at a time, in the order of collection: the long ones come first, the many short ones even out the end. Then, one
# by one, those whose outcome depends on the machine's time or memory. Both parts run, whatever the first one says.
# A measured test that fails is measured once more and fails if it fails again: one bad moment of a machine is no result.
# A test process that dies ends the first part: pytest-xdist would wait for ever for what it had been given.
test: $(STAMP)
	@$(BIN)/python -m pytest -n 2 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder --durations=15 -m 'not measures'; \
	first=$$?; [ $$first -ne 2 ] || exit 2; \
	$(BIN)/python -m pytest --durations=15 -m measures; measured=$$?; \
	if [ $$measured -eq 1 ]; then \
	  echo "measured tests that failed are measured once more"; \
	  $(BIN)/python -m pytest -m measures --last-failed --last-failed-no-failures none; measured=$$?; \
	fi; \
	[ $$measured -eq 0 ] && exit $$first

# For daily work: unit tests that compile nothing, start no row of processes and do not measure. Under two minutes.
quick: $(STAMP)
	@$(BIN)/python -m pytest tests/unit -q -n 2 --dist loadscope -m 'not slow and not compiles and not measures'

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The site, in build/site; a warning is an error. Nothing is fetched, and the pages ask nothing of other hosts.
docs: $(STAMP)
	@$(BIN)/python docs/_stage.py
	@$(BIN)/zensical build --strict --clean

# Wheel and sdist, in dist/, with the pinned build tool.
dist: $(STAMP)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .

fmt: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist compilot-runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
