# A recipe for Spack: `spack repo create REPO; cp -r packaging/spack REPO/packages/h5logfs; spack repo add REPO; spack install h5logfs`.
#
# Tried: it is well-formed Python, and its commands are those that `make` and tests run with a PREFIX (`make build`, `make install`).
# Not tried: Spack itself, which cannot be had where the project is developed. The checksum of a release is added with the release.

from spack.package import *


class H5logfs(MakefilePackage):
    """Shows logs of HPC programs as canonical HDF5 files, through FUSE, an HDF5 file driver or Python, and lets MPI programs
    and unchanged HDF5 programs write such logs."""

    homepage = "https://example.org/h5logfs"
    # `spack install h5logfs@main` with `spack develop --path=SOURCES h5logfs@main` builds a source tree.
    version("main")

    license("MIT OR Apache-2.0")

    variant("mpi", default=False, description="The library for MPI programs, and the VOL connector for parallel HDF5")
    variant("python", default=False, description="The Python package")
    variant("fuse", default=True, description="fusermount3, with which ordinary users mount")
    variant("system_hdf5", default=False, description="Link the program to Spack's HDF5, and not to one of its own")

    depends_on("c", type="build")
    depends_on("rust@1.89:", type="build")
    depends_on("gmake", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cmake@3.26:", type="build", when="~system_hdf5")
    depends_on("hdf5@1.10:", when="+system_hdf5")
    depends_on("libfuse@3:", type="run", when="+fuse")
    depends_on("mpi", when="+mpi")
    # bindgen uses libclang to make the Rust binding from the header of MPI.
    depends_on("llvm+clang", type="build", when="+mpi")
    depends_on("python@3.9:", type=("build", "run"), when="+python")
    depends_on("py-maturin@1.16:", type="build", when="+python")
    depends_on("py-pip", type="build", when="+python")
    extends("python", when="+python")

    def setup_build_environment(self, env):
        # scripts/setup.sh installs nothing where there is no dpkg; cmake is found in PATH.
        if self.spec.satisfies("+system_hdf5"):
            env.set("HDF5_DIR", self.spec["hdf5"].prefix)
        if self.spec.satisfies("+mpi"):
            env.set("MPICC", self.spec["mpi"].mpicc)
            env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    def _options(self):
        return ["SYSTEM_HDF5=1"] if self.spec.satisfies("+system_hdf5") else []

    def build(self, spec, prefix):
        make("build", *self._options())
        if spec.satisfies("+mpi"):
            make("build-writer", *self._options())
        if spec.satisfies("+python"):
            Executable("scripts/python.sh")("wheel", "target/python/wheels")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}", "SBINDIR=")
        if spec.satisfies("+python"):
            wheels = find("target/python/wheels", "h5logfs-*.whl")
            pip = which("pip", required=True)
            pip("install", "--no-deps", "--no-index", f"--prefix={prefix}", *wheels)

    def setup_run_environment(self, env):
        env.prepend_path("HDF5_PLUGIN_PATH", self.prefix.lib.h5logfs.plugins)

    def test_version(self):
        """the program runs"""
        Executable(self.prefix.bin.h5logfs)("--version")
