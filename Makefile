# h5logfs. `make help` lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# rustup puts cargo here; a shell that was not started anew may not know it.
export PATH := $(PATH):$(HOME)/.cargo/bin

BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share
DOCDIR ?= $(DATADIR)/doc/h5logfs
LIBDIR ?= $(PREFIX)/lib
# systemd looks in /usr/lib, and in /usr/local/lib, too.
SYSTEMDDIR ?= $(PREFIX)/lib/systemd
# mount(8) looks for its helpers in /sbin and nowhere else, whatever PREFIX is. So root and packages for /usr or /usr/local get one,
# and all others only where SBINDIR is given. Empty: no helper.
SBINDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),$(if $(DESTDIR)$(filter 0,$(shell id -u)),$(realpath /sbin)))
# What is built of the library, and installed of both: the tests have a build of their own.
PROFILE ?= release

# Programs are linked to an HDF5 of their own, which is compiled once. SYSTEM_HDF5=1: to that of the system, as distributions
# want it.
SYSTEM_HDF5 ?=
ifeq ($(SYSTEM_HDF5),)
HDF5 := --features static-hdf5
SETUP_BUILD := build
BUILD := CMAKE="$$(scripts/cmake.sh)" $(CARGO) build
else
HDF5 :=
SETUP_BUILD := build-system-hdf5
BUILD := $(CARGO) build
endif

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET_DIR)/$(patsubst dev,debug,$(PROFILE))
PROGRAM := $(BUILT)/h5logfs
# The program that writes the manual pages and completions: another one where that one is for another machine.
PAGES ?= $(PROGRAM)
# The program for MPI jobs.
COMPACT_MPI := h5logfs-compact-mpi

# The writer library: programs that were linked to it look for its name with the first number.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
WRITER := libh5logfs_writer.so
WRITER_SONAME := $(WRITER).$(firstword $(subst ., ,$(VERSION)))
WRITER_FILE := $(WRITER).$(VERSION)

# Where CMake looks for packages.
CMAKEDIR = $(LIBDIR)/cmake/h5logfs
CMAKE_FILES := h5logfs-config.cmake h5logfs-config-version.cmake

# The plug-ins of HDF5: the file driver, and the VOL connector for serial and for parallel programs, which needs MPI.
# libhdf5 loads every file of this directory, so it has no others.
DRIVER := libh5logfs_driver.so
DRIVER_FILE ?= $(BUILT)/$(DRIVER)
CONNECTOR := libh5logfs_connector.so
CONNECTOR_FILE ?= $(BUILT)/$(CONNECTOR)
CONNECTOR_MPI := libh5logfs_connector_mpi.so
CONNECTOR_MPI_FILE ?= $(BUILT)/$(CONNECTOR_MPI)
PLUGINDIR ?= $(LIBDIR)/h5logfs/plugins

# The library for programs that were ported to the Log VOL.
VOL_API := libh5logfs_vol_api.so
VOL_API_SONAME := $(VOL_API).$(firstword $(subst ., ,$(VERSION)))
VOL_API_TARGET := $(VOL_API).$(VERSION)
VOL_API_FILE ?= $(BUILT)/$(VOL_API)

