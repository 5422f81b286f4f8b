//! Lines that hold several responses, or tell of one in numbers of their own, as one line a response: ROLL's and NeMo-RL's
//! columns, prime-rl's episodes, AReaL's lengths. The first line says whose they are.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;

use hmac_sha256::Hash;
use serde_json::{Map, Value, json};

use super::{LONGEST, Lines};
use crate::batch::files::json::{Cursor, Type, fields};

/// What makes one line a response of a line of a file.
#[derive(Clone, Copy)]
enum Unfold {
    /// Row by row: what all of them share would stand there for each.
    Columns,
    /// At once; `None` where the line is not what it seemed.
    Whole(fn(&str, &mut Vec<u8>) -> Option<()>),
}

/// The lines of text: as they are, but those of trainers that write several responses a line.
pub(super) fn open<'a>(text: impl Read + Send + 'a) -> io::Result<Lines<'a>> {
    let mut text = BufReader::with_capacity(1 << 20, text);
    let mut first = Vec::new();
    let mut start = 0;
    // Blank lines stay: they are numbered too.
    while first[start..].trim_ascii().is_empty() && (first.len() as u64) < LONGEST {
        start = first.len();
        if (&mut text).take(LONGEST).read_until(b'\n', &mut first)? == 0 {
            break;
        }
    }
    let unfold = std::str::from_utf8(&first[start..]).ok().and_then(kind);
    let whole = io::Cursor::new(first).chain(text);
    Ok(match unfold {
        None => Box::new(whole),
        Some(unfold) => Box::new(Unfolded {
            lines: whole,
            unfold,
            line: String::new(),
            columns: None,
            out: Vec::new(),
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
    match () {
        () if is_columns => Some(Unfold::Columns),
        () if has("traces", Type::Array) && has("task", Type::Object) => {
            Some(Unfold::Whole(episode))
        }
        () if has("seqlen", Type::Number) && has("prompt_len", Type::Number) => {
            Some(Unfold::Whole(length))
        }
        () => None,
    }
}

struct Unfolded<R> {
    lines: R,
    unfold: Unfold,
    line: String,
    /// The columns of the line, of which rows may be left.
    columns: Option<Columns>,
    /// What has become of the line, and how much of that has been read.
    out: Vec<u8>,
    at: usize,
}

impl<R: BufRead> Read for Unfolded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
            if let Some(columns) = &mut self.columns
                && columns.row < columns.rows
            {
                columns.write_row(&self.line, &mut self.out);
                continue;
            }
            self.line.clear();
            if (&mut self.lines).take(LONGEST).read_line(&mut self.line)? == 0 {
                return Ok(0);
            }
            let unfolded = match self.unfold {
                Unfold::Columns => {
                    self.columns = Columns::of(&self.line);
                    self.columns.is_some()
                }
                Unfold::Whole(unfold) => unfold(&self.line, &mut self.out).is_some(),
            };
            if !unfolded {
                // Who reads it says what is wrong with it.
                self.out.clear();
                self.out.extend_from_slice(self.line.as_bytes());
            }
        }
        let read = (&self.out[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

/// The values of an array as they stand in the line.
fn elements(array: &str) -> Option<Vec<&str>> {
    let mut elements = Vec::new();
    let mut cursor = Cursor::new(array);
    cursor
        .elements(|start, end| elements.push(&array[start..end]))
        .ok()?;
    Some(elements)
}

/// Where something stands in a line.
type Place = Range<usize>;

/// A line of columns: arrays with a value for each response, beside values for all of them.
struct Columns {
    /// Where the key and the value of each stand in the line, and the elements of an array.
    columns: Vec<(Place, Place, Option<Vec<Place>>)>,
    rows: usize,
    /// The next row.
    row: usize,
}

impl Columns {
    fn of(line: &str) -> Option<Columns> {
        let mut columns = Vec::new();
        let read = Cursor::new(line).object(|cursor, key| {
            let (start, kind) = (cursor.at, cursor.value_type());
            cursor.skip(0)?;
            let mut values = Vec::new();
            let mut array = Cursor::new(&line[start..cursor.at]);
            let is_array = kind == Type::Array
                && array
                    .elements(|from, to| values.push(start + from..start + to))
                    .is_ok();
            columns.push((key, start..cursor.at, is_array.then_some(values)));
            Ok(())
        });
        read.ok()?;
        let mut columns = Columns {
            columns,
            rows: 0,
            row: 0,
        };
        let rewards = columns.column(line, "rewards");
        columns.rows = rewards.or(columns.column(line, "scores"))?.len();
        Some(columns)
    }

    fn column(&self, line: &str, name: &str) -> Option<&Vec<Place>> {
        let mut columns = self.columns.iter();
        columns
            .find(|column| &line[column.0.clone()] == name)?
            .2
            .as_ref()
    }

    /// Writes the line of the next row.
    fn write_row(&mut self, line: &str, out: &mut Vec<u8>) {
        let mut separator = "{";
        let mut add = |key: &str, value: &str| {
            for part in [separator, "\"", key, "\": ", value] {
                out.extend_from_slice(part.as_bytes());
            }
            separator = ", ";
        };
        for (key, value, values) in &self.columns {
            let values = values.as_ref().filter(|values| values.len() == self.rows);
            let value = values.map_or(value, |values| &values[self.row]);
            add(&line[key.clone()], &line[value.clone()]);
        }
        if let Some(name) = self.prompt(line) {
            add("prompt_hash", &format!("\"{name}\""));
        }
        out.extend_from_slice(b"}\n");
        self.row += 1;
    }

    /// NeMo-RL's groups are the responses to the same tokens: a name for those of the next row.
    fn prompt(&self, line: &str) -> Option<String> {
        let of = |name| {
            let values = self.column(line, name)?;
            elements(&line[values.get(self.row)?.clone()])
        };
        let (tokens, mask) = (of("token_ids")?, of("token_loss_mask")?);
        let is_first = |counts: &&str| counts.starts_with(['1', 't']);
        let prompt = mask.iter().position(is_first).unwrap_or(mask.len());
        let hash = Hash::hash(tokens.get(..prompt)?.join(",").as_bytes());
        Some(hash[..6].iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// A line of AReaL's, which counts the tokens of prompt and response together.
fn length(line: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let of = |name: &str| line.get(name)?.as_u64();
    let length = of("seqlen")?.checked_sub(of("prompt_len")?)?;
    line.insert("length".to_string(), length.into());
    write(&Value::Object(line), out)
}

fn write(line: &Value, out: &mut Vec<u8>) -> Option<()> {
    serde_json::to_writer(&mut *out, line).ok()?;
    out.push(b'\n');
    Some(())
}

/// A line of prime-rl's: an episode with the traces of its agents, of which those that train the policy become lines.
fn episode(line: &str, out: &mut Vec<u8>) -> Option<()> {
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
        write(&Value::Object(line), out)?;
    }
    Some(())
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
                r#"{"content":["c","d"],"rewards":[1.10, -0],"token_ids":[[1,2.50],[ 3 ]]}"#,
                &[
                    r#"{"content": "c", "rewards": 1.10, "token_ids": [1,2.50]}"#,
                    r#"{"content": "d", "rewards": -0, "token_ids": [ 3 ]}"#,
                ],
            ),
        ] {
            let mut unfolded = String::new();
            let read =
                open(line.as_bytes()).and_then(|mut lines| lines.read_to_string(&mut unfolded));
            assert_eq!(read.ok(), Some(unfolded.len()), "{line}");
            assert_eq!(unfolded.lines().collect::<Vec<_>>(), rows, "{line}");
        }
    }
}
