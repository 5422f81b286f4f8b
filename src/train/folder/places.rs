//! Where a recipe's script is: for a configuration that is read in any folder, and for people.

use std::path::Path;

use crate::script::Builtin;

/// A built-in's name as it is, a script's path from the root.
pub(super) fn absolute(recipe: &str) -> String {
    if Builtin::find(recipe).is_some() {
        return recipe.to_string();
    }
    let path = std::path::absolute(recipe).ok();
    let text = path.as_deref().and_then(Path::to_str);
    text.unwrap_or(recipe).to_string()
}

/// The path from the folder that the process is in, where the script is below it.
pub(super) fn from_here(recipe: &str) -> String {
    let below = std::env::current_dir().ok().and_then(|here| {
        let below = Path::new(recipe).strip_prefix(here).ok()?;
        below.to_str()
    });
    match below {
        // Without its ending or a folder, it would be a built-in's name.
        Some(below) if below.ends_with(".rhai") => below.to_string(),
        _ => recipe.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_here_becomes_absolute_and_short_again() {
        let here = std::env::current_dir().unwrap();
        let path = here.join("scripts/x.rhai").display().to_string();
        assert_eq!(absolute("scripts/x.rhai"), path);
        assert_eq!(from_here(&path), "scripts/x.rhai");
        // A built-in stays one, and a script that is called like one stays a script.
        for recipe in ["grpo", &here.join("grpo").display().to_string(), "/x.rhai"] {
            assert_eq!(absolute(recipe), recipe);
            assert_eq!(from_here(recipe), recipe);
        }
    }
}
