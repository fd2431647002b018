# h5logfs. `make help` lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# rustup puts cargo here; a shell that was not started anew may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin

LIBDIR ?= $(PREFIX)/lib
# What is built of the library, and installed of both: the tests have a build of their own.
PROFILE ?= release
WRITER_FEATURES ?= --no-default-features --features mpi

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET_DIR)/$(patsubst dev,debug,$(PROFILE))
PROGRAM := $(BUILT)/h5logfs

# The writer library: programs that were linked to it look for its name with the first number.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
WRITER := libh5logfs_writer.so
WRITER_SONAME := $(WRITER).$(firstword $(subst ., ,$(VERSION)))
WRITER_FILE := $(WRITER).$(VERSION)

# The interpreters that the tests and the demo read with: Debian's h5py with its old libhdf5, and
# current readers from PyPI.
export H5LOGFS_TEST_PYTHON_OLD ?= /usr/bin/python3
export H5LOGFS_TEST_PYTHON_NEW ?= $(CURDIR)/.venv/bin/python
export RUST_BACKTRACE ?= 1

# Open MPI starts neither more ranks than there are cores, nor anything for root, unless it is told to.
export OMPI_MCA_rmaps_base_oversubscribe ?= 1
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT ?= 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM ?= 1
endif

.PHONY: help build build-writer demo test bench bench-writer lint install install-writer setup \
	setup-build setup-mpi setup-demo setup-bench clean

help:
	@echo 'make demo     set up, build, mount examples/sample, read it with several programs, unmount;'
	@echo '              the same with a log that four MPI processes write'
	@echo 'make test     set up, run all tests'
	@echo 'make bench    measure reading through a mount against native files; takes a while. BENCH=--help,'
	@echo "              for example BENCH='--scale small' or BENCH='--only slabs,columns'"
	@echo 'make bench-writer   measure the writer on RANKS (4) processes; BENCH=--help for what else it takes'
	@echo 'make build    set up what the compiler needs, build $(PROGRAM)'
	@echo 'make build-writer   the same for the C library of the writer, which needs MPI'
	@echo 'make install  copy what was built, with its documents, below PREFIX ($(PREFIX)); run make build'
	@echo '              first, and make build-writer where the library is wanted, too'
	@echo 'make lint     formatting, and compiler lints with each set of features'
	@echo 'make setup    install the Debian packages and the Python readers that the above need'
	@echo 'make clean    remove everything that was built'

build: setup-build
	$(CARGO) build --release --locked

build-writer: setup-mpi
	$(CARGO) rustc --profile $(PROFILE) --locked --lib $(WRITER_FEATURES) \
		--crate-type cdylib -- -C link-arg=-Wl,-soname,$(WRITER_SONAME)
	install -m 755 $(BUILT)/libh5logfs.so $(BUILT)/$(WRITER_FILE)

# In one go, so that dependencies are compiled once. The program makes no use of MPI.
demo: setup-demo
	$(CARGO) build --release --locked --features mpi --bins --example heat
	scripts/demo.sh $(PROGRAM) examples/sample $(TARGET_DIR)/release/examples/heat

test: setup
	CARGO="$(CARGO)" scripts/test.sh --workspace --features mpi --locked --no-fail-fast

RANKS ?= 4
BENCH ?=

bench: setup-bench
	$(CARGO) build --release --locked --bin h5logfs --example bench_reading
	$(TARGET_DIR)/release/examples/bench_reading $(BENCH)

bench-writer: setup-mpi
	$(CARGO) build --release --locked --features mpi --example bench_writer
	mpirun -n $(RANKS) $(TARGET_DIR)/release/examples/bench_writer $(BENCH)

# With the writer and without, with the file system and without.
lint: setup-mpi
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --all-targets --locked --no-default-features -- -D warnings
	$(CARGO) clippy --workspace --all-targets --locked --features mpi -- -D warnings
	$(CARGO) clippy --workspace --all-targets --locked --no-default-features --features mpi -- -D warnings

install:
	@test -x $(PROGRAM) || { echo 'make install: $(PROGRAM) is not there; run make build first' >&2; exit 1; }
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/h5logfs
	install -d $(DESTDIR)$(PREFIX)/share/doc/h5logfs/formats
	install -m 644 README.md CHANGELOG.md LICENSE LICENSE-MIT LICENSE-APACHE docs/*.md \
		mount/fstab.example $(DESTDIR)$(PREFIX)/share/doc/h5logfs
	install -m 644 docs/formats/*.md $(DESTDIR)$(PREFIX)/share/doc/h5logfs/formats
	@if test -e $(BUILT)/$(WRITER_FILE); then $(MAKE) --no-print-directory install-writer; fi

install-writer:
	@test -e $(BUILT)/$(WRITER_FILE) || { echo 'make install-writer: run make build-writer first' >&2; exit 1; }
	install -D -m 755 $(BUILT)/$(WRITER_FILE) $(DESTDIR)$(LIBDIR)/$(WRITER_FILE)
	ln -sf $(WRITER_FILE) $(DESTDIR)$(LIBDIR)/$(WRITER_SONAME)
	ln -sf $(WRITER_SONAME) $(DESTDIR)$(LIBDIR)/$(WRITER)
	install -D -m 644 include/h5logfs_writer.h $(DESTDIR)$(PREFIX)/include/h5logfs_writer.h
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/share/doc/h5logfs/examples
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
		-e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
		packaging/h5logfs_writer.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/h5logfs_writer.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/h5logfs_writer.pc
	install -m 644 examples/c/*.c $(DESTDIR)$(PREFIX)/share/doc/h5logfs/examples

setup-build:
	@scripts/setup.sh build

setup-mpi:
	@scripts/setup.sh mpi

setup-demo:
	@scripts/setup.sh demo

setup-bench:
	@scripts/setup.sh bench

setup:
	@scripts/setup.sh test

clean:
	$(CARGO) clean
	rm -rf .venv
