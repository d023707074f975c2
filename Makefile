# Every target works on a fresh machine that has Go and make; whatever else it
# needs it builds or installs itself. `make` alone lists the targets.
#
# demo, run and bench use BELFRY_DATABASE_URL, and test, test-race, test-fault and
# cover use BELFRY_TEST_DATABASE_URL, if it is set; otherwise each starts a private
# PostgreSQL and stops it again. That of the tests is in memory where there is room,
# else on the disk, or where BELFRY_TEST_DIR says.

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)

# make demo N=1000000 JSON=1: how many channels, and the result as data.
N ?= 30000
JSON ?=
# make demo TRANSPORT=redislist: with a carrier of ids, whose server is started.
TRANSPORT ?=
# make test PKG=./job/... RUN=Resumes: a part of the suite. Otherwise the packages that
# take longest come first, so that none of them runs on alone at the end.
PKG ?= ./cmd/belfry ./outbox/sender/provider ./outbox/relay ./job ./admin ./migrations/dbtest ./...
RUN ?=
# make test-fault COUNT=20: how often.
COUNT ?= 1
# make test-postgres POSTGRES=17: on which major versions.
POSTGRES ?= 15 16 17 18
# make test-postgres SAMPLE=.ci/fault-sample: of the fault tests, those that the file names.
SAMPLE ?=
# make chaos SCHEDULES=500: how many, each directly and behind a pooler.
SCHEDULES ?= 100
# make test-relay-chaos MESSAGES=10000: how many.
MESSAGES ?= 100000
# make bench ARGS='-bench Jobs/walk -count 6': flags for go test and for bench/setup_test.go.
ARGS ?=

TOP := $(CURDIR)
GOLANGCI_LINT = $(GO) tool -modfile=$(TOP)/tools/go.mod golangci-lint
# What vet finds, make lint finds.
GO_TEST = GO='$(GO)' $(TOP)/.ci/go-test -shuffle=on -vet=off -timeout 15m $(if $(RUN),-run '$(RUN)')

.DEFAULT_GOAL := help
.PHONY: help build man examples lint test test-race test-fault test-browser test-postgres test-all chaos test-relay-chaos cover cross bench bench-load bench-relay bench-carriers bench-seed test-bench demo run screenshots clean postgres servers-for-tests browser promtool

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without cgo the binary is static: it runs on any Linux and needs no C compiler. Without debugging
# information (-s -w) it has about 41 MB, with it 58 MB; stack traces keep their lines.
build: ## build bin/belfry
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/belfry ./cmd/belfry
	@echo "built bin/belfry, $$(du -m bin/belfry | cut -f1) MB"

man: build ## write the manual pages, man/man1/belfry*.1
	@rm -rf man && bin/belfry man man/man1

examples: servers-for-tests ## build the programs of _examples and run them against a private server
	@$(GO_TEST) -run '^Test(Long_)?Examples' .

lint: ## check style, sizes and the direction of imports (.golangci.yml)
	$(GOLANGCI_LINT) run ./...
	cd bench && $(GOLANGCI_LINT) run ./...

# What kills processes, crashes servers, follows long random schedules and goes through the
# console in a browser is slow by nature, and so are whole tables, the conformance of carriers,
# clusters and the scripts (TestLong_): those tests have names of their own, and `make test` leaves
# them to `make test-fault`, unless RUN asks for some. Benchmarks are tested by `make test-bench`.
FAULT_TESTS = ^Test(Browser|Chaos|DemoProcess|Fault|Long|Model|Process)_

# Without a working C compiler the race detector cannot be built. The tests then
# run without it and say so; with CI=true that fails, like any other skip.
# What argon2 does for a password stays at its real cost and under no detector: it works on
# memory of its own, and under one each hash takes six times as long. Regular expressions, parsers
# of text and of command lines, prime numbers and the model of carriers, which is one goroutine,
# are without it for the same reason. Belfry has no unsafe pointers (.golangci.yml), and so needs none
# of the checks of these that come with the detector.
RACELESS = golang.org/x/crypto/argon2 crypto/internal/fips140/bigmod regexp regexp/syntax go/scanner \
	golang.org/x/net/html golang.org/x/text/unicode/norm github.com/spf13/cobra github.com/spf13/pflag \
	github.com/belfryhq/belfry/outbox/outboxtest/carriermodel
