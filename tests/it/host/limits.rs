//! Limits that a script has met, whoever passes over the error, and what a script can hold: each kind of value is counted.

use std::sync::LazyLock;
use std::time::Duration;

use advlab::batch::Batch;
use advlab::deep_stack;
use advlab::script::{Host, Limits};

use crate::memory::most_held;

/// One for all scripts: each new host registers all functions.
static HOST: LazyLock<Host> = LazyLock::new(Host::new);

/// The error of an advantage with this body, or what it reports and prints.
fn run(body: &str, batch: &Batch, limits: Limits) -> String {
    let script = format!("fn advantage(batch, p) {{ {body}; batch.reward }}");
    let recipe = match HOST.clone().with_limits(limits).compile("limits", &script) {
        Ok(recipe) => recipe,
        Err(error) => return error.to_string(),
    };
    match recipe.advantage(batch, &mut recipe.init().unwrap()) {
        Ok(outcome) => format!(
            "{:?} {:?} {:?}",
            outcome.reports.metrics, outcome.reports.prints, outcome.reports.notes
        ),
        Err(error) => error.to_string(),
    }
}

/// The engine's own functions pass over these errors, and go on with another result.
#[test]
fn an_error_that_a_function_passes_over_ends_the_hook() {
    let limits = Limits {
        time: Duration::from_millis(50),
        ..Limits::default()
    };
    // binomials of more than any group has: the tensor cannot be computed.
    let none =
        r#"let x = binomial_ratio(batch.reward + 1e15, batch.reward + 2e15, 1e14).sum("batch");"#;
    for (body, wanted) in [
        (
            "let n = 0; [1, 2].dedup(|x, y| { loop { n += 1; } }); metric(\"n\", n)",
            "stopped after 0.050 s",
        ),
        (
            "let n = 0; try { [1, 2].dedup(|x, y| { loop { n += 1; } }) } catch { n = -1; }",
            "stopped after 0.050 s",
        ),
        ("let a = [1, 2]; a.dedup(|x, y| throw \"boom\")", "boom"),
        ("(0.0 / 0.0).to_int()", "NaN does not fit into an integer"),
        ("let x = 1e400", "invalid number: '1e400'"),
        ("throw batch", "a batch"),
        ("let f = Fn(\"+\")", "`+` is an operator, not a function"),
        (
            "let a = [1, 2]; a.dedup(|x, y| batch.reward)",
            "a comparison must return a number or a boolean, not a response tensor",
        ),
        (&format!("{none} print(x)"), "`binomial_ratio`"),
        (&format!("{none} print([x])"), "`binomial_ratio`"),
        (&format!("{none} let s = `${{x}}`"), "`binomial_ratio`"),
        (&format!("{none} let s = \"\" + x"), "`binomial_ratio`"),
        (
            "let a = [3.0, 0.0 / 0.0, 1.0]; a.sort()",
            "cannot be ordered",
        ),
        (
            "let a = [3.0, 0.0 / 0.0, 1.0]; a.order_desc()",
            "cannot be ordered",
        ),
        (
            "let a = [1, \"a\"]; a.sort()",
            "a string (\"a\") and a number (1) cannot be ordered",
        ),
    ] {
        let said = run(body, &Batch::example(), limits);
        assert!(said.contains(wanted), "{body}: {said}");
    }
    // Of `params()` and of the top of an import as of the other hooks.
    let params = "fn params() { [1, 2].dedup(|x, y| throw \"boom\"); #{} } fn advantage(batch, p) { batch.reward }";
    let said = Host::new().compile("limits", params).unwrap_err();
    assert!(said.to_string().contains("boom"), "{said}");
    for (body, prints) in [
        (
            "let a = [2, 0.5, 1, -1]; a.sort(); print(a); print([1, 2].order_desc())",
            r#"["[-1, 0.5, 1, 2]", "[2, 1]"]"#,
        ),
        (
            "let a = [\"b\", \"a\"]; a.sort_desc(); print(a); let c = ['b', 'a']; c.sort(); print(c)",
            r#"["[\"b\", \"a\"]", "[a, b]"]"#,
        ),
        (
            "let a = [1, 1, 2, 1]; a.dedup(); print(a); a.dedup(|x, y| x > y); print(a)",
            r#"["[1, 2, 1]", "[1, 2]"]"#,
        ),
        (
            "let a = [1, 2, 2.0, 1]; a.dedup(|x, y| x - y); print(a)",
            r#"["[1, 2, 1]"]"#,
        ),
        (
            "let s = \"abcab\"; s.replace(\"ab\", \"x\"); print(s); s.replace('x', 'y'); print(s); s.replace(\"\", \"-\"); print(s)",
            r#"["xcx", "ycy", "-y-c-y-"]"#,
        ),
        (
            "let s = \"aβ\"; let t = \"\"; for c in s { t = c + t; } print(t); s.replace('β', \"\"); print(s)",
            r#"["βa", "a"]"#,
        ),
        // A group is looked at while there is none yet, and then each one is.
        (
            "batch.map_groups(|g| { print(g.reward.sum(\"batch\")); g.reward })",
            r#"["2", "0"]"#,
        ),
    ] {
        let said = run(body, &Batch::example(), Limits::default());
        assert!(said.contains(prints), "{body}: {said}");
    }
}

