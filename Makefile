# Bothy: disposable, isolated Linux machines for AI agents.
# `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

GO ?= go
PREFIX ?= /usr/local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
CLIENTS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64 windows-arm64

# Released programs are static, reproducible and small. Programs that only run here are
# compiled with the same flags, so that nothing is compiled twice.
RELEASE := CGO_ENABLED=0 $(GO) build -modfile=bin/go.mod -tags=gvisorpatched -trimpath -buildvcs=false -ldflags
GO_RUN := CGO_ENABLED=0 $(GO) run -modfile=bin/go.mod -tags=gvisorpatched -trimpath -buildvcs=false
TEST := CGO_ENABLED=0 $(GO) test -modfile=$(CURDIR)/bin/go.mod -tags=gvisorpatched -trimpath -buildvcs=false
FUZZ_TIME ?= 10m
PYTHON_BUNDLE := bin/share/python-3.12.tar.zst

.PHONY: help
help: ## list the targets
	@echo 'Bothy: disposable, isolated Linux machines for AI agents.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

.PHONY: build
build: tools console/embed/index.html.gz bin/bothy $(PYTHON_BUNDLE) ## build bin/bothy, and bin/bothy-bench for `bothy bench`: all there is to install but for the templates

# Go knows better than make what is out of date, so these targets always run it.
.PHONY: bin/bothy
bin/bothy: bin/go.mod
	@echo '== build'
	@mkdir -p bin
	@# No version in these: memory snapshots are tied to the bytes of the sentry.
	@$(RELEASE) '-s -w -buildid=' -o bin/guest ./cmd/guest
	@$(RELEASE) '-s -w -buildid=' -o bin/sentry ./cmd/sentry
	@$(RELEASE) '-s -w -buildid=' -o bin/vminit ./cmd/vminit
	@$(GO_RUN) ./internal/embedded/pack -guest bin/guest -sentry bin/sentry -vminit bin/vminit
	@$(RELEASE) '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/bothy ./cmd/bothy
	@$(RELEASE) '-s -w' -o bin/bothy-bench ./cmd/bothy-bench

