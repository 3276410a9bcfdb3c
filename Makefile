# The two commands of the README: `make run` and `make test`. Each does all its own set-up.
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: setup build run test test-cluster golden bench bench-operator fuzz sanitize docs format oracle clean
setup:
	@scripts/phase.sh set-up 15 scripts/setup.sh
build: setup
	@scripts/phase.sh build 30 scripts/build.sh $(BUILD) $(JOBS)
test: export DSJ_SETUP_CLUSTER = 1
test: build
	@scripts/phase.sh tests 30 scripts/test.sh $(BUILD)
test-cluster: export DSJ_SETUP_CLUSTER = nodes
test-cluster: export DSJ_SOAK = full
test-cluster: export DSJ_TEST_NODES = 1
test-cluster: build
	@scripts/phase.sh "cluster tests" 45 scripts/test.sh $(BUILD) '^(cluster_|kube_real|kube_soak)'
run: build
	@scripts/phase.sh quickstart 15 scripts/quickstart.sh $(BUILD)
golden: build
	@python3 scripts/golden_table.py --bin $(BUILD)/bin --write docs/golden.md
docs: build
	@$(BUILD)/bin/dsj validate --keys markdown >docs/ds_config.md.new && mv docs/ds_config.md.new docs/ds_config.md
	@python3 tests/run/refusals_check.py --write
bench: build
	@python3 scripts/bench_train.py --bin $(BUILD)/bin
	@$(BUILD)/bin/bench_optimizer_step
	@$(BUILD)/bin/bench_nvme_step $(BUILD)
bench-operator: export DSJ_SETUP_CLUSTER = 1
bench-operator: build
	@DSJ_CLUSTER_STATE=$(abspath $(BUILD))/cluster/bench tests/cluster/cluster.py run --simulated 60 \
	  python3 bench/operator_bench.py $(BUILD)/bin --write docs/performance_operator.md
fuzz: setup
	@scripts/fuzz.sh $(or $(SECONDS_EACH),600)
sanitize: setup
	@scripts/sanitize.sh
oracle:
	@scripts/oracle.sh
format:
	@git ls-files '*.h' '*.cc' | xargs clang-format -i
clean:
	rm -rf build build-dev build-asan build-tsan
