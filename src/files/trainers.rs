//! What is known of trainers' own files: the dumps in `dumps.toml`, lines that hold several responses, folders with other files.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use hmac_sha256::Hash;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json::{self, Type};
use super::names::{Names, REWARDS, Reading, Role, role};
use super::open::{LONGEST_LINE, Lines, in_pieces};

/// The names of our columns in one program's dumps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dump {
    kind: String,
    /// Fields that the first line has, each of one of these types.
    known_by: BTreeMap<String, Vec<Type>>,
    /// Ours, and theirs.
    names: Vec<(String, String)>,
    /// An array with one entry per token of the response, beside the columns that we know.
    tokens: Option<String>,
    /// Each reward function has a column, and the reward is their sum.
    #[serde(default)]
    adds_rewards: bool,
}

static DUMPS: LazyLock<Vec<Dump>> = LazyLock::new(|| {
    let dumps = toml::from_str::<BTreeMap<String, Vec<Dump>>>(include_str!("dumps.toml"));
    let dumps = dumps.unwrap_or_else(|error| unreachable!("dumps.toml: {error}"));
    dumps.into_values().flatten().collect()
});

/// The fields of the first line.
type Fields<'a> = &'a [(String, Type)];

fn type_of(fields: Fields, name: &str) -> Option<Type> {
    let mut fields = fields.iter();
    Some(fields.find(|(field, _)| field == name)?.1)
}

impl Dump {
    fn fits(&self, fields: Fields) -> bool {
        let has = |name: &str| type_of(fields, name);
        let mut known_by = self.known_by.iter();
        known_by.all(|(name, types)| has(name).is_some_and(|found| types.contains(&found)))
            && !(self.adds_rewards && REWARDS.iter().any(|name| has(name).is_some()))
    }

    /// The columns whose sum is the reward: those with `reward` in their name, or else all unknown numbers, since a model that
    /// judges is called by its name.
    fn summands(fields: Fields) -> Vec<String> {
        let is_unknown = |(name, found): &&(String, Type)| {
            matches!(found, Type::Number | Type::Null)
                && role(name) == Role::Any
                && name != "advantage"
        };
        let unknown = fields.iter().filter(is_unknown);
        let mut rewards: Vec<String> = unknown.map(|(name, _)| name.clone()).collect();
        if rewards.iter().any(|name| name.contains("reward")) {
            rewards.retain(|name| name.contains("reward"));
        }
        rewards
    }
}

impl Names {
    /// Adds the names of a known dump if the first line looks like one. What the user has mapped stays as it is, and
    /// so does a field that has one of our names by itself.
    pub(super) fn recognise(&mut self, fields: Fields) {
        let has = |name: &str| type_of(fields, name);
        let dump = DUMPS.iter().find(|dump| dump.fits(fields));
        let Some(dump) = dump.filter(|_| has("group").is_none()) else {
            return;
        };
        let mut taken = Vec::new();
        for (ours, theirs) in &dump.names {
            let Some(found) = has(theirs) else { continue };
            let is_usable = match (ours.as_str(), role(ours)) {
                // Some reward functions give `acc` as a share; only a boolean is a verdict.
                ("correct", _) => found == Type::Bool,
                (_, Role::Response) => found == Type::Number,
                (_, Role::Token | Role::Mask) => found == Type::Array,
                _ => true,
            };
            let is_free = self.reading(ours).is_none() && (ours == theirs || has(ours).is_none());
            if is_usable && is_free {
                self.are_dumped |= ours == "group";
                self.readings.push(Reading::new(ours, theirs, false));
                if !matches!(ours.as_str(), "prompt" | "solution") {
                    taken.push(format!("{ours} = `{theirs}`"));
                }
            }
        }
        if dump.adds_rewards && self.reading("reward").is_none() {
            self.rewards = Dump::summands(fields);
            taken.push(format!("reward = `{}`", self.rewards.join("` + `")));
        }
        if let Some(tokens) = dump.tokens.as_deref().filter(|name| has(name).is_some())
            && self.reading(tokens).is_none()
        {
            let mut reading = Reading::new(tokens, tokens, false);
            reading.role = Role::Token;
            self.readings.push(reading);
        }
        let taken = taken.join(", ");
        self.note = Some(format!("read as a dump of {}: {taken}", dump.kind));
    }
}

/// The folder of a step's rollouts: prime-rl keeps those that its trainer used beside all others.
pub(super) fn folder_of_rollouts(folder: &Path) -> PathBuf {
    let used = folder.join("train/effective");
    if used.is_dir() { used } else { folder.into() }
}

