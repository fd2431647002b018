//! Names the library by its first version number: programs that were linked to it look for this name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libh5logfs_vol_api.so.{major}");
}