/// Values of a type at which a function's loop may have no end, or its result no bound.
fn edges(of: &str) -> &'static [&'static str] {
    match of {
        "any" => &["1", "[]"],
        "int" => &["0", "-1", "9223372036854775807"],
        "float" => &["0.0 / 0.0", "1e300"],
        "bool" => &["true"],
        "char" => &["'x'"],
        "string" => &["\"\"", "\"ab\""],
        "array" => &["[]", "[1, 2]"],
        "map" => &["#{}", "#{ a: 1 }"],
        "Fn" => &["|x| x", "|| 1"],
        "range" => &["0..0", "0..9223372036854775807"],
        "range=" => &["0..=0"],
        "tensor" => &["batch.reward"],
        "batch" => &["batch"],
        "key" => &["batch.key(\"group\")"],
        _ => &[],
    }
}

#[test]
fn each_listed_function_ends_at_the_edges_of_its_arguments() {
    let rows = include_str!("../../../src/script/natives.txt")
        .split_once("\n[")
        .unwrap()
        .1;
    let mut calls = Vec::new();
    for row in rows.lines().filter(|row| !row.contains('$')) {
        let Some((name, types)) = row
            .split_once(": ")
            .filter(|(name, _)| name.starts_with(char::is_alphabetic))
        else {
            continue;
        };
        let mut all = vec![String::new()];
        for of in types.split(", ") {
            let with = |before: &String| {
                edges(of)
                    .iter()
                    .map(|one| format!("{before}{one}, "))
                    .collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        calls.extend(
            all.iter()
                .map(|all| format!("{name}({})", all.trim_end_matches(", "))),
        );
    }
    assert!(calls.len() > 1000, "{}", calls.len());
    let (send, ended) = std::sync::mpsc::channel();
    let all = calls.clone();
    std::thread::spawn(move || {
        let batch = Batch::example();
        // On one thread, because a script needs a thread of its own on any other.
        deep_stack::call(|| {
            for call in all {
                let (_, most) = most_held(|| run(&call, &batch, Limits::default()));
                send.send(most).unwrap();
            }
        });
    });
    for call in calls {
        // Minutes only end what has no end.
        let most = ended.recv_timeout(Duration::from_secs(300));
        let most = most.unwrap_or_else(|_| panic!("`{call}` has not ended"));
        assert!(most < 64 << 20, "`{call}` held {most} bytes");
    }
}

/// A note is kept once, however often it is given.
#[test]
fn notes_are_kept_once() {
    let body =
        r#"let k = batch.key("group"); for i in 0..1000 { remember("t", k, batch.reward, 1); }"#;
    let said = run(body, &Batch::example(), Limits::default());
    assert_eq!(said.matches("has had more than").count(), 1, "{said}");
}

/// A batch that makes the values of one tensor 32 kB.
fn large() -> Batch {
    let responses = 4096;
    let reward = (0..responses).map(|index| f64::from(index % 3));
    let agent = (0..responses).map(|index| format!("agent-{index}"));
    let groups = (0..responses).map(|index| i64::from(index / 8));
    let batch = Batch::builder()
        .groups(groups)
        .lengths(vec![16; responses as usize]);
    let batch = batch.response("reward", reward.collect::<Vec<f64>>());
    batch
        .text("agent", agent.collect::<Vec<String>>())
        .build()
        .unwrap()
}

/// Each kind of value that a script can hold, without an end: the process takes what tensors may have, and little more.
#[test]
fn whatever_a_script_holds_is_counted() {
    const MEMORY: usize = 16 << 20;
    let (batch, limits) = (
        large(),
        Limits {
            memory: MEMORY,
            time: Duration::from_secs(3600),
        },
    );
    let held = |value: &str| {
        format!(
            "let k = batch.key(\"group\"); let a = []; for i in 0..30000 {{ a.push({value}); }}"
        )
    };
    let in_maps = |value: &str| {
        format!(
            "let s = \"x\"; s.pad(100000, 'x'); let m = #{{}}; let i = 0; loop {{ m[`${{i}}`] = {value}; i += 1; }}"
        )
    };
    let tensors = "more than 16 MiB, the memory limit";
    for (body, wanted) in [
        (held("recall(\"t\", k, 0)"), tensors),
        (held("running(\"t\", k, 0, 0.5, batch.reward)"), tensors),
        (held("k == batch.key(\"agent\")"), tensors),
        (held("batch.random(\"response\")").replace("30000", "3000"), "[]"),
        (held("batch.random(\"response\") + 1") + "for x in a { x.len(); }", tensors),
        (held("batch.group_by(batch.reward + i)"), tensors),
        (held("batch.regroup(batch.reward)"), tensors),
        (held("batch.with(#{ c: i + 0 * batch.reward }).key(\"c\", \"agent\")"), tensors),
        (held("batch.with(#{ c: batch.reward })") + "let b = []; for i in 0..30000 { b.push(batch.with(#{ c: 1 })); }", tensors),
        (in_maps("s + i"), "hold more than 64 MiB"),
        (in_maps("|| s + i"), "hold more than 64 MiB"),
        (in_maps("[0..i, 0..=i]"), "holds a map of more than"),
        ("let s = \"x\"; s.pad(1000000, 'x'); let a = []; a.pad(30000, 1); a.map(|x| s + x)".into(), "takes more memory than any formula needs"),
        ("let f = |n, g| { let m = #{}; let s = \"x\"; s.pad(1000000, 'x'); for i in 0..55 { m[`${i}`] = s + i; } if n > 0 { g.call(n - 1, g) } }; f.call(28, f)".into(), "takes more memory than any formula needs"),
        ("let a = \"x\"; while a.len() < 65536 { a += a; } a.replace(\"x\", a)".into(), "a string grew beyond 1048576 bytes"),
        // Endless, or of a size that overflows, if the engine makes them.
        ("let s = \"x\"; s.pad(10, \"\")".into(), "`pad`"),
        ("let b = []; b.pad(32767, 0); let a = []; a.pad(562949953421312, b)".into(), "an array grew beyond 32768 elements"),
        ("let s = \"x\"; s.pad(1000000, 'x'); for i in 0..40 { s.to_chars(); }".into(), "an array grew beyond 32768 elements"),
        ("at_last_token(batch.reward).values()".into(), "an array grew beyond 32768 elements"),
        ("let a = []; for i in 0..64 { a.push(batch.key(\"agent\").values()); }".into(), "an array grew beyond"),
        ("let s = \"x\"; s.pad(1000000, 'x'); s.to_blob()".into(), "there is no function `to_blob`"),
        ("let s = \"x\"; s.chars()".into(), "there is no function `chars`"),
        ("let f = Fn(\"sleep\"); f.call(100)".into(), "there is no function `sleep`"),
        ("let x = 1; x.tag = 2".into(), "an integer has no property `tag`"),
    ] {
        let (said, most) = most_held(|| run(&body, &batch, limits));
        assert!(said.contains(wanted), "{body}: {said}");
        // What the guard does not know, the script's thread may have 128 MiB of.
        let unknown = if wanted == tensors { 16 << 20 } else { 160 << 20 };
        assert!(most < MEMORY + unknown, "{body}: {most} bytes");
    }
}