/// Whether a file of lines holds figures and no rollouts: SkyRL's of all its evaluations.
pub(super) fn is_summary(file: &Path) -> bool {
    file.ends_with("aggregated_results.jsonl")
}

/// Lines, one response each, that are made of one line.
type Rows = Box<dyn Iterator<Item = String> + Send>;

/// Makes lines of a trainer's line; `None` if that is not what it seemed.
type Unfold = fn(&str) -> Option<Rows>;

/// Text as lines with one response each: as it is, unless the first line is one of a trainer that writes several responses a
/// line, or in numbers of its own.
pub(super) fn unfolded<'a>(text: impl Read + Send + 'a) -> io::Result<Lines<'a>> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let mut first = Vec::new();
    let mut start = 0;
    // Blank lines stay: they are numbered too.
    while first[start..].trim_ascii().is_empty() && (first.len() as u64) < LONGEST_LINE {
        start = first.len();
        if (&mut text)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut first)?
            == 0
        {
            break;
        }
    }
    let unfold = std::str::from_utf8(&first[start..])
        .ok()
        .and_then(unfold_of);
    let mut lines = io::Cursor::new(first).chain(text);
    let Some(unfold) = unfold else {
        return Ok(Box::new(lines));
    };
    let mut rows: Rows = Box::new(std::iter::empty());
    Ok(in_pieces(std::iter::from_fn(move || {
        loop {
            if let Some(row) = rows.next() {
                return Some(Ok(row + "\n"));
            }
            let mut line = String::new();
            match (&mut lines).take(LONGEST_LINE).read_line(&mut line) {
                Ok(0) => return None,
                Err(error) => return Some(Err(error)),
                Ok(_) => match unfold(&line) {
                    Some(unfolded) => rows = unfolded,
                    // Its reader says what is wrong with it.
                    None => return Some(Ok(line)),
                },
            }
        }
    })))
}

/// What unfolds the lines of a file that begins with this one.
fn unfold_of(first: &str) -> Option<Unfold> {
    let fields = json::types(first).ok()?;
    let has = |name: &str, kind: Type| type_of(&fields, name) == Some(kind);
    let is_columns = has("responses", Type::Array) && has("scores", Type::Array)
        || has("content", Type::Array) && has("rewards", Type::Array);
    match () {
        () if is_columns => Some(columns),
        () if has("traces", Type::Array) && has("task", Type::Object) => Some(episode),
        () if has("seqlen", Type::Number) && has("prompt_len", Type::Number) => Some(length),
        () => None,
    }
}