UNITS := $(wildcard systemd/*.service)
USER_UNITS := $(wildcard systemd/user/*.service)
# What an administrator copies and changes.
EXAMPLES := $(filter-out %/README.md,$(wildcard mount/*)) \
	$(wildcard systemd/examples/* packaging/slurm/* packaging/*.toml)

# The files of the Debian packages, and the packages.
STAGE := $(TARGET_DIR)/package
DEBDIR ?= $(TARGET_DIR)/debian

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

.PHONY: help build build-writer demo test test-all test-long test-part test-deb test-models test-python test-mpich test-h5py test-suites test-cluster \
	test-cluster-mpich test-late test-distributed test-nfs test-hdf5 soak attack bench bench-writer bench-connector fuzz lint docs release-check publish-check install may-install \
	install-program install-writer uninstall deb deb-writer dist rpm wheels test-dist python setup setup-all setup-build setup-system-hdf5 setup-mpi setup-python setup-demo \
	setup-bench setup-bench-mpi setup-deb setup-dist setup-test-dist clean

help:
	@echo 'Try'
	@echo '  make demo            mount examples/sample, read it with several programs, with and without a mount; then mount and'
	@echo '                       read a log that four MPI processes write. Five minutes the first time'
	@echo
	@echo 'Build and install'
	@echo '  make build           the program and the plug-ins of HDF5, in $(BUILT), with an HDF5 of their own; ten minutes on'
	@echo '                       two cores the first time. SYSTEM_HDF5=1: with that of the system'
	@echo '  make build-writer    what needs MPI: the C library of the writer, the VOL connector for parallel programs, and'
	@echo '                       h5logfs-compact-mpi'
	@echo '  make install         copy what was built below PREFIX ($(PREFIX)). An ordinary user: PREFIX=$$HOME/.local'
	@echo '                       SBINDIR ($(or $(SBINDIR),none)): where the helper of mount -t h5logfs goes'
	@echo '  make uninstall       undo that; takes the same variables'
	@echo '  make python          the Python package, in $(TARGET_DIR)/python/wheels, and install it into .venv'
	@echo
	@echo 'Packages'
	@echo '  make deb             Debian packages of what was built, in DEBDIR ($(DEBDIR)); a minute'
	@echo '  make dist            an archive for any Linux with glibc 2.28 or later; 25 minutes on two cores the first time:'
	@echo '                       $(TARGET_DIR)/dist/h5logfs-$(VERSION)-linux-$(ARCHITECTURE).tar.gz'
	@echo '  make rpm             an RPM of the programs in the archive'
	@echo '  make wheels          the wheel of the Python package for other machines (manylinux_2_28)'
	@echo '                       ARCHITECTURE=aarch64, after make build: dist, rpm and wheels for that processor'
	@echo
	@echo 'Test'
	@echo '  make test            set up, build, run the tests: minutes'
	@echo '  make test-all        all tests, one target after the other: hours. These are:'
	@echo '    test-long          all tests of the workspace, with all random cases, and those that take long'
	@echo '    test-late          file systems that show writes late, with H5LOGFS_TEST_CASES (100) jobs each'
	@echo '    test-distributed   jobs and readers on several nodes that share GlusterFS; as root'
	@echo '    test-nfs           the same on NFS, in a virtual machine whose kernel has it'
	@echo '    test-mpich, test-cluster-mpich   what needs MPI, with MPICH, built in $(TARGET_DIR)/mpich'
	@echo '    test-models        locks and threads, in thousands of orders of their steps'
	@echo '    test-python        the Python package, from a wheel with an HDF5 of its own'
	@echo '    test-hdf5          the tests of HDF5 1.14 with our plug-ins, with HDF5 1.14 and 2.2, against tests/hdf5/expected.txt'
	@echo '    test-dist          archive, RPM, wheel and image, in a Debian 11, 12 and 13 of their own, with podman, Apptainer and'
	@echo '                       Slurm; as root'
	@echo '  make test-part       one of these parts, by default another one each day; PART=...:'
	@echo '                       $(PARTS)'
	@echo '  make test-deb, test-h5py, test-suites (of h5py, h5netcdf, PyTables), test-cluster (as root), soak'
	@echo '                       (H5LOGFS_SOAK_SECONDS), attack (on a shared mount; prints what another user has seen): some tests'
	@echo '                       of test-long'
	@echo '  make fuzz            feed every reader of files with damaged bytes, FUZZ_SECONDS (60) for each target;'
	@echo "                       TARGETS='journal snapshot' for some of them"
	@echo
	@echo 'Measure'
	@echo "  make bench           reading through a mount against native files. BENCH=--help, BENCH='--scale small' or"
	@echo "                       BENCH='--only slabs,columns'"
	@echo '  make bench-connector an HDF5 program natively, with the connector, and with the writer'
	@echo '  make bench-writer    the writer on RANKS (4) processes; takes BENCH, too'
	@echo
	@echo 'Develop'
	@echo '  make lint            formatting, lints of the compiler, links of the documentation'
	@echo '  make docs            a site of the documents with mdBook, in $(TARGET_DIR)/docs'
	@echo '  make setup           install the Debian packages and the Python readers that these targets need'
	@echo '  make release-check   whether this version can be tagged: versions, CHANGELOG, formats, functions of the C library'
	@echo '  make publish-check   whether a registry would take the crates: packs and compiles each; asks crates.io for those that'
	@echo '                       they use'
	@echo '  make clean           remove everything that was built'

build: setup-build
	$(BUILD) --release --locked $(HDF5)

build-writer: setup-mpi
	$(BUILD) -p h5logfs-writer -p h5logfs-plugin-connector-mpi --profile $(PROFILE) --locked $(HDF5)
	$(BUILD) -p h5logfs --features mpi $(HDF5) --bin $(COMPACT_MPI) --profile $(PROFILE) --locked
	install -m 755 $(BUILT)/$(WRITER) $(BUILT)/$(WRITER_FILE)

python: setup-python
	@echo 'make python: builds the program, the plug-ins of HDF5 and the Python module, packs them as a wheel in' \
		'$(TARGET_DIR)/python/wheels, and installs it into .venv. About ten minutes on two cores the first time'
	CARGO="$(CARGO)" PROFILE="$(PROFILE)" scripts/python.sh install

# What it compiles serves `make test`, too. The program needs no MPI, so its part comes first, and nobody waits for the rest.
demo: setup-demo
	$(CARGO) build --locked -p h5logfs -p h5logfs-plugin-driver
	scripts/demo.sh read $(TARGET_DIR)/debug/h5logfs examples/sample $(TARGET_DIR)/debug/deps/$(DRIVER)
	@scripts/setup.sh demo-mpi
	$(CARGO) build --locked -p h5logfs --features mpi --example heat
	scripts/demo.sh write $(TARGET_DIR)/debug/h5logfs $(TARGET_DIR)/debug/examples/heat

TESTS := CARGO="$(CARGO)" scripts/test.sh --workspace --features mpi --locked --no-fail-fast

test: setup
	$(TESTS)

# What these run is marked as ignored, or is the whole of what `make test` does a quarter of.
test-long test-part test-mpich test-deb test-h5py test-suites test-cluster test-cluster-mpich test-distributed test-nfs soak attack: \
	export H5LOGFS_TEST_ALL = 1

# One after the other, because they share the processors, and cargo's directory. The last three build an HDF5 of their own.
ALL_TESTS := test-long test-late test-distributed test-nfs test-mpich test-cluster-mpich test-models test-python test-hdf5 test-dist
test-all:
	@failed=; for target in $(ALL_TESTS); do \
		echo "=== make $$target ($$(date -u +%H:%M:%S))"; \
		$(MAKE) --no-print-directory $$target || failed="$$failed $$target"; \
	done; \
	test -z "$$failed" || { echo "make test-all: failed:$$failed" >&2; exit 1; }

test-long: setup-all
	scripts/setup.sh tables
	scripts/setup.sh vtk
	scripts/setup.sh openpmd
	scripts/setup.sh climate
	$(TESTS)

# What takes some minutes of what `make test` leaves out: slices of test-long, but for the tests of other projects and hundreds of
# kills, and targets. Another one each day.
SLICES := 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
PARTS := $(SLICES) test-late test-deb test-distributed test-models test-python
PART ?= $(word $(shell expr $$(date +%s) / 86400 % $(words $(PARTS)) + 1),$(PARTS))
test-part: export H5LOGFS_SOAK_SECONDS ?= 20
test-part: setup
	@echo "make test-part: PART=$(PART) of $(PARTS)"
ifneq ($(filter $(PART),$(SLICES)),)
	$(TESTS) --partition hash:$(PART)/$(words $(SLICES)) -- --skip suite:: --skip lose_seconds
else
	$(MAKE) --no-print-directory $(PART)
endif

test-deb: setup-all
	$(TESTS) --test mount --test writer the_debian_package

# Locks and threads are those of the model checker then, so all is built again for it.
test-models: setup
	$(CARGO) test --locked -p h5logfs-common -p h5logfs-view -p h5logfs-catalog -p h5logfs --lib --features model model::

test-python: setup-python
	scripts/setup.sh notebook
	scripts/setup.sh types
	CARGO="$(CARGO)" PROFILE=dev scripts/python.sh test

# What is compiled for one MPI does not fit the other.
test-mpich test-cluster-mpich: export MPICC = mpicc.mpich
test-mpich test-cluster-mpich: export CARGO_TARGET_DIR = $(TARGET_DIR)/mpich
test-mpich: setup
	$(CARGO) build -p h5logfs --features mpi --locked --examples
	CARGO="$(CARGO)" scripts/test.sh -p h5logfs --features mpi --locked --no-fail-fast --test writer --test connector \
		--test driver -- --skip suite::

soak: setup
	$(TESTS) --test soak

test-h5py: setup
	$(TESTS) --test driver --test connector

test-suites: setup
	scripts/setup.sh tables
	$(TESTS) --test connector suite::

# Also shown where they pass.
test-cluster test-cluster-mpich test-distributed attack: export NEXTEST_SUCCESS_OUTPUT = immediate
test-cluster test-cluster-mpich test-distributed attack: export RUST_TEST_NOCAPTURE = 1
test-cluster: setup
	$(TESTS) --test cluster
	$(TESTS) --test writer collectives::
	$(MAKE) --no-print-directory test-late

test-late: export H5LOGFS_TEST_CASES ?= 100
test-late: setup
	$(TESTS) --test late

test-cluster-mpich: setup
	$(CARGO) build -p h5logfs --features mpi --locked --examples
	CARGO="$(CARGO)" scripts/test.sh -p h5logfs --features mpi --locked --no-fail-fast --test cluster --test late

test-distributed: setup
	scripts/setup.sh distributed
	$(TESTS) --test cluster distributed::

# What is built here runs there. cargo names the program of the tests.
NFS_TESTS = $$($(CARGO) test --no-run --features mpi --locked --test cluster --message-format=json | \
	sed -n 's/.*"name":"cluster".*"executable":"\([^"]*\)".*/\1/p')
test-nfs: export H5LOGFS_TEST_NFS = 1
test-nfs: setup
	scripts/setup.sh nfs
	$(CARGO) build --workspace --features mpi --locked
	$(CARGO) build -p h5logfs --features mpi --locked --examples
	scripts/nfs.sh "$(NFS_TESTS)" --include-ignored --nocapture --test-threads=1 nfs::

# Natively, and in each way of using a plug-in.
test-hdf5: setup
	H5LOGFS_TEST_HDF5="$$(scripts/hdf5-tests.sh)" && H5LOGFS_TEST_HDF5_2="$$(scripts/hdf5-2-tests.sh)" && \
		export H5LOGFS_TEST_HDF5 H5LOGFS_TEST_HDF5_2 && $(TESTS) --test hdf5

attack: setup
	$(TESTS) --test hostile

RANKS ?= 4
BENCH ?=

# What generates the files is made for the libhdf5 of the system, as the tests are.
bench: setup-bench
	$(BUILD) --release --locked $(HDF5) --bin h5logfs
	$(CARGO) build --release --locked --example bench_reading
	$(TARGET_DIR)/release/examples/bench_reading $(BENCH)

bench-writer: setup-bench-mpi
	$(BUILD) --release --locked --features mpi $(HDF5) --bin h5logfs --example bench_writer
	mpirun -n $(RANKS) $(TARGET_DIR)/release/examples/bench_writer $(BENCH)
	$(MAKE) --no-print-directory bench-connector BENCH=

bench-connector: setup-bench-mpi
	$(BUILD) --release --locked --features mpi $(HDF5) -p h5logfs -p h5logfs-plugin-driver -p h5logfs-plugin-connector \
		-p h5logfs-plugin-connector-mpi -p h5logfs-vol-api --bins --lib --example bench_connector --example bench_connector_own
	$(TARGET_DIR)/release/examples/bench_connector $(BENCH)

FUZZ_SECONDS ?= 60
TARGETS ?=

fuzz: setup-system-hdf5
	CARGO="$(CARGO)" FUZZ_SECONDS="$(FUZZ_SECONDS)" scripts/fuzz.sh $(TARGETS)

lint: setup-mpi
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --features mpi -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --features mpi

MDBOOK := $(TARGET_DIR)/tools/bin/mdbook

docs: $(MDBOOK)
	$(MDBOOK) build docs
	@echo '$(TARGET_DIR)/docs/index.html'

$(MDBOOK):
	$(CARGO) install --quiet --locked --version 0.5.4 --no-default-features --features search --root $(TARGET_DIR)/tools mdbook

# What has to be so before a version is tagged.
release-check:
	@CARGO="$(CARGO)" WRITER_LIBRARY="$(BUILT)/$(WRITER)" scripts/release-check.sh

# The Python package is no crate for others: PyPI has it.
publish-check: setup-mpi
	$(CARGO) publish --workspace --exclude h5logfs-python --dry-run --locked

# What pkg-config tells of a library.
pkg_config = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
	-e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	packaging/$(1).pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/$(1).pc && \
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/$(1).pc

install: may-install install-program
	@if test -e $(BUILT)/$(WRITER_FILE); then $(MAKE) --no-print-directory install-writer; \
	else echo 'make install: left out what needs MPI and was not built: the C library, the VOL connector for parallel' \
		'programs and $(COMPACT_MPI); make build-writer builds them'; fi

# Says at once what would fail half-way.
may-install:
	@dir='$(DESTDIR)$(PREFIX)'; while ! test -e "$$dir"; do dir=$$(dirname "$$dir"); done; \
	test -w "$$dir" || { echo "make install: $$(id -un) may not write to $$dir; as root: make install; below your home:" \
		"make install PREFIX=\$$HOME/.local" >&2; exit 1; }

# The pages and completions come from the program itself. The units name the program, installed ones its path.
install-program:
	@test -x $(PROGRAM) || { echo 'make install: $(PROGRAM) is not there; run make build first' >&2; exit 1; }
	@set -e; for file in $(DRIVER_FILE) $(CONNECTOR_FILE) $(VOL_API_FILE); do \
		test -e $$file || { echo "make install: $$file is not there; run make build first" >&2; exit 1; }; \
	done
	install -D -m 755 $(PROGRAM) $(DESTDIR)$(BINDIR)/h5logfs
	umask 022 && install -D -m 644 $(DRIVER_FILE) $(DESTDIR)$(PLUGINDIR)/$(DRIVER)
	umask 022 && install -D -m 644 $(CONNECTOR_FILE) $(DESTDIR)$(PLUGINDIR)/$(CONNECTOR)
	umask 022 && install -D -m 755 $(VOL_API_FILE) $(DESTDIR)$(LIBDIR)/$(VOL_API_TARGET)
	ln -sf $(VOL_API_TARGET) $(DESTDIR)$(LIBDIR)/$(VOL_API_SONAME)
	ln -sf $(VOL_API_SONAME) $(DESTDIR)$(LIBDIR)/$(VOL_API)
	umask 022 && install -D -m 644 include/h5logfs_vol_api.h $(DESTDIR)$(PREFIX)/include/h5logfs_vol_api.h
	umask 022 && install -D -m 644 include/h5logfs/H5VL_log.h $(DESTDIR)$(PREFIX)/include/h5logfs/H5VL_log.h
	umask 022 && install -d $(DESTDIR)$(LIBDIR)/pkgconfig
	$(call pkg_config,h5logfs_vol_api)
	umask 022 && $(PAGES) pages $(DESTDIR)$(DATADIR)
	install -D -m 644 packaging/man/mount.h5logfs.8 $(DESTDIR)$(DATADIR)/man/man8/mount.h5logfs.8
	umask 022 && install -D -m 644 packaging/man/h5logfs_driver.7 $(DESTDIR)$(DATADIR)/man/man7/h5logfs_driver.7
	umask 022 && install -D -m 644 packaging/man/h5logfs_connector.7 $(DESTDIR)$(DATADIR)/man/man7/h5logfs_connector.7
	install -d $(DESTDIR)$(DOCDIR)/formats $(DESTDIR)$(DOCDIR)/decisions $(DESTDIR)$(DOCDIR)/examples
	install -m 644 README.md CHANGELOG.md LICENSE LICENSE-MIT LICENSE-APACHE $(filter-out docs/SUMMARY.md,$(wildcard docs/*.md)) $(DESTDIR)$(DOCDIR)
	install -m 644 docs/formats/*.md $(DESTDIR)$(DOCDIR)/formats
	install -m 644 docs/decisions/*.md $(DESTDIR)$(DOCDIR)/decisions
	install -m 644 $(EXAMPLES) $(DESTDIR)$(DOCDIR)/examples
	install -D -m 644 packaging/h5logfs.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/h5logfs.conf
	install -d $(DESTDIR)$(SYSTEMDDIR)/system $(DESTDIR)$(SYSTEMDDIR)/user
	set -e; for unit in $(UNITS:systemd/%=system/%) $(USER_UNITS:systemd/%=%); do \
		sed 's|^\(Exec[A-Za-z]*=\)h5logfs |\1$(BINDIR)/h5logfs |' systemd/$${unit#system/} \
			>$(DESTDIR)$(SYSTEMDDIR)/$$unit; \
		chmod 644 $(DESTDIR)$(SYSTEMDDIR)/$$unit; \
	done
ifneq ($(SBINDIR),)
	install -d $(DESTDIR)$(SBINDIR)
	ln -sf $(BINDIR)/h5logfs $(DESTDIR)$(SBINDIR)/mount.h5logfs
else ifeq ($(DESTDIR),)
	@echo 'make install: $(BINDIR)/h5logfs is installed. `mount -t h5logfs` and fstab need a link in /sbin, too, which root makes:' \
		'ln -s $(BINDIR)/h5logfs /sbin/mount.h5logfs'
	@case ":$$PATH:" in *":$(BINDIR):"*) ;; *) echo 'make install: add $(BINDIR) to PATH' ;; esac
endif

install-writer:
	@set -e; for file in $(BUILT)/$(WRITER_FILE) $(CONNECTOR_MPI_FILE) $(BUILT)/$(COMPACT_MPI); do \
		test -e $$file || { echo "make install-writer: $$file is not there; run make build-writer first" >&2; exit 1; }; \
	done
	install -D -m 755 $(BUILT)/$(WRITER_FILE) $(DESTDIR)$(LIBDIR)/$(WRITER_FILE)
	ln -sf $(WRITER_FILE) $(DESTDIR)$(LIBDIR)/$(WRITER_SONAME)
	ln -sf $(WRITER_SONAME) $(DESTDIR)$(LIBDIR)/$(WRITER)
	umask 022 && install -D -m 644 $(CONNECTOR_MPI_FILE) $(DESTDIR)$(PLUGINDIR)/$(CONNECTOR_MPI)
	install -D -m 755 $(BUILT)/$(COMPACT_MPI) $(DESTDIR)$(BINDIR)/$(COMPACT_MPI)
	umask 022 && $(BUILT)/$(COMPACT_MPI) manual-page $(DESTDIR)$(DATADIR)
	install -D -m 644 include/h5logfs_writer.h $(DESTDIR)$(PREFIX)/include/h5logfs_writer.h
	install -m 644 include/h5logfs.F90 $(DESTDIR)$(PREFIX)/include/h5logfs.F90
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(CMAKEDIR) $(DESTDIR)$(DOCDIR)/examples
	set -e; for file in $(CMAKE_FILES); do \
		sed -e 's|@VERSION@|$(VERSION)|' -e 's|@WRITER@|$(WRITER)|' \
			-e "s|@INCLUDE@|$$(realpath -m --relative-to='$(CMAKEDIR)' '$(PREFIX)/include')|" \
			packaging/cmake/$$file.in >$(DESTDIR)$(CMAKEDIR)/$$file; \
		chmod 644 $(DESTDIR)$(CMAKEDIR)/$$file; \
	done
	$(call pkg_config,h5logfs_writer)
	install -m 644 examples/c/*.c examples/cxx/*.cpp examples/julia/*.jl examples/resubmit.sh $(DESTDIR)$(DOCDIR)/examples

# Directories that others use, too, stay.
uninstall:
	rm -f $(DESTDIR)$(BINDIR)/h5logfs $(DESTDIR)$(BINDIR)/$(COMPACT_MPI) $(addprefix $(DESTDIR)$(PREFIX)/,lib/sysusers.d/h5logfs.conf include/h5logfs_writer.h include/h5logfs.F90 \
		include/h5logfs_vol_api.h include/h5logfs/H5VL_log.h)
	rm -f $(addprefix $(DESTDIR)$(DATADIR)/,man/man1/h5logfs.1 man/man1/h5logfs-*.1 man/man7/h5logfs_driver.7 \
		man/man7/h5logfs_connector.7 man/man8/mount.h5logfs.8 \
		bash-completion/completions/h5logfs zsh/site-functions/_h5logfs fish/vendor_completions.d/h5logfs.fish)
	rm -f $(patsubst systemd/%,$(DESTDIR)$(SYSTEMDDIR)/system/%,$(UNITS)) \
		$(patsubst systemd/%,$(DESTDIR)$(SYSTEMDDIR)/%,$(USER_UNITS))
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,$(WRITER) $(WRITER_SONAME) $(WRITER_FILE) pkgconfig/h5logfs_writer.pc)
	rm -f $(addprefix $(DESTDIR)$(CMAKEDIR)/,$(CMAKE_FILES))
	-rmdir $(DESTDIR)$(CMAKEDIR) 2>/dev/null
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,$(VOL_API) $(VOL_API_SONAME) $(VOL_API_TARGET) pkgconfig/h5logfs_vol_api.pc)
	-rmdir $(DESTDIR)$(PREFIX)/include/h5logfs 2>/dev/null
	rm -f $(addprefix $(DESTDIR)$(PLUGINDIR)/,$(DRIVER) $(CONNECTOR) $(CONNECTOR_MPI))
	-rmdir $(DESTDIR)$(PLUGINDIR) $(DESTDIR)$(LIBDIR)/h5logfs 2>/dev/null
	rm -rf $(DESTDIR)$(DOCDIR)
ifneq ($(SBINDIR),)
	rm -f $(DESTDIR)$(SBINDIR)/mount.h5logfs
endif

# One package of the program, and one of the library where it was built: who has no MPI takes the former
# alone. Debian's zsh looks for completions in a place of its own.
deb: setup-deb
	@echo 'make deb: packs what `make build` and `make build-writer` have built, in $(DEBDIR). Less than a minute'
	@rm -rf $(STAGE)
	@$(MAKE) --no-print-directory --silent install-program DESTDIR=$(STAGE) PREFIX=/usr SBINDIR=/usr/sbin
	@ln -sf ../bin/h5logfs $(STAGE)/usr/sbin/mount.h5logfs
	@mv $(STAGE)/usr/share/zsh/site-functions $(STAGE)/usr/share/zsh/vendor-completions
	@scripts/deb.sh h5logfs $(STAGE) $(DEBDIR)
	@if test -e $(BUILT)/$(WRITER_FILE); then $(MAKE) --no-print-directory deb-writer; fi

deb-writer: setup-deb
	@rm -rf $(STAGE)-writer
	@$(MAKE) --no-print-directory --silent install-writer DESTDIR=$(STAGE)-writer PREFIX=/usr \
		DOCDIR=/usr/share/doc/h5logfs-writer
	@scripts/deb.sh h5logfs-writer $(STAGE)-writer $(DEBDIR)

# Programs for other machines, in an archive that installs itself, and in an RPM.
ARCHITECTURE ?= $(shell uname -m)

dist: setup-dist
	@echo 'make dist: builds all programs and plug-ins for glibc 2.28 and packs them as' \
		'$(TARGET_DIR)/dist/h5logfs-$(VERSION)-linux-$(ARCHITECTURE).tar.gz. About 25 minutes on two cores the first time'
	CARGO="$(CARGO)" PROFILE="$(PROFILE)" scripts/dist.sh archive $(ARCHITECTURE)

rpm: dist
	@echo 'make rpm: packs the programs of `make dist` as an RPM in $(TARGET_DIR)/dist. About a minute'
	CARGO="$(CARGO)" PROFILE="$(PROFILE)" scripts/rpm.sh $(ARCHITECTURE)

# The wheel of the Python package, as PyPI takes it.
wheels: setup-dist setup-python
	@echo 'make wheels: builds the programs of `make dist` and packs them with the Python module as a wheel in $(TARGET_DIR)/dist.' \
		'About 25 minutes on two cores the first time'
	CARGO="$(CARGO)" PROFILE="$(PROFILE)" scripts/python.sh portable $(ARCHITECTURE)

# In systems of their own, which debootstrap makes. PARTS_OF_DIST names some of the parts of scripts/dist-test.sh.
PARTS_OF_DIST ?=
test-dist: setup-test-dist dist rpm wheels
	scripts/dist-test.sh $(PARTS_OF_DIST)

setup-dist:
	@scripts/setup.sh dist

setup-test-dist:
	@scripts/setup.sh test-dist

setup-build:
	@scripts/setup.sh $(SETUP_BUILD)

setup-system-hdf5:
	@scripts/setup.sh build-system-hdf5

setup-mpi:
	@scripts/setup.sh mpi

setup-python:
	@scripts/setup.sh python

setup-demo:
	@scripts/setup.sh demo

setup-bench:
	@scripts/setup.sh bench

setup-bench-mpi:
	@scripts/setup.sh bench-mpi

setup-all:
	@scripts/setup.sh all

setup-deb:
	@scripts/setup.sh deb

setup:
	@scripts/setup.sh test

clean:
	$(CARGO) clean
	rm -rf .venv .venv-build .venv-dist .venv-tables .venv-vtk .venv-notebook .venv-openpmd-0.15 .venv-openpmd-0.16 .venv-types
