//! Topics that are no function: levels, the batch, hooks, parameters, state, the language.

use super::entry::filled;
use crate::paint::Paint;

/// A topic.
pub struct Topic {
    /// The word that is asked for.
    pub name: &'static str,
    /// Other words for it.
    others: &'static [&'static str],
    /// One line about it.
    pub doc: &'static str,
    /// The explanation: paragraphs, and lines that are indented and stay as they are.
    pub text: &'static str,
    /// A recipe that shows it; empty where none does.
    pub example: &'static str,
}

/// All topics, in the order in which a newcomer needs them.
pub const TOPICS: &[Topic] = &[
    Topic {
        name: "levels",
        others: &["level", "token", "response", "position", "group", "broadcasting"],
        doc: "where a tensor has its values: batch, group, response, position, token",
        text: "\
A tensor has no shape but a level.

  token     one value per response token that counts
  response  one value per response
  position  one value per place in a group: its responses' first tokens, ...
  group     one value per group, the responses to one prompt
  batch     one value

A reduction names the level that it goes to, in quotes: r.mean(\"group\"). An operation on two tensors brings both to the
level where they meet: a response tensor less a group tensor is a response tensor. A number goes with everything.
Padding and masked tokens are at no level, so that nothing in them counts.",
        example: "\
fn advantage(batch, p) {
    let r = batch.reward;            // response
    let mean = r.mean(\"group\");      // group
    r - mean                         // response again
}",
    },
    Topic {
        name: "batch",
        others: &["columns", "column"],
        doc: "what a step produced: columns over tokens, responses and groups",
        text: "\
`batch.reward` and the like are its columns, tensors each. Those that the file or the run has are there, and these follow
from others:

  response  reward        from token_reward (its sum) or correct
            correct       reward > 0
            length        how many tokens count
  token     token_reward  the reward on the last token
            old_logp      log-probs when the response was sampled
            logp          those of the policy now; old_logp where not given
            ref_logp      those of the reference; never made up
            value         the critic's; never made up
            entropy       of the policy at each token; never made up

Any other column of the file is there under its own name. `batch.has(\"value\")` asks for one, `batch` at the prompt shows
all. `batch.step` is the step, `batch.groups` the groups one by one.",
        example: "\
fn advantage(batch, p) {
    let r = batch.reward - batch.reward.mean(\"group\");
    if batch.has(\"entropy\") { r * batch.entropy } else { r }
}",
    },
    Topic {
        name: "hooks",
        others: &["hook", "reward", "advantage", "loss", "recipe"],
        doc: "the functions of a recipe that advlab calls: reward, advantage, loss",
        text: "\
A recipe is a script with at least one of advantage and loss.

  reward(batch, p)     may replace the reward: one value a response or token
  advantage(batch, p)  the advantage: one value a response or a token
  loss(batch, p)       a batch tensor made of batch.logp, minimised;
                       advlab finds its gradient; ppo_clip where there is none
  params()             declares the parameters: see `params`
  init(p)              makes the state: see `state`
  migrate(old, p)      carries the state of an older version over
  test_batch()         a batch to try the recipe on, for `advlab repl FILE`

The last line of a function is its value, without a semicolon. The hooks run in this order, and each sees what those before
it gave. At the prompt they are called as `advantage()`.",
        example: "\
fn reward(batch, p) {
    batch.reward - 0.001 * batch.length
}
fn advantage(batch, p) {
    batch.reward - batch.reward.mean(\"group\")
}
fn loss(batch, p) {
    let ratio = exp(batch.logp - batch.old_logp);
    -(ratio * batch.advantage).mean(\"batch\")
}",
    },
    Topic {
        name: "params",
        others: &["parameters", "parameter", "set", "p"],
        doc: "what can be set from outside: --set k=8, :set k=8, [params] of a run",
        text: "\
`params()` returns a map with an entry for each: `value`, its default and type, and as needed `min`, `max`, `choices` and
`doc`. Hooks read `p.k`. A value that does not fit is refused, and so is a name that is not declared.

  advlab apply mine.rhai rollouts.jsonl --set k=4
  :set k=4                          at the prompt
  [params] and k = 4                in a run's file",
        example: "\
fn params() {
    #{
        k: #{ value: 2, min: 1, doc: \"how many are drawn\" },
        norm: #{ value: \"std\", choices: [\"std\", \"none\"] },
    }
}
fn advantage(batch, p) {
    let a = p.k * (batch.reward - batch.reward.mean(\"group\"));
    if p.norm == \"std\" { safe_div(a, batch.reward.std(\"group\")) } else { a }
}",
    },
    Topic {
        name: "state",
        others: &["init", "migrate", "this", "schedule"],
        doc: "what lasts from step to step: init(p), this, migrate(old, p)",
        text: "\
`init(p)` returns a map that the hooks see as `this`. What they change in it is there at the next step, survives a change
of the script, and is kept in checkpoints. It holds numbers, texts, arrays and maps; a tensor belongs to its step, and
`x.value()` is its number. `migrate(old, p)` makes the state of a new version from that of the old; without it the state
stays, and gets what the new `init` has beyond it. At the prompt each call starts from `init`.

A schedule needs no state: `batch.step` is the step.",
        example: "\
fn init(p) { #{ mean: 0.0, steps: 0 } }
fn advantage(batch, p) {
    this.steps += 1;
    let now = batch.reward.mean(\"batch\").value();
    this.mean += (now - this.mean) / this.steps;
    metric(\"baseline\", this.mean);
    batch.reward - this.mean
}",
    },
    Topic {
        name: "language",
        others: &["rhai", "script", "let", "fn", "if", "for", "switch", "syntax", "closure"],
        doc: "how a script is written: Rhai, for who knows Python",
        text: "\
Lines end in `;`, but the last of a block, which is its value. Blocks stand in braces.

  let x = 0.5;                      a variable; x = 1 changes it
  fn f(x, k) { k * x }              a function sees its arguments alone
  |x| x + 1                         one without a name
  if a > b { a } else { b }         also as a value: let c = if ...
  for g in batch.groups { ... }     for i in 0..3 { ... }
  switch kind { \"a\" => 1, _ => 0 }
  [1, 2]   #{ k: 2 }   `k = ${k}`   an array, a map, a text with values
  && || !                           and, or, not, of single values
  &  |  !                           the same, value by value of tensors
  x ** 2                            a power
  // a comment                      //! at the top: the recipe's doc

`1 / 2` is 0.5. An `if` needs one value, such as `x.mean(\"batch\") > 0.5`; value by value it is `where(c, a, b)`.",
        example: "\
fn scaled(x, by) {
    if by > 0.0 { x / by } else { x }
}
fn advantage(batch, p) {
    let r = batch.reward;
    let spread = r.std(\"batch\").value();
    scaled(r - r.mean(\"group\"), spread)
}",
    },
    Topic {
        name: "prompt",
        others: &["repl", "_", "_1", "_2", "last", "history", "commands"],
        doc: "what the prompt adds to scripts: _ and _2, ?name and ??name, commands",
        text: "\
A formula is evaluated, and what `let` and `fn` make lasts. The values of the last nine inputs that had one have names:

  _   or _1         the last value
  _2, _3, ... _9    the value before it, the one before that, ...

A function sees its arguments alone, and not the variables of the prompt: pass what it needs, or make it inside with `let`.

  ?mean             what a function, a recipe or a word is
  ??grpo            the source of a recipe, or of a function that was typed
  :edit             the last input in $VISUAL or $EDITOR; :edit NAME, a source
  :help             all commands

What was typed is a recipe too: `advantage(batch, p)`, or the last value per response or token. `:run`, `:curve` and `:diff`
show what it does, `:save FILE` writes it.",
        example: "\
fn scaled(x, by) { x * by }          // not `x * r`, with r of the prompt
fn advantage(batch, p) { scaled(batch.reward, 2) }",
    },
];

impl Topic {
    pub(super) fn find(word: &str) -> Option<&'static Topic> {
        TOPICS
            .iter()
            .find(|topic| topic.name == word || topic.others.contains(&word))
    }

    pub(super) fn shown(&self, paint: Paint) -> String {
        let example: Vec<String> = self
            .example
            .lines()
            .map(|line| format!("  {line}"))
            .collect();
        format!(
            "{}: {}\n\n{}\n\n{}",
            paint.bold(self.name),
            self.doc,
            filled(self.text, paint.width),
            example.join("\n")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::script::Host;

    #[test]
    fn every_example_of_a_topic_is_a_recipe_that_runs() {
        let batch = Batch::example();
        for topic in TOPICS {
            let run = |text: &str| {
                let recipe = Host::new().compile(topic.name, text)?;
                assert!(recipe.warnings().is_empty(), "{}", topic.name);
                recipe.advantage(&batch, &mut recipe.init()?)
            };
            if let Err(error) = run(topic.example) {
                panic!("{}: {}", topic.name, error.render(false));
            }
        }
    }

    #[test]
    fn a_word_stands_for_one_topic_and_lines_fit() {
        for topic in TOPICS {
            for word in topic.others.iter().chain([&topic.name]) {
                let found = Topic::find(word).map(|found| found.name);
                assert_eq!(found, Some(topic.name), "{word}");
            }
            let shown = topic.shown(Paint::PLAIN);
            let long = shown.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{}", topic.name);
        }
    }
}
