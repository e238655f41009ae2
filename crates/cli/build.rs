//! How the released binary is linked. Short commands live for two milliseconds, and a quarter of that was the loader's.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "gnu") {
        return;
    }
    // At an address that is fixed, none of 29,000 pointers has to be corrected at every start, in 125 pages that are copied for that. Its
    // stack, heap and libraries are still where nobody can tell.
    println!("cargo:rustc-link-arg-bins=-no-pie");
    // The unwinder for backtraces, without the library that asks the processor for all its features when it is loaded: in a virtual machine
    // each of these questions goes to the host.
    let Some(unwinder) = unwinder() else { return };
    if let Some(folder) = Path::new(&unwinder).parent() {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Where the C compiler has the unwinder as an archive, if it has one, and is not for another machine.
fn unwinder() -> Option<String> {
    if std::env::var("HOST").ok()? != std::env::var("TARGET").ok()? {
        return None;
    }
    let found = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output().ok().filter(|found| found.status.success())?;
    let path = String::from_utf8(found.stdout).ok()?.trim().to_owned();
    // A compiler that has none repeats the name.
    Path::new(&path).is_absolute().then_some(path)
}
