//! The library: the scripts that come with advlab.

use std::path::Path;

use super::version::Sources;

/// A script that comes with advlab.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The script's name, as in `advlab apply passk`.
    pub name: &'static str,
    /// The script's folder in `stdlib/`: one of [`RECIPE_KINDS`], or `shared`.
    pub kind: &'static str,
    /// The script's text.
    pub text: &'static str,
}

/// The kinds of recipes, each with its heading, in the order in which they are listed. Each kind is a folder of `stdlib/`.
pub const RECIPE_KINDS: [(&str, &str); 7] = [
    ("outcome", "advantages of outcome rewards"),
    ("passk", "Pass@k: advantages of k draws"),
    ("token", "advantages by token"),
    ("reward", "shaped rewards"),
    ("agent", "agents: trajectories of turns"),
    ("filter", "filters: which responses count"),
    ("loss", "losses"),
];

/// Lists scripts of `stdlib/`, by the folder of their kind.
macro_rules! scripts {
    ($($kind:literal: $($name:literal)+;)+) => {
        &[$($(Builtin {
            name: $name,
            kind: $kind,
            text: include_str!(concat!("../../stdlib/", $kind, "/", $name, ".rhai")),
        }),+),+]
    };
}

/// The recipes that come with advlab, by kind, simple recipes first.
pub const BUILTINS: &[Builtin] = scripts! {
    "outcome": "grpo" "dr_grpo" "rloo" "grpo_loo" "maxrl" "opo" "gpg" "lite_ppo" "prpo" "opmd" "asymre" "rec" "w_reinforce" "mgpo" "wapo" "gdpo" "rae" "spo";
    "passk": "passk" "passk_full_sampling" "passk_bootstrap" "passk_exceeding" "passk_combination"
        "passk_by_entropy" "pkpo" "grpo_passk";
    "token": "reinforce" "reinforce_pp" "reinforce_pp_baseline" "remax" "gae" "gae_decoupled" "otb" "prime" "entropy_advantage"
        "gtpo" "kl_advantage" "opd" "sdpo" "rlsd";
    "reward": "grpo_lambda" "dapo_overlong" "kimi_length" "cosine_length" "linear_length_penalty" "nemotron_length"
        "stop_properly" "fapo";
    "agent": "step_grpo" "turn_grpo" "turn_credit" "gigpo" "hierarchical_grpo";
    "filter": "zero_variance_filter" "difficulty_filter" "truncation_filter";
    "loss": "ppo_clip" "policy_gradient" "pacs" "gspo" "gspo_token" "cispo" "sapo" "gmpo" "dppo_tv" "dppo_kl"
        "clip_cov" "kl_cov" "high_entropy" "dro" "opmd_loss" "a_star_po" "gvpo" "real" "tis" "rejection" "opsm" "fipo" "gapo" "vespo" "topr";
};

/// The scripts that built-ins import and that are not recipes.
const SHARED: &[Builtin] = scripts! { "shared": "aggregate"; };

impl Builtin {
    /// Returns the built-in recipe of that name.
    pub fn find(name: &str) -> Option<&'static Builtin> {
        BUILTINS.iter().find(|builtin| builtin.name == name)
    }

    /// Returns the scripts that can be imported: the recipes, and the scripts with functions that recipes share.
    pub fn importable() -> impl Iterator<Item = &'static Builtin> {
        BUILTINS.iter().chain(SHARED)
    }

    /// Returns the built-in that has exactly the text of a script, provided that the script's imports also have the names and the
    /// texts of built-ins. The script itself may have any name.
    pub(super) fn of(name: &str, text: &str, sources: &Sources) -> Option<&'static Builtin> {
        let builtin = BUILTINS.iter().find(|builtin| builtin.text == text)?;
        let mut imports = sources.iter().filter(|(import, _)| &***import != name);
        // A file with the name and the text of a built-in counts as that built-in.
        let are_shipped = imports.all(|(import, text)| {
            let name = Path::new(&**import).file_stem();
            let is_it = |one: &Builtin| name.is_some_and(|name| name == one.name);
            Builtin::importable().any(|one| is_it(one) && *one.text == **text)
        });
        are_shipped.then_some(builtin)
    }
}
