//! Scripts, most of which run: written from the table of operations, each argument at a level that fits. A script has the same
//! result by 1 and 2 threads, by both executors, and on a batch that was saved and read again.

use std::time::Duration;

use advlab::batch::{Batch, Level};
use advlab::diagnostic::{Diagnostics, ProblemKind};
use advlab::files::{self, ReadOptions};
use advlab::script::{BUILTINS, Hook, Host, Limits, Recipe, State};
use advlab::session::Session;
use advlab::tensor::op::{self, Class, Op, ParamKind};
use rand::RngExt;

use crate::engine::{Rng, Target, files as files_in, mutated, pick, root, word};
use crate::rollouts::{by_two, folder};
use crate::texts::holds;

/// Two batches, each with what it is after it was saved and read.
pub struct Scripts(Host, [[Batch; 2]; 2]);

impl Scripts {
    pub fn start() -> Box<dyn Target> {
        let (time, memory) = (Duration::from_secs(5), 64 << 20);
        let folder = folder();
        let batches = [true, false].map(|has_turns| {
            let (batch, path) = (batch(has_turns), folder.path().join("batch.safetensors"));
            batch.write_safetensors(&path).unwrap();
            [
                batch,
                files::read(&path, &ReadOptions::default()).unwrap().batch,
            ]
        });
        let host = Host::new().with_limits(Limits { time, memory });
        Box::new(Scripts(host, batches))
    }
}

/// Groups that are interleaved, a group of one, a response without tokens, holes; in f64 with trajectories, or in f32.
fn batch(has_turns: bool) -> Batch {
    let masks = ["11", "101", "", "1", "111", "01"]
        .map(|mask| mask.bytes().map(|bit| bit == b'1').collect::<Vec<bool>>());
    let whole: Vec<f64> = (0..6).map(f64::from).collect();
    let mut builder = Batch::builder()
        .groups(["a", "b", "a", "a", "b", "c"])
        .response("reward", vec![1.0, 0.0, 0.0, 0.25, 1.0, 1.0])
        .response("my", whole.clone())
        .text("prompt", ["x", "y", "x", "x", "y", "z"])
        .step(3);
    if has_turns {
        builder = builder
            .text("trajectory", ["s", "t", "s", "u", "t", "v"])
            .response("turn", whole);
    }
    for (salt, name) in ["old_logp", "logp", "ref_logp", "value", "entropy"]
        .into_iter()
        .enumerate()
    {
        let value = |r: usize, t: usize| ((r * 7 + t + salt) as f64 * 0.618).fract() - 0.5;
        let row = |(r, mask): (usize, &Vec<bool>)| (0..mask.len()).map(|t| value(r, t)).collect();
        let rows: Vec<Vec<f64>> = masks.iter().enumerate().map(row).collect();
        let narrow = |row: &Vec<f64>| row.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        builder = match has_turns {
            true => builder.ragged::<f64, _>(name, rows),
            false => builder.ragged::<f32, _>(name, rows.iter().map(narrow)),
        };
    }
    builder.ragged_mask(&masks).build().unwrap()
}

/// Writes a script.
struct Writer<'a> {
    rng: &'a mut Rng,
    /// Variables that are in scope, with their levels.
    variables: Vec<(String, Level)>,
    /// What the columns are of: the batch, or a group.
    owner: &'static str,
}

