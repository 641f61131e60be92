# Run `make` for what there is.
GO            ?= go
GOLANGCI      := v2.15.0
BIN           := $(CURDIR)/.bin
WITHDB        := $(GO) run ./internal/tools/withdb
PROMTOOL      := $(BIN)/promtool
PGBOUNCER     := $(BIN)/pgbouncer
TESTFLAGS     ?= -shuffle on -timeout 40m
FUZZTIME      ?= 1m
AXE           := 4.11.0
AXESUM        := e9e5863c33a874f09bc01acd9234b7e3c871479f5eef8802fa582544465e6d01
GOVULNCHECK   := v1.9.0
RELEASE       := $(GO) run -C proof ./tools/release -dir $(CURDIR)
VERSION        = $(shell sed -n 's/^ *version: //p' versions.yaml)
BENCH         ?= .
BENCHFLAGS    ?=
CHAOS_TIME    ?= 10m
CHAOS_SEED    ?= 0
CHAOS_DB      ?= postgres,mysql,sqlite
CHAOS_RUNS    ?= 0
CHAOS_FLAGS   ?=
REV           ?= 2e94f18
SOAK_TIME     ?= 1h
SOAK_HELD     ?= 10m
SOAK_DB       ?= postgres,mysql
SOAK_OUT      ?= docs/reliability
SOAK_FLAGS    ?=
PAGES_DB      ?= postgres
PAGES_FLAGS   ?=
DAY_EVENTS    ?= 100000000
DAY_FLAGS     ?=
# go.work makes one workspace of all modules, in which each dependency has its newest version of
# all: that of docs, samples, proof or bench. Without go.work, a module has an old version that it
# works with, which go.mod names.
MODULES       := $(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*/*' | LC_ALL=C sort)))
NESTED        := $(filter-out .,$(MODULES))
# First the one whose tests take longest.
RELAYS        := relay/rabbitmq $(filter-out relay/rabbitmq,$(filter relay/%,$(NESTED)))
# Tests whose dependencies the library does not need.
APART         := proof/browsertest proof/migrationtest
LIBRARY       := $(filter-out bench proof $(APART) $(RELAYS),$(NESTED))
# Programs and pages are built with the newest versions alone.
FLOORS        := . $(filter-out docs/code samples cmd/outbox,$(LIBRARY)) $(RELAYS)

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z0-9\/]*\):.*/\1/p' Makefile) # all of them

help: ## show this
	@awk -F ':.*## ' '/^[a-z0-9\/]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(BIN)/golangci-lint-$(GOLANGCI) promtool pgbouncer db/up ## fetch the tools and start the databases, once, before you change anything
	@$(MAKE) --no-print-directory modules

# A test adds each released module to an empty one, without a network.
modules: ## fetch the dependencies of every module, at the versions of its go.mod
	@for dir in $(MODULES); do GOWORK=off $(GO) -C $$dir mod download || exit 1; done

demo: ## start an order service on a SQLite file, try everything once, and print what happened
	CGO_ENABLED=0 $(GO) run ./samples/echo-fx-demo -tour

demo/webhook: ## send an order to the endpoint of a customer, who verifies the signature and handles it once
	@CGO_ENABLED=0 $(GO) run ./samples/webhook

demo/relay: ## send an order through NATS to a consumer that gets it twice and handles it once
	@CGO_ENABLED=0 $(GO) run ./samples/relay-demo

serve: ## serve the order service on :8080 (ADDR, DATA_DIR, DATABASE_URL change it)
	CGO_ENABLED=0 $(GO) run ./samples/echo-fx-demo

# CI builds everything once, with the race detector, which needs a C compiler. SQLite's
# translation to Go goes without: it would be ten times slower. The linters vet. A program with
# the detector sleeps before it ends, a second by default.
RACE = $(if $(filter true,$(CI)),-race)
ifneq ($(RACE),)
RACED := lint test test/databases test/mysql test/mysql/differs test/mariadb11 test/postgres17 test/postgres18 test/floors test/apart test/relay test/migrations test/browser bench/quick
$(RACED): export CGO_ENABLED = 1
$(RACED): export GOFLAGS := $(shell $(GO) env GOFLAGS) $(RACE) '-gcflags=modernc.org/...=-race=false -d=checkptr=0' -vet=off
$(RACED): export GORACE = atexit_sleep_ms=50
endif

# What takes longest begins first: at the end it would run alone. Two packages more than
# there are processors, because most wait for databases and for time to pass.
LONGEST    := ./outbox/sqlstore ./outbox ./cmd/outbox
PROCESSORS := $$(getconf _NPROCESSORS_ONLN)
PACKAGES   := $$(($(PROCESSORS) + 2))

MYSQL_DIFFERS := ./outbox/sqlstore ./adapters/sqltx ./adapters/bun ./adapters/gorm ./inbox ./idempotency ./cmd/outbox/internal/doctor

# Two modules at once: the library, and what proves it.
TEST = $(MAKE) --no-print-directory -j 2 test@library test@proof

test@library:
	$(GO) test -p $(PROCESSORS) $(TESTFLAGS) $(LONGEST) ./... $(LIBRARY:%=./%/...)

test@proof:
	$(GO) test -C proof -p 2 $(TESTFLAGS) ./soak ./faultrun ./...

test: promtool pgbouncer modules ## run every test; finds, starts or installs PostgreSQL and MariaDB
	$(WITHDB) -- $(TEST)

# The packages whose tests open a database. Pages and samples show the library: one database is enough.
DATABASES = $$($(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... $(LIBRARY:%=./%/...) | \
	awk '/internal\/testing\/(testdb|adaptertest)/ && $$1 !~ /\/(docs|samples|internal\/(testing|tools))\// { print $$1 }')

test/databases: ## run the tests that open a database, as CI does with other versions of Go and of the databases
	$(WITHDB) -- $(MAKE) --no-print-directory -j 2 databases@library databases@proof

databases@library:
	$(GO) test -p $(PROCESSORS) $(TESTFLAGS) ./outbox/sqlstore $(DATABASES)

databases@proof:
	$(GO) test -C proof -p 2 $(TESTFLAGS) ./chaos ./closing ./model

# Beside the system's servers, the databases of other versions.
test/mysql: mysql ## run the tests that open a database with MySQL 9.7 in place of MariaDB
	$(MAKE) --no-print-directory test/databases WITHDB="$(WITHDB) -mysql $(BIN)/mysql"

# What MySQL may do in another way than MariaDB, beside make test: the statements and their plans, the
# adapters, the engine on a database, the doctor, and short fault runs.
test/mysql/differs: mysql ## run the tests that know MySQL from MariaDB, with MySQL 9.7
	$(WITHDB) -mysql $(BIN)/mysql -- sh -c '\
		$(GO) test -p $(PACKAGES) $(TESTFLAGS) -skip "TestConformanceUnderEveryDSN|/^(postgres|sqlite)" $(MYSQL_DIFFERS) && \
		$(GO) test -C proof $(TESTFLAGS) -skip "/^(postgres|sqlite)" ./chaos && \
		$(GO) test $(TESTFLAGS) -run "OnEveryDatabase|ALockedRow|LeaseInDoubt|ADatabaseRefuses|StartRefuses|UnreadableRows" -skip "/^(postgres|sqlite)" ./outbox'

test/mariadb11: mariadb11 ## run the tests that open a database with MariaDB 11.8
	$(MAKE) --no-print-directory test/databases WITHDB="$(WITHDB) -mysql $(BIN)/mariadb11"

test/postgres17: postgres17 ## run the tests that open a database with PostgreSQL 17
	$(MAKE) --no-print-directory test/databases WITHDB="$(WITHDB) -postgres $(BIN)/postgres17"

test/postgres18: postgres18 ## run the tests that open a database with PostgreSQL 18
	$(MAKE) --no-print-directory test/databases WITHDB="$(WITHDB) -postgres $(BIN)/postgres18"

# The go.mod of each module that users get names an old version of each dependency.
test/floors: export GOWORK = off
test/floors: postgres13 mysql ## test the modules that users get with the old versions in their go.mod, and PostgreSQL 13
	$(WITHDB) -postgres $(BIN)/postgres13 -- sh -c 'for dir in $(FLOORS); do $(GO) test -C $$dir -tags floors $(TESTFLAGS) ./... || exit 1; done'

docs/check: ## check the pages: code, commands, links, names, the reference, translations (make test does it too)
	$(GO) vet ./docs/code/...
	$(GO) test ./docs/check

# Without Debian's packages there is no MySQL 9.7, unless this is CI, which then fails.
DIFFERS = $(if $(or $(filter true,$(CI)),$(shell command -v apt-get)),test/mysql/differs,test/mysql/none)

test/mysql/none:
	@echo "mysql: what knows MySQL from MariaDB is not tested on MySQL 9.7; that takes apt-get"

# Three at a time: they wait most of the time.
test/apart: ## run the tests of modules of their own (relays, migrations, browser) and test/mysql/differs
	@$(MAKE) --no-print-directory -O -j 3 $(DIFFERS) $(addprefix relay@,$(RELAYS)) test/migrations test/browser

test/relay: ## test the relays to brokers (OUTBOX_TEST_LONG=relay: with 100,000 events)
	@$(MAKE) --no-print-directory -O -j 3 $(addprefix relay@,$(RELAYS))

$(addprefix relay@,$(RELAYS)): relay@%:
	$(WITHDB) -- $(GO) test -C $* $(TESTFLAGS) ./...

relay@relay/binlog: mysql

test/migrations: ## run goose and golang-migrate on the files of the schema
	$(WITHDB) -- $(GO) test -C proof/migrationtest $(TESTFLAGS) ./...

test/browser: chromium axe ## test the dashboard in Chromium
	$(WITHDB) -- $(GO) test -C proof/browsertest $(TESTFLAGS) ./...

screenshots: chromium ## make the images of docs/how-to/dashboard.md
	$(GO) run -C proof/browsertest ./screenshots -dir $(CURDIR)/docs/images

test/race: ## the same with the race detector (needs a C compiler)
	$(MAKE) test RACE=-race

fuzz: ## run every fuzz target for a minute, one after another (FUZZTIME changes that)
	@for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		targets=$$($(GO) test -list '^Fuzz' $$dir) || { echo "$$targets"; exit 1; }; \
		for target in $$(echo "$$targets" | grep '^Fuzz'); do \
			echo "fuzz: $$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir || exit 1; \
		done; \
	done

vuln: ## look for known vulnerabilities of the dependencies, if the database of them can be reached
	@if ! curl -sfm 10 -o /dev/null https://vuln.go.dev/index/modules.json; then \
		echo "vuln: govulncheck was not run, because https://vuln.go.dev does not answer"; exit 0; \
	fi; \
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./... && \
	for dir in $(NESTED); do (cd $$dir && $(GO) run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./...) || exit 1; done

# Without it the tests of the alert rules are skipped, unless CI=true.
promtool: ## find promtool, which tests the alert rules, or fetch Debian's into .bin
	@if command -v promtool >/dev/null 2>&1 || [ -x $(PROMTOOL) ]; then exit 0; fi; \
	way="promtool: the alert rules are not tested; install promtool (Debian's and Ubuntu's package prometheus has it, and each release of Prometheus) into PATH or as $(PROMTOOL)"; \
	if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then \
		echo "$$way"; [ "$$CI" != true ]; exit; \
	fi; \
	echo "promtool: fetching Debian's package prometheus for $(PROMTOOL)"; \
	mkdir -p $(BIN) && dir=$$(mktemp -d $(BIN)/promtool.XXXXXX) && trap 'rm -rf "$$dir"' EXIT && cd "$$dir" && \
	if apt-get -q download prometheus >log 2>&1 && dpkg-deb -x prometheus_*.deb x >>log 2>&1 && \
		x/usr/bin/promtool --version >>log 2>&1; then \
		mv x/usr/bin/promtool $(PROMTOOL); \
	else \
		cat log; echo "$$way; where the package is not found, apt-get update may help"; [ "$$CI" != true ]; \
	fi

# The package's own libraries come with it: nothing is installed.
pgbouncer: ## find PgBouncer, which the tests of pgx use, or fetch Debian's into .bin
	@if command -v pgbouncer >/dev/null 2>&1 || [ -x $(PGBOUNCER) ]; then exit 0; fi; \
	way="pgbouncer: pgx behind it is not tested; install pgbouncer into PATH or as $(PGBOUNCER)"; \
	if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then \
		echo "$$way"; [ "$$CI" != true ]; exit; \
	fi; \
	echo "pgbouncer: fetching Debian's package for $(PGBOUNCER)"; \
	mkdir -p $(BIN) && dir=$$(mktemp -d $(BIN)/pgbouncer.XXXXXX) && trap 'rm -rf "$$dir"' EXIT && cd "$$dir" && \
	libs=$$(apt-cache depends pgbouncer 2>/dev/null | sed -n 's/.*Depends: \(libc-ares[^ ]*\|libevent-[^ ]*\)$$/\1/p'); \
	if apt-get -q download pgbouncer $$libs >log 2>&1 && for deb in *.deb; do dpkg-deb -x "$$deb" x; done >>log 2>&1 && \
		mkdir -p $(PGBOUNCER).d && cp x/usr/sbin/pgbouncer $(PGBOUNCER).d/ && cp x/usr/lib/*/*.so.* $(PGBOUNCER).d/ 2>>log && \
		printf '#!/bin/sh\nd=$$(dirname "$$0")/pgbouncer.d\nLD_LIBRARY_PATH="$$d" exec "$$d/pgbouncer" "$$@"\n' >program && chmod +x program && \
		LD_LIBRARY_PATH=$(PGBOUNCER).d $(PGBOUNCER).d/pgbouncer --version >>log 2>&1; then \
		mv program $(PGBOUNCER); \
	else \
		cat log; echo "$$way; where the package is not found, apt-get update may help"; [ "$$CI" != true ]; \
	fi

# Chromium needs two dozen shared libraries and their data, so it is installed.
chromium: ## find Chromium, which tests the dashboard, or install Debian's as root
	@if [ -n "$$OUTBOX_TEST_CHROMIUM" ] || command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then exit 0; fi; \
	way="chromium: the dashboard is not tested in a browser; install Debian's package chromium, or name a Chromium in OUTBOX_TEST_CHROMIUM"; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then echo "$$way"; [ "$$CI" != true ]; exit; fi; \
	echo "chromium: installing Debian's package"; \
	mkdir -p $(BIN) && log=$$(mktemp $(BIN)/chromium.XXXXXX) && trap 'rm -f "$$log"' EXIT && \
	if ! DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends chromium fonts-dejavu-core >"$$log" 2>&1; then \
		tail -n 5 "$$log"; echo "$$way; where the package is not found, apt-get update may help"; [ "$$CI" != true ]; \
	fi

# Its rules, pinned, run in the page under test: a test reaches no other host. Without it the test is
# skipped, unless CI=true.
axe: ## find axe-core, which looks for barriers in the dashboard, or fetch it from npm into .bin
	@if echo "$(AXESUM)  $(BIN)/axe.min.js" | sha256sum --check --status 2>/dev/null; then exit 0; fi; \
	way="axe: the dashboard is not tested for barriers; npm is needed to fetch axe-core $(AXE)"; \
	if ! command -v npm >/dev/null 2>&1; then echo "$$way"; [ "$$CI" != true ]; exit; fi; \
	echo "axe: fetching axe-core $(AXE)"; \
	mkdir -p $(BIN) && dir=$$(mktemp -d $(BIN)/axe.XXXXXX) && trap 'rm -rf "$$dir"' EXIT && cd "$$dir" && \
	if npm pack --silent axe-core@$(AXE) >log 2>&1 && tar -xzf axe-core-$(AXE).tgz && \
		echo "$(AXESUM)  package/axe.min.js" | sha256sum --check --status; then \
		mv package/axe.min.js $(BIN)/axe.min.js; \
	else \
		cat log; echo "$$way"; [ "$$CI" != true ]; \
	fi

# Servers of other versions than the system's, from Debian's packages: nothing is installed.
mysql: ## fetch MySQL 9.7 into .bin
	@$(call fetch,sid,mysql-server-core,usr/sbin/mysqld)

mariadb11: ## fetch MariaDB 11.8 into .bin
	@$(call fetch,trixie,mariadb-server-core mariadb-client-core,usr/sbin/mariadbd usr/bin/resolveip usr/bin/my_print_defaults)

postgres13: ## fetch PostgreSQL 13 into .bin
	@$(call fetch,bullseye,postgresql-13,$(addprefix usr/lib/postgresql/13/bin/,postgres initdb))

postgres17: ## fetch PostgreSQL 17 into .bin
	@$(call fetch,trixie,postgresql-17,$(addprefix usr/lib/postgresql/17/bin/,postgres initdb pg_basebackup pg_ctl))

postgres18: ## fetch PostgreSQL 18 into .bin
	@$(call fetch,sid,postgresql-18,$(addprefix usr/lib/postgresql/18/bin/,postgres initdb pg_basebackup pg_ctl))

# fetch puts programs of a suite's packages below .bin, once.
fetch = [ -d $(BIN)/$@ ] || { echo "$@: fetching $(2) of Debian's suite $(1)"; mkdir -p $(BIN) && \
	log=$$(mktemp $(BIN)/$@.XXXXXX) && trap 'rm -f "$$log"' EXIT && \
	internal/tools/debian/fetch.sh $(1) "$(2)" $(BIN)/$@ $(3) >"$$log" 2>&1 || \
	{ tail -n 5 "$$log"; echo "$@: it takes apt-get, dpkg-deb, Debian's keys and its mirror, or the one that DEBIAN_MIRROR names"; exit 1; }; }

# RUN=regexp picks some: RUN=Standby, Galera, GroupReplication, TakesOver or PgBouncer.
chaos/system: pgbouncer mysql ## whole-system faults: failover, replicated MySQL, Galera, PgBouncer (RUN=regexp picks some)
	CI=true OUTBOX_TEST_SYSTEM=true $(WITHDB) -- $(GO) test -C proof -count 1 -timeout 2h -v -run '$(RUN)' ./systemtest

# All modules in one run, which vets, and looks at the format.
lint: $(BIN)/golangci-lint-$(GOLANGCI) ## run the linters on every module
	$< run ./... $(NESTED:%=./%/...)

fmt: $(BIN)/golangci-lint-$(GOLANGCI) ## format the code
	$< fmt ./...
	@for dir in $(NESTED); do (cd $$dir && $< fmt ./...) || exit 1; done

$(BIN)/golangci-lint-$(GOLANGCI):
	GOFLAGS= GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv $(BIN)/golangci-lint $@

bench: ## compare with other libraries and bare statements, and write docs/BENCHMARKS.md (BENCHFLAGS="-run drain -db postgres" picks some)
	$(WITHDB) -- $(GO) run -C bench . -write ../docs $(BENCHFLAGS)

bench/quick: ## check that every contender of the comparison runs, in two minutes
	$(WITHDB) -- $(GO) test -C bench .
	$(WITHDB) -- $(GO) run -C bench . -quick $(BENCHFLAGS)

bench/relay: ## compare each publisher with a loop on its client, and drain a table through it
	@for dir in $(RELAYS); do $(WITHDB) -- $(GO) test -C $$dir -run '^$$' -bench '$(BENCH)' -benchtime 1x ./... || exit 1; done

bench/go: ## run the Go benchmarks (BENCH=regexp picks some)
	$(WITHDB) -- $(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./... $(LIBRARY:%=./%/...)

COVERED = github.com/outboxkit/outbox-go/outbox/...,github.com/outboxkit/outbox-go/adapters/...

cover: promtool pgbouncer ## write coverage.out and print the total
	$(WITHDB) -- $(GO) test -coverpkg $(COVERED) -coverprofile coverage.out ./... $(LIBRARY:%=./%/...)
	$(WITHDB) -- $(GO) test -C proof -coverpkg $(COVERED) -coverprofile $(CURDIR)/proof.out ./...
	tail -n +2 proof.out >> coverage.out
	$(GO) tool cover -func coverage.out | tail -n 1

# Chaos: docs/RELIABILITY.md says what each target shows.

chaos/crash: ## crash a process at each statement and hand-over, in every mode on every database
	OUTBOX_TEST_LONG=crash $(WITHDB) -- $(GO) test -C proof -timeout 60m -parallel 8 -run TestEveryCrashPoint -v ./faultrun

chaos/closing: ## close 200 times under load in every mode, and with each fault of the database
	OUTBOX_TEST_LONG=1 $(WITHDB) -- $(GO) test -C proof -timeout 60m -v ./closing

chaos/mutations: ## build broken copies of the outbox, and check that the checker rejects what they do
	OUTBOX_TEST_MUTATIONS=true $(WITHDB) -- $(GO) test -C proof -timeout 60m -v ./mutation

chaos: chaos/faults chaos/requests fuzz vuln ## ten minutes of each kind of fault runs, a minute of each fuzz target, govulncheck

chaos/faults: ## kill, stop and cut off processes, and check what they did (CHAOS_TIME, CHAOS_SEED, CHAOS_DB, CHAOS_RUNS)
	$(WITHDB) -- $(GO) run -C proof ./tools/chaos -time $(CHAOS_TIME) -seed $(CHAOS_SEED) -db $(CHAOS_DB) -runs $(CHAOS_RUNS) $(CHAOS_FLAGS)

chaos/requests: ## the same for processes that serve requests with keys, which clients repeat and cut off
	$(WITHDB) -- $(GO) run -C proof ./tools/chaos -requests -time $(CHAOS_TIME) -seed $(CHAOS_SEED) -db $(CHAOS_DB) -runs $(CHAOS_RUNS) $(CHAOS_FLAGS)

chaos/soak: ## an hour at a steady rate beside a transaction held open for ten minutes (SOAK_TIME, SOAK_HELD, SOAK_DB, SOAK_OUT)
	$(WITHDB) -- $(GO) run -C proof ./tools/soak -time $(SOAK_TIME) -held $(SOAK_HELD) -db $(SOAK_DB) -out $(abspath $(SOAK_OUT)) $(SOAK_FLAGS)

chaos/day: ## a day in an hour: 100 million events through four nodes on PostgreSQL beside a million that are pending (DAY_EVENTS, SOAK_OUT)
	$(WITHDB) -- $(GO) run -C proof ./tools/soak -events $(DAY_EVENTS) -nodes 4 -rate 100 -out $(abspath $(SOAK_OUT)) $(DAY_FLAGS)

bench/pages: ## every page of the dashboard on ten million rows, and 50 clients at once (PAGES_DB=postgres, PAGES_FLAGS)
	$(WITHDB) -- $(GO) run -C proof ./tools/pages -db $(PAGES_DB) $(PAGES_FLAGS) all

# REV is the version before this one.
chaos/skew: ## an older version (REV=2e94f18) and this one on one table that is being altered, for ten minutes (CHAOS_TIME, CHAOS_SEED, CHAOS_DB, CHAOS_RUNS)
	$(WITHDB) -- $(GO) run -C proof ./tools/chaos -older $(REV) -time $(CHAOS_TIME) -seed $(CHAOS_SEED) -db $(CHAOS_DB) -runs $(CHAOS_RUNS) $(CHAOS_FLAGS)

tidy/check: ## go.mod and go.sum are tidy
	@for dir in $(MODULES); do echo "$$dir"; (cd $$dir && GOWORK=off $(GO) mod tidy -diff) || exit 1; done
	$(GO) mod verify

release: tidy/check release/notes release/try ## commit and tag the version in versions.yaml, for all its modules
	@$(RELEASE) tag

release/try: ## build each module from its released form alone, as users get it, and install the programs
	@$(RELEASE) -online try

release/check: ## check the tags of a released version (VERSION=v0.1.0), and that their tree is the one that make release makes
	@$(RELEASE) check $(VERSION)

release/notes: ## print the version's section of CHANGELOG.md (VERSION=v0.1.0)
	@awk -v head='## [$(VERSION:v%=%)] - ' 'index($$0, head) == 1 {on = 1; next} /^## / {on = 0} on {print; some += NF} END {exit !some}' CHANGELOG.md || \
		{ echo "release: CHANGELOG.md has no section [$(VERSION:v%=%)] with a date and a text; rename [Unreleased], and begin a new one" >&2; exit 1; }

guest: ## add each package to a module with popular libraries of a year ago, and print which versions it raises (RUN=regexp picks some, GUESTFLAGS=-size builds)
	@$(GO) run -C proof ./tools/guest -run '$(RUN)' $(GUESTFLAGS)

db/up: ## make sure of the databases, start private ones if need be, and leave them running
	$(WITHDB) -keep

db/down: ## stop the private databases and delete their files
	$(WITHDB) -down

ci: tidy/check lint test test/apart bench/quick guest ## what CI runs; CI=true adds the race detector
