# agentcell. `make help` lists the targets.

# The binary is static and does not depend on where it was built.
export CGO_ENABLED ?= 0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
AGENTCTL := bin/agentctl

# One compile cache for the tests of all packages: a harness of 3 MB takes a
# second to compile, and twelve under the race detector.
export AGENTCELL_TEST_CACHE ?= $(CURDIR)/bin/test-cache

# Every directory of harnesses/ with a main.go is a harness. Those that are big are
# packed for the bundle.
NAMES     := $(patsubst harnesses/%/main.go,%,$(wildcard harnesses/*/main.go))
PACKED    := repl
HARNESSES := $(patsubst %,harnesses/bundle/%.wasm,$(filter-out $(PACKED),$(NAMES))) $(patsubst %,harnesses/bundle/%.wasm.gz,$(PACKED))
SDK       := $(filter-out %_test.go,$(wildcard sdk/*.go sdk/abi/*.go)) go.mod

# Packages with goroutines. The engine and what is built on it compile big
# modules, which the race detector makes too slow; -short leaves those tests out.
RACE := ./journal/... ./host/... ./runtimes/... ./sdk/... ./wasm/... ./cmd/agentctl/lineedit

# How long make soak runs random sessions.
SOAK ?= 10m

# After what time the tests of one package are given up: they take a quarter of it where
# nothing else runs.
TIMEOUT ?= 20m

# How long make fuzz tries each decoder.
FUZZ ?= 1m

# Packages with benchmarks of goals.
BENCH := ./journal ./wasm/... ./host/... ./cmd/agentctl

# What all must compile for, beside the machine that it is built on: other processors,
# one of them of 32 bits, and systems whose memory is mapped in other ways, or copied.
CROSS := linux/arm64 linux/arm darwin/arm64 windows/amd64

# How many suspended sessions make scale makes; each takes some 15 KB of disk.
SCALE ?= 100000

.PHONY: all harnesses agentctl demo test race check cross bench scale soak fuzz clean help

all: agentctl ## build bin/agentctl, with the harnesses bundled

harnesses: $(HARNESSES) ## build the harnesses to WebAssembly

BUILD := GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -trimpath -buildvcs=false -ldflags='-s -w'

.SECONDEXPANSION:
harnesses/bundle/%.wasm: $$(wildcard harnesses/$$*/*.go) $(SDK)
	$(BUILD) -o $@ ./harnesses/$*

harnesses/bundle/%.wasm.gz: $$(wildcard harnesses/$$*/*.go) $(SDK)
	$(BUILD) -o bin/$*.wasm ./harnesses/$*
	go run ./harnesses/internal/pack bin/$*.wasm $@

# go build knows best what is out of date, so it always runs.
agentctl: harnesses
	go build -trimpath -buildvcs=false -ldflags='-s -w -X main.version=$(VERSION)' -o $(AGENTCTL) ./cmd/agentctl

demo: agentctl ## build everything and run the main job in a scratch directory
	@docs/demo.sh $(AGENTCTL)

# Packages are tested side by side, so each harness is compiled before. The engine and
# what shows that a turn can be interrupted are tested once more with memories that are
# copied, as on Windows; with AGENTCELL_TEST_MEMORY=file they are as on a Mac.
test: agentctl ## run all tests, then those of packages with goroutines under the race detector
	@for name in $(NAMES); do \
		AGENTCELL_CACHE=$(AGENTCELL_TEST_CACHE) $(AGENTCTL) --data bin/test-data --quiet harness inspect $$name >/dev/null || exit 1; \
	done
	go test -timeout=$(TIMEOUT) ./...
	AGENTCELL_TEST_MEMORY=copy go test ./wasm ./runtimes/wasm
	AGENTCELL_TEST_MEMORY=copy go test -run='^TestEquivalence_InterruptedAnywhere$$' ./host
	$(MAKE) --no-print-directory race

race: harnesses
	CGO_ENABLED=1 go test -race -short -timeout=$(TIMEOUT) $(RACE)

check: harnesses ## everything CI checks, apart from the tests
	@.ci/check

cross: ## compile everything for other systems and processors
	@for target in $(CROSS); do \
		GOOS=$${target%/*} GOARCH=$${target#*/} go build -o /dev/null ./... || { echo "cannot be built for $$target"; exit 1; }; \
	done

bench: harnesses ## run the benchmarks and write docs/benchmarks.md
	go test -run='^$$' -bench=. -skip='/^javascript$$' -benchmem -count=3 -timeout=60m $(BENCH) > bin/bench.txt || { cat bin/bench.txt; exit 1; }
	go run ./cmd/agentbench scale --suspended 10000 --warm 2000 --data bin --bench >> bin/bench.txt
	go run ./docs/internal/bench < bin/bench.txt > docs/benchmarks.md
	@echo 'docs/benchmarks.md is written; what go test printed is in bin/bench.txt.'

scale: harnesses ## measure 100,000 suspended sessions (SCALE=100000) and 10,000 warm ones: docs/scale.md
	go run ./cmd/agentbench scale --suspended $(SCALE) --data bin

soak: harnesses ## run the long tests: 10 minutes (SOAK=10m) of random sessions under kill -9, then the others
	AGENTCELL_SOAK=$(SOAK) go test -count=1 -timeout=0 -v -run='^TestSoak$$' ./host
	AGENTCELL_SOAK=$(SOAK) go test -count=1 -timeout=0 -skip='^TestSoak$$' ./journal/... ./wasm/... ./host/...

fuzz: harnesses ## fuzz everything that reads what others wrote, each for a minute (FUZZ=1m)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9]*' . | sort | while IFS=: read -r file target; do \
		go test -run='^$$' -fuzz="^$${target#func }$$" -fuzztime=$(FUZZ) "$${file%/*}" || exit 1; \
	done

clean: ## remove what was built
	rm -rf bin harnesses/bundle/*.wasm harnesses/bundle/*.wasm.gz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
