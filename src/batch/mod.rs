//! The batch: the data of one training step, as named columns over a layout.

mod builder;
mod column;
pub mod column_names;
mod computed;
pub mod large;
pub(crate) mod layout;
mod level;
mod mask;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use builder::BatchBuilder;
pub use column::{Buffer, FloatBuffer, TokenValues};
pub use computed::Computed;
pub use layout::{GroupId, Layout};
pub use level::Level;
pub use mask::{Numeric, TokenRun};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parallel::each;

/// The names of columns with reference answers, in order of precedence.
pub(crate) const SOLUTIONS: [&str; 2] = ["solution", "answer"];

/// Text columns by name.
type TextColumns = BTreeMap<Arc<str>, Buffer<Arc<str>>>;

/// Returns whether the answer in a completion equals the answer in a reference solution.
fn is_answer(_solution: &str, _completion: &str) -> bool {
    #[cfg(feature = "answers")]
    return compared(_solution, _completion).0 == advlab_answers::Verdict::Equal;
    #[cfg(not(feature = "answers"))]
    unreachable!("no batch is verifiable without the verifier")
}

/// Returns the verdict on a completion, with the answers of the reference and of the completion. Among several references, it
/// uses the first that equals the completion's answer or, if none is equal, the first.
#[cfg(feature = "answers")]
pub fn compared(
    solution: &str,
    completion: &str,
) -> (advlab_answers::Verdict, Option<String>, Option<String>) {
    let all = references(solution);
    let all = all
        .iter()
        .map(|one| advlab_answers::compared(one, completion));
    let mut all: Vec<_> = all.collect();
    let is_equal = |found: &(_, _, _)| found.0 == advlab_answers::Verdict::Equal;
    let at = all.iter().position(is_equal).unwrap_or(0);
    all.swap_remove(at)
}

/// Returns the references in a text; an answer is correct if it equals any of them. A JSON list of strings counts as several
/// references, because an answer seldom has that form; any other text is one reference. Blank strings are skipped, unless all are
/// blank.
#[cfg(any(feature = "answers", feature = "files"))]
pub(crate) fn references(text: &str) -> Vec<Cow<'_, str>> {
    let inner = text.trim_start().strip_prefix('[');
    let is_list = inner.is_some_and(|inner| inner.trim_start().starts_with('"'));
    let list = is_list.then(|| serde_json::from_str::<Vec<String>>(text).ok());
    let Some(mut list) = list.flatten() else {
        return vec![Cow::Borrowed(text)];
    };
    let is_filled = |one: &String| !one.trim().is_empty();
    if list.iter().any(is_filled) {
        list.retain(is_filled);
    }
    list.into_iter().map(Cow::Owned).collect()
}

/// Returns whether `answer` replaces `solution` as the reference. It does if the solution is blank. With the feature `answers`,
/// it also does if `answer` is not blank and the solution cannot be compared as an answer.
pub(crate) fn is_replaced(solution: &str, _answer: &str) -> bool {
    #[cfg(feature = "answers")]
    let is_worked = !_answer.trim().is_empty() && is_worked(solution, _answer);
    #[cfg(not(feature = "answers"))]
    let is_worked = false;
    solution.trim().is_empty() || is_worked
}

/// Returns whether a solution cannot be compared as an answer. This holds for a long text that does not mark its answer. If
/// `answer` is a value, it also holds for a chain of equations, a placeholder such as `n/a`, and several words; otherwise, these
/// may be the answer, and `answer` may be what a policy said.
#[cfg(feature = "answers")]
fn is_worked(solution: &str, answer: &str) -> bool {
    use advlab_answers::{answer as found, reference};
    const SHORT: usize = 40;
    let (value, marked) = (found(solution), reference(solution));
    let is_marked = value == marked;
    if !is_marked && solution.len() > SHORT.max(2 * answer.len()) {
        return true;
    }
    if found(answer) != reference(answer) {
        return false;
    }
    // The text behind a mark such as "the answer is" may be no answer either.
    let text = marked.filter(|_| is_marked);
    let text = text.as_deref().unwrap_or(solution).trim();
    let is_word = |word: &&str| word.chars().filter(|letter| letter.is_alphabetic()).count() > 1;
    let words = text.split_whitespace().filter(is_word).count();
    let is_arithmetic = !text.contains(char::is_alphabetic) && text.matches('=').count() > 1;
    let is_nothing = ["n/a", "na", "none", "null", "nan"].contains(&&*text.to_lowercase());
    is_arithmetic || is_nothing || words > 4 || words > 2 && found(text).is_none()
}

