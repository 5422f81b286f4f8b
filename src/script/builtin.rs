//! The recipes that come with advlab.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A script that comes with advlab.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name, as in `advlab apply passk`.
    pub name: &'static str,
    /// What it is about.
    pub kind: BuiltinKind,
    /// Its script, unchanged.
    pub text: &'static str,
}

/// The kinds of built-ins, a folder of `stdlib/` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinKind {
    /// An advantage per response, from the rewards of its group or batch.
    Outcome,
    /// An advantage that optimises the result of k draws from a group.
    Passk,
    /// An advantage for each token.
    Token,
    /// A reward that is shaped first.
    Reward,
    /// An advantage of agents' trajectories, turn by turn.
    Agent,
    /// Which responses count.
    Filter,
    /// A loss.
    Loss,
    /// Functions that recipes import; no recipe by itself.
    Shared,
}

impl BuiltinKind {
    /// The kinds of recipes, in the order in which they are listed.
    pub const OF_RECIPES: [BuiltinKind; 7] = {
        use BuiltinKind::{Agent, Filter, Loss, Outcome, Passk, Reward, Token};
        [Outcome, Passk, Token, Reward, Agent, Filter, Loss]
    };

    /// A title for the results of this kind of recipe.
    pub fn title(self) -> &'static str {
        match self {
            BuiltinKind::Outcome => "advantages of outcome rewards",
            BuiltinKind::Passk => "Pass@k: advantages of k draws",
            BuiltinKind::Token => "advantages by token",
            BuiltinKind::Reward => "shaped rewards",
            BuiltinKind::Agent => "agents: trajectories of turns",
            BuiltinKind::Filter => "filters: which responses count",
            BuiltinKind::Loss => "losses",
            BuiltinKind::Shared => "shared code",
        }
    }
}

/// Scripts of `stdlib/`, by the folder of their kind.
macro_rules! scripts {
    ($($kind:ident $folder:literal: $($name:literal)+;)+) => {
        &[$($(Builtin {
            name: $name,
            kind: BuiltinKind::$kind,
            text: include_str!(concat!("../../stdlib/", $folder, "/", $name, ".rhai")),
        }),+),+]
    };
}

/// The recipes that come with advlab, by kind, ordered so that a newcomer meets the simple ones first.
pub const BUILTINS: &[Builtin] = scripts! {
    Outcome "outcome": "grpo" "dr_grpo" "rloo" "grpo_loo" "maxrl" "opo" "gpg" "lite_ppo" "prpo" "opmd" "asymre" "rec" "w_reinforce" "gdpo" "rae" "spo";
    Passk "passk": "passk" "passk_full_sampling" "passk_bootstrap" "passk_exceeding" "passk_combination"
        "passk_by_entropy" "pkpo" "grpo_passk";
    Token "token": "reinforce" "reinforce_pp" "reinforce_pp_baseline" "remax" "gae" "gae_decoupled" "otb" "prime" "entropy_advantage"
        "kl_advantage" "opd" "sdpo";
    Reward "reward": "grpo_lambda" "dapo_overlong" "kimi_length" "linear_length_penalty" "stop_properly";
    Agent "agent": "step_grpo" "gigpo" "hierarchical_grpo";
    Filter "filter": "zero_variance_filter" "difficulty_filter" "truncation_filter";
    Loss "loss": "ppo_clip" "policy_gradient" "pacs" "gspo" "gspo_token" "cispo" "sapo" "gmpo" "dppo_tv" "dppo_kl"
        "clip_cov" "kl_cov" "high_entropy" "dro" "opmd_loss" "tis" "opsm" "vespo" "topr";
};

/// Scripts that built-ins import and that are not recipes.
const SHARED: &[Builtin] = scripts! { Shared "shared": "aggregate"; };

impl Builtin {
    /// The built-in recipe of that name.
    pub fn find(name: &str) -> Option<&'static Builtin> {
        BUILTINS.iter().find(|builtin| builtin.name == name)
    }

    /// The scripts that can be imported: recipes, and the functions that they share.
    pub fn importable() -> impl Iterator<Item = &'static Builtin> {
        BUILTINS.iter().chain(SHARED)
    }

    /// The built-in with exactly the text of a script and of all its imports, found by version under any name.
    pub(super) fn of(name: &str, text: &str, sources: &Sources) -> Option<&'static Builtin> {
        let mut imports = sources.iter().filter(|(import, _)| &***import != name);
        let builtin = BUILTINS.iter().find(|builtin| builtin.text == text)?;
        let is_shipped = imports.all(|(import, text)| Builtin::imported(import, text).is_some());
        is_shipped.then_some(builtin)
    }

    /// The built-in that an import refers to, if it does not refer to another script of that name.
    pub(super) fn imported(import: &str, text: &str) -> Option<&'static Builtin> {
        let name = Path::new(import).file_stem()?.to_str()?;
        Builtin::importable().find(|builtin| builtin.name == name && builtin.text == text)
    }
}

/// The scripts of a recipe, by name, with their texts.
pub(crate) type Sources = BTreeMap<Arc<str>, Arc<str>>;
