//! Converts trainers' lines, which may hold several responses or numbers in a form of their own, to one line per response.

use hmac_sha256::Hash;
use serde_json::{Map, Value, json};

use super::cell::{
    self,
    JsonType::{self, Array, Number, Object},
};
use super::json;
use super::messages::REFERENCES;

/// The per-response lines that one line of a trainer expands to.
pub(super) type Rows = Box<dyn Iterator<Item = String> + Send>;

/// A function that splits a trainer's line into one line per response; it returns `None` for a line of another form.
pub(super) type Unfold = fn(&str) -> Option<Rows>;

/// Returns the function that splits the lines of a file, chosen by the file's first line. A line of a data set is one response if
/// the user names a completion that the line has only once.
pub(super) fn unfold_of(first: &str, completion: Option<&str>) -> Option<Unfold> {
    let fields = json::fields(first).ok()?;
    let is_split =
        |all: Vec<&str>| completion.is_none_or(|name| split_of(&fields, name, all.len()).is_some());
    let of = |name: &str| json::value_of(&fields, name).map(cell::type_of);
    let has = |name: &str, kind: JsonType| of(name) == Some(kind);
    if responses(&fields).is_some_and(is_split) {
        return Some(columns);
    }
    let known: [([(&str, JsonType); 2], Unfold); 7] = [
        ([("responses", Array), ("scores", Array)], columns),
        ([("responses", Array), ("rewards", Array)], columns),
        ([("content", Array), ("rewards", Array)], columns),
        ([("step", Array), ("completion", Array)], columns),
        ([("traces", Array), ("task", Object)], episode),
        ([("seqlen", Number), ("prompt_len", Number)], length),
        ([("traj_idx", Number), ("steps", Array)], trajectory),
    ];
    let fits = |fields: &[(&str, JsonType)]| fields.iter().all(|(name, kind)| has(name, *kind));
    Some(known.iter().find(|(fields, _)| fits(fields))?.1)
}

/// Returns whether a line holds several responses that a sampling script or a data set wrote into one line.
#[cfg(feature = "parquet")]
pub(super) fn holds_several(line: &str) -> bool {
    json::fields(line).is_ok_and(|fields| responses(&fields).is_some())
}

/// Returns the responses that a sampling script or a data set wrote into one line, as texts or lists of messages. A line with one
/// completion or one score is a single response, whatever other texts the line has.
fn responses<'a>(fields: &[(&str, &'a str)]) -> Option<Vec<&'a str>> {
    let raw = |name: &str| json::value_of(fields, name);
    let is_score = |name| {
        let kind = raw(name).map(cell::type_of);
        matches!(kind, Some(JsonType::Number | JsonType::Bool))
    };
    if raw("completion").is_some() || ["reward", "score", "correct"].into_iter().any(is_score) {
        return None;
    }
    let generations = raw("problem").and(raw("generations"));
    let is_verl = raw("data_source").and(raw("reward_model"));
    let of_verl = is_verl.and(raw("responses"));
    let found = json::elements(raw("completions").or(generations).or(of_verl)?)?;
    // Objects are the messages of a single response.
    let are_responses = found.iter().all(|text| text.starts_with(['"', '[']));
    (are_responses && !found.is_empty()).then_some(found)
}

/// Returns the values of an array with a value for each response. The messages of a prompt are shared by the responses, even if
/// there are as many messages as responses.
fn split(raw: &str, responses: usize) -> Option<Vec<&str>> {
    let is_message = |value: &&str| value.starts_with('{') && value.contains("\"role\"");
    json::elements(raw).filter(|all| all.len() == responses && !all.iter().any(is_message))
}

fn split_of<'a>(fields: &[(&str, &'a str)], name: &str, responses: usize) -> Option<Vec<&'a str>> {
    split(json::value_of(fields, name)?, responses)
}

/// Splits a line of ROLL, NeMo-RL, ms-swift, a sampling script or a data set: an array with one value per response is split, and all
/// responses share the other values. The references of a line with one prompt are shared too, because each of them is right for
/// each response. Rows are made one by one, because each copies the shared values, which may be long.
fn columns(line: &str) -> Option<Rows> {
    let fields = json::fields(line).ok()?;
    let of = |name: &str| json::elements(json::value_of(&fields, name)?);
    let is_empty = |name| {
        let raw = json::value_of(&fields, name).unwrap_or("1");
        raw == "null" || json::elements(raw).is_some_and(|all| all.is_empty())
    };
    let one_each = || ["rewards", "scores", "step"].into_iter().find_map(of);
    let rows = match responses(&fields).or_else(one_each) {
        Some(rows) => rows.len(),
        None => {
            // A prompt without responses has no rows.
            let mut names = ["completions", "generations", "responses"].into_iter();
            names.find(|name| is_empty(name)).map(|_| 0)?
        }
    };
    let is_split = |name| split_of(&fields, name, rows).is_some();
    let has_one_prompt = !is_split("prompt") && !is_split("problem");
    let is_shared = |key: &str, values: &[&str]| {
        let mut names = REFERENCES.split(' ').filter(|_| has_one_prompt);
        names.any(|name| name == key.trim_matches('"')) && !values[0].starts_with('[')
    };
    let columns = fields.into_iter().map(|(key, raw)| {
        let values = split(raw, rows).filter(|values| !is_shared(key, values));
        let values = values.unwrap_or(vec![raw]).into_iter();
        (key.to_string(), values.map(str::to_string).collect())
    });
    let columns: Vec<(String, Vec<String>)> = columns.collect();
    let row = move |row: usize| {
        let fields = columns.iter().filter_map(|(key, values)| {
            let value = values.get(row).or(values.first())?;
            Some((key.as_str(), value.as_str()))
        });
        let fields: Vec<(&str, &str)> = fields.collect();
        let hash = prompt_hash(&fields).map(|name| format!("\"prompt_hash\": \"{name}\""));
        let fields = fields.iter().map(|(key, value)| format!("{key}: {value}"));
        format!("{{{}}}", fields.chain(hash).collect::<Vec<_>>().join(", "))
    };
    Some(Box::new((0..rows).map(row)))
}

