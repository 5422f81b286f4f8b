//! With the feature `torch`: compiles our C++ against the libtorch that torch-sys found, and has the binaries look for its
//! libraries where they lay, so that they run without a variable. Without the feature there is nothing to do.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "torch")]
    torch();
}

#[cfg(feature = "torch")]
fn torch() {
    use std::path::{Path, PathBuf};

    let variable = |name: &str| {
        println!("cargo:rerun-if-env-changed={name}");
        std::env::var_os(name).map(PathBuf::from)
    };
    let Some(libraries) = variable("DEP_TCH_LIBTORCH_LIB") else {
        panic!(
            "torch-sys does not say where libtorch lies; the feature `torch` is for Linux and macOS"
        );
    };
    // Beside each other in a libtorch and in a Python's torch alike.
    let root = variable("LIBTORCH_INCLUDE")
        .or_else(|| libraries.parent().map(Path::to_path_buf))
        .unwrap_or_default();

    let header = root.join("include/torch/headeronly/version.h");
    let header = std::fs::read_to_string(header).unwrap_or_default();
    let version = header.split_once("#define TORCH_VERSION ");
    let version = version.and_then(|(_, rest)| rest.split('"').nth(1));
    // Without the header our C++ does not compile, and says so.
    println!(
        "cargo:rustc-env=ADVLAB_TORCH_VERSION={}",
        version.unwrap_or_default()
    );

    println!("cargo:rerun-if-changed=src/torch/settings.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(root.join("include"))
        .file("src/torch/settings.cpp")
        .compile("advlab_torch");

    let libraries = libraries.display();
    let mut arguments = vec![format!("-Wl,-rpath,{libraries}")];
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // As RPATH, not RUNPATH: libtorch's own libraries are then found there as well.
        arguments.push("-Wl,--disable-new-dtags".to_string());
        if Path::new(&format!("{libraries}/libtorch_cuda.so")).exists() {
            // Nothing of ours names a symbol in it: it registers itself when it is loaded.
            arguments.push("-Wl,--no-as-needed,-ltorch_cuda,--as-needed".to_string());
        }
    }
    for argument in &arguments {
        println!("cargo:rustc-link-arg={argument}");
    }
    // For the build script of the program, which is linked with the same ones.
    println!("cargo:link_arguments={}", arguments.join(" "));
}
