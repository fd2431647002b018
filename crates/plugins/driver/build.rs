//! Keeps the loaded plug-in in the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // libhdf5 unloads its plug-ins when it ends, and loads them again where a program goes on to use it. Threads of the
    // host that read through us have thread-local values of ours, whose destructors are our code. And what the Rust
    // runtime has allocated once is not freed: unloaded and loaded again, it would be allocated anew each time.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
