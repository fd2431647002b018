//! Entry points that know their return address.

/// Declares a callback whose arguments do not identify the library. It continues in another function, with its own return
/// address as an additional argument. The code for x86_64 and aarch64 puts it there; on x86_64 it may end in a call of its
/// own.
#[macro_export]
macro_rules! with_return_address {
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $go_on:path, register $x86:literal, $arm:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Only for libhdf5, as its headers specify.
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            ::std::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $x86, ", [rsp]"),
                "jmp {go_on}",
                go_on = sym $go_on
            );
            #[cfg(target_arch = "aarch64")]
            // "bti c", as a hint for assemblers that do not know it.
            ::std::arch::naked_asm!(
                "hint #34",
                concat!("mov ", $arm, ", x30"),
                "b {go_on}",
                go_on = sym $go_on
            );
        }
    };
    // Six arguments fill the registers of x86_64. The seventh is on the stack, which is aligned at the call.
    ($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty = $go_on:path, stack, $arm:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// Only for libhdf5, as its headers specify.
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            ::std::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "push qword ptr [rsp]",
                ".cfi_adjust_cfa_offset 8",
                "call {go_on}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                go_on = sym $go_on
            );
            #[cfg(target_arch = "aarch64")]
            ::std::arch::naked_asm!(
                "hint #34",
                concat!("mov ", $arm, ", x30"),
                "b {go_on}",
                go_on = sym $go_on
            );
        }
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("plug-ins need a few lines of assembly for this processor");
