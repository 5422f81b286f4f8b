//! The session: text in, replies out.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::command::{self, Watching, lock, wrong};
use super::data::Data;
use super::show;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{shape, value};
use advlab::files::{Mapping, Tokenize};
use advlab::paint::{Paint, width, wrapped};
use advlab::script::{Host, Version, unfinished};
use advlab::session::{Session as Script, is_typed};
use advlab::tensor::Guard;
use advlab_train::RunFolder;

/// The reply to an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Lines without a line break at the end; empty where there is nothing to show.
    pub text: String,
    /// Whether the input was wrong.
    pub is_error: bool,
}

/// Lets somebody edit a file, and returns when they are done.
type Editor = Box<dyn FnMut(&Path) -> io::Result<()>>;

/// A session at a prompt: a batch, a recipe, what was typed, and the commands.
///
/// It knows no terminal: text goes in, text comes out.
///
/// ```
/// use advlab_cli::prompt::{Paint, Session};
/// use advlab::Host;
///
/// let mut session = Session::new(&Host::new(), Paint::PLAIN);
/// let reply = session.submit("batch.reward.mean(\"batch\").value() > 0.3");
/// assert_eq!(reply.text, "true");
/// ```
pub struct Session {
    pub(super) script: Script,
    pub(super) paint: Paint,
    /// The lines of the window, except the one of the prompt.
    pub(super) height: usize,
    /// The host that was given: it limits each call, also of the thread that watches a script.
    pub(super) host: Host,
    pub(super) data: Data,
    /// The seed of `batch.random` for files without a run, and whether it also holds for a run's batch.
    own_seed: (u64, bool),
    /// The version that was loaded with a run's batch.
    pub(super) run_version: Option<Version>,
    /// Whether a typed hook did not compile: the next function that is typed may be what it calls.
    pub(super) lacks_helper: bool,
    /// The last piece of script, right or wrong.
    pub(super) last_input: String,
    /// The scripts that `:save` wrote, with their text.
    pub(super) saved: BTreeMap<PathBuf, String>,
    pub(super) watched: Watching,
    editor: Option<Editor>,
    pub(super) tokenizer: Option<Arc<dyn Tokenize>>,
    pub(super) is_over: bool,
}

impl Session {
    /// A session on the built-in batch.
    pub fn new(host: &Host, paint: Paint) -> Session {
        let data = Data::builtin();
        Session {
            script: Script::new(host, &data.batch),
            paint,
            height: usize::MAX,
            host: host.clone(),
            data,
            own_seed: (host.seed(), false),
            run_version: None,
            lacks_helper: false,
            last_input: String::new(),
            saved: BTreeMap::new(),
            watched: Watching::default(),
            editor: None,
            tokenizer: None,
            is_over: false,
        }
    }

    /// Gives `:edit` an editor: a function that returns when the file has been edited. Without one it is refused.
    pub fn set_editor(&mut self, edit: impl FnMut(&Path) -> io::Result<()> + 'static) {
        self.editor = Some(Box::new(edit));
    }

    /// Counts the tokens of completions in files that are opened later with this tokenizer.
    pub fn set_tokenizer(&mut self, tokenizer: Option<Arc<dyn Tokenize>>) {
        self.tokenizer = tokenizer;
    }

    /// Draws `batch.random` from this seed, also on the batch of a run that has another.
    pub fn set_seed(&mut self, seed: u64) {
        self.host = self.host.clone().with_seed(seed);
        self.script.set_seed(seed);
        self.own_seed = (seed, true);
    }

    /// Opens the batch of a path: a file of rollouts, whose fields may have other names, a run's folder, or a script with a
    /// test batch.
    pub fn open(&mut self, path: &Path, map: &[Mapping]) -> Result<(), Diagnostics> {
        let data = Data::open(&self.host, path, map, self.tokenizer.as_ref())?;
        self.use_data(data)
    }

    /// Opens the batch that the run has kept of a step.
    pub fn go_to(&mut self, step: u64) -> Result<(), Diagnostics> {
        self.use_data(self.data.at_step(step)?)
    }

