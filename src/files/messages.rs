//! Finds the text of a completion or of a reference in a field. The shape of the value decides how it is read, because trainers,
//! servers and data sets write texts, messages, parts of messages, lists and objects into fields with the same name.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};

use super::cell::{self, JsonType, describe};
use super::json::{self, DEPTH};
use crate::number_text::counted;

type Fields<'a> = [(&'a str, &'a str)];

/// The names that chat templates, ShareGPT, Gemini and LangChain use for the policy.
const ASSISTANT: [&str; 6] = ["assistant", "gpt", "chatgpt", "model", "ai", "bot"];

/// The names of other authors, and the types of items without an author. Their texts are never the policy's answer.
const OTHERS: &str = "user human system developer tool function ipython environment observation context \
    function_response tool_use tool_result thinking redacted_thinking reasoning item_reference";

/// The fields that hold the text of a message.
const CONTENT: [&str; 4] = ["content", "value", "text", "parts"];
/// Other fields of messages. A message with one of these fields need not have a text.
const NO_CONTENT: &str =
    "tool_calls function_call reasoning_content reasoning thinking refusal audio";

/// The types of a message's parts, and of items without an author, that hold text.
const TEXT: [&str; 4] = ["text", "output_text", "input_text", "message"];

/// Words in the types of parts without text of the policy, such as `tool_use`, and in the names of their fields.
const NO_TEXT: &str = "tool call function image audio video file data think thought reason refusal document source search \
    code result step guard cache";

/// The fields that hold the reference of a prompt, or several references, each of which is right: in a line with several
/// responses, or in an object such as verl's `reward_model`.
pub(super) const REFERENCES: &str =
    "ground_truth answer final_answer solution target reference answers golden_answers aliases";

/// The expected forms of a completion and of a reference, for messages to the user.
pub(super) const COMPLETION: &str = "a text, or messages with at least one from the assistant";
pub(super) const REFERENCE: &str = "a text, a number, or a list of accepted texts";

/// The way in which the texts of a column are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A string, or a chat with the roles of its messages.
    #[default]
    Any,
    /// A completion, with whether its text may hold all turns of a dialogue with an environment.
    Completion(bool),
    Reference,
}

impl TextKind {
    /// Returns the texts that the policy wrote.
    pub(super) fn said(self, raw: &str) -> Result<Vec<Cow<'_, str>>, String> {
        let said = said(raw, DEPTH)?;
        #[cfg(feature = "answers")]
        if self == TextKind::Completion(true) {
            let turns = said.iter().flat_map(|text| advlab_answers::turns(text));
            return Ok(turns.map(Cow::Owned).collect());
        }
        Ok(said)
    }

    /// Returns the text of a value. The error describes a value that has an unexpected form.
    pub(super) fn read(self, raw: &str) -> Result<Cow<'_, str>, String> {
        match (self, cell::type_of(raw)) {
            (TextKind::Completion(_), _) => Ok(answer(self.said(raw)?)),
            (TextKind::Reference, _) => Ok(reference(raw)?.unwrap_or_default()),
            (TextKind::Any, JsonType::String) => Ok(json::text(raw)),
            (TextKind::Any, JsonType::Array) => text_of_chat(raw)
                .map(Cow::Owned)
                .ok_or_else(|| describe(raw)),
            (TextKind::Any, _) => Err(describe(raw)),
        }
    }
}