/// The data of one training step: named columns over a [`Layout`].
///
/// A response column has one f64 per response, and a token column has one f32 or f64 per token. Columns share the memory of their
/// owners, so a batch is cheap to clone; see [`BatchBuilder`].
#[derive(Clone, Debug)]
pub struct Batch {
    layout: Arc<Layout>,
    columns: BTreeMap<Arc<str>, Column>,
    texts: TextColumns,
    /// The result of [`Batch::verified`].
    verified: Arc<OnceLock<Buffer<f64>>>,
    pub(crate) is_f64: bool,
    step: Option<u64>,
    /// The finest level that an advantage of this batch may have, and the reason.
    finest: Option<(Level, Arc<str>)>,
}

/// A column of numbers.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Response(Buffer<f64>),
    Token(TokenValues),
}

impl Column {
    fn response(&self) -> Option<&Buffer<f64>> {
        match self {
            Column::Response(values) => Some(values),
            Column::Token(_) => None,
        }
    }

    fn token(&self) -> Option<&TokenValues> {
        match self {
            Column::Token(values) => Some(values),
            Column::Response(_) => None,
        }
    }
}

impl Batch {
    /// Returns a builder of a batch, without any columns.
    pub fn builder() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Returns five responses to two prompts, with rewards, and with log-probs, values and entropies of the tokens. Two of the
    /// three responses to `a` are correct, and neither response to `b` is correct.
    ///
    /// The examples of functions in the reference run on this batch.
    pub fn example() -> Batch {
        let eighths =
            |values: [i8; 9]| FloatBuffer::from(values.map(|x| f64::from(x) / 8.0).to_vec());
        let built = Batch::builder()
            .groups(["a", "a", "a", "b", "b"])
            .lengths([2, 3, 1, 2, 1])
            .response("reward", vec![1.0, 0.0, 1.0, 0.0, 0.0])
            .token("old_logp", eighths([-4, -6, -8, -4, -2, -12, -4, -4, -2]))
            .token("ref_logp", eighths([-6, -6, -12, -2, 0, -8, -5, -3, -6]))
            .token("logp", eighths([-2, -4, -10, -4, -4, -8, -6, -4, -4]))
            .token("value", eighths([4, 6, 4, 2, 2, 4, 2, 0, 2]))
            .token("entropy", eighths([4, 6, 8, 4, 2, 12, 4, 4, 2]))
            .build();
        match built {
            Ok(batch) => batch,
            Err(error) => unreachable!("the example batch is invalid: {error}"),
        }
    }

    /// Returns the layout, which assigns each token to a response, and each response to a group.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the training step of the batch; 0 if no step was given.
    pub fn step(&self) -> u64 {
        self.step.unwrap_or(0)
    }

    /// Returns the training step of the batch, if a step was given.
    pub fn given_step(&self) -> Option<u64> {
        self.step
    }

    /// Returns the same batch with another step.
    #[must_use]
    pub fn at_step(mut self, step: u64) -> Batch {
        self.step = Some(step);
        self
    }

    /// Returns the same batch for a caller that takes one advantage for each response ([`Level::Response`]) or for each
    /// trajectory ([`Level::Trajectory`]). A recipe that gives a finer advantage then fails with the reason `why`, as in "slime
    /// takes one for each response".
    #[must_use]
    pub fn with_one_advantage_per(mut self, level: Level, why: &str) -> Batch {
        self.finest = Some((level, why.into()));
        self
    }

