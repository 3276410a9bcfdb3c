# The README uses `make run` and `make test`. Each does its own set-up.
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell scripts/jobs.sh compilers)

# Programs for `make run`. `make test` continues from the same build.
PROGRAMS := dsj dsj-agent dsj-train dsj-make-quickstart

.PHONY: setup build programs fuzz-programs dist-programs dist install test-dist run picture quickstart-margin test test-numbers test-loaded test-cluster golden \
  docs bench bench-operator fuzz sanitize oracle format clean
setup:
	@scripts/phase.sh set-up "1 min on a fresh machine, later seconds" \
	  "installs compilers and libraries (apt), fetches libtorch" scripts/setup.sh
build: setup
	@scripts/phase.sh build "10 to 14 min on two cores, later only what has changed" \
	  "compiles all programs, tests and benches, log $(BUILD)/build.log" scripts/build.sh $(BUILD) $(JOBS)
programs: setup
	@scripts/phase.sh build "4 to 6 min on two cores, later only what has changed" \
	  "compiles $(PROGRAMS), log $(BUILD)/build.log" scripts/build.sh $(BUILD) $(JOBS) -- $(PROGRAMS)
# Meanwhile the Go programs of the test cluster are built in the background.
test test-loaded: export DSJ_SETUP_CLUSTER = 1
test test-loaded: export DSJ_SETUP_CUDA = 1
test test-loaded: export DSJ_SETUP_BROWSER = 1
fuzz-programs: build
	@DSJ_FUZZ_DIR="$(abspath $(BUILD))/fuzz" JOBS=$(JOBS) scripts/phase.sh build "4 min on two cores, later seconds" \
	  "compiles the fuzz programs with clang" scripts/fuzz.sh build
test: fuzz-programs
	@scripts/phase.sh tests "20 to 30 min on two cores" "runs every test" scripts/test.sh $(BUILD)
test-loaded: fuzz-programs
	@scripts/phase.sh tests "40 min to 2 h on two cores" "runs every test beside 8 busy loops" \
	  scripts/test.sh $(BUILD) --beside-load 8
test-cluster: export DSJ_SETUP_CLUSTER = nodes
test-cluster: export DSJ_SOAK = full
test-cluster: export DSJ_TEST_NODES = 1
test-cluster: build
	@scripts/phase.sh tests "45 min on two cores" "runs the tests on a cluster in full" \
	  scripts/test.sh $(BUILD) '^(cluster_|kube_real|kube_soak|simulation_long)'
run: programs
	@scripts/phase.sh quickstart "65 to 90 s on two cores" \
	  "makes a model and rows, asks it, trains it on 2 ranks, asks again" $(BUILD)/bin/dsj quickstart out/quickstart $(addprefix --seed ,$(QUICKSTART_SEED))
# For users (docs/install.md): `dist` makes a wheel, a tarball, images, the chart and SHA256SUMS; `install` copies the programs.
PREFIX ?= /usr/local
dist-programs: export DSJ_SETUP_CUDA ?= 1
dist-programs: setup
	@scripts/phase.sh build "5 to 7 min on two cores, later only what has changed" \
	  "compiles the programs that users install, log $(BUILD)/build.log" scripts/build.sh $(BUILD) $(JOBS) \
	  -- $(PROGRAMS) dsj-make-model $(PROGRAMS:%=%-dist) dsj-make-model-dist dsj_columns dsj_columns-dist dsj_cuda-dist dsj-operator
dist: dist-programs
	@scripts/dist.py all $(BUILD) dist
	@scripts/dist_images.py $(BUILD) dist
install: dist-programs
	@DESTDIR="$(DESTDIR)" scripts/dist.py install $(BUILD) "$(PREFIX)"
test-dist: dist-programs
	@python3 tests/run/dist_check.py . $(BUILD) $(BUILD)/test-reports/dist_full.json --full
quickstart-margin: programs
	@scripts/quickstart_margin.py $(BUILD) --write docs/reports/quickstart_margin.md
test-numbers: build
	@scripts/test_numbers.py $(BUILD)
picture: programs
	@$(BUILD)/bin/dsj plot out/quickstart/run --svg docs/quickstart.svg >/dev/null
golden: build
	@python3 scripts/golden_table.py --bin $(BUILD)/bin --write docs/reports/golden.md
docs: build
	@$(BUILD)/bin/dsj validate --keys markdown >docs/ds_config.md.new && mv docs/ds_config.md.new docs/ds_config.md
	@$(BUILD)/bin/dsj validate --arguments >docs/arguments.md.new && mv docs/arguments.md.new docs/arguments.md
	@$(BUILD)/bin/dsj validate --fields >docs/fields.md.new && mv docs/fields.md.new docs/fields.md
	@for file in crds/*.yaml; do $(BUILD)/bin/dsj validate --fields $$file >$$file.new && mv $$file.new $$file; done
	@cp crds/*.yaml charts/deepspeedjob/files/crds/
	@python3 tests/run/refusals_check.py --write
# QUICK=1: one case per kind of training, 3 minutes on two cores. PEERS=1: compares with Python DeepSpeed and JAX, after fetching them.
bench: build
ifdef PEERS
	@python3 scripts/bench_train.py --bin $(BUILD)/bin --deepspeed
	@python3 scripts/bench_train.py --bin $(BUILD)/bin --jax
else ifdef QUICK
	@python3 scripts/bench_train.py --bin $(BUILD)/bin --quick
else
	@python3 scripts/bench_train.py --bin $(BUILD)/bin
	@$(BUILD)/bin/bench_products
	@$(BUILD)/bin/bench_optimizer_step
	@python3 scripts/bench_random_ltd.py --bin $(BUILD)/bin
	@$(BUILD)/bin/bench_nvme_step $(BUILD)
	@python3 scripts/bench_slow_link.py --bin $(BUILD)/bin
	@python3 scripts/bench_slow_link.py --bin $(BUILD)/bin --set stage3
	@python3 scripts/bench_levels.py --bin $(BUILD)/bin
	@python3 scripts/bench_tune.py --bin $(BUILD)/bin
endif
bench-operator: export DSJ_SETUP_CLUSTER = 1
bench-operator: build
	@DSJ_CLUSTER_STATE="$(abspath $(BUILD))/cluster/bench" tests/cluster/cluster.py run --simulated 60 \
	  python3 bench/operator_bench.py $(BUILD)/bin --write docs/reports/performance_operator.md
fuzz: setup
	@scripts/fuzz.sh $(or $(SECONDS_EACH),600)
sanitize: setup
	@scripts/sanitize.sh
oracle:
	@scripts/oracle.sh
format:
	@scripts/format.sh
clean:
	rm -rf build build-dev build-asan build-tsan
