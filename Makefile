# OELM Lab: `make demo` trains and compares on this machine, `make test` checks everything.
# A GPU user names the torch that fits the driver, as `oelm doctor` prints it, PYTORCH_INDEX being the address of PyTorch's wheel index:
#   make demo TORCH="torch==2.13.0+cu126 --index-url $PYTORCH_INDEX/cu126"

PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# pip would compile on one core, and take half as long again. Some packages hold files that no Python compiles.
BYTES  := -@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib oelm_core oelm_tui >/dev/null 2>&1
# Set in many containers. Without bytecode every process of ours, and there are hundreds in the tests, compiles us anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick test-torch lint coverage chaos fuzz bench findings install clean fire pictures

demo: $(VENV)/.installed
	$(BIN)/oelm demo

# For two cores: two workers mostly wait, for Slurm and for processes (tests/conftest.py). Each takes up to 1 GB.
WORKERS ?= 4
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# Without the tests that start several ranks, a Slurm or a terminal.
test-quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not slurm"

# One process and two ranks on another torch: make test-torch TORCH="torch==2.6.0"
test-torch: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/integration/test_gradients.py tests/integration/test_ranks.py tests/integration/test_shards.py \
	  tests/functional/test_launch_ranks.py tests/unit/test_training_run.py tests/unit/test_precision.py

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Lines that the unit tests reach; what they leave to other processes (runner, worker, screen) counts as not reached.
coverage: $(VENV)/.installed-test
	$(BIN)/python -m coverage run -m pytest -q tests/unit
	$(BIN)/python -m coverage report --sort=cover

# Anything in any file: presets, run folders, logs, settings. About a quarter of an hour; other examples each time.
fuzz: $(VENV)/.installed-test
	OELM_FUZZ=$${OELM_FUZZ:-10000} $(BIN)/python -m pytest tests/unit/test_fuzz.py

chaos: $(VENV)/.installed-test
	$(BIN)/python -m tests.chaos.run --faults 200 --kills 10 --ranks 10

# The screen under fire: 2,000 keys and 200 bursts of them, megabytes pasted, sizes, folders that change; some minutes.
fire: $(VENV)/.installed-test
	OELM_FIRE=20 OELM_BURSTS=200 $(BIN)/python -m pytest tests/functional/test_tui_under_fire.py tests/functional/test_tui_random_keys.py

# The speed claims, measured here: a quarter of an hour on two cores, the install included. The page is the command's
# own output.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks --out docs/performance.md

# The screens of README and docs over the runs of `make demo` here, and the tables of keys.
pictures: $(VENV)/.installed
	$(BIN)/python -m benchmarks.screen_picture docs/img/home.svg down
	$(BIN)/python -m benchmarks.screen_picture docs/img/compare.svg down c
	$(BIN)/python -m benchmarks.screen_picture docs/img/log.svg down f
	$(BIN)/python -m benchmarks.screen_keys docs/tui.md

# The two studies of docs/findings.md, from tuning to their tables: about 6 hours on two cores. It begins with the runs whose
# records are in docs/findings, and continues where it was interrupted. DATA holds sst2/ (train.tsv, dev.tsv) and
# tinystories/ (train.txt, valid.txt), MODEL the encoder's folder. To repeat all of it: rm docs/findings/records.tar.xz
DEVICE ?= cpu
FINDINGS ?= $(abspath build/findings)
findings: $(VENV)/.installed
	@test -d "$(DATA)" && test -d "$(MODEL)" || { echo "make findings DATA=FOLDER MODEL=FOLDER: see the Makefile"; exit 2; }
	$(BIN)/python -m benchmarks.findings restore $(FINDINGS)
	test -d $(FINDINGS)/tokenizer || $(BIN)/oelm data tokenizer --from $(abspath $(DATA))/tinystories --vocab 2048 -o $(FINDINGS)/tokenizer
	OELM_HOME=$(FINDINGS) $(BIN)/oelm tune findings-gpt --budget 3 --device $(DEVICE) --set data.path=$(abspath $(DATA))/tinystories \
	  --set data.tokenizer=$(FINDINGS)/tokenizer
	OELM_HOME=$(FINDINGS) $(BIN)/oelm tune findings-sst2 --budget 3 --device $(DEVICE) --set data.path=$(abspath $(DATA))/sst2 \
	  --set model.path=$(abspath $(MODEL))
	$(BIN)/python -m benchmarks.findings write $(FINDINGS)

install: $(VENV)/.installed

# Stamps: a step runs again only when what it depends on changed. torch comes first and alone, so that
# nothing later can pull in another build of it.
TORCH_STAMP := $(VENV)/.torch-$(shell echo '$(TORCH)' | cksum | cut -d' ' -f1)

$(TORCH_STAMP):
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	rm -f $(VENV)/.torch-* && touch $@

$(VENV)/.installed: $(TORCH_STAMP) pyproject.toml constraints.txt
	$(PIP) -c constraints.txt -e .
	$(BYTES)
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -c constraints.txt -e '.[test]'
	$(BYTES)
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
