//! What an input leaves behind, and what it does not; what commands answer.

use std::path::PathBuf;

use advlab::Host;
use advlab_cli::prompt::{Paint, PromptSession, piped};

use super::{play, play_in_folder, session};

/// Dialogues, each in a session of its own.
const DIALOGUES: &[&str] = &[
    // What is only looked at changes nothing.
    r#"> let r = 1
       > :plot { r += 1; batch.reward }
       > r
       = 1
       > :plot { let s = batch.reward; s }
       > s
       ! there is no variable
       > :plot fn f() { 1 } batch.reward
       > f()
       ! there is no function"#,
    // An input that fails leaves nothing.
    r#"> let a = 1; let b = nothing;
       ! nothing
       > a
       ! there is no variable
       > fn f() { 1 } nothing
       ! nothing
       > f()
       ! there is no function
       > let q = 5; let p = 3
       ! `p` holds the recipe's parameters
       > q
       ! there is no variable
       > let q = 5; batch = 3
       ! batch
       > batch.reward.len()
       = 128"#,
    // Lines that are pasted together are the inputs that they were.
    r#"> fn advantage(batch, p) {
       .     batch.reward * 2
       . }
       . :run
       . let x = batch.reward
       .     .len()
       . ?mean
       . x + 1
       ~ what you typed is the recipe now
       ~ max 2
       ~ x.mean(level
       ~ 129
       > let s = `a
       . :run
       . ?b`;
       . s.len()
       = 9"#,
    // A typed hook that was forgotten does not come back.
    r#"> fn advantage(batch, p) { foo(batch.reward) }
       ~ what you typed is not a recipe yet: Error: there is no function `foo`
       > :reset
       > :recipe grpo
       > fn helper(x) { x }
       =
       > :recipe
       ~ GRPO
       > fn advantage(batch, p) { foo(batch.reward) }
       ~ what you typed is not a recipe yet
       > :recipe dr_grpo
       > fn foo(x) { x }
       =
       > :recipe
       ~ Dr. GRPO"#,
    // A function that is typed again, with other names of its arguments, replaces the first.
    r#"> fn advantage(batch, p) { batch.reward }
       > fn advantage(b, p) { b.reward * 2 }
       > advantage().max("batch").value()
       = 2"#,
    // A function's import is its own.
    r#"> fn f() { import "nonexistent" as m; 1 }
       > 1 + 1
       = 2
       > f()
       ! nonexistent"#,
    r#"> fn init(p) { #{ mean: 0.5, seen: [1, "a"] } } fn advantage(batch, p) { this.mean = 1.5; batch.reward }
       > :run
       ~ #{ mean: 1.5, seen: [1, "a"] }"#,
    r#"> 0.1 * batch.entropy
       > :curve --n=2
       ~ group of 2
       ~ 0.05"#,
    r#"> :recipe passk k=2
       > :diff k=4
       ~ k=2
       ~ k=4
       > :run grpo
       ~ grpo
       > :recipe
       ~ Pass@k"#,
    // A formula has a gradient without a recipe, and no recipe is loaded by it.
    r#"> :grad
       ! no recipe is loaded
       > batch.reward - batch.reward.mean("group")
       > :grad
       ~ d loss() / d logp
       > loss()
       ! no recipe is loaded"#,
    // A variable of the batch before does not mix with the new one.
    r#"> let r = batch.reward
       > :load examples/rollouts.jsonl
       ~ define them again for the new batch: r
       > r.len()
       = 128
       > batch.reward.len()
       = 256
       > r - batch.reward
       ! batch"#,
    // Words that people type at any prompt; a variable of one's own comes first.
    r#"> help
       ~ :recipe
       > let help = 1; help
       = 1
       > help
       = 1"#,
    r#"> 1e300
       = 1e300
       > [1e300, 0.5]
       = [1e300, 0.5]
       > batch.reward.max("batch") * 1e300
       = 1e300 batch tensor, f64
       > batch.reward.population_std("batch").value() < batch.reward.std("batch").value()
       = true"#,
    // A profile is of the named recipe, of the one in use, or of what was typed.
    r#"> :profile passk k=2
       ~ passk 792df4
       ~ let n = right.count("group");
       > batch.reward - batch.reward.mean("group")
       > :profile
       ~ what you typed
       > :recipe grpo
       > :profile
       ~ grpo e5123f
       > :profile batch.reward - 1
       ! only recipes are profiled
       > :profile nothing
       ! there is no recipe `nothing`"#,
    r#"> :objective grpo --noise 0.2
       ! `--noise=0.2`
       > :objective grpo --n 4 --noise=2
       ! does not take `--noise 2`
       > :plot batch.reward * (0.0/0.0)
       ! `batch.reward * (0.0/0.0)` has no two finite values that differ
       > :plot batch.reward * (0.0/0.0), batch.length
       ! has no point with finite coordinates
       > :plot [0.0/0.0]
       ! has no point with finite coordinates
       > ??broadcasting
       ! `broadcasting` is not a script, but a part of advlab
       > :plot batch.length batch.reward
       ! Error
       > :plot batch.length --out
       ! does not take `--out`
       > :diff grpo passk --n 8
       ! does not take `--n 8`
       > :load examples/rollouts.jsonl --map reward
       ! write `:load [PATH]`"#,
    // A power of a negation asks for brackets.
    r#"> let x = batch.reward.mean("batch")
       > -x ** 2
       ! `(-x) ** y` or `-(x ** y)`
       > exp(-((x - 0.25) / 0.2) ** 2)
       ! `(-x) ** y` or `-(x ** y)`
       > `${1 + -x.value() ** 2}`
       ! `(-x) ** y` or `-(x ** y)`
       > -(2 ** 2) + (-2) ** 2 - 2 ** 2
       = -4"#,
    // `^` and `with` beside `_` are as without it.
    r#"> 2
       > _ ^ 3
       ! ^
       > batch.with(#{ reward: _ * batch.reward }).reward.max("batch").value()
       = 2
       > batch.with(#{ reward: 3 * batch.reward }).reward.max("batch").value()
       = 3"#,
    r#"> batch.reward.std("group", 0)
       ! ddof
       > max(1, 2, 3)
       ! takes 2 arguments, but got 3
       > batch.reward.max("batch", batch.correct).value()
       = 1"#,
    // Advantages per token are compared token by token.
    r#"+ one.rhai
       . fn advantage(batch, p) { let c = (batch.old_logp * 0 + 1).cumsum(); c - c.mean("response") }
       + same.rhai
       . fn advantage(batch, p) { let c = (batch.old_logp * 0 + 1).cumsum(); c - c.mean("response") + 0 * c }
       + zero.rhai
       . fn advantage(batch, p) { batch.old_logp * 0 }
       > :diff DIR/one.rhai DIR/zero.rhai
       ~ of the tokens differ
       > :diff DIR/one.rhai DIR/same.rhai
       ~ no difference on any of the 1 363 tokens"#,
    // A script comes with the built-in batch.
    r#"+ own.rhai
       . fn advantage(batch, p) { 2 * batch.reward }
       > :load DIR/own.rhai
       ~ own.rhai is a recipe, so the built-in batch is used
       > advantage().len()
       = 128"#,
    // Fields of other names are mapped.
    r#"+ theirs.jsonl
       . {"prompt_id": "a", "score": 1}
       . {"prompt_id": "a", "score": 0}
       > :load DIR/theirs.jsonl --map group=prompt_id
       ! reward
       > :load DIR/theirs.jsonl --map group=prompt_id --map=reward=score
       > batch.reward.sum("batch").value()
       = 1"#,
    // A hook is saved with the settings that it has.
    r#"> :recipe passk k=2
       > fn advantage(batch, p) { p.k * batch.reward }
       > :set k=8
       > :save DIR/hook.rhai
       > :recipe DIR/hook.rhai
       ~ k = 8
       > advantage().max("batch").value()
       = 8"#,
    // An input that fails draws too, and is not saved: the script gives something else, which is said.
    r#"> batch.random("response").sum("batch").value(); throw "no"
       ! no
       > batch.random("response")
       > :save DIR/other.rhai
       ~ does not give the value"#,
];

#[test]
fn dialogues() {
    for dialogue in DIALOGUES {
        play_in_folder(&mut session(), dialogue);
    }
    let mut session = session();
    // However many are pasted.
    let reply = session.submit(&":set step=1\n".repeat(2000));
    assert_eq!(reply.text.lines().count(), 2000);
    session.submit("exit()");
    assert!(session.is_over);
}

#[test]
fn an_input_goes_on_in_the_next_line_if_it_is_incomplete() {
    let session = session();
    // What is wrong in a block is told when it is whole.
    let open = "fn f(x) {|fn f(x) {\n    x + 1|batch.reward.mean(|1 +|let x =|[1, 2,|#{ a: 1,|/* a comment|`a text over|\
        fn f(x) {\n    let a = 1\n    x + a";
    let done = "|fn f(x) { x + 1 }|1 + )|let = 3|batch.reward.|\"not closed|:recipe {|?mean(|// a comment|f(]|\
        fn f(x) {\n    let a = 1\n    x + a\n}";
    for (inputs, expected) in [(open, true), (done, false)] {
        for input in inputs.split('|') {
            assert_eq!(session.is_incomplete(input), expected, "{input}");
        }
    }
}

/// Without an end, and slow enough that the limit of operations is far away.
const SLOW: &str = "loop { batch.reward.mean(\"group\").values(); }";

#[test]
fn an_endless_loop_ends_at_the_limit_or_when_it_is_cancelled() {
    use advlab::script::Limits;
    let limits = Limits {
        time: std::time::Duration::from_millis(50),
        ..Limits::default()
    };
    let mut limited = PromptSession::new(&Host::new().with_limits(limits), Paint::PLAIN);
    let mut session = session();
    let guard = session.guard().clone();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    // Again and again: one before the input is evaluated is not for it.
    let stop = std::thread::spawn(move || {
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            guard.cancel();
            std::thread::yield_now();
        }
    });
    let cancelled = session.submit(SLOW).text;
    drop(end);
    stop.join().expect("the thread that cancels");
    assert!(cancelled.contains("cancelled"), "{cancelled}");
    assert_eq!(session.submit("1 + 1").text, "2");
    let late = limited.submit(SLOW).text;
    assert!(late.contains("the time limit"), "{late}");
    // The next input has its own time, which a machine that does much else may let pass.
    assert!((0..10_000).any(|_| limited.submit("1 + 1").text == "2"));
}

#[test]
fn piped_lines_all_run_and_the_wrong_ones_are_counted() {
    for (lines, wrong, expected) in [
        ("1 + 1\n2 + 2", 0, "2\n4\n"),
        ("fn f(x) {\r\n  x + 1\r\n}\r\nf(1)\r\n", 0, "2\n"),
        ("1\n:quit\nnothing\n", 0, "1\n"),
        ("nothing\n:nope\n7\nfn f( {", 3, "\n7\n"),
        ("1 2\n3\nlet c = '`'\n4\n", 1, "\n3\n4\n"),
        ("1\nfn f(x) {\n", 1, "1\nError:"),
    ] {
        let mut out = Vec::new();
        let found = piped(&mut session(), lines.as_bytes(), &mut out).expect("lines");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(found, wrong, "{lines}: {text}");
        assert!(text.contains(expected), "{lines}: {text}");
    }
    // A line that is not UTF-8 does not end the session.
    let mut out = Vec::new();
    piped(&mut session(), &b"\xff\xfe\n2 + 2\n"[..], &mut out).expect("lines");
    assert!(out.ends_with(b"\n4\n"));
}

#[test]
fn answers_fill_the_width_of_the_terminal() {
    let narrow = [":recipe grpo", ":help", "?functions", "?kl", "?pacs"];
    let filled = [
        "batch.reward.mean(\"group\")",
        "batch.old_logp",
        ":curve grpo",
        "?batch",
        "let long = \"\"; long.pad(4096, 'x'); [long]",
        ":vars",
        "batch.groups",
    ];
    for (width, most) in [(60, 50), (80, 70), (120, 100)] {
        let paint = Paint {
            width,
            ..Paint::PLAIN
        };
        let mut session = PromptSession::new(&Host::new(), paint);
        for input in narrow.iter().chain(&filled) {
            let text = session.submit(input).text;
            let widths = text.lines().map(|line| line.chars().count());
            let widest = widths.max().unwrap_or(0);
            // Scripts in an explanation stay as they are.
            let is_wide = *input == "?batch" && width < 80;
            let is_full = widest >= most || narrow.contains(input);
            let fits = widest <= width || is_wide;
            assert!(fits && is_full, "{input}: {widest} of {width}");
        }
        assert_eq!(session.submit("long").text.len(), 4096 + 2);
    }
}

/// Names that a terminal would obey, or that take two columns per letter.
#[test]
fn names_from_a_file_reach_the_terminal_as_text_that_lines_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let row = |group: &str, reward: u8| {
        let row = serde_json::json!({ "group": group, "reward": reward, "\u{1b}odd": 1.5, "old_logp": [-1.0] });
        format!("{row}\n")
    };
    let rows = [row("\u{1b}[31m\u{7}", 1), row("数学", 0), row("ab", 1)].concat();
    let file = folder.path().join("rollouts.jsonl");
    std::fs::write(&file, rows).expect("a file");
    let mut session = session();
    session.open(&file, &[]).expect("rollouts");
    let by_group = "batch.reward.mean(\"group\")";
    for input in ["batch", by_group, "batch.old_logp", "batch.reward"] {
        let text = session.submit(input).text;
        let raw = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(raw, None, "{input}: {text}");
    }
    let text = session.submit("batch.reward").text;
    assert!(text.contains("\\u{1b}[31m\\u{7}"), "{text}");
    let line = |name: &str| text.lines().find(|line| line.contains(name));
    let columns = |name: &str| line(name).expect("a line").chars().count();
    assert_eq!(columns("数学") + 2, columns("ab"), "{text}");
}

#[test]
fn figures_are_written_as_svg_or_as_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let mut session = session();
    let mut written = |command: &str, file: PathBuf| {
        play(
            &mut session,
            &format!("> {command} --out {}\n~ written to", file.display()),
        );
        std::fs::read_to_string(&file).expect("the figure")
    };
    for command in [
        ":curve passk --n 8",
        ":plot batch.length",
        ":plot batch.length, batch.reward",
        ":curve passk grpo dr_grpo --n 8",
        ":objective grpo_lambda grpo --n 8",
        ":surface ppo_clip",
        ":surface gspo loss",
    ] {
        let svg = written(command, file("figure.svg"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    for (name, begins) in [("a.csv", "panel,series,x,y,z\n"), ("a.json", "{\"title\":")] {
        let text = written(":curve passk k=2 grpo --n 4", file(name));
        assert!(
            text.starts_with(begins) && text.contains("passk k=2"),
            "{text}"
        );
    }
    play(
        &mut session,
        "> :plot batch.length --out figure.png\n! figure.png\n> :curve grpo --out figure.pdf\n! rsvg-convert -f pdf",
    );
}
