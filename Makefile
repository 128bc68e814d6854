# `make` lists the targets. What they need is installed by tools/setup.

export PATH := $(CURDIR)/.cache/go/bin:$(PATH)
export CGO_ENABLED := 0
export GOTOOLCHAIN := local
# A checkout that git does not trust, or none at all, builds the same.
export GOFLAGS := -buildvcs=false $(GOFLAGS)

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help build demo shell test torture bench lint vuln golden man deb clean payload setup setup-hosts

help:
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile | while IFS='	' read -r name text; do printf '  %-9s %s\n' "$$name" "$$text"; done

build: setup ## dist/vllmhost: the program, static
	go build -trimpath -buildmode=exe -o dist/vllmhost ./cmd/vllmhost

demo: setup-hosts payload ## boot a host, install the package, play an administrator's evening (root)
	@.cache/bin/testhost demo

shell: setup-hosts payload ## a prompt inside such a host: make shell ARGS="--release bookworm --gpus 8" (root)
	@.cache/bin/testhost shell $(ARGS)

# Booting hosts is a matter of memory and disk more than of processors.
E2E := go test -tags e2e -parallel 3 -timeout 30m ./e2e ./testhost/...

test: setup-hosts payload ## all tests, on real systemd too (root); without root: go test ./...
	go test ./...
	TESTHOST_BUILT=1 $(E2E)

torture: setup-hosts payload ## the long tests: 1,000 killed swaps, 10,000 hostile command lines (root)
	TESTHOST_BUILT=1 TORTURE_RUNS=$${TORTURE_RUNS:-1000} go test -tags e2e -parallel 4 -timeout 120m ./e2e -run TestTorture -v
	TESTHOST_BUILT=1 HOSTILE_LISTS=10000 go test -tags e2e -timeout 120m ./e2e -run TestHostileArguments -v

bench: setup-hosts payload ## benchmarks, and what a swap costs on a real systemd (root)
	go test -run '^$$' -bench . ./...
	TESTHOST_BUILT=1 go test -tags e2e ./e2e -run TestSwapCost -v -args -timed

lint: setup ## gofmt, go vet, staticcheck
	@unformatted=$$(find . -name .cache -prune -o -name '*.go' -print | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags e2e ./e2e ./testhost/...
	go run $(STATICCHECK) ./...
	go run $(STATICCHECK) -tags e2e ./e2e ./testhost/...

vuln: setup ## known vulnerabilities; asks the Go vulnerability database
	go run $(GOVULNCHECK) ./...

golden: setup ## write the expected outputs of tests anew; then read the diff
	go test $$(grep --recursive --files-with-matches --include='*_test.go' --exclude-dir=.cache 'flag.Bool("update"' . | xargs -n 1 dirname | sort -u) -update

man: setup ## write man pages and the command reference from the help
	go test ./cmd/vllmhost -run TestDocs -update

deb: setup ## dist/vllmhost_VERSION_amd64.deb
	packaging/build-deb

clean: ## remove what was built here; the images of hosts: .cache/bin/testhost clean
	rm -rf dist .cache/bin

# What disposable hosts are made with: the package and the simulated engine.
payload: deb
	@go build -trimpath -o .cache/bin/ ./cmd/vllmsim ./cmd/testhost ./cmd/testhost/nvidia-smi

setup:
	@tools/setup

setup-hosts:
	@tools/setup hosts
