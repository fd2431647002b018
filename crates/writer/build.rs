//! Gives the C library a name with its major version, by which linked programs find it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libh5logfs_writer.so.{major}");
}
