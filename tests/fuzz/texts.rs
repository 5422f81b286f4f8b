//! Texts: settings, saved states, tokenizers, and answers.

use std::fs;
use std::path::Path;

use advlab::Diagnostic;
use advlab::files::Tokenize;
use advlab::script::State;
use advlab_answers::{Verdict, answer, equal, reference};
use advlab_train::Config;
use advlab_train::tokenizer::Tokenizer;
use rand::RngExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::engine::{Rng, Target, json_or_bytes, mutated, pick, root, word};
use crate::rollouts::folder;

/// The error of a check that does not hold.
pub fn holds(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

/// A configuration is refused at one of its lines, or printed so that it reads back.
pub struct Configs;

impl Target for Configs {
    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![Config::default().to_commented().into_bytes()]
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        if rng.random_range(0..3) == 0 {
            let words = "[transformer]\n~[params]\nk = 8\n~\"\"\"~'~= ~inf~nan~\n~.~[[a]]\n~#";
            return mutated(rng, corpus, words);
        }
        let printed = Config::default().to_commented();
        let keys: Vec<&str> = printed
            .lines()
            .filter(|line| line.contains(" = "))
            .collect();
        let mut text = String::new();
        for _ in 0..rng.random_range(1..6) {
            let line = pick(rng, &keys).trim_start_matches(['#', ' ']);
            let (key, own) = line.split_once('=').unwrap_or((line, ""));
            let other = word(
                rng,
                "0~1~-1~2~0.5~1e-3~nan~1e30~true~\"math\"~[]~{}~\"\"~9223372036854775807",
            );
            text += &format!("{key}= {}\n", pick(rng, &[own, other]));
        }
        text.into_bytes()
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let (path, text) = (Path::new("fuzz.toml"), String::from_utf8_lossy(input));
        let lines = 1..=1 + text.matches('\n').count();
        let config = match Config::parse(path, &text) {
            Ok(config) => config,
            Err(error) => {
                let is_line =
                    |at: &Diagnostic| at.file.line.is_none_or(|line| lines.contains(&line));
                let is_named = error.iter().all(|at| at.file.path == path && is_line(at));
                holds(is_named, || format!("it does not say where: {error}"))?;
                return Ok(false);
            }
        };
        let printed = config.to_commented();
        let again = Config::parse(path, &printed);
        let again = again.map_err(|error| format!("what it prints is refused: {error}"))?;
        let is_same = again.flat() == config.flat();
        holds(is_same, || format!("printed otherwise: {printed}")).map(|()| true)
    }
}

/// A saved state is refused, or saved as what it was read from.
pub struct States;

impl Target for States {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let deep = json!({ "map": { "x": { "f64": "NaN" } } });
        let state = json!({
            "map": { "n": 3, "mean": { "f64": "0.5" }, "seen": [1, null, true, "a"], "deep": deep },
            "tables": { "baseline": [["a prompt", "0.5"], ["b", "-0.0"]] },
        });
        vec![state.to_string().into_bytes(), b"{\"map\":{}}".to_vec()]
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let words =
            "\"f64\":\"inf\"~\"tables\":{}~{\"map\":{}}~{\"f64\":\"0.5\"}~null~[~]~[[\"a\",\"1\"]]";
        json_or_bytes(rng, corpus, "map~f64~tables~n~seen~baseline~~\0", words)
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let json = serde_json::from_slice::<Value>(input).unwrap_or_default();
        let Ok(state) = State::from_json(&json) else {
            return Ok(false);
        };
        let saved = state.to_json();
        let again = State::from_json(&saved)
            .map_err(|error| format!("what it saves is refused: {error}: {saved}"))?;
        let is_same = again.to_json() == saved && again.to_string() == state.to_string();
        holds(is_same, || format!("saved otherwise: {saved}")).map(|()| true)
    }
}

/// A tokenizer is refused, or has tokens within the text, as many as it counts.
pub struct Tokenizers(TempDir);

impl Tokenizers {
    pub fn start() -> Box<dyn Target> {
        Box::new(Tokenizers(folder()))
    }
}

