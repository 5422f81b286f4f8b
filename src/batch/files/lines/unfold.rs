//! Lines that hold several responses, or tell of one in numbers of their own, as one line a response: ROLL's and NeMo-RL's
//! columns, prime-rl's episodes, AReaL's lengths. The first line says whose they are.

use std::io::{self, BufRead, BufReader, Read};

use hmac_sha256::Hash;
use serde_json::{Map, Value, json};

use super::rows::Value as Row;
use super::{LONGEST, Lines};
use crate::batch::files::json::{Type, fields};

/// The lines that one line becomes, one a response, row by row: what all of them share would stand there for each.
type Rows = Box<dyn Iterator<Item = String> + Send>;

/// What unfolds a line; `None` where it is not what it seemed.
type Unfold = fn(&str) -> Option<Rows>;

/// The lines of text: as they are, but those of trainers that write several responses a line.
pub(super) fn open<'a>(text: impl Read + Send + 'a) -> io::Result<Lines<'a>> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let mut first = Vec::new();
    while first.trim_ascii().is_empty() {
        if (&mut text).take(LONGEST).read_until(b'\n', &mut first)? == 0 {
            break;
        }
    }
    let unfold = std::str::from_utf8(&first).ok().and_then(kind);
    let whole = io::Cursor::new(first).chain(text);
    Ok(match unfold {
        None => Box::new(whole),
        Some(unfold) => Box::new(Unfolded {
            lines: whole,
            unfold,
            rows: Box::new(std::iter::empty()),
            out: String::new(),
            at: 0,
        }),
    })
}

/// What unfolds the lines of a file that begins with this one.
fn kind(first: &str) -> Option<Unfold> {
    let fields = fields(first).ok()?;
    let has = |name: &str, kind: Type| fields.contains(&(name.to_string(), kind));
    let is_columns = has("responses", Type::Array) && has("scores", Type::Array)
        || has("content", Type::Array) && has("rewards", Type::Array);
    let unfold: Unfold = match () {
        () if is_columns => columns,
        () if has("traces", Type::Array) && has("task", Type::Object) => episode,
        () if has("seqlen", Type::Number) && has("prompt_len", Type::Number) => length,
        () => return None,
    };
    Some(unfold)
}

struct Unfolded<R> {
    lines: R,
    unfold: Unfold,
    /// What is left of the last line.
    rows: Rows,
    /// The row that is read, and how much of it has been.
    out: String,
    at: usize,
}

impl<R: BufRead> Read for Unfolded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            self.at = 0;
            self.out.clear();
            if let Some(row) = self.rows.next() {
                self.out = row;
                continue;
            }
            if (&mut self.lines).take(LONGEST).read_line(&mut self.out)? == 0 {
                return Ok(0);
            }
            // Who reads what is not unfolded says what is wrong with it.
            if let Some(rows) = (self.unfold)(&self.out) {
                self.rows = rows;
                self.out.clear();
            }
        }
        let read = (&self.out.as_bytes()[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

/// The fields of a line.
type Fields = Vec<(String, Row)>;

fn list<'a>(fields: &'a Fields, name: &str) -> Option<&'a [Row]> {
    match fields.iter().find(|(field, _)| field == name)? {
        (_, Row::List(values)) => Some(values),
        _ => None,
    }
}

/// A line of columns: lists with a value for each response, beside values for all of them.
fn columns(line: &str) -> Option<Rows> {
    let fields = Row::of_line(line).ok()?;
    let rewards = list(&fields, "rewards").or(list(&fields, "scores"));
    let rows = rewards?.len();
    Some(Box::new((0..rows).map(move |row| {
        let values = fields.iter().map(|(name, value)| match value {
            Row::List(values) if values.len() == rows => (name, &values[row]),
            value => (name, value),
        });
        let mut parts: Vec<String> = values
            .map(|(name, value)| format!("{}: {value}", json!(name)))
            .collect();
        let prompt = prompt(&fields, row);
        parts.extend(prompt.map(|name| format!("\"prompt_hash\": \"{name}\"")));
        format!("{{{}}}\n", parts.join(", "))
    })))
}

/// NeMo-RL's groups are the responses to the same tokens: a name for those of a row.
fn prompt(fields: &Fields, row: usize) -> Option<String> {
    let of = |name| match list(fields, name)?.get(row)? {
        Row::List(values) => Some(values),
        _ => None,
    };
    let (tokens, mask) = (of("token_ids")?, of("token_loss_mask")?);
    let is_first = |counts: &Row| counts.to_string().starts_with(['1', 't']);
    let prompt = mask.iter().position(is_first).unwrap_or(mask.len());
    let tokens: Vec<String> = tokens.get(..prompt)?.iter().map(Row::to_string).collect();
    let hash = Hash::hash(tokens.join(",").as_bytes());
    Some(hash[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A line of AReaL's, which counts the tokens of prompt and response together.
fn length(line: &str) -> Option<Rows> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let of = |name: &str| line.get(name)?.as_u64();
    let length = of("seqlen")?.checked_sub(of("prompt_len")?)?;
    line.insert("length".to_string(), length.into());
    Some(Box::new(std::iter::once(format!(
        "{}\n",
        Value::Object(line)
    ))))
}

/// A line of prime-rl's: an episode with the traces of its agents, of which those that train the policy become lines.
fn episode(line: &str) -> Option<Rows> {
    let mut rows = Vec::new();
    let episode: Value = serde_json::from_str(line).ok()?;
    let task = &episode["task"];
    let group = [
        &episode["group"]["id"],
        &task["key"],
        &task["hash"],
        &episode["id"],
    ];
    let group = group.into_iter().find(|id| id.is_string())?;
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
        rows.push(format!("{}\n", Value::Object(line)));
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
