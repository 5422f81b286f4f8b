//! Transcripts: every kind of value, of error, and of input over several lines.

use insta::assert_snapshot;

use super::{session, transcript};

#[test]
fn values_of_every_level() {
    let text = transcript(
        &mut session(),
        r#"
batch

batch.reward

batch.reward.mean("group")

batch.reward.mean("batch")

batch.old_logp

batch.entropy.mean("position")

batch.groups[3]

batch.groups[3].reward

batch.regroup(batch.correct).reward.count("group")

batch.reward * 0.0 / 0.0

batch.old_logp * 1e-9

where(batch.reward == 1, 1e12, -3.5)

batch.reward > 0.5
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn plain_values() {
    let text = transcript(
        &mut session(),
        r#"
1 + 1

1 / 3.0

2 > 1

"a text"

'c'

[1, 2.5, "three", [4]]

[]

#{ b: 2, a: batch.reward }

batch.groups

batch.reward.values()

|x| x + 1

()

let x = 3

x += 1; x * 2

print("a line"); x

metric("accuracy", batch.correct.mean("batch"))

batch.logp.len()
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn names_last_and_so_does_the_last_value() {
    let text = transcript(
        &mut session(),
        r#"
let r = batch.reward

r.mean("group")

r - _

_.sum("batch").value()

switch 3 { 1 => "one", _ => "other" }

_ + "s"

fn center(x) { x - x.mean("group") }

center(r).abs().max("batch").value()

fn center(x) { x }

center(r).max("batch").value()

import "grpo" as grpo;

grpo::advantage(batch, #{ eps: 0.0, std: "population" }).max("batch").value()

fn twice(b) { 2 * grpo::advantage(b, #{ eps: 0.0, std: "population" }) }

twice(batch).max("batch").value()

let r = 5

:vars

:reset

r
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn inputs_of_several_lines() {
    let mut session = session();
    let open = [
        "fn f(x) {",
        "fn f(x) {\n    x + 1",
        "batch.reward.mean(",
        "1 +",
        "let x =",
        "[1, 2,",
        "#{ a: 1,",
        "/* a comment",
        "if true {",
        "`a text over",
        // What is wrong in a block is told when it is whole.
        "fn f(x) {\n    let a = 1\n    x + a",
    ];
    for text in open {
        assert!(session.is_incomplete(text), "{text}");
    }
    let done = [
        "",
        "fn f(x) { x + 1 }",
        "1 + )",
        "let = 3",
        "batch.reward.",
        "\"not closed",
        ":recipe {",
        "?mean(",
        "// a comment",
        "let x = 1;",
        "fn f(x) {\n    let a = 1\n    x + a\n}",
        "f(]",
        "f(\"not closed",
    ];
    for text in done {
        assert!(!session.is_incomplete(text), "{text}");
    }
    let text = transcript(
        &mut session,
        r#"
fn spread(x) {
    let low = x.min("group");
    x.max("group") - low
}

spread(batch.length)
    .mean("batch")
    .value()

batch.reward
    .mean("gruop")
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn errors_of_every_kind() {
    let text = transcript(
        &mut session(),
        r#"
1 + )

let r = batch.rewrad

batch.reward.mean("gruop")

batch.reward.maen("group")

batch.reward.mean()

batch.mean("group")

nothing + 1

reward

mean

p.k = 8

p.len()

batch.reward && batch.correct

if batch.reward { 1 }

batch.reward.value()

batch.old_logp.mean("batch") + batch.groups[0].reward

batch.reward.cumsum()

batch.reward.expand("batch")

batch.reward[1000]

[1, 2][5]

1 / 0

"a" - 1

for i in 3 { }

throw "enough"

import "grop" as g;

grpo::advantage(batch, #{})

kl(batch.old_logp, batch.ref_logp, "k9")

binomial_ratio(9, 4, 5)

grad(batch.reward, batch.logp)

grad(batch.logp.median("batch"), batch.logp)

batch.reward = 1

const C = #{ a: 1 }

C = 2

C.a = 2

fn deep(n) { deep(n + 1) }

deep(0)

fn inner(x) { x.mean("grp") }

fn outer(x) { inner(x) }

outer(batch.reward)

eval("1")

sleep(1)

timestamp()

advantage()

:recipe gae

advantage()
"#,
    );
    assert_snapshot!(text);
}

/// What people type who come from Python, or who have not read anything yet.
#[test]
fn first_mistakes() {
    let text = transcript(
        &mut session(),
        r#"
let p = 3

let batch = 3

let batch = batch.regroup(batch.correct)

:load examples/rollouts.jsonl

r = batch.reward

batch.foo

batch.reward.mean

batch.reward.mean(group)

batch.reward.shape

batch[0]

batch.reward == 1 and batch.correct

not batch.correct

import numpy as np

def f(x): return x

torch.mean(batch.reward)

sum(batch.reward)

print batch.reward

r**2

True

if 1 { 2 }

:diff passk k=2

:load nothere

_

advantage(batch, p)

passk()

grpo

fn los(batch, p) { batch.logp.mean("batch") }

-(batch.logp * batch.advantage).mean("batch")
"#,
    );
    assert_snapshot!(text);
}

#[test]
fn words_that_people_type_at_any_prompt_work() {
    let mut session = session();
    assert!(session.submit("help").text.contains(":recipe"));
    assert!(session.submit("let help = 1; help").text == "1");
    assert_eq!(
        session.submit("help").text,
        "1",
        "a variable of one's own comes first"
    );
    session.submit("exit()");
    assert!(session.is_over());
}

#[test]
fn what_failed_leaves_no_trace() {
    let mut session = session();
    assert!(session.submit("let a = 1; let b = nothing;").is_error);
    assert!(
        session.submit("a").is_error,
        "a variable of an input that failed is gone"
    );
    assert!(session.submit("fn f() { 1 } nothing").is_error);
    assert!(session.submit("f()").is_error, "and so is a function");
    assert_eq!(session.submit("1 + 1").text, "2");
}

/// Without an end, and slow enough that the limit of operations is far away.
const SLOW: &str = "loop { batch.reward.mean(\"group\").values(); }";

#[test]
fn an_endless_loop_ends_at_the_limit_or_when_it_is_cancelled() {
    use advlab::script::{Host, Limits};
    let limits = Limits {
        time: std::time::Duration::from_millis(50),
        ..Limits::default()
    };
    let host = Host::new().with_limits(limits);
    let mut session = advlab_cli::prompt::Session::new(&host, advlab_cli::prompt::Paint::PLAIN);
    let ended = session.submit(SLOW).text;
    assert!(ended.contains("the time that it was given"), "{ended}");
    assert_eq!(
        session.submit("1 + 1").text,
        "2",
        "the next input has its own time"
    );

    let mut session = super::session();
    let guard = session.guard().clone();
    let stop = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        guard.cancel();
    });
    let ended = session.submit(SLOW).text;
    assert!(ended.contains("cancelled"), "{ended}");
    stop.join().expect("the thread that cancels");
    assert_eq!(session.submit("1 + 1").text, "2");
}
