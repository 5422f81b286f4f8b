//! A model's chat template: Jinja2 as transformers sets it up, with what it adds to it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

use crate::error;
use advlab::diagnostic::{Diagnostic, Diagnostics};

const NAME: &str = "chat";

/// What templates take for today. A run that is gone on with tomorrow must see the same prompts, so that it is always the
/// same day: the one that Llama's templates name if they are told none.
const TODAY: jiff::civil::DateTime = jiff::civil::date(2024, 7, 26).at(0, 0, 0, 0);

/// A message of a chat.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'a str,
    /// Its text.
    pub content: &'a str,
}

impl Message<'_> {
    fn value(&self) -> Value {
        Value::from_pairs([("role", self.role), ("content", self.content)])
    }
}

/// A template, compiled, and the special tokens that it can name.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    special: BTreeMap<String, String>,
}

/// A special token of a `tokenizer_config.json`, which has it as a string or as an object.
pub(super) fn special_token<'a>(config: &'a serde_json::Value, name: &str) -> Option<&'a str> {
    let token = config.get(name)?;
    token.as_str().or_else(|| token.get("content")?.as_str())
}

impl ChatTemplate {
    /// Of a folder: `chat_template.jinja` in transformers 5, inside of `tokenizer_config.json` in transformers 4.
    pub(super) fn load(
        folder: &Path,
        config_path: &Path,
        config: &serde_json::Value,
    ) -> Result<Option<Self>, Diagnostics> {
        let path = folder.join("chat_template.jinja");
        let (path, source) = match path.exists() {
            true => {
                let source = advlab::regular_file::read_to_string(&path)
                    .map_err(error::io("read", &path))?;
                (path, Some(source))
            }
            false => (config_path.to_path_buf(), in_config(config)),
        };
        let Some(source) = source else {
            return Ok(None);
        };
        let names = config
            .as_object()
            .into_iter()
            .flat_map(|config| config.keys());
        let names = names.filter(|name| name.ends_with("_token"));
        let token = |name: &String| Some((name.clone(), special_token(config, name)?.to_string()));
        let special = names.filter_map(token).collect();
        let environment = environment(source).map_err(|error| damaged(&path, &error))?;
        Ok(Some(ChatTemplate {
            path,
            environment,
            special,
        }))
    }

    /// The text of a chat up to where the model is to answer.
    pub(super) fn render(&self, messages: &[Message<'_>]) -> Result<String, Diagnostics> {
        let messages = messages.iter();
        let special = self.special.iter();
        let special = special.map(|(name, token)| (&**name, Value::from(&**token)));
        let context: BTreeMap<&str, Value> = [
            ("messages", messages.map(Message::value).collect()),
            ("add_generation_prompt", Value::from(true)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ]
        .into_iter()
        .chain(special)
        .collect();
        let template = self.environment.get_template(NAME);
        let text = template.and_then(|template| template.render(context));
        text.map_err(|error| damaged(&self.path, &error))
    }
}

/// A string, or several templates by name, of which `default` is meant for a chat without tools.
fn in_config(config: &serde_json::Value) -> Option<String> {
    let template = config.get("chat_template")?;
    let named = || {
        let templates = template.as_array()?.iter();
        let mut default = templates.filter(|template| template["name"] == "default");
        default.next()?["template"].as_str()
    };
    template.as_str().or_else(named).map(str::to_string)
}

fn damaged(path: &Path, error: &Error) -> Diagnostics {
    let what = error
        .detail()
        .map_or_else(|| error.to_string(), str::to_string);
    let problem = Diagnostic::error(format!("the chat template: {what}")).in_file(path);
    let problem = match error.line() {
        // Inside of JSON, the template's lines are not the file's.
        Some(line) if path.extension().is_some_and(|ending| ending == "jinja") => {
            problem.on_line(line)
        }
        _ => problem,
    };
    problem.into()
}

fn environment(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_filter("tojson", to_json);
    environment.add_function("raise_exception", |message: String| {
        Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: &str| {
        jiff::fmt::strtime::format(format, TODAY)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

/// JSON as Python's `json.dumps` writes it, where Jinja's own filter would escape what HTML does not like.
fn to_json(value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    arguments.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            let formatter = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, formatter))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, OneLine)),
    };
    let failed = |error: String| Error::new(ErrorKind::BadSerialization, error);
    written.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(out).map_err(|error| failed(error.to_string()))?;
    Ok(Value::from(text))
}

/// A space behind each comma and colon.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
