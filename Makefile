# `make run` serves CQL on 127.0.0.1:9042, and `make test` runs every proof. `make help` lists the other commands. They
# need Rust (stable), git, Python 3, a Java 17 JDK and Maven, and Go for the gocql script. Everything else is installed
# into .cache/.

PYTHON := .cache/venv/bin/python
SEED ?= 1
OPS ?= 5000
SCENARIO ?=
NOTE ?=

CASES ?= 10000
COUNT ?= 100000000
TARGET ?= protocol
SECONDS ?= 60

.PHONY: advisories plugin plugin-kill ring attack many-tables fuzz large torture powercut stuck-table help run test install build oracle drivers catalog errors kill linearizability log roles tables upgrade node flights cassandra bench asan overwrites

help:
	@echo 'make run                     release build; serves on 127.0.0.1:9042, data in ./data'
	@echo 'make test [STAGES="a b"]     every proof (proof/stages.py lists the stages)'
	@echo 'make oracle SEED=1 OPS=5000  random histories against Cassandra 5.0.8 and Espalier; RESUME=1 continues a long run'
	@echo 'make node drivers catalog errors roles tables upgrade kill log flights  one stage alone'
	@echo 'make torture SEED=1 CASES=10000  power cuts and faults at any point of random histories of the log and the engine'
	@echo 'make powercut SEED=1 CASES=200  power cuts under the unmodified binary, on a disk in memory (FUSE)'
	@echo 'make stuck-table             an hour of load while a table cannot be flushed'
	@echo 'make attack SECONDS=1800    hostile requests beside an honest client, and then a random mixture of them'
	@echo 'make many-tables             ten thousand written tables, and a thousand connections with 1024 files'
	@echo 'make linearizability SEED=1 SECONDS=60  concurrent conditional writes under kill -9, explained by one order of them'
	@echo 'make fuzz TARGET=cql SECONDS=60  coverage-guided fuzzing (nightly, cargo-fuzz); fuzz/README.md'
	@echo 'make asan SEED=1             the tests of the crates with unsafe code under AddressSanitizer (nightly)'
	@echo 'make large                   a table in memory of more than 4 GiB'
	@echo 'make advisories              security advisories about the packages in Cargo.lock (cargo-deny; downloads their database)'
	@echo 'make overwrites COUNT=100000000  memory of the trie under this many overwrites beside a scan'
	@echo 'make plugin                  the memtable plugin for Apache Cassandra 5.0: java/target/espalier-cassandra-0.1.0.jar'
	@echo 'make plugin-kill SEED=1 CASES=200  kill -9 of a Cassandra whose tables are in our engine, also while they move in and out'
	@echo 'make ring [MODE=storage]     three Cassandras with the plugin; CHECK=1 kills, repairs, adds and removes nodes under load'
	@echo 'make cassandra               starts a Cassandra 5.0.8 for experiments'
	@echo 'make bench [SCENARIO=start]  benchmarks beside Cassandra 5.0.8 (bench/README.md): 35 minutes for all, 5 with QUICK=1; CHECK=1 fails on a missed bar'

run:
	cargo build --release --bin espalier
	target/release/espalier serve --data data

test: install
	@$(PYTHON) -m proof.stages $(STAGES)

install:
	@python3 proof/install.py

build:
	@cargo build --release --quiet --bin espalier

oracle: install build
	@$(PYTHON) -m proof.differential --seed $(SEED) --ops $(OPS) $(if $(RESUME),--resume)

node drivers catalog errors kill log roles tables upgrade: install build
	@$(PYTHON) -m proof.$@

# The native library is for this machine's architecture. For another one, build it there, or with `cargo build
# --target`, and put it into java/target/native/linux/ARCH/ beside this one.
ARCH := $(subst x86_64,amd64,$(shell uname -m))
plugin:
	@cargo build --release --quiet --lib
	@mkdir -p java/target/native/linux/$(ARCH)
	@cp target/release/libespalier_jni.so java/target/native/linux/$(ARCH)/
	@mvn --batch-mode --quiet -f java/pom.xml package

plugin-kill: CASES = 200
plugin-kill: install plugin
	@$(PYTHON) -m proof.plugin.kill --seed $(SEED) --cases $(CASES)

# Three Cassandras, to play with until ^C. With CHECK=1 the proof, in both modes: about half an hour for each.
# STEPS="kills hints" runs a part.
ring: install plugin
	@$(PYTHON) -m proof.ring $(if $(CHECK),--check) $(if $(MODE),--mode $(MODE)) $(if $(STEPS),--steps $(STEPS))

flights: install build
	@$(PYTHON) examples/nycflights/load.py --own-node

cassandra: install
	@$(PYTHON) -m proof.oracle.cassandra

# These are tests of the normal run with more cases, and with its debug checks.
torture:
	SEED=$(SEED) CASES=$(CASES) cargo test -p commitlog --test it crash::
	ESPALIER_TORTURE_SEED=$(SEED) ESPALIER_TORTURE_CASES=$(CASES) cargo test -p engine --test it torture -- --nocapture

# This test loads a node for an hour while one of its tables cannot be flushed.
stuck-table:
	ESPALIER_STUCK_TABLE_SECONDS=3600 cargo test -p engine --test it a_table_that_never_flushes_again -- --nocapture

powercut: CASES = 200
powercut: install build
	@$(PYTHON) -m proof.powercut --seed $(SEED) --cases $(CASES)

# The attacks run one after another for two minutes. With SECONDS=1800 on the command line, a mixture of them follows
# for that long.
attack: SECONDS = 0
attack: install build
	@$(PYTHON) -m proof.attack --seconds $(SECONDS)

# Rounds of histories and scenarios, one after another, for that long.
linearizability: install build
	@$(PYTHON) -m proof.linearizability --seed $(SEED) --seconds $(SECONDS)

# Ten thousand tables on the default configuration, and a thousand connections where 1024 files may be open: about ten
# minutes.
many-tables: install build
	@$(PYTHON) -m proof.many_tables

fuzz:
	@cargo +nightly fuzz --version >/dev/null 2>&1 || { \
	  echo 'make fuzz needs nightly Rust and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz'; exit 1; }
	cargo +nightly fuzz run $(TARGET) -- -max_total_time=$(SECONDS) -rss_limit_mb=1024 -timeout=10

# Unsafe code is in memtrie and blockio, and memtable uses the trie as the product does. Everything is built again, in a
# separate target directory. The model checker's tests are left out, because they switch stacks in ways that the
# sanitizer does not know, and so is a test that leaves memory to the kernel for good.
asan:
	SEED=$(SEED) RUSTFLAGS=-Zsanitizer=address cargo +nightly test --target x86_64-unknown-linux-gnu --target-dir .cache/asan \
	  -p memtrie -p memtable -p blockio --lib --test it -- --skip a_broken_ring_is_an_error

overwrites:
	OVERWRITES=$(COUNT) cargo test -p memtrie --test it an_endless_scan -- --nocapture

large: install
	@$(PYTHON) -m proof.large

# The database of advisories is a git repository that cargo-deny fetches, so this needs a network that reaches it.
advisories:
	@cargo deny --version >/dev/null 2>&1 || { \
	  echo 'make advisories needs cargo-deny: cargo install --locked cargo-deny'; exit 1; }
	cargo deny check

bench: install build
	@$(PYTHON) -m bench.harness $(if $(QUICK),--quick) $(if $(CHECK),--check) $(if $(NOTE),--note "$(NOTE)") $(SCENARIO)
