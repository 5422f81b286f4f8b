//! Levels: the unit to which each value of a tensor belongs, and the lattice that determines the level of an operation's result.

use std::fmt;
use std::str::FromStr;

use crate::diagnostic::Diagnostic;
use crate::suggest;

/// The unit to which each value of a tensor belongs.
///
/// ```text
///         token            one value per response token that counts
///        /     \
/// response   position      position = (group, index of the token in its response)
///        \     /
///         group            between group and response: trajectory, whose turns are responses
///           |
///         batch            one value
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// One value.
    Batch,
    /// One value per group (the responses sampled from one prompt).
    Group,
    /// One value per trajectory of an agent; the turns of a trajectory are responses of one group. Without trajectories, one
    /// value per response.
    Trajectory,
    /// One value per (group, index of the token in its response).
    Position,
    /// One value per response.
    Response,
    /// One value per response token that counts (mask 1).
    Token,
}

impl Level {
    /// All levels, coarsest first.
    pub const ALL: [Level; 6] = [
        Level::Batch,
        Level::Group,
        Level::Trajectory,
        Level::Position,
        Level::Response,
        Level::Token,
    ];

    /// Returns the name that scripts use, such as `group` in `r.mean("group")`.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 6] = [
            "batch",
            "group",
            "trajectory",
            "position",
            "response",
            "token",
        ];
        NAMES[self as usize]
    }

    /// Returns the coarsest level that is at least as fine as both levels. An operation on two tensors has a result at this
    /// level.
    pub fn join(self, other: Level) -> Level {
        use Level::*;
        match (self, other) {
            (Position, Response | Trajectory) | (Response | Trajectory, Position) => Token,
            (a, b) => a.max(b),
        }
    }

    /// Returns whether each cell of `self` consists of whole cells of `finer`; also true if both are the same level.
    pub fn contains(self, finer: Level) -> bool {
        self.join(finer) == finer
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = Diagnostic;

    fn from_str(name: &str) -> Result<Self, Diagnostic> {
        let mut levels = Level::ALL.into_iter();
        let unknown = || {
            let names = Level::ALL.map(Level::name);
            let help = suggest::did_you_mean(name, names);
            let error = Diagnostic::error(format!("there is no level \"{name}\": {help}"));
            error.with_nearest(name, names)
        };
        levels
            .find(|level| level.name() == name)
            .ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_is_the_least_upper_bound_of_the_lattice() {
        for a in Level::ALL {
            assert_eq!(a.join(a), a);
            assert_eq!(a.join(Level::Token), Level::Token);
            assert_eq!(a.join(Level::Batch), a);
            for b in Level::ALL {
                assert_eq!(a.join(b), b.join(a));
                assert!(a.contains(a.join(b)));
                for c in Level::ALL {
                    assert_eq!(a.join(b).join(c), a.join(b.join(c)));
                    if a.contains(c) && b.contains(c) {
                        assert!(a.join(b).contains(c), "{a} and {b} meet at or below {c}");
                    }
                }
            }
        }
        assert_eq!(Level::Response.join(Level::Position), Level::Token);
        assert!(!Level::Response.contains(Level::Position));
    }
}