    /// Treats the batch as one of another step.
    pub fn set_step(&mut self, step: u64) -> Result<(), Diagnostics> {
        let mut data = self.data.clone();
        data.batch = Arc::new(data.batch.as_ref().clone().at_step(step));
        self.use_data(data)
    }

    /// The batch's name and shape in a line, and below it notes on values that were read differently than they are written.
    pub fn about_data(&self) -> String {
        let shape = shape(self.data.batch.layout());
        let name = &self.data.name;
        let is_long = width(name) + 2 + width(&shape) > self.paint.width;
        let space = if is_long { "\n  " } else { " " };
        let mut lines = vec![format!("{}:{space}{shape}", self.paint.bold(name))];
        if let Some((kept, _)) = &self.data.run {
            let about = self.about_run(kept);
            lines.extend(about.map(|line| wrapped("  ", &line, self.paint.width)));
        }
        let notes = self.data.notes.iter();
        lines.extend(notes.map(|note| self.note(note)));
        lines.join("\n")
    }

    fn about_run(&self, kept: &RunFolder) -> [String; 2] {
        let steps = match kept.batches() {
            [(only, _)] => format!("the only batch that the run has kept, of step {only}"),
            batches => format!(
                "one of {} batches of the run, of steps {first} to {}: `:batch {first}` (in a shell `--step {first}`)",
                batches.len(),
                kept.last().0,
                first = batches[0].0
            ),
        };
        let recipe = match self.script.recipe() {
            Some(recipe) if self.is_of_run(recipe) => {
                format!("its recipe is loaded: {}", command::title(recipe))
            }
            _ => format!("`:recipe {}` loads its recipe", kept.folder().display()),
        };
        [steps, recipe]
    }

    /// Dimmed text in lines of the terminal's width.
    pub(super) fn dimmed(&self, text: &str) -> String {
        self.paint.dim(&wrapped("", text, self.paint.width))
    }

    /// A note on an answer.
    pub(super) fn note(&self, note: &str) -> String {
        self.dimmed(&format!("note: {note}"))
    }

    /// Limits the input that is being evaluated, and can cancel it from another thread.
    pub fn guard(&self) -> &Arc<Guard> {
        self.script.guard()
    }

    /// Whether an input has ended the session.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the text is an incomplete input, which goes on in the next line.
    pub fn is_incomplete(&self, text: &str) -> bool {
        let is_script = !text.trim_start().starts_with([':', '?']);
        is_script && self.script.is_incomplete(text)
    }

    /// Evaluates an input: a piece of script, a command, or a question; or several of them that were pasted together, with each
    /// command and question on its own line.
    pub fn submit(&mut self, text: &str) -> Reply {
        let mut replies = Vec::new();
        let mut rest = text;
        while replies.is_empty() || !rest.trim().is_empty() && !self.is_over {
            let (input, more) = rest.split_at(self.first_input(rest));
            replies.push(self.submit_one(input));
            rest = more;
        }
        let texts = replies.iter().map(|reply| &*reply.text);
        let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
        Reply {
            text: texts.join("\n"),
            is_error: replies.iter().any(|reply| reply.is_error),
        }
    }