RACE = -race -gcflags=all=-d=checkptr=0 $(RACELESS:%=-gcflags=%=-race=false)
WITH_RACE = if why=$$($(GO) test -race -run '^$$' ./cursor 2>&1); then race='$(RACE)'; \
	else race=; export CGO_ENABLED=0 LEFT_OUT="race detector: $$(printf '%s' "$$why" | tr '\n' ' ')"; fi

# Tests wait for the database as often as they compute: twice as many of a package run beside
# each other as there are processors.
PARALLEL ?= $$(($$(getconf _NPROCESSORS_ONLN) * 2))

test: servers-for-tests promtool ## run the suite but its fault tests and benchmarks, under the race detector where it can be built (PKG= RUN=)
	@$(WITH_RACE); $(GO_TEST) $$race -parallel $(PARALLEL) $(if $(RUN),,-skip '$(FAULT_TESTS)') $(PKG)

# So often is each property of a model tried; make test has ten tries for each.
test-fault: export BELFRY_TEST_CHECKS ?= 100
test-fault: RUN = $(FAULT_TESTS)
test-fault: servers-for-tests browser ## run the fault tests, with the race detector as well (PKG= COUNT= RUN=)
	@$(WITH_RACE); $(GO_TEST) $$race -count $(COUNT) $(PKG)

# One at a time: a browser takes all processors there are.
test-browser: RUN = ^TestBrowser_
test-browser: servers-for-tests browser ## go through the console in Chromium (RUN=)
	@$(GO_TEST) -parallel 1 ./admin/console/walk

screenshots: servers-for-tests browser ## make docs/screenshots anew
	@rm -rf docs/screenshots && mkdir -p docs/screenshots
	@BELFRY_TEST_SCREENSHOTS=$(TOP)/docs/screenshots $(GO) test -count 1 -run '^TestBrowser_EveryPage' ./admin/console/walk
	@du -sk docs/screenshots | awk '$$1 > 2048 { print "docs/screenshots has " $$1 " KiB; 2048 are allowed"; exit 1 }'

test-race: servers-for-tests browser promtool ## run both under the race detector (PKG= RUN=)
	@$(GO_TEST) $(RACE) $(PKG)

# A version that the system does not have comes as a package, into a cache directory.
test-postgres: ## run what speaks SQL on each supported PostgreSQL (POSTGRES='15 18' RUN=)
	@.ci/install-services promtool >&2
	@GO='$(GO)' RUN='$(RUN)' SAMPLE='$(SAMPLE)' FAULT_TESTS='$(FAULT_TESTS)' PARALLEL=$(PARALLEL) .ci/test-postgres $(POSTGRES)

# What takes longer than continuous integration may (.ci/run): before a release.
test-all: cross test test-fault test-bench test-postgres ## run everything that there is: every fault test, every PostgreSQL, cross builds
	@.ci/with-stock-postgres $(MAKE) demo N=20000

# Half an hour or more. Each schedule's seed is printed; BELFRY_TEST_SEED=… make chaos
# repeats one. -race is left out so that the measured times mean something.
chaos: RUN = ^TestChaos_|^TestProcess_(KilledRunnersJob|StoppedRunnerKeeps|Behind)
chaos: servers-for-tests ## break running jobs at random, many times, and measure take-over and abort (SCHEDULES= RUN=)
	@BELFRY_TEST_SCHEDULES=$(SCHEDULES) BELFRY_TEST_KILLS=50 BELFRY_TEST_ZOMBIES=50 BELFRY_TEST_ABORTS=2000 \
	$(GO) test -v -count 1 -parallel 1 -timeout 2h -run '$(RUN)' ./job

# A few minutes. The seed is printed; BELFRY_TEST_SEED=… repeats a run.
test-relay-chaos: servers-for-tests ## kill relays at random while they deliver, PostgreSQL too (MESSAGES=)
	@BELFRY_TEST_MESSAGES=$(MESSAGES) $(GO) test -v -count 1 -timeout 1h -run '^TestProcess_KilledRelays' ./cmd/belfry