impl Target for Tokenizers {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let path = |name| root("tests/data/tokenizers").join(name);
        ["gpt.json", "sentencepiece.json"]
            .map(|name| fs::read(path(name)).unwrap())
            .to_vec()
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let names = "type~pattern~Regex~String~vocab~merges~model~decoder~normalizer~pre_tokenizer~post_processor~added_tokens~id~\
             content~unk_token~ids~add_prefix_space~special_tokens~behavior";
        let words = "\"ByteLevel\"~\"BPE\"~\"Unigram\"~\"Regex\":\"(a+)+$\"~\"Regex\":\"(?=.*\\\\b)*\"~null";
        json_or_bytes(rng, corpus, names, words)
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let path = self.0.path().join("tokenizer.json");
        fs::write(&path, input).unwrap();
        let tokenizer = match Tokenizer::load(&path, true) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                let is_named = error.iter().all(|at| at.file.path == path);
                holds(is_named, || {
                    format!("an error does not name the file: {error}")
                })?;
                return Ok(false);
            }
        };
        for text in [
            "",
            "the lower lowest é",
            "aaaaaaaaaaaaaaaaaaaa b\0<s>\u{2581}😀\n\t 17",
        ] {
            let (count, spans) = (tokenizer.count(text), tokenizer.spans(text));
            let is_right = match (&count, &spans) {
                (Ok(count), Ok(spans)) => {
                    let are_within = spans.iter().all(|span| text.get(span.clone()).is_some());
                    *count == spans.len() && are_within
                }
                (count, spans) => count.is_err() && spans.is_err(),
            };
            holds(is_right, || {
                format!("wrong tokens: {text:?}: {count:?} {spans:?}")
            })?;
        }
        Ok(true)
    }
}

/// Pairs of a reference and an answer, a line each: there is a verdict, the same in both directions where both are marked.
pub struct Answers;

const MATHS: &str = r"\frac{~\frac12~\sqrt~\sqrt[3]{~\boxed{~\text{~\left(~\right)~\pm~\cup~\sin~\ln~\begin{pmatrix}~\end{pmatrix}~\\~&~\overline{~####~
e9~ and ~A:~answer is ~^~_~{~}~(~)~[~]~,~.~=~<~\le~|~!~$~%~+~-~*~/~x~y~\pi~1/3~0.333~\infty~10^{10}~°~\circ~ m~ million~\{~\}~\times~\cdot~𝟙~²~
<answer>~</answer>~<|im_end|>~<|im_start|>user ~<tool_call>~```output\n~ or ~ is ~,\!~'~\,000~,000~\quad~>=~!=~|AB|=~P(X=1)=~\lim_{x\to 0}~AB:CD=~:";

impl Target for Answers {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let lines = include_str!("../golden/verify_pairs.jsonl").lines();
        let pair = |line: &str| {
            let pair: Value = serde_json::from_str(line).unwrap();
            let side = |name: &str| pair[name].as_str().unwrap().replace('\n', " ");
            format!("{}\n{}", side("gold"), side("answer")).into_bytes()
        };
        // Those with thousands of digits are for the verifier's own tests.
        lines.map(pair).filter(|pair| pair.len() < 300).collect()
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        if rng.random_range(0..4) > 0 {
            return mutated(rng, corpus, MATHS);
        }
        let mut side = || -> String {
            let words = (0..rng.random_range(0..16)).map(|_| match rng.random_range(0..3) {
                0 => rng.random_range(0..20).to_string(),
                _ => word(rng, MATHS).to_string(),
            });
            words.collect()
        };
        format!("{}\n{}", side(), side()).into_bytes()
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let text = String::from_utf8_lossy(input);
        let (gold, given) = text.split_once('\n').unwrap_or((&text, ""));
        let (verdict, own) = (equal(gold, given), equal(gold, gold));
        // A completion equal to the reference is right, if the reference has an answer.
        let is_own = own == Verdict::Equal
            || own == Verdict::NoAnswer
            || reference(gold).is_none()
            || answer(gold).is_none();
        holds(is_own, || format!("not equal to itself: {gold}: {own:?}"))?;
        holds(equal(gold, given) == verdict, || {
            format!("another verdict now: {gold} | {given}")
        })?;
        let marked = |text: &str| format!("\\boxed{{{text}}}");
        let verdicts = [(gold, given), (given, gold)].map(|(a, b)| equal(&marked(a), &marked(b)));
        let is_both = |a, b| verdicts != [a, b] && verdicts != [b, a];
        // A decimal stands for what rounds to it, and a completion may think aloud or answer in a sentence, which is not the
        // other way round.
        let is_one_way =
            text.contains(['.', ',']) || text.contains("think") || text.contains("answer");
        let is_symmetric = is_both(Verdict::Equal, Verdict::Different) || is_one_way;
        holds(is_symmetric, || {
            format!("not symmetric: {gold} | {given}: {verdicts:?}")
        })?;
        Ok(verdict == Verdict::Equal)
    }
}
