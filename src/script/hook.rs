//! The hooks: the functions that a script can define for advlab to call.

/// A function that a script can define for advlab to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `reward(batch, p)` replaces the reward.
    Reward,
    /// `weight(batch, p)` says how much each response counts in the loss.
    Weight,
    /// `advantage(batch, p)` gives the advantage.
    Advantage,
    /// `loss(batch, p)` gives the loss, differentiable in `batch.logp`.
    Loss,
    /// `returns(batch, p)` gives the target of a trainer's critic.
    Returns,
    /// `params()` declares the parameters.
    Params,
    /// `init(p)` makes the state.
    Init,
    /// `migrate(old, p)` carries the state of an older version over.
    Migrate,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Hook; 8] = [
        Hook::Reward,
        Hook::Weight,
        Hook::Advantage,
        Hook::Loss,
        Hook::Returns,
        Hook::Params,
        Hook::Init,
        Hook::Migrate,
    ];

    /// The hooks that each step of a run computes from a batch: `hook(batch, p)`.
    pub const OF_BATCH: [Hook; 4] = [Hook::Reward, Hook::Weight, Hook::Advantage, Hook::Loss];

    /// The function's name.
    pub const fn name(self) -> &'static str {
        self.signature().0
    }

    /// The names of its parameters.
    pub const fn parameters(self) -> &'static [&'static str] {
        self.signature().1
    }

    const fn signature(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Hook::Reward => ("reward", &["batch", "p"]),
            Hook::Weight => ("weight", &["batch", "p"]),
            Hook::Advantage => ("advantage", &["batch", "p"]),
            Hook::Loss => ("loss", &["batch", "p"]),
            Hook::Returns => ("returns", &["batch", "p"]),
            Hook::Params => ("params", &[]),
            Hook::Init => ("init", &["p"]),
            Hook::Migrate => ("migrate", &["old", "p"]),
        }
    }
}