    /// Where the first of several inputs ends: before or after a line that is a command or a question.
    fn first_input(&self, text: &str) -> usize {
        // `?.` and `?[` continue an expression.
        let is_own = |line: &str| {
            let line = line.trim_start();
            line.starts_with([':', '?']) && !line.starts_with("?.") && !line.starts_with("?[")
        };
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            let before = &text[..end];
            let is_next = is_own(line) && !is_own(before) && !self.is_incomplete(before);
            // A command goes on in the next line only if a bracket or a quote is open.
            let is_over = is_own(before) && unfinished(before).closed_by().is_none();
            if !before.trim().is_empty() && (is_over || is_next) {
                break;
            }
            end += line.len();
        }
        end
    }

    fn submit_one(&mut self, text: &str) -> Reply {
        self.take_up_version();
        let input = text.trim();
        let answered = if let Some(command) = input.strip_prefix(':') {
            command::run(self, command)
        } else if let Some(name) = input.strip_prefix("??") {
            command::source(self, name.trim())
        } else if let Some(name) = input.strip_prefix('?') {
            command::help(self, name.trim())
        } else if self.is_plain_word(input) {
            command::run(self, input.trim_end_matches("()"))
        } else {
            self.evaluated(text.trim_end())
        };
        let is_error = answered.is_err();
        let rendered = |error: Diagnostics| error.render_within(self.paint).trim_end().to_string();
        Reply {
            text: answered.unwrap_or_else(rendered),
            is_error,
        }
    }

    /// Whether an input is a command that many type without its colon.
    fn is_plain_word(&self, input: &str) -> bool {
        let word = input.trim_end_matches("()");
        let is_command = ["help", "quit", "exit"].contains(&word) || input == "q()";
        is_command && !self.script.has_variable(word)
    }

    /// Evaluates a piece of script.
    pub(super) fn evaluated(&mut self, text: &str) -> Result<String, Diagnostics> {
        if !text.trim().is_empty() {
            self.last_input = text.to_string();
        }
        let evaluated = self.script.evaluate(text)?;
        let mut lines = evaluated.prints;
        lines.extend(evaluated.notes.iter().map(|note| self.note(note)));
        let metrics = evaluated.metrics.iter();
        lines.extend(metrics.map(|(name, number)| format!("metric {name} {}", value(*number))));
        lines.extend(show::answer(&evaluated.answer, self.paint));
        lines.extend(self.take_up_typed(&evaluated.functions));
        Ok(lines.join("\n"))
    }

    /// Responses with their texts, rewards and advantages: by number, by group, the best, or by a condition.
    pub fn look(&mut self, what: &str) -> Result<String, Diagnostics> {
        command::look(self, what)
    }

    /// Opens a file in the user's editor.
    pub(super) fn edit(&mut self, file: &Path) -> Result<(), Diagnostics> {
        let Some(edit) = &mut self.editor else {
            let help = "write a file with your editor: `:watch FILE` follows it";
            let message = "`:edit` needs a terminal, and there is none here";
            return Err(wrong(message, help));
        };
        let help = "$VISUAL or $EDITOR names the editor";
        edit(file).map_err(|error| wrong(format!("the editor failed: {error}"), help))
    }

    /// What changed since the last call because a watched script was saved.
    pub fn news(&self) -> Option<String> {
        lock(&self.watched).as_mut()?.poll()
    }

    /// Replaces the batch, and the recipe if one comes with it.
    pub(super) fn use_data(&mut self, mut data: Data) -> Result<(), Diagnostics> {
        if let Some(recipe) = data.recipe.take() {
            data.notes.extend(self.choose(Some(recipe)));
        }
        if let Some(watched) = lock(&self.watched).as_mut() {
            watched.set_batch(data.batch.clone());
        }
        let old = self.script.tensor_names().join(", ");
        if !old.is_empty() {
            let note = format!(
                "these hold tensors of the batch before; define them again for this one: {old}"
            );
            data.notes.push(note);
        }
        if let (own, false) = self.own_seed {
            let of_run = data.run.as_ref().and_then(|(kept, _)| kept.seed());
            let seed = of_run.unwrap_or(own);
            self.host = self.host.clone().with_seed(seed);
            self.script.set_seed(seed);
        }
        self.script.set_batch(&data.batch);
        data.notes.extend(self.use_loss_of_run(&data));
        data.notes.extend(self.use_recipe_of_run(&data));
        self.data = data;
        Ok(())
    }

    /// Forgets what was typed, also a typed recipe. Returns whether a recipe stays.
    pub(super) fn reset(&mut self) -> bool {
        self.script.reset();
        self.last_input.clear();
        self.lacks_helper = false;
        let stays = self.script.recipe().is_some_and(|one| !is_typed(one));
        if !stays {
            self.choose(None);
        }
        stays
    }
}

/// A text, and a line below it if there is one.
pub(super) fn join(text: String, line: Option<String>) -> String {
    match line {
        Some(line) => format!("{text}\n{line}"),
        None => text,
    }
}
