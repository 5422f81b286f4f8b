//! With the feature `torch`, compiles `settings.cpp` against the libtorch that torch-sys found, and stores the path of libtorch's
//! libraries in the binaries, so that these run without an environment variable. Without the feature, does nothing.

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
            "torch-sys does not say where libtorch is installed; the feature `torch` is for Linux and macOS"
        );
    };
    // The folders `lib` and `include` are beside each other, both in a libtorch and in a torch that was installed for Python.
    let root = variable("LIBTORCH_INCLUDE")
        .or_else(|| libraries.parent().map(Path::to_path_buf))
        .unwrap_or_default();

    let header = root.join("include/torch/headeronly/version.h");
    let header = std::fs::read_to_string(header).unwrap_or_default();
    let version = header.split_once("#define TORCH_VERSION ");
    let version = version.and_then(|(_, rest)| rest.split('"').nth(1));
    // A missing header is not reported here, because compiling `settings.cpp` then fails with an error.
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
        // The path is stored as RPATH, not RUNPATH, so that the libraries that libtorch itself needs are also found there.
        arguments.push("-Wl,--disable-new-dtags".to_string());
        if Path::new(&format!("{libraries}/libtorch_cuda.so")).exists() {
            // The linker must not drop this library although no symbol of it is used: the library registers itself when it is
            // loaded.
            arguments.push("-Wl,--no-as-needed,-ltorch_cuda,--as-needed".to_string());
        }
    }
    for argument in &arguments {
        println!("cargo:rustc-link-arg={argument}");
    }
    // The build script of the program reads these arguments, because the program is linked with them too.
    println!("cargo:link_arguments={}", arguments.join(" "));
}