/// Returns the text in which the answer is sought: the last text that is not blank.
pub(super) fn answer(mut said: Vec<Cow<'_, str>>) -> Cow<'_, str> {
    let at = said.iter().rposition(|text| !text.trim().is_empty());
    at.map_or(Cow::Borrowed(""), |at| said.swap_remove(at))
}

/// Returns whether a text, which may be escaped, could be the JSON of messages, judging by its start. Most texts fail this test.
pub(super) fn may_be_chat(text: &str) -> bool {
    let start = text.trim_start();
    let begins = |begin: &&str| start.starts_with(*begin);
    ["[{", "{\\\"", "{\""].iter().any(begins)
}

/// Returns the texts that the policy wrote. A completion is a text, a number, the messages of a chat, one message, the JSON of
/// messages in a string, or a list of one completion. The error describes a value of another shape.
fn said(raw: &str, depth: usize) -> Result<Vec<Cow<'_, str>>, String> {
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    match cell::type_of(raw) {
        JsonType::Null => Ok(Vec::new()),
        JsonType::Bool | JsonType::Number => Ok(vec![raw.into()]),
        JsonType::Object => chat(raw, &[raw]),
        JsonType::String => {
            let text = json::text(raw);
            // A box in the text of a tool would be taken for the policy's.
            let begins = |[author, content]: [&str; 2]| {
                text.starts_with(&format!("[{{'{author}': '"))
                    && text.contains(&format!("'{content}': "))
            };
            let is_printed = text.starts_with("[{'") && text.trim_end().ends_with("}]");
            if is_printed && (begins(["role", "content"]) || begins(["from", "value"])) {
                let what = "messages as Python prints them (`json.dumps` writes them as JSON)";
                return Err(what.to_string());
            }
            let chat = may_be_chat(&raw[1..]).then(|| chat_in(&text)).flatten();
            Ok(chat.unwrap_or_else(|| vec![text]))
        }
        JsonType::Array => match &json::elements(raw).unwrap_or_default()[..] {
            [only] if matches!(cell::type_of(only), JsonType::String | JsonType::Array) => {
                said(only, depth)
            }
            all => chat(raw, all),
        },
    }
}

fn too_deep() -> String {
    format!("a value nested more than {DEPTH} deep")
}

/// Returns the texts that the policy wrote if `text` is the JSON of messages, and `None` for any other text, so that an answer in
/// JSON stays unchanged.
fn chat_in(text: &str) -> Option<Vec<Cow<'static, str>>> {
    let text = text.trim();
    let all = match cell::type_of(text) {
        JsonType::Array => json::elements(text)?,
        _ => vec![text],
    };
    let is = |names: &[&str]| {
        let has_name = |raw: &&str| {
            let fields = json::fields(raw).unwrap_or_default();
            names.iter().any(|name| string(&fields, name).is_some())
        };
        !all.is_empty() && all.iter().all(has_name)
    };
    let said = is(&["role", "from", "type"]).then(|| chat(text, &all).ok())??;
    let said = said.into_iter().map(|text| Cow::Owned(text.into_owned()));
    let said: Vec<Cow<str>> = said.collect();
    // If no text was found, objects with only a `type` are not a chat, because an answer in JSON may have a `type`.
    (!said.is_empty() || is(&["role", "from"])).then_some(said)
}

fn has(fields: &Fields, names: &str) -> bool {
    let mut names = names.split(' ');
    names.any(|name| json::value_of(fields, name).is_some())
}

fn string<'a>(fields: &Fields<'a>, name: &str) -> Option<Cow<'a, str>> {
    let raw = json::value_of(fields, name)?;
    (cell::type_of(raw) == JsonType::String).then(|| json::text(raw))
}

/// Returns the messages of a chat as one text, with its role before each message if there are several. A chat with fields other
/// than roles and texts stays in JSON, because prompts that differ only in these fields form different groups.
fn text_of_chat(raw: &str) -> Option<String> {
    let messages: Vec<Map<String, Json>> = serde_json::from_str(raw).ok()?;
    let text = |message: &Map<String, Json>| -> Option<String> {
        let content = message.get("content")?.as_str()?;
        match message.get("role") {
            // Nulls are skipped, because in rows of a table a message has null for fields that only other messages have.
            _ if message.values().filter(|value| !value.is_null()).count() > 2 => None,
            Some(role) if messages.len() > 1 => Some(format!("{}: {content}", role.as_str()?)),
            _ => Some(content.to_string()),
        }
    };
    let texts: Option<Vec<String>> = messages.iter().map(text).collect();
    Some(texts.map_or(raw.to_string(), |texts| texts.join("\n")))
}

