# Every command a developer types. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUILD := build
GO ?= go
EVENTS ?= 1e6,1e7
CC ?= cc
CXX ?= c++
# The workspace replaces the unwinder's module by a patched copy: record/unwind/patches/README.md.
export GOWORK := $(CURDIR)/$(BUILD)/go.work

.PHONY: help workspace build simcuda simtorch demo test race verdicts test-gpu man soak faults kernels kernels-arm64 generate page check bench fuzz clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

workspace:
	@sh scripts/workspace.sh

build: workspace ## build gpurec into build/bin
	$(GO) build -o $(BUILD)/bin/gpurec ./cmd/gpurec

simcuda: ## build the CUDA stand-in and its programs into build/simcuda
	@CC=$(CC) bash examples/simcuda/build.sh $(BUILD)/simcuda

simtorch: simcuda ## build the stand-in for PyTorch's allocator and its programs into build/simtorch
	@CXX=$(CXX) bash examples/simtorch/build.sh $(BUILD)/simtorch

demo: build simcuda ## record a leaking program and show the leak (root, no GPU)
	@bash scripts/demo.sh

test: workspace simtorch ## run all tests that can run here; what is skipped says why
	$(GO) test ./...

race: workspace simtorch ## run all tests under the race detector (root; half an hour)
	GPUREC_MUST_RUN=1 $(GO) test -race -timeout 2h ./...

verdicts: workspace simtorch ## record programs of which it is known what leaks, and compare (root, no GPU)
	GPUREC_VERDICTS=1 GPUREC_MUST_RUN=1 $(GO) test ./cmd/gpurec -count=1 -v -run '^TestVerdicts$$'
	GPUREC_VERDICTS=1 $(GO) test ./analyze/report/leaks -count=1 -v -run '^TestVerdictsOf'

test-gpu: build ## compare a recording with what a program did on a real GPU
	@bash scripts/test-gpu.sh

soak: build simcuda ## record programs that come and go for MINUTES (60), memory and disk must stay flat (root)
	@bash scripts/soak.sh $(or $(MINUTES),60)

faults: workspace simtorch ## try each fault often: kills, 1,000 attaches, 500 children (root, half an hour)
	@bash scripts/faults.sh

kernels: build simtorch ## tests and recordings on Debian's kernels (VERSIONS="6.1 6.12") in qemu: perf uprobes, messages, privileges (root; an hour without KVM)
	@bash scripts/kernels.sh $(VERSIONS)

kernels-arm64: workspace ## load and record on emulated arm64, on Debian's kernels (VERSIONS="6.1 6.12"; root)
	@bash scripts/kernels-arm64.sh $(VERSIONS)

generate: workspace ## compile the BPF programs (Debian 12's clang-14 and libbpf-dev)
	$(GO) generate ./bpf

page: ## bundle the scripts of the HTML report and run their unit tests (node)
	@sh scripts/bundle_page.sh
	node --test analyze/export/html/web/test/*.test.js

check: workspace ## all that CI runs: format, vet, lint, generated files, tests without skips
	@bash scripts/check.sh

bench: workspace simtorch ## run the benchmarks; of reports with EVENTS=1e6,1e7 (1e8 takes some minutes)
	$(GO) test -run '^$$' -bench . -benchmem ./...
	GPUREC_BENCH_EVENTS=$(EVENTS) $(GO) test -timeout 0 -run '^$$' -bench '^BenchmarkReports$$' -benchtime 1x ./analyze

fuzz: workspace ## fuzz every parser for FUZZTIME (30s) each
	@bash scripts/fuzz.sh

clean: ## remove what make has built
	rm -rf $(BUILD)

man: workspace ## write a manual page for every command into build/man
	@mkdir -p $(BUILD)/man
	GPUREC_MAN=$(CURDIR)/$(BUILD)/man $(GO) test ./cmd/gpurec -count=1 -run '^TestManPages$$'
