# Every target works on a machine with Go and make: .ci/install installs other programs by package
# name, and belfry starts servers of its own. BELFRY_DATABASE_URL names another database for demo,
# run and bench, BELFRY_TEST_DATABASE_URL another server for tests. `make` lists the targets.
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
# The linker drops debugging information (-s -w), so the compiler does not make it. go-redis has 600 commands with a
# wrapper for each of its clients, and takes half the time without inlining.
GCFLAGS = -gcflags=all=-dwarf=false -gcflags=github.com/redis/go-redis/v9=-l
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# make test PKG=./job/... RUN=Resumes: a part of the tests. The slowest packages come first.
PKG ?= ./cmd/belfry ./outbox/sender/provider ./outbox/relay ./job ./admin ./dev/dbtest ./...
RUN ?=
# Tests wait for the database as often as they compute.
PARALLEL ?= $$(($$(getconf _NPROCESSORS_ONLN) * 2))
# Slow tests have these names. make test leaves them to make test-fault.
FAULT_TESTS = ^Test(Browser|Chaos|DemoProcess|Fault|Long|Model|Process)_
GO_TEST = GO='$(GO)' $(CURDIR)/.ci/go-test -shuffle=on -vet=off -timeout 15m $(if $(RUN),-run '$(RUN)')
# Without a C compiler there is no race detector. This counts as a skipped test.
WITH_RACE = if $(GO) test -race -run '^$$' ./cursor >/dev/null 2>&1; then race=-race; else export LEFT_OUT='race detector: no C compiler'; fi
# dev/bench is a module of its own: compared libraries stay out of go.mod. benchstat reads the output.
BENCH = cd dev/bench && $(GO) test -vet=off -timeout 0 -run '^$$' -benchtime 1x

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/belfry, a static binary
	@CGO_ENABLED=0 $(GO) build -trimpath $(GCFLAGS) -ldflags '$(LDFLAGS)' -o bin/belfry ./cmd/belfry