    /// Returns an error if the advantage is finer than the caller can take.
    pub(crate) fn check_level(&self, advantage: &Computed) -> Result<(), Diagnostic> {
        let Some((level, why)) = &self.finest else {
            return Ok(());
        };
        let refuse = |what: &str| {
            let message = format!("the advantage has {what}, but {why}");
            let help = format!("average it: `x.mean(\"{level}\")`");
            Err(Diagnostic::error(message).with_help(help))
        };
        if advantage.level() == Level::Token {
            return refuse("a value for each token");
        }
        if *level != Level::Trajectory {
            return Ok(());
        }
        let values = advantage.by_response();
        let differs = |trajectory: usize| {
            let rows = self.layout.rows_of(trajectory);
            let mut rows = rows.iter().map(|&row| values[row as usize]);
            let first = rows.next();
            rows.any(|value| Some(value) != first)
        };
        if (0..self.layout.size(Level::Trajectory)).any(differs) {
            return refuse("different values for the turns of a trajectory");
        }
        Ok(())
    }

    /// Returns the names of all columns except texts, in alphabetical order.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(|name| &**name)
    }

    /// Returns the names of the response columns, then the names of the token columns, each list in alphabetical order.
    pub(crate) fn column_names(&self) -> impl Iterator<Item = &str> {
        let responses = self.response_columns().map(|(name, _)| name);
        responses.chain(self.token_columns().map(|(name, _)| name))
    }

    /// Returns whether there is a column of numbers with this name.
    pub fn has(&self, name: &str) -> bool {
        self.columns.contains_key(name)
    }

    /// Returns a response column, which has one value per response; `None` if no response column has this name.
    pub fn response_column(&self, name: &str) -> Option<&[f64]> {
        self.response_buffer(name).map(|values| &**values)
    }

    /// Returns a response column as a buffer, which can be shared.
    pub fn response_buffer(&self, name: &str) -> Option<&Buffer<f64>> {
        self.columns.get(name)?.response()
    }

    /// Returns all response columns with their names.
    pub fn response_columns(&self) -> impl Iterator<Item = (&str, &Buffer<f64>)> {
        let columns = self.columns.iter();
        columns.filter_map(|(name, values)| Some((&**name, values.response()?)))
    }

    /// Returns all token columns with their names.
    pub fn token_columns(&self) -> impl Iterator<Item = (&str, &TokenValues)> {
        let columns = self.columns.iter();
        columns.filter_map(|(name, values)| Some((&**name, values.token()?)))
    }

    /// Returns a token column; `None` if no token column has this name.
    pub fn token_column(&self, name: &str) -> Option<&TokenValues> {
        self.columns.get(name)?.token()
    }

    /// Returns whether token tensors that are computed only from coarser tensors are f64: they are if a token column is f64, or
    /// if the builder got no token columns.
    pub(crate) fn is_f64(&self) -> bool {
        self.is_f64
    }

    /// Returns the text columns, such as `prompt` and `completion`, with one string per response.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &Buffer<Arc<str>>)> {
        self.texts.iter().map(|(name, texts)| (&**name, texts))
    }

    /// Returns a text column by its name.
    pub fn text(&self, name: &str) -> Option<&[Arc<str>]> {
        self.texts.get(name).map(|texts| &**texts)
    }

    /// Returns whether the batch has completions and references, and the library is built with the verifier that compares them.
    pub(crate) fn is_verifiable(&self) -> bool {
        let has_text = |name: &str| self.texts.contains_key(name);
        let has = |name: &&str| has_text(name) || self.response_buffer(name).is_some();
        cfg!(feature = "answers") && has_text("completion") && SOLUTIONS.iter().any(has)
    }

    /// Returns the reference answer of a response: its `solution`, or its `answer` if the solution is missing, blank or no answer
    /// that could be compared, such as a worked solution that does not mark its answer. Returns `None` if the batch has neither
    /// column. A number is returned as text, and a missing number (NaN) as blank text.
    pub fn solution(&self, response: usize) -> Option<Cow<'_, str>> {
        let [solution, answer] = SOLUTIONS.map(|name| self.reference(name, response));
        match (solution, answer) {
            (Some(solution), Some(answer)) if is_replaced(&solution, &answer) => Some(answer),
            (solution, answer) => solution.or(answer),
        }
    }

    /// Returns the value of a response in a column of references.
    pub(crate) fn reference(&self, name: &str, response: usize) -> Option<Cow<'_, str>> {
        let text = self.text(name).map(|texts| Cow::from(&*texts[response]));
        let number = || Some(self.response_column(name)?[response]);
        let written = |number: f64| {
            let number = Some(number).filter(|number| !number.is_nan());
            number.map_or(Cow::Borrowed(""), |number| number.to_string().into())
        };
        text.or_else(|| number().map(written))
    }

    #[cfg(feature = "files")]
    pub(crate) fn set_references(&mut self, texts: Buffer<Arc<str>>) {
        for name in SOLUTIONS {
            self.columns.remove(name);
            self.texts.insert(name.into(), texts.clone());
        }
    }

    /// Returns, for each response, 1 if the completion's answer equals the answer of its [`Batch::solution`], else 0. This is
    /// computed once, in parallel. Returns `None` if there are no completions or no solutions, or if `may_go_on` stops the
    /// computation.
    pub(crate) fn verified(&self, may_go_on: &(dyn Fn() -> bool + Sync)) -> Option<Buffer<f64>> {
        if let Some(found) = self.verified.get() {
            return Some(found.clone());
        }
        let completions = self.text("completion")?;
        let right = each(completions.len(), 1, &|at| {
            let solution = self.solution(at).filter(|_| may_go_on())?;
            Some(f64::from(u8::from(is_answer(&solution, &completions[at]))))
        });
        let right = right.into_iter().collect::<Option<Vec<f64>>>()?;
        Some(self.verified.get_or_init(|| right.into()).clone())
    }

    /// Returns a batch of some of the responses, in the given order.
    pub fn select(&self, responses: &[usize]) -> Batch {
        let columns = self.columns.iter().map(|(name, column)| {
            let column = match column {
                Column::Response(values) => Column::Response(values.pick(responses)),
                Column::Token(values) => {
                    Column::Token(values.select(&self.layout, responses).into())
                }
            };
            (name.clone(), column)
        });
        let texts = self.texts.iter();
        let texts = texts.map(|(name, texts)| (name.clone(), texts.pick(responses)));
        Batch {
            layout: Arc::new(self.layout.select(responses)),
            columns: columns.collect(),
            texts: texts.collect(),
            verified: Arc::default(),
            finest: self.finest.clone(),
            ..*self
        }
    }

    /// Returns whether the values have the batch's layout or an equal layout.
    pub(crate) fn is_of(&self, values: &Computed) -> bool {
        Arc::ptr_eq(&self.layout, values.layout()) || self.layout == *values.layout()
    }

    /// Adds values as a column, which replaces an existing column of this name.
    ///
    /// # Errors
    /// [`Diagnostics`] if the values belong to another batch, or are not allowed in the column, for example because of their
    /// level, a reward that is not finite, or a negative weight.
    pub fn with(self, name: &str, values: &Computed) -> Result<Batch, Diagnostics> {
        let refused = |why: String| Err(Diagnostic::error(why).into());
        if !self.is_of(values) {
            return refused(format!("`{name}` belongs to another batch"));
        }
        let column = match values.level() {
            Level::Response => Column::Response(values.buffer().iter().collect()),
            Level::Token => Column::Token(values.buffer().clone().into()),
            level => {
                return refused(format!(
                    "`{name}` is a {level} tensor; a column has values per response or per token"
                ));
            }
        };
        let known = column_names::column(name);
        if let Some((response, message)) = known.and_then(|known| known.misfit(&column)) {
            let place = response.map(|at| self.layout.describe(Level::Response, at) + ": ");
            return refused(format!("{}{message}", place.unwrap_or_default()));
        }
        Ok(self.replacing(name, column))
    }

    /// Adds a column, whose size must fit the batch. It replaces an existing column of this name.
    pub(crate) fn replacing(mut self, name: &str, column: Column) -> Batch {
        if self.texts.remove(name).is_some() || SOLUTIONS.contains(&name) {
            self.verified = Arc::default();
        }
        self.is_f64 |= column.token().is_some_and(TokenValues::is_f64);
        self.columns.insert(name.into(), column);
        self
    }
}