/// Returns the name of a row's group in NeMo-RL, where responses to the same prompt tokens form a group; `None` for other rows.
fn prompt_hash(fields: &[(&str, &str)]) -> Option<String> {
    let of = |name: &str| json::elements(json::value_of(fields, name)?);
    let (tokens, mask) = (of("token_ids")?, of("token_loss_mask")?);
    let mut counts = mask.iter().map(|counts| counts.starts_with(['1', 't']));
    let prompt = counts.position(|counts| counts).unwrap_or(mask.len());
    let hash = Hash::hash(tokens.get(..prompt)?.join(",").as_bytes());
    Some(hash[..6].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Adds `length` to a line of AReaL, the number of sampled tokens: `version_rle` has their number for each version of the policy.
/// Lines without it have `seqlen`, which counts the tokens of prompt and response together.
fn length(line: &str) -> Option<Rows> {
    let mut line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let of = |name: &str| line.get(name)?.as_u64();
    let runs = line.get("version_rle").and_then(Value::as_array);
    let sampled = runs.and_then(|runs| runs.iter().map(|run| run[1].as_u64()).sum());
    let length = sampled.or(of("seqlen")?.checked_sub(of("prompt_len")?))?;
    line.insert("length".to_string(), length.into());
    Some(Box::new(std::iter::once(Value::Object(line).to_string())))
}

/// Adds to a line of Tinker's cookbook (a trajectory) the columns that Tinker's adapter gives a recipe: `length`, the number of
/// tokens of all turns; and each log or metric of the environment, from the trajectory or else from the last turn that has it.
fn trajectory(line: &str) -> Option<Rows> {
    let line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let steps = line.get("steps")?.as_array()?.iter();
    let mut counts = steps.clone().map(|step| step["ac_len"].as_u64());
    let length = counts.try_fold(0u64, |sum, count| sum.checked_add(count?))?;
    let of_turns = steps.flat_map(|step| [&step["logs"], &step["metrics"]]);
    let reported = of_turns.chain(line.get("trajectory_metrics"));
    let reported = reported.filter_map(Value::as_object).flatten();
    let mut row: Map<String, Value> = reported
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    row.insert("length".to_string(), length.into());
    row.extend(line);
    row.remove("steps");
    Some(Box::new(std::iter::once(Value::Object(row).to_string())))
}

/// Splits a line of prime-rl, which is an episode with the traces of its agents. Each trace that trains the policy becomes a
/// line.
fn episode(line: &str) -> Option<Rows> {
    let episode: Value = serde_json::from_str(line).ok()?;
    let (id, task) = (&episode["id"], &episode["task"]);
    let mut group = [&episode["group"]["id"], &task["key"], &task["hash"], id].into_iter();
    let group = group.find(|id| id.is_string())?;
    let mut rows = Vec::new();
    for trace in episode["traces"].as_array()? {
        let agent = &trace["agent"];
        if agent["trainable"] == json!(false) {
            continue;
        }
        let mut line = json!({"group_id": group, "episode": id, "agent": agent["name"]});
        if let step @ Value::Number(_) = &episode["run"]["work"]["step"] {
            line["step"] = step.clone();
        }
        let mut sum = 0.0;
        for (name, reward) in trace["rewards"].as_object().into_iter().flatten() {
            let score = reward["score"].as_f64();
            sum += score.unwrap_or_default() * reward["weight"].as_f64().unwrap_or(1.0);
            line[name] = reward["score"].clone();
        }
        for (name, metric) in trace["metrics"].as_object().into_iter().flatten() {
            line[name] = metric.clone();
        }
        line["reward"] = sum.into();
        add_tokens(trace["nodes"].as_array()?, &mut line);
        rows.push(line.to_string());
    }
    Some(Box::new(rows.into_iter()))
}

/// Adds the messages and the tokens of a trace's nodes to the trace's line: each node lists only its new message and tokens, and
/// has values only for the sampled tokens.
fn add_tokens(nodes: &[Value], line: &mut Value) {
    let is_sampled = |node: &Value| node["sampled"] == json!(true);
    let first = nodes.iter().position(is_sampled).unwrap_or(nodes.len());
    let message = |node: &Value| {
        let message = &node["message"];
        json!({"role": message["role"], "content": message["content"]})
    };
    let (prompt, rest) = nodes.split_at(first);
    line["prompt"] = prompt.iter().map(message).collect();
    let replies = rest.iter().filter(|node| is_sampled(node));
    line["completion"] = replies.map(message).collect();
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
            line[ours] = spread.into();
        }
    }
    line["mask"] = mask.into();
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
            let unfold = unfold_of(line, None).unwrap();
            assert_eq!(unfold(line).unwrap().collect::<Vec<_>>(), rows, "{line}");
        }
    }
}