.PHONY: client
client: ## build the command line without the server for Linux, macOS and Windows into bin/client
	@mkdir -p bin/client
	@for x in $(CLIENTS); do echo "== client $$x"; \
		GOOS=$${x%-*} GOARCH=$${x#*-} CGO_ENABLED=0 $(GO) build -tags=clientonly -trimpath -buildvcs=false \
			-ldflags '-s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT)' \
			-o bin/client/bothy-$$x$$([[ $$x != windows-* ]] || echo .exe) ./cmd/bothy; done

.PHONY: release
release: host build client ## make the packages and the container image of VERSION in bin/release; KEY=FILE (Ed25519, PEM) signs their provenance and the built-in templates, or those of TEMPLATES
	@packaging/release/run '$(VERSION)' '$(COMMIT)' '$(KEY)'

.PHONY: bin/fakeapi
bin/fakeapi: # the fake server of the SDKs' unit tests
	@CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o $@ ./api/apitest/fakeapi

bin/go.mod: go.mod go.sum scripts/gvisor $(shell find third_party/gvisor/apply third_party/gvisor/patches third_party/gvisor/add)
	@scripts/gvisor

$(PYTHON_BUNDLE): cmd/pybundle/main.go | bin/go.mod
	@echo '== bundle CPython 3.12'
	@mkdir -p bin/share
	@$(GO_RUN) ./cmd/pybundle -o $@
	@touch $@

console/embed/index.html.gz: $(shell find console js/src -name node_modules -prune -o -name embed -prune -o -name '*.go' -prune -o -type f -print)
	@scripts/console

.PHONY: tools
tools: # what building Bothy and its templates needs
	@scripts/packages $(GO): mkfs.erofs:erofs-utils strip:binutils

.PHONY: demo
demo: host build ## build, start the server, and run the example of the README
	@scripts/demo

.PHONY: demo-cluster
demo-cluster: host build ## build, and show three hosts of a cluster on this machine, one of which dies
	@scripts/demo-cluster

.PHONY: host
host: # what a host of sandboxes needs
	@scripts/packages mkfs.erofs:erofs-utils mmdebstrap:mmdebstrap ip:iproute2 @/etc/ssl/certs/ca-certificates.crt:ca-certificates

.PHONY: check
check: bin/go.mod ## check format, modules, code and unit tests: without root, in a minute
	@scripts/check

.PHONY: test
test: host build ## test all that can break, or one suite: RUN=e2e (an unknown name lists them), TEST=PATTERN of it
	@scripts/test $(RUN)

.PHONY: test-all
test-all: host build ## the same with what is long and rarely breaks (hours)
	@LONG=1 scripts/test

.PHONY: test-race
test-race: host build ## run the tests from outside against a server with the race detector
	@scripts/test race-all

.PHONY: test-cluster
test-cluster: host build ## kill one of three hosts KILLS times (50), at random, and at every step of a move, and cut their network CUTS times (30)
	@scripts/packages @/usr/lib/postgresql:postgresql
	@scripts/versitygw >/dev/null
	@BOTHY_E2E=1 BOTHY_TEST_KILLS=$(or $(KILLS),50) BOTHY_TEST_CUTS=$(or $(CUTS),30) BOTHY_BIN=$(CURDIR)/bin/bothy BOTHY_TEMPLATES=$${BOTHY_TEMPLATES:-/var/lib/bothy/templates} CGO_ENABLED=0 \
		GOFLAGS='-trimpath -buildvcs=false -modfile=$(CURDIR)/bin/go.mod -tags=gvisorpatched' \
		$(GO) test -count=1 -timeout 120m -v -run 'TestHosts|TestAHost|TestASandboxIsMoved|TestADrain|TestAnyHost|TestNothingLeavesAHost' ./test/e2e

.PHONY: test-attack
test-attack: host build ## attack a server that has 1 GB, as a tenant, for TIME (1h) at random; SEED repeats a run
	@BOTHY_E2E=1 BOTHY_ATTACK_TIME=$(or $(TIME),1h) BOTHY_ATTACK_SEED=$(SEED) BOTHY_BIN=$(CURDIR)/bin/bothy BOTHY_TEMPLATES=$${BOTHY_TEMPLATES:-/var/lib/bothy/templates} \
		$(TEST) -count=1 -timeout 0 -v -run TestTheServerOutlivesAttacks ./test/e2e

.PHONY: test-claims
test-claims: bin/go.mod ## have hosts claim sandboxes CLAIMS times (10000) while connections are cut, and check that it could have been one after the other
	@scripts/packages @/usr/lib/postgresql:postgresql
	@BOTHY_TEST_CLAIMS=$(or $(CLAIMS),10000) $(TEST) -count=1 -v -timeout 20m -run 'TestClaimsAreLinearizable|TestABrokenClaimIsFoundOut' ./store/postgres
	@cd test/linear && $(GO) test ./...

.PHONY: simulate-cluster
simulate-cluster: bin/go.mod ## simulate the leases and placement of HOSTS (1000) with SANDBOXES (1000000), and what their database is asked
	@BOTHY_SIM_HOSTS=$(or $(HOSTS),1000) BOTHY_SIM_SANDBOXES=$(or $(SANDBOXES),1000000) $(TEST) -count=1 -v -timeout 60m -run TestSimulation ./cluster

.PHONY: test-packaging
test-packaging: build ## check the Helm chart, the Nomad job, the Compose file and the systemd units
	@test/packaging/run

.PHONY: test-compose
test-compose: host build ## run the Compose file with Docker, and take the power of one of its hosts (three minutes)
	@scripts/packages @/usr/sbin/dockerd:docker.io python3:python3
	@test/compose/run

.PHONY: test-kubernetes
test-kubernetes: ## apply the Helm chart to a Kubernetes API server that is built from modules (ten minutes the first time)
	@scripts/packages openssl:openssl python3:python3
	@test/kubernetes/run

.PHONY: test-clients
test-clients: host build ## run E2B's SDKs of all ages, and what is built on them
	@test/e2b/run full

.PHONY: test-dockerfiles
test-dockerfiles: host build ## compare what thirty Dockerfiles make with what Docker makes of them: needs docker.io
	@BOTHY_E2E=1 BOTHY_DOCKERFILES=all BOTHY_BIN=$(CURDIR)/bin/bothy BOTHY_TEMPLATES=$${BOTHY_TEMPLATES:-/var/lib/bothy/templates} CGO_ENABLED=0 \
		GOFLAGS='-trimpath -buildvcs=false -modfile=$(CURDIR)/bin/go.mod -tags=gvisorpatched' \
		$(GO) test -count=1 -timeout 40m -v -run TestDockerfiles ./test/dockerfile

.PHONY: test-programs
test-programs: host build ## run the programs of docs/compatibility.md, which are downloaded (half an hour)
	@scripts/packages @/usr/lib/postgresql:postgresql
	@BOTHY_E2E=1 BOTHY_TEST_PROGRAMS=all BOTHY_BIN=$(CURDIR)/bin/bothy BOTHY_TEMPLATES=$${BOTHY_TEMPLATES:-/var/lib/bothy/templates} \
		$(TEST) -count=1 -timeout 60m -v -run '^TestPrograms' ./test/e2e

.PHONY: test-coding
test-coding: host build ## run the coding agents of coding/ with a model that follows a script
	@test/coding/run full

.PHONY: test-integrations
test-integrations: host build ## run the frameworks' own tests with the adapters of integrations/
	@test/integrations/run full

.PHONY: bench-e2b
bench-e2b: host build ## measure E2B's SDK against Bothy's own, which it may be 15 % slower than
	@test/e2b/run bench

.PHONY: test-console
test-console: host build ## drive the whole console in a browser
	@scripts/packages chromium:chromium
	@test/console/run

.PHONY: bench-drain
bench-drain: host build ## measure the drain of a host with SANDBOXES (100) to two others
	@scripts/packages @/usr/lib/postgresql:postgresql
	@$(GO_RUN) ./bench/cmd/bench -n $(or $(SANDBOXES),100) drain

.PHONY: bench-cluster
bench-cluster: host build ## measure commands through another host, creates with PostgreSQL, and a host that loses its power
	@scripts/packages @/usr/lib/postgresql:postgresql
	@scripts/versitygw >/dev/null
	@$(GO_RUN) ./bench/cmd/bench through store lost

.PHONY: bench-console
bench-console: host build ## measure the console in a browser with 1,000 sandboxes (CONSOLE_SANDBOXES), and its terminal
	@scripts/packages chromium:chromium python3:python3
	@test/console/run bench

.PHONY: fuzz-decoder
fuzz-decoder: host build ## look for checkpoints that take too much to decode, FUZZ_TIME (10m) in each of two ways
	BOTHY_DECODE_TIME=$(FUZZ_TIME) $(TEST) -count=1 -v -timeout 0 -run TestDamagedStateIsDecodedOrRefused ./engine/gvisor
	$(TEST) -run '^$$' -fuzz FuzzStream -fuzztime $(FUZZ_TIME) ./engine/gvisor/stream

.PHONY: plain
plain: tools # bin/plain/bothy, from gVisor as it is published
	@scripts/plain

.PHONY: test-plain
test-plain: host build plain ## run the engine's tests and those of the whole with gVisor as it is published
	@$(GO_RUN) ./test/plain

.PHONY: test-gvisor
test-gvisor: host build # run the tests of gVisor's patches and of the engine
	@third_party/gvisor/test
	@CGO_ENABLED=0 $(GO) test -modfile=$(CURDIR)/bin/go.mod -tags=gvisorpatched -trimpath -buildvcs=false ./third_party/gvisor ./engine/gvisor/...

.PHONY: test-guards
test-guards: host build ## take each patch of gVisor away by itself: a test that guards it must fail (an hour)
	@third_party/gvisor/guards

.PHONY: upgrade-gvisor
upgrade-gvisor: tools # move go.mod and the patches to another gVisor: VERSION=v0.0.0-…
	@third_party/gvisor/series upgrade $(if $(filter command,$(firstword $(origin VERSION))),$(VERSION))

.PHONY: test-upgrade
test-upgrade: host build ## carry snapshots to and fro between this bothy and another, such as one with another gVisor: OTHER=path of that bothy
	@test -x "$(OTHER)" || { echo 'Give OTHER=PATH, the bothy that was built before: make test-upgrade OTHER=/tmp/bothy' >&2; exit 2; }
	@BOTHY_E2E=1 BOTHY_BIN=$(CURDIR)/bin/bothy BOTHY_TEST_UPGRADE_B=$(abspath $(OTHER)) CGO_ENABLED=0 \
		GOFLAGS='-trimpath -buildvcs=false -modfile=$(CURDIR)/bin/go.mod -tags=gvisorpatched' \
		$(GO) test -count=1 -timeout 25m -p 1 -run 'TestMemoryOutlivesUpgrades|TestRefusedBuildGivesItsFiles|TestEngineOfAnEarlierBuild' ./test/snapshots ./engine/gvisor

.PHONY: install
install: host build ## install bothy and bothy-bench to PREFIX (/usr/local)
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin bin/bothy bin/bothy-bench
	install -D -m 644 $(PYTHON_BUNDLE) $(DESTDIR)$(PREFIX)/share/bothy/$(notdir $(PYTHON_BUNDLE))

.PHONY: clean
clean: ## delete what was built here; templates and the server's state stay
	rm -rf bin internal/embedded/bin/*.zst internal/embedded/bin/index.json js/dist js/node_modules console/node_modules console/embed/*