/// Returns the texts of the assistant's messages. `raw` is the whole chat, for errors.
fn chat<'a>(raw: &str, messages: &[&'a str]) -> Result<Vec<Cow<'a, str>>, String> {
    let (mut said, mut stranger) = (Vec::new(), None);
    for message in messages {
        let fields = match cell::type_of(message) {
            JsonType::Object => json::fields(message).map_err(|_| describe(raw))?,
            _ => return Err(describe(raw)),
        };
        let kind = string(&fields, "type").filter(|kind| !TEXT.contains(&&**kind));
        let who = string(&fields, "role").or_else(|| string(&fields, "from"));
        let who = who.or(kind).map(|who| who.to_ascii_lowercase());
        match who.as_deref() {
            Some(who) if !ASSISTANT.contains(&who) => {
                let is_call = who.ends_with("_call") || who.ends_with("_output");
                let is_known = is_call || OTHERS.split(' ').any(|other| other == who);
                stranger = stranger.or((!is_known).then(|| who.to_string()));
            }
            // An object without an author is a message only if it has `content`, and a part only if it has `type`.
            None if !has(&fields, "content type") => return Err(describe(raw)),
            // The channel in which OpenAI's open models write their reasoning is skipped.
            _ if string(&fields, "channel").as_deref() == Some("analysis") => {}
            _ => said.push(content(&fields)?),
        }
    }
    match stranger {
        Some(role) if said.is_empty() => Err(format!(
            "messages with the role `{role}`, but none with `assistant` (or {})",
            ASSISTANT[1..].join(", ")
        )),
        _ => Ok(said),
    }
}

/// Returns the value that holds the text of a message or of a part: the first that is not null, or else null.
fn content_of<'a>(fields: &Fields<'a>) -> Option<&'a str> {
    let mut values = CONTENT
        .iter()
        .filter_map(|name| json::value_of(fields, name));
    values.clone().find(|raw| *raw != "null").or(values.next())
}

/// Returns the text of a message.
fn content<'a>(fields: &Fields<'a>) -> Result<Cow<'a, str>, String> {
    let mut strange = None;
    let text = match content_of(fields) {
        Some(raw) => text_of(raw, &mut strange, DEPTH)?,
        None if has(fields, NO_CONTENT) => None,
        None => return Err("a message without `content`".to_string()),
    };
    match strange.filter(|_| text.is_none()) {
        Some(part) => Err(format!(
            "a message without a text, whose content holds {}",
            cell::shorten(part, 60)
        )),
        None => Ok(text.unwrap_or_default()),
    }
}

/// Returns the text of a message's content, or of a part of it; `None` if it is an image, a call or a thought. `strange` is a part
/// of an unknown form.
fn text_of<'a>(
    raw: &'a str,
    strange: &mut Option<&'a str>,
    depth: usize,
) -> Result<Option<Cow<'a, str>>, String> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(format!(
            "a message whose content is nested more than {DEPTH} deep"
        ));
    };
    let fields = match cell::type_of(raw) {
        JsonType::Null => return Ok(None),
        JsonType::String => return Ok(Some(json::text(raw))),
        JsonType::Object => json::fields(raw).unwrap_or_default(),
        JsonType::Array => {
            let parts = json::elements(raw).unwrap_or_default().into_iter();
            let texts = parts.filter_map(|part| text_of(part, strange, depth).transpose());
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            return Ok((!texts.is_empty()).then(|| texts.join("\n").into()));
        }
        _ => return Err(format!("a message whose content holds {raw}")),
    };
    let kind = string(&fields, "type").filter(|kind| !TEXT.contains(&&**kind));
    if json::value_of(&fields, "thought") == Some("true") {
        return Ok(None);
    }
    if let Some(text) = content_of(&fields).filter(|_| kind.is_none()) {
        return text_of(text, strange, depth);
    }
    // Without a type, the name of a part's field says what the part is, as in `functionCall`.
    let names = fields.iter().map(|(name, _)| json::text(name));
    let names = kind.map_or(names.collect(), |kind| vec![kind]);
    let is_known = |name: &str| NO_TEXT.split(' ').any(|known| name.contains(known));
    if !names
        .iter()
        .any(|name| is_known(&name.to_ascii_lowercase()))
    {
        strange.get_or_insert(raw);
    }
    Ok(None)
}