man: build ## write the manual pages into man/man1, and the completions of shells into man/completion
	@rm -rf man && bin/belfry man man/man1 && mkdir man/completion
	@for shell in bash:belfry.bash zsh:_belfry fish:belfry.fish powershell:belfry.ps1; do \
		bin/belfry completion $${shell%:*} >man/completion/$${shell#*:} || exit 1; done

dist: ## write the files of a release into dist, as .goreleaser.yaml describes them, and the formula for Homebrew
	@$(GO) tool -modfile=tools/goreleaser/go.mod goreleaser release --snapshot --clean
	@cd dist && sed -n 's|^\([0-9a-f]*\)  belfry_\(.*\)_\([a-z]*_[a-z0-9]*\)\.tar\.gz$$|s/@\3@/\1/; s/@version@/\2/g|p' SHA256SUMS | \
		sed -f /dev/stdin ../contrib/homebrew/belfry.rb >belfry.rb && sha256sum belfry.rb >>SHA256SUMS

image: ## write a container image of each Linux program in dist, for `docker load` (after make dist, by buildah)
	@.ci/install buildah && .ci/image

test-dist: ## make the files of a release twice, compare them, install and remove the package
	@.ci/test-dist

reference: ## write the command reference of a release, docs/cli.md
	@BELFRY_REFERENCE=$(CURDIR)/docs/cli.md $(GO) test ./cmd/belfry -count 1 -run '^TestReference$$'

site: ## write the site of README and docs into site, and check its links
	@rm -rf site && cd contrib/site && $(GO) tool hugo build --noBuildLock --panicOnWarning --quiet && $(GO_TEST) -count 1 ./...

lint: ## run golangci-lint (.golangci.yml), and actionlint on the workflows
	$(GO) tool -modfile=tools/actions/go.mod actionlint
	for dir in . dev/bench contrib/helm contrib/site; do (cd $$dir && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...) || exit 1; done

test: servers ## run the fast tests under the race detector (PKG= RUN=)
	@$(WITH_RACE); $(GO_TEST) $$race -parallel $(PARALLEL) $(if $(RUN),,-skip '$(FAULT_TESTS)') $(PKG)

test-fault: export BELFRY_TEST_CHECKS ?= 100
test-fault: servers ## run the slow tests: killed processes, random schedules, the console in Chromium (PKG= RUN= COUNT=20)
	@.ci/install chromium
	@$(WITH_RACE); $(GO_TEST) $$race -timeout 30m -run '$(or $(RUN),$(FAULT_TESTS))' -count $(or $(COUNT),1) $(PKG)

# The last release before this commit, or the commit before this one.
PREVIOUS ?= $(or $(shell git describe --tags --abbrev=0 HEAD~ 2>/dev/null),HEAD~)
test-upgrade: servers ## run the relays' fault test with processes of another version beside this one (PREVIOUS=v1.2.0)
	@rm -rf bin/previous && mkdir -p bin/previous && git archive -o bin/previous.tar $(PREVIOUS) && tar -xf bin/previous.tar -C bin/previous
	@cd bin/previous && CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false $(GCFLAGS) -o ../belfry-previous ./cmd/belfry
	@rm -rf bin/previous bin/previous.tar
	@BELFRY_TEST_PREVIOUS=$(CURDIR)/bin/belfry-previous $(GO_TEST) -run '^TestProcess_UpgradeUnderLoad' -count 1 ./cmd/belfry

test-browser: servers ## test the console in Chromium (RUN=)
	@.ci/install chromium
	@$(GO_TEST) -parallel 1 -run '$(or $(RUN),^TestBrowser_)' ./admin/console/walk

test-postgres: servers ## run all packages that open a database on other versions (POSTGRES='15 18' RUN= SAMPLE=.ci/fault-sample)
	@GO='$(GO)' RUN='$(RUN)' SAMPLE='$(SAMPLE)' FAULT_TESTS='$(FAULT_TESTS)' PARALLEL=$(PARALLEL) .ci/test-postgres $(or $(POSTGRES),15 16 17 18)

test-chart: build ## lint and render the Helm chart, and check its objects
	@cd contrib/helm && BELFRY_TEST_PROGRAM=$(CURDIR)/bin/belfry $(GO_TEST) ./...

test-all: cross test test-fault test-upgrade test-bench test-chart site test-postgres test-dist ## run all tests, before a release
	@.ci/with-stock-postgres $(MAKE) demo N=20000

examples: servers ## build and run the programs of _examples
	@$(GO_TEST) -run '^Test(Long_)?Examples' .

chaos: servers ## break running jobs and delivering relays at random; measure take-over and abort (SCHEDULES=100 MESSAGES=100000)
	@BELFRY_TEST_SCHEDULES=$(or $(SCHEDULES),100) BELFRY_TEST_KILLS=50 BELFRY_TEST_ZOMBIES=50 BELFRY_TEST_ABORTS=2000 \
	$(GO) test -v -count 1 -parallel 1 -timeout 2h -run '^TestChaos_|^TestProcess_(KilledRunnersJob|StoppedRunnerKeeps|Behind)' ./job
	@BELFRY_TEST_MESSAGES=$(or $(MESSAGES),100000) $(GO) test -v -count 1 -timeout 1h -run '^TestProcess_KilledRelays' ./cmd/belfry

cross: ## check that everything compiles on macOS
	for dir in . dev/bench; do CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet -C $$dir ./... || exit 1; done

bench: postgres ## compare a job with plain SQL (ARGS='-bench Jobs/walk -count 6': flags of go test)
	@$(BENCH) -count 3 -bench 'Jobs/^(walk|offset|level|memory|latency|idle|radius)|Inbox' $(ARGS)
bench-load: postgres ## measure a job's effect on pgbench on the same server (ARGS=)
	@$(BENCH) -count 3 -bench Jobs/load $(ARGS)
bench-relay: postgres ## compare delivery with River, and an order with its message with the order alone (ARGS=)
	@$(BENCH) -count 3 -bench 'Delivery/^(river|stock|claims|orders)' $(ARGS)
bench-carriers: servers ## compare the carriers with PostgreSQL alone and with asynq (ARGS=)
	@$(BENCH) -count 3 -bench 'Delivery/^(carriers|due)' -messages 500000 $(ARGS)
bench-history: postgres ## compare a database with 100,000,000 notifications and messages of history with an empty one (ARGS=)
	@$(BENCH) -bench History $(ARGS)
bench-seed: build ## fill the empty database of BELFRY_DATABASE_URL with a long past
	@bin/belfry migrate up >/dev/null && bin/belfry channels generate 1000000
	@PGOPTIONS='-c bench.jobs=1000000 -c bench.history=20000000' psql -q -1 -v ON_ERROR_STOP=1 -f dev/bench/seed.sql "$$BELFRY_DATABASE_URL"
test-bench: servers ## check that all benchmarks work, with small sizes
	@$(BENCH) -short -bench .

demo: build postgres ## run a job that crashes, resumes, stops and is delivered (N= JSON=1 SERVE=1)
	@bin/belfry demo --channels $(or $(N),30000) $(if $(JSON),--json) $(if $(SERVE),--serve)

run: build postgres ## run the daemon, its console and two people with bells until interrupted (LISTEN=127.0.0.1:8470)
	@bin/belfry migrate up >/dev/null
	@bin/belfry users list --json | grep -q '"make-run"' || head -c 33 /dev/urandom | base64 | bin/belfry users add make-run --role admin --password-file - >/dev/null
	@echo "console: http://$(or $(LISTEN),127.0.0.1:8470)/sign-in#link=$$(bin/belfry users link make-run 2>/dev/null)"
	@bin/belfry demo-app --write bin/demo-app.yaml
	@bin/belfry --config config.yaml --config bin/demo-app.yaml demo-app & app=$$!; trap "kill $$app" EXIT; \
	bin/belfry --config config.yaml --config bin/demo-app.yaml daemon --private --listen $(or $(LISTEN),127.0.0.1:8470)

screenshots: servers ## make docs/screenshots again, from a demo
	@.ci/install chromium && rm -rf docs/screenshots && mkdir -p docs/screenshots
	@BELFRY_TEST_SCREENSHOTS=$(CURDIR)/docs/screenshots $(GO) test -count 1 -run '^TestLong_EachPageOfTheDemo|^TestBrowser_AJobPrints' ./admin/console/walk

postgres:
	@[ -n "$$BELFRY_DATABASE_URL" ] || .ci/install postgres

servers:
	@[ -n "$$BELFRY_TEST_DATABASE_URL" ] || .ci/install postgres
	@.ci/install redis pgbouncer promtool systemd-analyze
	@$(GO) tool -modfile=tools/go.mod -n nats-server >/dev/null || echo "no nats-server: its tests are skipped" >&2

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))
