//! Operations that were computed in full, one after the other.

use std::collections::HashMap;

use super::lines::place;
use super::trial::Trial;
use advlab::figures::count;
use advlab::tensor::Origin;
use advlab::tensor::profile::StageKind;

/// An operation that was computed in full, as often as a line asked for it.
#[derive(Debug)]
pub(super) struct InFull {
    pub(super) name: &'static str,
    /// The script, where it is not the recipe's own, and the line.
    pub(super) place: Option<(Option<String>, usize)>,
    pub(super) times: usize,
    pub(super) seconds: f64,
    pub(super) read: usize,
    pub(super) written: usize,
    /// Why token values or positions were not computed by tiles.
    pub(super) why: Option<&'static str>,
}

impl InFull {
    /// Those of a run, those of one name and line together, in their order. `of` is as for the lines.
    pub(super) fn of(
        trial: &Trial,
        of: impl Fn(&Origin) -> (Option<String>, usize, String),
    ) -> Vec<InFull> {
        let mut all: Vec<InFull> = Vec::new();
        let mut index = HashMap::new();
        for stage in &trial.stages {
            let (StageKind::InFull(why), [operation]) = (stage.kind, &stage.operations[..]) else {
                continue;
            };
            let origin = operation.origin.as_ref();
            let line = origin.map(|origin| (origin.source.as_deref(), origin.line));
            let at = *index.entry((operation.name, line)).or_insert(all.len());
            if at == all.len() {
                all.push(InFull {
                    name: operation.name,
                    place: origin.map(|origin| {
                        let (script, line, _) = of(origin);
                        (script, line)
                    }),
                    times: 0,
                    seconds: 0.0,
                    read: 0,
                    written: 0,
                    why,
                });
            }
            let one = &mut all[at];
            one.times += 1;
            one.seconds += stage.seconds;
            one.read += stage.read;
            one.written += stage.written;
            one.why = one.why.or(why);
        }
        all
    }

    /// Where token values or positions were computed in full, which operation did and why.
    pub(super) fn fallback(&self) -> Option<String> {
        let why = self.why?;
        let line = self.place.as_ref().map_or(String::new(), |(script, line)| {
            format!(" in line {}", place(script.as_deref(), *line))
        });
        let times = match self.times {
            1 => String::new(),
            times => format!(", {} times", count(times)),
        };
        Some(format!("`{}`{line}{times}: {why}", self.name))
    }
}