/// A line of ROLL or NeMo-RL: arrays with a value per response, beside values for all of them. Rows are made one by one: what
/// they share may be long.
fn columns(line: &str) -> Option<Rows> {
    let fields = json::fields(line).ok()?;
    let of = |name: &str| {
        let (_, raw) = fields.iter().find(|(key, _)| json::is_key(key, name))?;
        json::elements(raw)
    };
    let rows = of("rewards").or_else(|| of("scores"))?.len();
    let owned = |values: Vec<&str>| values.into_iter().map(str::to_string).collect();
    let columns = fields.iter().map(|(key, raw)| {
        let values = json::elements(raw).filter(|values| values.len() == rows);
        (key.to_string(), owned(values.unwrap_or(vec![*raw])))
    });
    let columns: Vec<(String, Vec<String>)> = columns.collect();
    let row = move |row: usize| {
        let value = |values: &'_ Vec<String>| values.get(row).or(values.first()).cloned();
        let fields = columns.iter().map(|(key, values)| {
            let value = value(values).unwrap_or_default();
            (key.clone(), value)
        });
        let mut fields: Vec<(String, String)> = fields.collect();
        if let Some(name) = prompt_hash(&fields) {
            fields.push(("\"prompt_hash\"".to_string(), format!("\"{name}\"")));
        }
        let fields = fields.iter().map(|(key, value)| format!("{key}: {value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
    };
    Some(Box::new((0..rows).map(row)))
}

/// NeMo-RL's groups are the responses to the same tokens: a name for those of a row.
fn prompt_hash(fields: &[(String, String)]) -> Option<String> {
    let of = |name: &str| {
        let (_, raw) = fields.iter().find(|(key, _)| json::is_key(key, name))?;
        json::elements(raw)
    };
    let (tokens, mask) = (of("token_ids")?, of("token_loss_mask")?);
    let mut counts = mask.iter().map(|counts| counts.starts_with(['1', 't']));
    let prompt = counts.position(|counts| counts).unwrap_or(mask.len());
    let hash = Hash::hash(tokens.get(..prompt)?.join(",").as_bytes());
    Some(hash[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A line of AReaL, which counts the tokens of prompt and response together.
fn length(line: &str) -> Option<Rows> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let of = |name: &str| line.get(name)?.as_u64();
    let length = of("seqlen")?.checked_sub(of("prompt_len")?)?;
    line.insert("length".to_string(), length.into());
    Some(Box::new(std::iter::once(Value::Object(line).to_string())))
}

/// A line of prime-rl: an episode with the traces of its agents, of which those that train the policy become lines.
fn episode(line: &str) -> Option<Rows> {
    let episode: Value = serde_json::from_str(line).ok()?;
    let task = &episode["task"];
    let group = [
        &episode["group"]["id"],
        &task["key"],
        &task["hash"],
        &episode["id"],
    ];
    let group = group.into_iter().find(|id| id.is_string())?;
    let mut rows = Vec::new();
    for trace in episode["traces"].as_array()? {
        let agent = &trace["agent"];
        if agent["trainable"] == json!(false) {
            continue;
        }
        let mut line = Map::new();
        let mut add = |name: &str, value: Value| drop(line.insert(name.to_string(), value));
        add("group_id", group.clone());
        add("episode", episode["id"].clone());
        add("agent", agent["name"].clone());
        if let step @ Value::Number(_) = &episode["run"]["work"]["step"] {
            add("step", step.clone());
        }
        let mut sum = 0.0;
        for (name, reward) in trace["rewards"].as_object().into_iter().flatten() {
            let score = reward["score"].as_f64();
            sum += score.unwrap_or_default() * reward["weight"].as_f64().unwrap_or(1.0);
            add(name, reward["score"].clone());
        }
        for (name, metric) in trace["metrics"].as_object().into_iter().flatten() {
            add(name, metric.clone());
        }
        add("reward", sum.into());
        tokens(trace["nodes"].as_array()?, &mut add);
        rows.push(Value::Object(line).to_string());
    }
    Some(Box::new(rows.into_iter()))
}

/// The messages and the tokens of a trace's nodes: each node has those that it adds, and values of the sampled ones.
fn tokens(nodes: &[Value], add: &mut impl FnMut(&str, Value)) {
    let is_sampled = |node: &Value| node["sampled"] == json!(true);
    let first = nodes.iter().position(is_sampled).unwrap_or(nodes.len());
    let message = |node: &Value| {
        let message = &node["message"];
        json!({"role": message["role"], "content": message["content"]})
    };
    let (prompt, rest) = nodes.split_at(first);
    add("prompt", prompt.iter().map(message).collect());
    let replies = rest.iter().filter(|node| is_sampled(node));
    add("completion", replies.map(message).collect());
    let of = |node: &'_ Value, name: &str| node[name].as_array().cloned().unwrap_or_default();
    let mask: Vec<Value> = rest.iter().flat_map(|node| of(node, "mask")).collect();
    if mask.is_empty() {
        return;
    }
    for (ours, theirs) in [
        ("old_logp", "logprobs"),
        ("advantage", "advantages"),
        ("ref_logp", "reference_logprobs"),
    ] {
        let mut values = rest.iter().flat_map(|node| of(node, theirs));
        let spread = mask.iter().map(|counts| match counts.as_bool() {
            Some(true) => values.next(),
            _ => Some(0.into()),
        });
        if let Some(spread) = spread.collect::<Option<Vec<Value>>>() {
            add(ours, spread.into());
        }
    }
    add("mask", mask.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_columns_stay_as_they_are_written() {
        for (line, rows) in [
            (
                r#"{"responses":["a\ud800\n", "b"],"scores":[1.10,1e999],"\u006b":2.0}"#,
                &[
                    r#"{"responses": "a\ud800\n", "scores": 1.10, "\u006b": 2.0}"#,
                    r#"{"responses": "b", "scores": 1e999, "\u006b": 2.0}"#,
                ],
            ),
            (
                r#"{"content":["c","d"],"rewards":[1.10, NaN],"token_ids":[[1,2.50],[ 3 ]]}"#,
                &[
                    r#"{"content": "c", "rewards": 1.10, "token_ids": [1,2.50]}"#,
                    r#"{"content": "d", "rewards": NaN, "token_ids": [ 3 ]}"#,
                ],
            ),
        ] {
            let mut lines = String::new();
            let read =
                unfolded(line.as_bytes()).and_then(|mut rows| rows.read_to_string(&mut lines));
            assert_eq!(read.ok(), Some(lines.len()), "{line}");
            assert_eq!(lines.lines().collect::<Vec<_>>(), rows, "{line}");
        }
    }
}
