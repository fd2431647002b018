//! Keeps the loaded plug-in in the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // libhdf5 unloads its plug-ins when it ends, and loads them again if a program goes on to use it. Threads of the host
    // that have read through the plug-in have thread-local values with destructors in its code. And one-time allocations of
    // the Rust runtime are not freed: they would be repeated with each loading.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
