//! The math task: questions from a file, answered in text. The answer in a response is compared with the answer in the file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Prompt, Task, TaskShape, Texts, is_held_out};
use crate::config::{Config, MathConfig};
use crate::error::{Result, io, read_json};
use crate::random::RandomStream;
use crate::text::{Message, Text, config_file};
use advlab::diagnostic::Diagnostic;
use advlab::suggest::{did_you_mean, list};
use advlab_answers::Verdict;

/// The placeholder of the question in a template.
const QUESTION: &str = "{question}";

/// The names that data sets give to the field of the question; the first of these names that the first line has is used.
const QUESTIONS: [&str; 5] = ["question", "problem", "prompt", "input", "query"];

/// The names that data sets give to the field of the answer; fields that contain no derivation come first.
const ANSWERS: [&str; 6] = [
    "answer",
    "final_answer",
    "ground_truth",
    "expected_answer",
    "target",
    "solution",
];

/// Questions with answers that can be compared, such as GSM8K's: [`advlab_answers::equal`] decides whether a response is right.
///
/// A prompt is the template with a question in it, as tokens of a model. A question that occurs several times in the file gives a
/// single prompt; its first answer is used. Whether a question is held out depends only on its text, not on the template or the
/// model.
#[derive(Debug)]
pub struct Math {
    rows: Vec<MathProblem>,
    by_prompt: HashMap<Vec<u32>, usize>,
    text: Arc<Text>,
    max_response_tokens: usize,
}

/// The part of a model's `config.json` that the task needs.
#[derive(Deserialize)]
struct ModelSizes {
    vocab_size: u32,
}

#[derive(Debug)]
struct MathProblem {
    question: String,
    answer: String,
    prompt: Vec<u32>,
}

impl Math {
    /// Returns the task that a configuration describes: the file's questions, as tokens of the run's model.
    pub(crate) fn of_config(config: &Config) -> Result<Self> {
        let folder = Path::new(&config.transformer.model);
        let sizes: ModelSizes = read_json(&config_file(folder)?)?;
        let text = Text::load(folder, sizes.vocab_size)?;
        let text = text.with_stops(&config.transformer.stop_strings);
        Math::load(&config.math, text.into(), config.transformer.max_new_tokens)
    }

    /// Loads the questions of a JSONL file as tokens of a model, for responses of at most `max_response_tokens` tokens.
    pub fn load(config: &MathConfig, text: Arc<Text>, max_response_tokens: usize) -> Result<Self> {
        let (path, template) = (Path::new(&config.data), &config.prompt_template);
        if !template.contains(QUESTION) {
            let problem = Diagnostic::error(format!("prompt_template is {template:?}"));
            let expected = format!("a text with {QUESTION} in it");
            return Err(problem.expected(expected).into());
        }
        let row = |(question, answer): (String, String)| {
            let content = template.replace(QUESTION, &question);
            let prompt = match config.chat_template && text.has_template() {
                true => text.encode_chat(&[Message {
                    role: "user",
                    content: &content,
                }])?,
                false => text.encode(&content)?,
            };
            Ok(MathProblem {
                question,
                answer,
                prompt,
            })
        };
        let pairs = pairs(path, config)?.into_par_iter();
        let rows: Vec<MathProblem> = pairs.map(row).collect::<Result<_>>()?;
        let by_prompt = rows.iter().enumerate();
        let by_prompt = by_prompt.map(|(index, row)| (row.prompt.clone(), index));
        let task = Math {
            by_prompt: by_prompt.collect(),
            rows,
            text,
            max_response_tokens,
        };
        let mut indices = 0..task.rows.len();
        if indices.all(|index| is_held_out(&task, &task.prompt(index))) {
            let problem = Diagnostic::error("the file has no question for training").in_file(path);
            let help = "about one question in 16 is held out for evaluation, and this file has no other questions: use a file with more questions";
            return Err(problem.with_help(help).into());
        }
        Ok(task)
    }

    fn row(&self, prompt: &Prompt) -> Option<&MathProblem> {
        Some(&self.rows[*self.by_prompt.get(&prompt.tokens)?])
    }

    fn prompt(&self, index: usize) -> Prompt {
        Prompt {
            tokens: self.rows[index].prompt.clone(),
            features: Vec::new(),
        }
    }
}

impl Task for Math {
    fn shape(&self) -> TaskShape {
        let vocabulary = self.text.vocabulary() as usize;
        TaskShape {
            prompt_features: 0,
            vocabulary,
            alphabet: vocabulary,
            max_response_tokens: self.max_response_tokens,
            stop: self.text.ends().first().copied().unwrap_or(0),
        }
    }

    fn text(&self) -> Option<Arc<Text>> {
        Some(self.text.clone())
    }

    fn draw(&self, stream: &mut RandomStream) -> Prompt {
        self.prompt(stream.below(self.rows.len() as u64) as usize)
    }

