//! Keeps the loaded plug-in in the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // libhdf5 unloads plug-ins when it terminates, and loads them again if the program goes on to use it. Two things forbid an
    // unloading. Threads of the host that have read through the plug-in hold thread-local values with destructors in its code.
    // And the Rust runtime never frees its one-time allocations, so each loading would repeat them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
