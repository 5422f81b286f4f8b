//! With the feature `torch`, passes on the link arguments of `advlab-train`, so that the program finds libtorch.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let arguments = std::env::var("DEP_ADVLAB_TORCH_LINK_ARGUMENTS").unwrap_or_default();
    for argument in arguments.split_whitespace() {
        println!("cargo:rustc-link-arg={argument}");
    }
}
