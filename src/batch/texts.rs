//! The texts of responses: prompts, completions and solutions, held or in the file that they were read from.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::verify::{self, Verdict};

/// The texts from which verdicts are made.
pub(crate) const COMPARED: [&str; 2] = ["completion", "solution"];

/// What makes tokens of a text.
pub trait Tokenize: fmt::Debug + Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// How many tokens a text has.
    ///
    /// # Errors
    /// Why it has none, such as a part for which there is no token.
    fn count(&self, text: &str) -> Result<usize, Diagnostic>;

    /// The bytes of the text that each of its tokens stands for; none for a token that the tokenizer adds.
    ///
    /// # Errors
    /// As [`Tokenize::count`].
    fn spans(&self, text: &str) -> Result<Vec<Range<usize>>, Diagnostic>;
}

/// Where texts are.
pub(crate) trait TextSource: fmt::Debug + Send + Sync {
    /// The names of the texts that each response has.
    fn names(&self) -> Vec<&str>;

    /// The texts of some responses, in the order of the names; an empty one where there is none.
    fn of(&self, responses: &[usize]) -> Result<Vec<Vec<String>>, Diagnostics>;

    /// The texts where they are held.
    fn held(&self) -> Option<&Held> {
        None
    }

    /// Compares all completions with their solutions, in parallel, for as long as it `may_go_on`.
    fn verdicts(
        &self,
        may_go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Verdict>>, Diagnostics>;
}

/// Texts that are held in memory, by name.
pub(crate) type Held = BTreeMap<Arc<str>, Arc<[String]>>;

impl TextSource for Held {
    fn names(&self) -> Vec<&str> {
        self.keys().map(|name| &**name).collect()
    }

    fn of(&self, responses: &[usize]) -> Result<Vec<Vec<String>>, Diagnostics> {
        let of_one = |&response: &usize| self.values().map(|all| all[response].clone()).collect();
        Ok(responses.iter().map(of_one).collect())
    }

    fn held(&self) -> Option<&Held> {
        Some(self)
    }

    fn verdicts(
        &self,
        may_go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Verdict>>, Diagnostics> {
        let [completions, solutions] = COMPARED.map(|name| &self[name]);
        let pairs = completions.par_iter().zip(&solutions[..]);
        let verdict = |(completion, solution): (&String, &String)| {
            may_go_on().then(|| verify::equal(solution, completion))
        };
        Ok(pairs.map(verdict).collect())
    }
}

/// The texts of a batch's responses: for people, and to be verified; scripts do not see them.
#[derive(Clone, Debug)]
pub struct Texts {
    source: Arc<dyn TextSource>,
    /// Those of the whole source, once somebody has asked.
    verdicts: Arc<OnceLock<Vec<Verdict>>>,
    /// The responses of the source that these are; all where it is `None`.
    rows: Option<Arc<[usize]>>,
}

impl Texts {
    pub(crate) fn new(source: Arc<dyn TextSource>) -> Texts {
        Texts {
            source,
            verdicts: Arc::default(),
            rows: None,
        }
    }

    /// The names of the texts, such as `prompt`, `completion` and `solution`.
    pub fn names(&self) -> Vec<&str> {
        self.source.names()
    }

    /// The texts of some responses, in the order of the names; an empty one where a response has none.
    ///
    /// # Errors
    /// Why the file that they are in cannot be read any more.
    pub fn of(&self, responses: &[usize]) -> Result<Vec<Vec<String>>, Diagnostics> {
        match &self.rows {
            None => self.source.of(responses),
            Some(rows) => {
                let rows: Vec<usize> = responses.iter().map(|&response| rows[response]).collect();
                self.source.of(&rows)
            }
        }
    }

    /// All texts by their names, where they are held in memory.
    pub(crate) fn held(&self) -> Option<impl Iterator<Item = (&str, Vec<&String>)>> {
        let held = self.source.held()?;
        Some(held.iter().map(|(name, texts)| {
            let rows = self.rows.as_deref();
            let of_rows = rows.map(|rows| rows.iter().map(|&row| &texts[row]).collect());
            (&**name, of_rows.unwrap_or_else(|| texts.iter().collect()))
        }))
    }

    /// Whether there is what verdicts are made of.
    pub(crate) fn can_be_verified(&self) -> bool {
        let names = self.names();
        COMPARED.iter().all(|name| names.contains(name))
    }

    /// Whether the answer of each completion is that of its solution, computed once; `None` where it may not go on.
    pub(crate) fn verdicts(
        &self,
        may_go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Vec<Verdict>>, Diagnostics> {
        if self.verdicts.get().is_none() {
            let Some(verdicts) = self.source.verdicts(may_go_on)? else {
                return Ok(None);
            };
            self.verdicts.get_or_init(|| verdicts);
        }
        let all = self.verdicts.get().map_or(&[][..], |all| &all[..]);
        Ok(Some(match &self.rows {
            None => all.to_vec(),
            Some(rows) => rows.iter().map(|&row| all[row]).collect(),
        }))
    }

    /// Those of some of the responses, in the order given.
    pub(crate) fn select(&self, responses: &[usize]) -> Texts {
        let row = |&response: &usize| self.rows.as_ref().map_or(response, |rows| rows[response]);
        Texts {
            rows: Some(responses.iter().map(row).collect()),
            ..self.clone()
        }
    }
}
