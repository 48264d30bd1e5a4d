# The commands for developers. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUILD := build
GO ?= go
EVENTS ?= 1e6,1e7
CC ?= cc
CXX ?= c++
# The Go workspace replaces the unwinder module by a patched copy, see record/unwind/patches/README.md.
export GOWORK := $(CURDIR)/$(BUILD)/go.work

.PHONY: help workspace build simcuda simtorch demo fleet test live lab stability lint race verdicts verdicts-windows live-verdicts first-call gpu-jobs gpu-times host-jobs host-chains object-jobs pointer-jobs changes rank-jobs rank-scale test-gpu man soak faults agent-faults kernels kernels-arm64 generate page check bench fuzz clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

workspace:
	@sh scripts/workspace.sh

build: workspace ## build gpurec into build/bin
	$(GO) build -o $(BUILD)/bin/gpurec ./cmd/gpurec

simcuda: ## build the simulated CUDA driver and its programs into build/simcuda
	@CC=$(CC) bash examples/simcuda/build.sh $(BUILD)/simcuda
	@CC=$(CC) bash examples/simnccl/build.sh $(BUILD)/simcuda

simtorch: simcuda ## build the simulated PyTorch allocator and its programs into build/simtorch
	@CXX=$(CXX) bash examples/simtorch/build.sh $(BUILD)/simtorch

demo: build simcuda ## record a leaking program and show the leak (needs root, no GPU)
	@bash scripts/demo.sh

fleet: workspace ## check metrics and alert rules with promtool (downloads Debian's package prometheus)
	@bash scripts/fleet.sh

test: workspace simtorch ## run the tests of CI; tests that cannot run here print why they skip
	@bash scripts/test.sh

live: workspace simtorch ## run all tests with real probes (needs root; 15 minutes)
	@GPUREC_TESTS=root GPUREC_MUST_RUN=1 bash scripts/test.sh

lab: workspace simtorch ## run the tests of class lab that have no target of their own, and the benchmarks once (needs root)
	@GPUREC_TESTS=lab GPUREC_MUST_RUN=1 bash scripts/test.sh
	@$(GO) test -vet=off -run '^$$' -bench . -benchtime 1x -short ./...

stability: workspace simtorch ## run CI's tests with real probes RUNS (10) times, half of them on busy processors (needs root)
	@bash scripts/stability.sh

lint: workspace ## run staticcheck and govulncheck, which take minutes to build
	GOWORK=off $(GO) tool -modfile=scripts/tools.mod staticcheck ./...
	@bash scripts/vulnerabilities.sh

race: workspace simtorch ## run all tests under the race detector (needs root; 30 minutes)
	GPUREC_MUST_RUN=1 $(GO) test -race -timeout 2h ./...

verdicts: workspace simtorch ## compare leak verdicts with programs whose leaks are known (needs root, no GPU)
	GPUREC_VERDICTS=1 GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -run '^TestVerdicts$$'
	GPUREC_VERDICTS=1 $(GO) test ./analyze/report/leaks -count=1 -v -run '^TestVerdictsOf'

verdicts-windows: build simtorch ## compare leak verdicts of random programs SEEDS (0-59) under a low --max-overhead (needs root; 20 minutes)
	@python3 scripts/verdicts_windows.py --seeds $(or $(SEEDS),0-59)

live-verdicts: build simtorch ## compare verdicts while recording with programs whose faults are known (needs root; 15 minutes)
	@python3 scripts/live_verdicts.py $(if $(PROGRAMS),--programs $(PROGRAMS))

first-call: workspace simtorch ## record programs from their first call RUNS (20) times, on busy processors (needs root)
	GPUREC_FIRST_CALL_RUNS=$(or $(RUNS),20) GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^TestFirstCalls$$'

gpu-jobs: workspace simtorch ## record SEEDS (20) programs of each kind with known causes of idle GPU time (needs root)
	GPUREC_SEEDS=$(or $(SEEDS),20) GPUREC_TESTS=gpu-jobs GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^TestGPUJobs$$'

gpu-times: workspace simtorch ## compare the GPU times of SEEDS (20) random programs with the truth (needs root)
	GPUREC_SEEDS=$(or $(SEEDS),20) GPUREC_TESTS=gpu-times GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^TestRandomGPUTimes$$'

host-jobs: workspace simtorch ## record SEEDS (10) programs of each kind that wait on the host, LOAD=1 on busy processors (needs root)
	GPUREC_SEEDS=$(or $(SEEDS),10) GPUREC_HOST_LOAD=$(LOAD) GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -timeout 0 -run '^TestHost(Jobs|Hangs)$$'