cover: servers-for-tests browser promtool ## run the suite for coverage.out and coverage.html (PKG= RUN=)
	@$(GO_TEST) -coverpkg=./... -coverprofile=coverage.out $(PKG)
	@$(GO) tool cover -html=coverage.out -o coverage.html
	@$(GO) tool cover -func=coverage.out | tail -n 1

cross: ## check that everything compiles on macOS, tests included
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet -C bench ./...

# bench/ is a module of its own: compared libraries stay out of go.mod. benchstat reads the output.
BENCH = cd bench && $(GO) test -vet=off -timeout 0 -run '^$$' -benchtime 1x

bench: postgres ## compare a job with plain SQL (ARGS=)
	@$(BENCH) -count 3 -bench 'Jobs/^(walk|offset|level|memory|latency|idle|radius)' $(ARGS)

bench-load: postgres ## measure a job's effect on pgbench on the same server (ARGS=)
	@$(BENCH) -count 3 -bench Jobs/load $(ARGS)

bench-relay: postgres ## compare delivery with River, and an order with its message with the order alone (ARGS=)
	@$(BENCH) -count 3 -bench 'Delivery/^(river|stock|claims|orders)' $(ARGS)

bench-carriers: servers-for-tests ## compare the carriers with PostgreSQL alone and with asynq (ARGS=)
	@$(BENCH) -count 3 -bench 'Delivery/^(carriers|due)' -messages 500000 $(ARGS)

bench-seed: build ## fill the empty database of BELFRY_DATABASE_URL with a long past
	@bin/belfry migrate up >/dev/null && bin/belfry channels generate 1000000
	@PGOPTIONS='-c bench.jobs=1000000 -c bench.history=20000000' psql -q -1 -v ON_ERROR_STOP=1 -f bench/seed.sql "$$BELFRY_DATABASE_URL"

test-bench: servers-for-tests ## check that all benchmarks work, with small sizes
	@$(BENCH) -short -bench .

demo: build postgres ## watch a job run, crash, resume, stop and be delivered on generated channels (N= JSON=1 TRANSPORT= SERVE=1)
	@$(if $(filter redis%,$(TRANSPORT)),.ci/install-services >&2;) \
	bin/belfry demo --channels $(N) $(if $(JSON),--json) $(if $(TRANSPORT),--transport $(TRANSPORT)) $(if $(SERVE),--serve) \
		$(if $(filter jetstream,$(TRANSPORT)),--carrier-server "$$($(GO) tool -modfile=tools/go.mod -n nats-server)")

# Its console is for make-run, who has no password that anybody knows: the link is good once, for
# ten minutes. make run LISTEN=127.0.0.1:9000: elsewhere.
LISTEN ?= 127.0.0.1:8470
run: build postgres ## run the daemon and its console until interrupted (LISTEN=)
	@bin/belfry migrate up >/dev/null
	@said=$$({ bin/belfry users list --json | grep -q '"make-run"' || head -c 33 /dev/urandom | base64 | \
		bin/belfry users add make-run --role admin --password-file -; } 2>&1) || { echo "$$said" >&2; exit 1; }
	@link=$$(bin/belfry users link make-run 2>/dev/null) && echo "console: http://$(LISTEN)/sign-in#link=$$link"
	@bin/belfry daemon --private --listen $(LISTEN)

clean: ## remove what the other targets built
	rm -rf bin man coverage.out coverage.html

# These install PostgreSQL by package name if there is none; standard output
# stays free for data.
postgres:
	@[ -n "$$BELFRY_DATABASE_URL" ] || .ci/install-postgres >&2

# Some tests run Redis, PgBouncer and NATS as well; without them they are skipped. NATS is built
# once, into the go command's cache. The console is tested in a browser, and the alert rules by
# promtool.
browser:
	@.ci/install-services chromium >&2

promtool:
	@.ci/install-services promtool >&2

servers-for-tests:
	@[ -n "$$BELFRY_TEST_DATABASE_URL" ] || .ci/install-postgres >&2
	@.ci/install-services >&2
	@$(GO) tool -modfile=tools/go.mod -n nats-server >/dev/null || echo "no nats-server: the tests that need one are skipped" >&2
