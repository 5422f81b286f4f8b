//! The hooks: the functions that a script can define for advlab to call.

/// A function that a script can define for advlab to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// `reward(batch, p)` computes a reward that replaces the batch's reward.
    Reward,
    /// `weight(batch, p)` computes the weight of each response in the loss.
    Weight,
    /// `advantage(batch, p)` computes the advantage.
    Advantage,
    /// `loss(batch, p)` computes the loss, which must be differentiable with respect to `batch.logp`.
    Loss,
    /// `returns(batch, p)` computes the targets of a trainer's critic.
    Returns,
    /// `params()` declares the parameters.
    Params,
    /// `init(p)` makes the initial state.
    Init,
    /// `migrate(old, p)` converts the state of another version to a state of this version.
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

    /// The hooks that a step of a run calls with its batch, as `hook(batch, p)`.
    pub const OF_BATCH: [Hook; 4] = [Hook::Reward, Hook::Weight, Hook::Advantage, Hook::Loss];

    /// Returns the name of the hook's function.
    pub const fn name(self) -> &'static str {
        self.signature().0
    }

    /// Returns the names of the function's parameters.
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