    /// Returns the bytes of the question, not the prompt's tokens, because the template and the model may change.
    fn identity(&self, prompt: &Prompt) -> Vec<u32> {
        let question = self.row(prompt).map(|row| row.question.bytes());
        question.into_iter().flatten().map(u32::from).collect()
    }

    fn verify(&self, prompt: &Prompt, response: &[u32]) -> bool {
        // An error is ignored here, because `texts` reports a response that cannot be decoded.
        let completion = self.text.decode(response).ok();
        let pair = self.row(prompt).zip(completion);
        let verdict = pair.map(|(row, completion)| advlab_answers::equal(&row.answer, &completion));
        verdict == Some(Verdict::Equal)
    }

    fn texts(&self, prompt: &Prompt, response: &[u32]) -> Result<Texts> {
        let Some(row) = self.row(prompt) else {
            return Ok(Vec::new());
        };
        Ok(vec![
            ("prompt", row.question.clone()),
            ("completion", self.text.decode(response)?),
            ("solution", row.answer.clone()),
        ])
    }
}

/// Returns the question and the answer of each line, in order, without repeated questions. If the configuration does not name a
/// field, the first line determines its name.
fn pairs(path: &Path, config: &MathConfig) -> Result<Vec<(String, String)>> {
    let text = advlab::regular_file::read_to_string(path).map_err(io("read", path))?;
    let mut fields = [config.question_field.clone(), config.answer_field.clone()];
    let mut seen = HashSet::new();
    let mut pairs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let pair = pair(line, &mut fields);
        let pair = pair.map_err(|problem| problem.in_file(path).on_line(index + 1))?;
        if seen.insert(pair.0.clone()) {
            pairs.push(pair);
        }
    }
    if pairs.is_empty() {
        let problem = Diagnostic::error("the file has no questions");
        return Err(problem.in_file(path).into());
    }
    Ok(pairs)
}

/// Returns the question and the answer of a line. If a name in `fields` is still empty, sets it.
fn pair(line: &str, fields: &mut [String; 2]) -> Result<(String, String), Diagnostic> {
    let row: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| Diagnostic::error(error.to_string()))?;
    let question = text_of(&row, "question", &QUESTIONS, &mut fields[0])?;
    let answer = text_of(&row, "answer", &ANSWERS, &mut fields[1])?;
    if advlab_answers::reference(&answer).is_none() {
        let problem = Diagnostic::error("it contains no answer").in_field(&fields[1]);
        return Err(problem.found(format!("{answer:?}")));
    }
    Ok((question, answer))
}

