//! A model's chat template: Jinja2 with the additions of transformers.

use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::Value as Json;

use crate::error::{Result, io};
use advlab::diagnostic::{Diagnostic, Diagnostics};
use advlab::regular_file;

/// The file in which newer versions of transformers store the template; also the template's name in the engine.
const FILE: &str = "chat_template.jinja";

/// The date that templates see, for the supported directives of `strftime`. It is fixed, because a run that is resumed
/// tomorrow must see the same prompts. The date is the default of Llama's templates.
const TODAY: [(&str, &str); 11] = [
    ("%d", "26"),
    ("%-d", "26"),
    ("%a", "Fri"),
    ("%A", "Friday"),
    ("%b", "Jul"),
    ("%B", "July"),
    ("%m", "07"),
    ("%y", "24"),
    ("%Y", "2024"),
    ("%H", "00"),
    ("%M", "00"),
];

/// Returns the fixed date in a template's format.
fn today(format: String) -> Result<String, Error> {
    let day = (TODAY.iter()).fold(format, |text, (directive, value)| {
        text.replace(directive, value)
    });
    match day.split_once('%') {
        None => Ok(day),
        Some((_, rest)) => {
            let directive: String = rest.chars().take(1).collect();
            let message = format!("`strftime_now` does not know `%{directive}`");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

/// A message of a chat.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'a str,
    /// The text of the message.
    pub content: &'a str,
}

/// A compiled template. The special tokens are global variables of the template.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
}

/// Returns a special token of a `tokenizer_config.json`, which stores it as a string or as an object.
pub(super) fn special_token(token: &Json) -> Option<&str> {
    token.as_str().or_else(|| token.get("content")?.as_str())
}

impl ChatTemplate {
    /// Loads the template of a folder from `chat_template.jinja` or, as older versions of transformers stored it, from
    /// `tokenizer_config.json`, whose content is `config`.
    pub(super) fn load(folder: &Path, config: &Json) -> Result<Option<Self>> {
        let path = folder.join(FILE);
        let (path, source) = if path.exists() {
            let source = regular_file::read_to_string(&path).map_err(io("read", &path))?;
            (path, source)
        } else if let Some(source) = in_config(&config["chat_template"]) {
            (folder.join("tokenizer_config.json"), source.to_string())
        } else {
            return Ok(None);
        };
        let environment = environment(config, source).map_err(|error| damaged(&path, &error))?;
        Ok(Some(ChatTemplate { path, environment }))
    }

    /// Returns the text of a chat up to the point at which the model continues.
    pub(super) fn render(&self, messages: &[Message<'_>]) -> Result<String> {
        let value = |message: &Message<'_>| {
            Value::from_pairs([("role", message.role), ("content", message.content)])
        };
        let context = context! {
            messages => messages.iter().map(value).collect::<Value>(),
            add_generation_prompt => true,
            tools => Value::from(()),
            documents => Value::from(()),
        };
        let template = self.environment.get_template(FILE);
        let text = template.and_then(|template| template.render(context));
        text.map_err(|error| damaged(&self.path, &error))
    }
}

/// Returns the template from a configuration: its only template, or `default` (for chats without tools) in a list of templates.
fn in_config(template: &Json) -> Option<&str> {
    let mut named = template.as_array().into_iter().flatten();
    let default = || named.find(|template| template["name"] == "default")?["template"].as_str();
    template.as_str().or_else(default)
}

fn damaged(path: &Path, error: &Error) -> Diagnostics {
    let whole = || error.to_string();
    let what = error.detail().map_or_else(whole, str::to_string);
    let problem = Diagnostic::error(format!("the chat template fails: {what}")).in_file(path);
    // An error in a template inside a JSON file gets no line number, because the template's lines are not the lines of the file.
    let line = error.line().filter(|_| path.ends_with(FILE));
    match line {
        Some(line) => problem.on_line(line).into(),
        None => problem.into(),
    }
}

fn environment(config: &Json, source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", |message: String| {
        Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", today);
    for (name, token) in config.as_object().into_iter().flatten() {
        if let Some(token) = special_token(token).filter(|_| name.ends_with("_token")) {
            environment.add_global(name.clone(), token.to_string());
        }
    }
    environment.add_template_owned(FILE, source)?;
    Ok(environment)
}
