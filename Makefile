# h5logfs. `make help` lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# rustup puts cargo here; a shell that was not started anew may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
PROGRAM := $(TARGET_DIR)/release/h5logfs

# The interpreters that the tests and the demo read with: Debian's h5py with its old libhdf5, and
# current readers from PyPI.
export H5LOGFS_TEST_PYTHON_OLD ?= /usr/bin/python3
export H5LOGFS_TEST_PYTHON_NEW ?= $(CURDIR)/.venv/bin/python
export RUST_BACKTRACE ?= 1

.PHONY: help build demo test lint install setup setup-build setup-demo clean

help:
	@echo 'make demo     set up, build, mount examples/sample, read it with several programs, unmount'
	@echo 'make test     set up, run all tests'
	@echo 'make build    set up what the compiler needs, build $(PROGRAM)'
	@echo 'make install  copy the program and its documents below PREFIX ($(PREFIX)); run make build first'
	@echo 'make lint     formatting and compiler lints'
	@echo 'make setup    install the Debian packages and the Python readers that the above need'
	@echo 'make clean    remove everything that was built'

build: setup-build
	$(CARGO) build --release --locked

demo: setup-demo build
	scripts/demo.sh $(PROGRAM) examples/sample

test: setup
	CARGO="$(CARGO)" scripts/test.sh --workspace --locked --no-fail-fast

lint: setup-build
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --all-targets --no-default-features --locked -- -D warnings

install:
	@test -x $(PROGRAM) || { echo 'make install: $(PROGRAM) is not there; run make build first' >&2; exit 1; }
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(PREFIX)/bin/h5logfs
	install -d $(DESTDIR)$(PREFIX)/share/doc/h5logfs/formats
	install -m 644 README.md CHANGELOG.md LICENSE LICENSE-MIT LICENSE-APACHE docs/*.md \
		mount/fstab.example $(DESTDIR)$(PREFIX)/share/doc/h5logfs
	install -m 644 docs/formats/*.md $(DESTDIR)$(PREFIX)/share/doc/h5logfs/formats

setup-build:
	@scripts/setup.sh build

setup-demo:
	@scripts/setup.sh demo

setup:
	@scripts/setup.sh test

clean:
	$(CARGO) clean
	rm -rf .venv