host-chains: workspace simtorch ## record SEEDS (10) programs of each kind with known chains of waits, LOAD=1 next to busy processes (needs root)
	GPUREC_SEEDS=$(or $(SEEDS),10) GPUREC_HOST_LOAD=$(LOAD) GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -timeout 0 -run '^TestHostChain'

object-jobs: workspace simtorch ## record SEEDS (20) programs with known leaks of driver objects (needs root; 2 minutes)
	GPUREC_SEEDS=$(or $(SEEDS),20) GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -timeout 0 -run '^TestObjectJobs$$'

pointer-jobs: workspace simcuda ## record SEEDS (100) programs, half of them with an error in the use of memory (needs root; 2 minutes)
	GPUREC_SEEDS=$(or $(SEEDS),100) GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^TestPointerJobs$$'

changes: workspace simtorch ## find SEEDS (200) faults in generated recordings, and RUNS (1) of 20 recorded programs (root)
	GPUREC_SEEDS=400 $(GO) test ./analyze/changepoint -count=1 -v -run '^Test(Quiet|Steps|Levels|Drift)'
	GPUREC_SEEDS=$(or $(SEEDS),200) $(GO) test ./analyze/report/changes -count=1 -timeout 0 -run '^Test(Faults|Quiet)'
	GPUREC_SEEDS=$(or $(RUNS),1) GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^TestChangesAreFound$$'

rank-jobs: workspace simtorch ## record SEEDS (200) jobs of several ranks with known faults (needs root; 20 minutes)
	GPUREC_SEEDS=$(or $(SEEDS),200) GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -timeout 0 -run '^TestRankJobs$$'

rank-scale: workspace ## measure hang on RECORDINGS (64) of 100 MB and 1,024 small ones; DIR (build) needs 10 GB
	GPUREC_TESTS=rank-scale GPUREC_RANK_SCALE=$(or $(RECORDINGS),64) GPUREC_RANK_SCALE_DIR=$(or $(DIR),$(CURDIR)/$(BUILD)) $(GO) test ./cmd/gpurec/analyze -count=1 -v -timeout 0 -run '^TestRankScale$$'

test-gpu: build ## compare recordings with the known calls of programs on a real GPU
	@bash scripts/test-gpu.sh

soak: build simcuda ## check that memory and disk use stay flat for MINUTES (60) of recording (needs root)
	@bash scripts/soak.sh $(or $(MINUTES),60)

faults: workspace simtorch ## inject faults: kills, 1,000 attaches, 500 children (needs root; 30 minutes)
	@bash scripts/faults.sh

agent-faults: workspace simtorch ## kill the agent 50 times, and run each trigger RUNS (20) times (needs root; 10 minutes)
	GPUREC_FAULTS=100 GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -timeout 0 -run '^TestFaultAgent'
	GPUREC_TRIGGER_RUNS=$(or $(RUNS),20) GPUREC_MUST_RUN=1 $(GO) test ./record -count=1 -v -timeout 0 -run '^Test(Growth)?TriggersFireOnTheirFault$$'

kernels: build simtorch ## test on Debian kernels in qemu, VERSIONS="6.1 6.12" (needs root; an hour without KVM)
	@bash scripts/kernels.sh $(VERSIONS)

kernels-arm64: workspace ## test on Debian kernels on emulated arm64, VERSIONS="6.1 6.12" (needs root)
	@bash scripts/kernels-arm64.sh $(VERSIONS)

generate: workspace ## compile the BPF programs (needs clang-14 and libbpf-dev of Debian 12)
	$(GO) generate ./bpf

page: ## bundle the scripts of the HTML report and run their unit tests (needs node)
	@sh scripts/bundle_page.sh
	node --test analyze/export/html/web/test/*.test.js

check: workspace ## run what CI runs: format, vet, generated files, texts, other systems, tests
	@bash scripts/check.sh

bench: workspace simtorch ## run the benchmarks; EVENTS=1e6,1e7 sets the sizes for reports (1e8 takes minutes)
	$(GO) test -run '^$$' -bench . -benchmem ./...
	GPUREC_BENCH_EVENTS=$(EVENTS) $(GO) test -timeout 0 -run '^$$' -bench '^BenchmarkReports$$' -benchtime 1x ./analyze

fuzz: workspace ## run every fuzz target for FUZZTIME (30s)
	@bash scripts/fuzz.sh

clean: ## delete the build folder
	rm -rf $(BUILD)

man: workspace ## write a manual page for every command into build/man
	@mkdir -p $(BUILD)/man
	GPUREC_MAN=$(CURDIR)/$(BUILD)/man $(GO) test ./cmd/gpurec -count=1 -run '^TestManPages$$'