/// The columns and the like of each level, the coarsest first.
const LEAVES: [&str; 6] = [
    r#"reward.mean("batch")~length.max("batch")~logp.sum("batch")"#,
    r#"reward.mean("group")~correct.sum("group")~my.max("group")"#,
    r#"reward.sum("trajectory")~my.last("trajectory")"#,
    r#"entropy.mean("position")~value.sum("position")"#,
    "reward~correct~length~my",
    "logp~old_logp~ref_logp~value~entropy~token_reward",
];
/// Statements, with places for the number of a variable, and for expressions: at any level, of responses, of a group's responses.
const STATEMENTS: &str = r#"metric("m%", ({R}).mean("batch"));~print({X});~if ({R}).sum("batch").value() > 0.0 { print(1); }~
for g in batch.groups { print(g.reward.mean("batch").value()); }~this.n = ({R}).sum("batch").value();~print(({X}).values().len());~
print(batch.with(#{ reward: {R} }).reward.mean("group"));~let v% = running("t", batch.key("prompt"), 0, 0.5, {R});~
let v% = batch.random("response");~let v% = batch.map_groups(|g| {G});~let v% = {X};~let v% = {X};~let v% = {X};~let v% = {X};"#;
const START: &str = "fn params() {\n    #{ k: #{ value: 2, doc: \"a\" }, x: #{ value: 0.5, doc: \"b\" } }\n}\nfn init(p) { #{ n: 0.0 } }\n";

impl Writer<'_> {
    /// A column or a variable at a level.
    fn leaf(&mut self, level: Level) -> String {
        let fitting = self.variables.iter().filter(|(_, own)| *own == level);
        let names: Vec<String> = fitting.map(|(name, _)| name.clone()).collect();
        if !names.is_empty() && self.rng.random_range(0..3) > 0 {
            return pick(self.rng, &names);
        }
        format!("{}.{}", self.owner, word(self.rng, LEAVES[level as usize]))
    }

    fn level(&mut self, fits: impl Fn(Level) -> bool) -> Level {
        let mut levels = Level::ALL.to_vec();
        levels.retain(|level| fits(*level));
        pick(self.rng, &levels)
    }

    /// An expression at a level.
    fn expression(&mut self, level: Level, depth: usize) -> String {
        let rows: Vec<&'static Op> = op::table().collect();
        let tries = self.rng.random_range(0..10) * depth.min(1);
        let call = (0..tries).find_map(|_| {
            let op = pick(self.rng, &rows);
            self.call(op, level, depth - 1)
        });
        call.unwrap_or_else(|| self.leaf(level))
    }

    /// A call of a row that gives a tensor at a level; `None` if none is known to.
    fn call(&mut self, op: &'static Op, level: Level, depth: usize) -> Option<String> {
        let is_named = ["others_mean", "others_std", "whiten"].contains(&op.name);
        let (is_own, is_scan) = (
            is_named || op.class == Class::Order,
            op.class == Class::Scan,
        );
        let is_reduction = op.class == Class::Reduction && !is_own;
        let (first, named) = match (op.class, op.name) {
            // They take no token tensors, and whole numbers within bounds, mostly.
            (Class::Combinatorics, _)
                if level == Level::Token || self.rng.random_range(0..8) > 0 =>
            {
                return None;
            }
            (_, "grad" | "expand") => return None,
            // Of a batch's numbers, these are no tensors.
            (Class::Logic, _) if level == Level::Batch => return None,
            (_, "at_last_token") if level == Level::Token => (Level::Response, level),
            (_, name) if is_scan && (level != Level::Token || name == "at_last_token") => {
                return None;
            }
            _ if is_reduction => (self.level(|other| level.contains(other)), level),
            _ => (level, self.level(|other| other.contains(level))),
        };
        let mut texts = Vec::new();
        for (index, param) in op.params.iter().enumerate() {
            if param.optional && self.rng.random() {
                break;
            }
            let is_first = index == 0 || is_own || is_reduction;
            let at = self.level(|other| {
                if is_first {
                    other == first
                } else {
                    other.contains(first)
                }
            });
            texts.push(match (param.kind, param.name) {
                (ParamKind::Level, _) => format!("\"{named}\""),
                (ParamKind::Choice(of), _) => format!("\"{}\"", pick(self.rng, of)),
                (ParamKind::Number, _) | (_, "gamma") => word(self.rng, "0~1~0.5~p.x").to_string(),
                (_, "selection") => format!("({} > 0.1)", self.leaf(at)),
                _ if !is_first && self.rng.random_range(0..3) == 0 => {
                    word(self.rng, "0~1~2~0.5~1.5~1e-6~1e3~-2~p.k~p.x").to_string()
                }
                _ => self.expression(at, depth),
            });
        }
        let (name, rest) = (op.name, texts[1..].join(", "));
        let is_word = name.starts_with(char::is_alphabetic);
        let is_method = is_scan || op.params.iter().any(|param| param.kind == ParamKind::Level);
        Some(match &texts[..] {
            [x] if !is_word => format!("({name}{x})"),
            [x, y] if !is_word => format!("({x} {name} {y})"),
            [x, ..] if is_method => format!("({x}).{name}({rest})"),
            _ => format!("{name}({})", texts.join(", ")),
        })
    }

    /// A few statements, and an expression at a level.
    fn body(&mut self, level: Level) -> String {
        let mut lines = String::new();
        for number in 0..self.rng.random_range(0..6) {
            let (statement, any) = (word(self.rng, STATEMENTS).trim(), self.level(|_| true));
            let (x, r) = (self.expression(any, 3), self.expression(Level::Response, 2));
            let (rng, variables, owner) = (&mut *self.rng, Vec::new(), "g");
            let g = Writer {
                rng,
                variables,
                owner,
            }
            .expression(Level::Response, 2);
            let line = statement
                .replace('%', &number.to_string())
                .replace("{X}", &x);
            lines += &format!("    {}\n", line.replace("{R}", &r).replace("{G}", &g));
            if statement.starts_with("let") {
                let level = if statement.contains("{X}") {
                    any
                } else {
                    Level::Response
                };
                self.variables.push((format!("v{number}"), level));
            }
        }
        format!("{lines}    {}\n", self.expression(level, 4))
    }
}

fn script(rng: &mut Rng) -> String {
    let mut text = START.to_string();
    let hooks = [
        ("reward", Level::Response, 4),
        ("advantage", pick(rng, &[Level::Response, Level::Token]), 1),
        ("loss", Level::Batch, 3),
    ];
    for (hook, level, rare) in hooks {
        if rng.random_range(0..rare) == 0 {
            let (variables, owner) = (Vec::new(), "batch");
            let body = Writer {
                rng,
                variables,
                owner,
            }
            .body(level);
            // A loss that does not depend on the log-probs is refused.
            let end = if hook == "loss" {
                " + batch.logp.mean(\"batch\")"
            } else {
                ""
            };
            let body = body.trim_end();
            text += &format!("fn {hook}(batch, p) {{\n{body}{end}\n}}\n");
        }
    }
    text
}

/// Everything that a recipe gives on a batch, and the state that it leaves.
fn outcome(recipe: &Recipe, batch: &Batch) -> Result<(String, State), Diagnostics> {
    let mut state = recipe.init()?;
    let done = recipe.advantage(batch, &mut state)?;
    let bits =
        |values: &advlab::batch::FloatBuffer| values.iter().map(f64::to_bits).collect::<Vec<u64>>();
    let mut text = format!(
        "{:?} {:?} {:?}",
        bits(done.advantage.buffer()),
        done.reports.metrics,
        done.reports.prints
    );
    if recipe.has(Hook::Loss) && recipe.has(Hook::Advantage) {
        let loss = recipe.loss(batch, Some(&done.advantage), &mut state)?;
        text += &format!(
            "{} {:?} {:?} {:?}",
            loss.value,
            bits(loss.gradient.buffer()),
            loss.reports.metrics,
            loss.reports.prints
        );
    }
    Ok((text, state))
}

impl Target for Scripts {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let gallery = files_in(&root("tests/gallery/scripts")).into_iter();
        // Endless loops take all of their time.
        let scripts = gallery.filter(|(path, _)| {
            path.extension().is_some_and(|e| e == "rhai") && !path.ends_with("limits.rhai")
        });
        let text: String = scripts
            .map(|(_, bytes)| String::from_utf8(bytes).unwrap())
            .collect();
        let builtins = BUILTINS.iter().map(|builtin| builtin.text);
        builtins
            .chain(text.split("// ==== "))
            .map(|text| text.as_bytes().to_vec())
            .collect()
    }

    fn make(&self, rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
        let words = ".mean(\"group\")~batch.reward~batch.logp~?.~|x| x~#{}~[]~()~let x = ~fn f() {~}~import \"grpo\" as g;~0..10~this~\
             \"token\"~**~try {~throw 1;~switch 1 {~is_def_var(\"x\")~g::advantage(batch, p)~`${~\\u{10FFFF}~const X = 1;";
        let own = script(rng).into_bytes();
        match rng.random_range(0..16) {
            0 => mutated(rng, corpus, words),
            1 => mutated(rng, &[own], words),
            _ => own,
        }
    }

    fn check(&self, input: &[u8]) -> Result<bool, String> {
        let (text, Scripts(host, batches)) = (String::from_utf8_lossy(input), self);
        let [batch, saved] = &batches[input.len() % 2];
        // As lines at the prompt.
        if input.len().is_multiple_of(8) {
            let mut session = Session::new(host, batch);
            let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
            lines.take(12).for_each(|line| drop(session.evaluate(line)));
            let _ = session.typed_recipe();
        }
        let Ok(recipe) = host.compile("fuzz", &text) else {
            return Ok(false);
        };
        let first = outcome(&recipe, batch);
        for (how, other) in [
            ("2 threads", by_two(input, || outcome(&recipe, batch))),
            ("a saved batch", Some(outcome(&recipe, saved))),
        ] {
            let Some(other) = other else { continue };
            let is_same = match (&first, &other) {
                (Ok((a, _)), Ok((b, _))) => a == b,
                (Err(a), Err(b)) => a == b,
                // The time that it may take.
                (Err(a), _) | (_, Err(a)) => a.to_string().contains("stopped"),
            };
            holds(is_same, || format!("{how} differ: {first:?} | {other:?}"))?;
        }
        match first {
            Ok((_, state)) => {
                let is_same = State::from_json(&state.to_json()).is_ok_and(|saved| saved == state);
                holds(is_same, || format!("another state: {}", state.to_json())).map(|()| true)
            }
            // It ran, and its numbers are what the script makes of them.
            Err(error) => Ok(matches!(
                error[0].kind,
                ProblemKind::NotFinite | ProblemKind::Values
            )),
        }
    }
}