/// Returns the reference: a text, a number, a list of one reference, or an object with the reference in one of the fields
/// [`REFERENCES`]. A list of several texts or numbers becomes a list of texts, because each of them is a correct answer (see
/// `batch::references`). Returns `None` if the value is null or an empty list; the error describes a value of another shape.
pub(super) fn reference(raw: &str) -> Result<Option<Cow<'_, str>>, String> {
    reference_within(raw, DEPTH)
}

fn reference_within(raw: &str, depth: usize) -> Result<Option<Cow<'_, str>>, String> {
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    let reference = |raw| reference_within(raw, depth);
    match cell::type_of(raw) {
        JsonType::Null => Ok(None),
        JsonType::Bool | JsonType::Number => Ok(Some(raw.into())),
        JsonType::String => {
            let text = json::text(raw);
            // A text without quotes is not parsed as JSON, because it may be a formula, and `[1, 2]` may be an interval.
            let is_json = text.starts_with(['[', '{']) && text.contains('"');
            let is_json = is_json && serde_json::from_str::<IgnoredAny>(&text).is_ok();
            Ok(match is_json.then(|| reference_within(&text, depth)) {
                Some(Ok(found)) => found.map(|found| found.into_owned().into()),
                _ => Some(text),
            })
        }
        JsonType::Object => {
            let fields = json::fields(raw).unwrap_or_default();
            let values = REFERENCES
                .split(' ')
                .filter_map(|name| json::value_of(&fields, name));
            let mut found = values.map(reference).peekable();
            found.peek().ok_or_else(|| describe(raw))?;
            found.find_map(Result::transpose).transpose()
        }
        JsonType::Array => match &json::elements(raw).unwrap_or_default()[..] {
            [] => Ok(None),
            [only] => reference(only),
            all if all.iter().any(|raw| raw.starts_with(['[', '{'])) => Err(describe(raw)),
            all => {
                let texts = all.iter().filter_map(|raw| reference(raw).transpose());
                let texts = texts.collect::<Result<Vec<_>, _>>()?;
                Ok((!texts.is_empty()).then(|| serde_json::json!(texts).to_string().into()))
            }
        },
    }
}

/// The kind of text that was taken as the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    NoCompletion,
    Answer,
    Spare,
    AnyOfList,
    FieldOfObject,
}

/// The number of times that each choice was made, and the response for which it was first made.
#[derive(Default)]
pub(super) struct Choices(Vec<(Choice, usize, String)>);

impl Choices {
    pub(super) fn add(&mut self, choice: Choice, count: usize, place: String) {
        match self.0.iter_mut().find(|(known, ..)| *known == choice) {
            Some((_, all, _)) => *all += count,
            None => self.0.push((choice, count, place)),
        }
    }

    pub(super) fn notes(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(choice, count, place)| {
            let what = match choice {
                Choice::NoCompletion => {
                    "the completion is null or missing, so it is taken as an empty text"
                }
                Choice::Answer => {
                    "the reference is `answer`, because `solution` is a text that marks no answer"
                }
                Choice::Spare => {
                    "the reference is `answer`, because the field of the reference is blank"
                }
                Choice::AnyOfList => "the reference is a list, any value of which is accepted",
                Choice::FieldOfObject => "the reference is a field of an object",
            };
            format!(
                "{what}: {} (the first: {place})",
                counted(count, "response")
            )
        })
    }
}