/// Returns the string or number in a field of a line, as text. If `field` is empty, sets it to the first name that occurs.
fn text_of(
    row: &Map<String, Value>,
    kind: &str,
    names: &[&str],
    field: &mut String,
) -> Result<String, Diagnostic> {
    if field.is_empty() {
        let name = names.iter().find(|name| row.contains_key(**name));
        let name = name.ok_or_else(|| {
            let known = list(names.iter().copied());
            let problem =
                Diagnostic::error(format!("no field has a usual name for the {kind}: {known}"));
            problem.with_help(format!("`{kind}_field = \"NAME\"` names the field"))
        })?;
        *field = (*name).to_string();
    }
    match row.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(other) => {
            let problem =
                Diagnostic::error(format!("the {kind} has the wrong type")).in_field(&*field);
            let problem = problem.found(other.to_string());
            Err(problem.expected("a string or a number"))
        }
        None => {
            let near = did_you_mean(field, row.keys().map(String::as_str));
            Err(Diagnostic::error(format!("there is no `{field}`")).with_help(near))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::Config;
    use crate::random::{Purpose, StreamKey};
    use crate::task::{evaluation_prompts, training_prompts};

    fn without_chat() -> MathConfig {
        MathConfig {
            prompt_template: "Q: {question}\nA:".to_string(),
            chat_template: false,
            ..Config::default().math
        }
    }

    /// Returns lines whose questions ask for a sum, with answers in the format of GSM8K.
    fn sums(count: usize) -> String {
        let line = |a: usize| {
            let (b, sum) = (a + 3, 2 * a + 3);
            let answer = format!("{a}+{b}={sum}\n#### {sum}");
            let line = json!({ "question": format!("What is {a} + {b}?"), "answer": answer });
            format!("{line}\n")
        };
        (0..count).map(line).collect()
    }

    fn load(content: &str, config: &MathConfig) -> Result<Math> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let text = Text::load(&root.join("tests/golden/transformers/qwen2"), 400).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("questions.jsonl");
        fs::write(&data, content).unwrap();
        let config = MathConfig {
            data: data.display().to_string(),
            ..config.clone()
        };
        Math::load(&config, Arc::new(text), 64)
    }

    #[test]
    fn a_prompt_is_its_template_or_a_chat() {
        let plain = load(&sums(40), &without_chat()).unwrap();
        let decoded = plain.text.decode(&plain.rows[2].prompt).unwrap();
        assert_eq!(decoded, "Q: What is 2 + 5?\nA:");
        let chat = MathConfig {
            chat_template: true,
            prompt_template: "{question} Think.".to_string(),
            ..without_chat()
        };
        let chat = load(&sums(40), &chat).unwrap();
        let decoded = chat.text.decode(&chat.rows[2].prompt).unwrap();
        assert_eq!(decoded, "user\nWhat is 2 + 5? Think.\nassistant\n");
        // The tokens differ, but the same questions are held out.
        let held_out = |task: &Math| -> Vec<bool> {
            let indices = 0..task.rows.len();
            indices
                .map(|i| is_held_out(task, &task.prompt(i)))
                .collect()
        };
        assert_eq!(held_out(&plain), held_out(&chat));
    }

    #[test]
    fn questions_are_for_training_or_for_evaluation_and_one_is_one_prompt() {
        let twice = sums(200).repeat(2);
        let task = load(&twice, &without_chat()).unwrap();
        assert_eq!(task.rows.len(), 200);
        let evaluation = evaluation_prompts(&task, 100);
        assert!((5..25).contains(&evaluation.len()), "{}", evaluation.len());
        for prompt in training_prompts(&task, 3, 0, 300).unwrap() {
            assert!(!evaluation.contains(&prompt));
        }
    }

    #[test]
    fn the_verifier_decides() {
        let task = load(&sums(40), &without_chat()).unwrap();
        let prompt = task.prompt(6);
        let verdict = |completion: &str| {
            let mut response = task.text.encode(completion).unwrap();
            response.push(299);
            task.verify(&prompt, &response)
        };
        for right in ["6+9=15", "Twice 7.5 is \\boxed{30/2}, not 16", "It is 15."] {
            assert!(verdict(right), "{right}");
        }
        for wrong in ["15 or 16", "fifteen", ""] {
            assert!(!verdict(wrong), "{wrong}");
        }
        let other = Prompt {
            tokens: vec![1, 2],
            features: vec![],
        };
        assert!(!task.verify(&other, &task.text.encode("15").unwrap()));
    }

    #[test]
    fn draws_are_of_the_whole_file() {
        let task = load(&sums(20), &without_chat()).unwrap();
        let key = StreamKey::new(1, Purpose::TrainingPrompts, 0);
        let drawn = (0..400).map(|index| task.by_prompt[&task.draw(&mut key.stream(index)).tokens]);
        assert_eq!(drawn.collect::<HashSet<usize>>().len(), 20);
    }

    #[test]
    fn fields_are_found_by_their_names_or_named() {
        let line =
            r#"{"id": 1, "problem": "2+3?", "solution": "It is 5", "answer": 5, "hint": "4"}"#;
        let row = |options: &MathConfig| {
            let task = load(line, options).unwrap();
            (task.rows[0].question.clone(), task.rows[0].answer.clone())
        };
        assert_eq!(row(&without_chat()), ("2+3?".to_string(), "5".to_string()));
        let named = MathConfig {
            question_field: "hint".to_string(),
            answer_field: "solution".to_string(),
            ..without_chat()
        };
        assert_eq!(row(&named), ("4".to_string(), "It is 5".to_string()));
    }

    #[test]
    fn a_file_that_is_no_data_says_where() {
        let error = |content: &str, options: &MathConfig, expected: &str| {
            let error = load(content, options).unwrap_err()[0].to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        };
        let (good, plain) = (sums(2), without_chat());
        for (line, expected) in [
            (
                r#"{"question": "?"}"#,
                "questions.jsonl, line 3: there is no `answer`",
            ),
            (
                "\n{\"question\": \"?\", \"answer\": \" \"}",
                "line 4, `answer`: it contains no answer",
            ),
            (
                r#"{"question": "?", "answer": "\\boxed{}"}"#,
                "line 3, `answer`: it contains no answer",
            ),
            (
                r#"{"question": [3], "answer": 4}"#,
                "the question has the wrong type: found [3]; expected a string or a number",
            ),
            (r#"{"question""#, "line 3: "),
            ("[1]", "line 3: "),
        ] {
            error(&(good.clone() + line), &plain, expected);
        }
        error(
            r#"{"q": 1}"#,
            &plain,
            "line 1: no field has a usual name for the question",
        );
        error("", &plain, "questions.jsonl: the file has no questions");
        let named = MathConfig {
            answer_field: "anwser".to_string(),
            ..without_chat()
        };
        error(
            &good,
            &named,
            "line 1: there is no `anwser` (did you mean `answer`?)",
        );
        let no_place = MathConfig {
            prompt_template: "Q:".to_string(),
            ..without_chat()
        };
        error(&good, &no_place, "prompt_template is \"Q:\"");
    }
}
