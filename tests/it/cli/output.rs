//! What the commands print where all goes well.

use std::io::Read;
use std::process::Stdio;

use advlab::batch::Batch;
use advlab::script::{BUILTINS, BuiltinKind, Host};
use advlab::tensor::op::{self, Class};
use advlab_cli::prompt::{Paint, PromptSession};
use serde_json::Value;

use super::lab::Lab;

#[test]
fn commands() {
    let lab = Lab::new();
    lab.replay("commands");
    let edited = lab.run("apply mine.rhai rollouts.jsonl --set k=2");
    let builtin = lab.run("apply passk rollouts.jsonl --set k=2");
    assert_eq!(
        edited.shown().replace("mine.rhai", "passk"),
        builtin.shown()
    );
    let recipe = advlab::script::Builtin::find("passk").expect("a built-in");
    assert_eq!(lab.read("mine.rhai"), recipe.text);
    for command in ["check", "recipes", "doc", "new"] {
        assert_eq!(lab.run(&format!("{command} --help")).status, 0, "{command}");
    }
    let written = lab.run("apply reinforce_pp rollouts.jsonl --set kl_beta=0 -o out.jsonl");
    insta::assert_snapshot!("apply_reinforce_pp", written.shown());
    assert_eq!(lab.read("out.jsonl").lines().count(), 256);
}

#[test]
fn weights_are_shown_as_shares_of_a_filter_or_with_their_spread() {
    let lab = Lab::new();
    let advantage = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }";
    for (weights, spread, share) in [
        ("2, 1", "min 1.0000   max 2.0000", ""),
        ("1, 0", "", "weight      0 for "),
        ("3, 0", "max 3.0000", "   0 for "),
    ] {
        let weight = format!("fn weight(batch, p) {{ where(batch.reward > 0, {weights}) }}");
        lab.write("mine.rhai", &format!("{weight}\n{advantage}"));
        let ran = lab.ok("apply mine.rhai rollouts.jsonl");
        ran.shows(spread);
        ran.shows(share);
        assert!(!ran.out.contains("0 for 0 "), "{weights}: {}", ran.out);
    }
}

/// Two groups of 10 and of 6 tokens, each with half of the sum of |A|; a design against it, and one that takes the second group.
#[test]
fn masses_of_several_designs_stand_side_by_side() {
    let lab = Lab::new();
    let rows = [("a", 1, 1), ("a", 0, 2), ("a", 0, 3), ("a", 0, 4)];
    let rows = rows
        .into_iter()
        .chain([("b", 1, 2), ("b", 1, 2), ("b", 0, 1), ("b", 0, 1)]);
    let line = |(group, reward, length)| {
        let logp = vec![-0.5; length];
        format!("{{\"group\": \"{group}\", \"reward\": {reward}, \"old_logp\": {logp:?}}}\n")
    };
    lab.write("rows.jsonl", &rows.map(line).collect::<String>());
    let centred = "let x = batch.reward - batch.reward.mean(\"group\");";
    for (name, own) in [
        ("against", "-x"),
        ("half", "x * (batch.reward.mean(\"group\") > 0.3)"),
    ] {
        let text = format!("fn advantage(batch, p) {{ {centred} {own} }}");
        lab.write(&format!("{name}.rhai"), &text);
    }
    let json = lab.json("mass dr_grpo against.rhai half.rhai rows.jsonl");
    let designs = json["designs"].as_array().expect("designs");
    let share = |design: usize, by: &str, part: &str| {
        let parts = designs[design]["parts"].as_array().expect("parts");
        let own = parts
            .iter()
            .find(|one| one["by"] == by && one["part"] == part);
        own.expect("the part")["advantage"]
            .as_f64()
            .expect("a share")
    };
    for (design, by, part, expected) in [
        (0, "accuracy", "(0, 1/4]", 0.5),
        (0, "response", "right", 2.75 / 6.0),
        (1, "accuracy", "(1/4, 1/2]", 0.5),
        (2, "accuracy", "(0, 1/4]", 0.0),
        (2, "response", "right", 2.0 / 3.0),
    ] {
        let found = share(design, by, part);
        assert!(
            (found - expected).abs() < 1e-12,
            "{design} {by} {part}: {found}"
        );
    }
    let effective = designs[2]["summary"]["effective_responses"].as_f64();
    assert!(
        (effective.expect("a number") - 3.6).abs() < 1e-12,
        "{effective:?}"
    );
    let pairs = ["opposite_sign", "one_is_zero"].map(|key| {
        let pairs = json["pairs"].as_array().expect("pairs").iter();
        pairs
            .map(|pair| pair[key].as_f64().expect("a share"))
            .collect::<Vec<f64>>()
    });
    assert_eq!(pairs, [[1.0, 0.0, 0.375], [0.0, 0.625, 0.625]]);
    let correlation = json["pairs"][0]["correlation"].as_f64();
    assert!((correlation.expect("it varies") + 1.0).abs() < 1e-12);
    lab.ok("mass dr_grpo half.rhai rows.jsonl --out both");
    let table = lab.read("both/mass.csv");
    assert!(
        table.starts_with("recipe,by,part,tokens,advantage,gradient\n"),
        "{table}"
    );
    assert!(
        table.contains("\nhalf,accuracy,\"(0, 1/4]\",0.625,0,0\n"),
        "{table}"
    );
    assert!(lab.read("both/mass.svg").contains("accuracy of the group"));
    let prompt = lab.prompt("repl rows.jsonl", ":mass dr_grpo against.rhai\n");
    assert!(prompt.contains("dr_grpo, against"), "{prompt}");
}

/// A copy is the built-in as long as nothing in it is edited.
#[test]
fn apply_says_where_kernels_answered() {
    let lab = Lab::new();
    let own = advlab::script::Host::new().load("grpo").expect("grpo");
    lab.write("copy.rhai", own.text());
    lab.write(
        "edited.rhai",
        &own.text().replace("fn advantage", "// Mine.\nfn advantage"),
    );
    for (recipe, when, is_native) in [
        ("grpo", "on", true),
        ("copy.rhai", "on", true),
        ("edited.rhai", "on", false),
        ("grpo", "off", false),
    ] {
        let out = lab
            .ok(&format!("apply {recipe} rollouts.jsonl --native {when}"))
            .out;
        assert_eq!(out.contains("(native)"), is_native, "{recipe}: {out}");
    }
}

/// Columns that no source names are not read, and one whose name is put together is found all the same.
#[test]
fn apply_reads_the_columns_of_a_padded_file_that_a_recipe_needs() {
    let lab = Lab::new();
    let rows = ndarray::array![[-1.0, -2.0], [-0.5, f64::NAN]];
    let batch = Batch::builder()
        .groups([1, 1])
        .mask(ndarray::array![[1, 1], [1, 0]].view())
        .response("reward", vec![1.0, 0.0])
        .token("old_logp", rows.clone())
        .token("ref_logp", rows);
    let batch = batch.build().expect("a batch");
    let file = lab.path().join("batch.safetensors");
    batch.write_safetensors(file).expect("a file");
    let print = |name: &str| {
        let asked = format!("let there = batch.has({name}); if !there {{ throw \"not there\" }}");
        let body = format!("{asked} print(batch[{name}].sum(\"batch\").value()); batch.reward");
        lab.write("sum.rhai", &format!("fn advantage(batch, p) {{ {body} }}"));
        let ran = lab.ok("apply sum.rhai batch.safetensors");
        ran.out.lines().next().expect("a line").to_string()
    };
    assert_eq!(print("\"old_logp\""), "-3.5");
    assert_eq!(print("\"old\" + \"_logp\""), "-3.5");
}

/// A recipe's own loss sees its advantage; at the policy that sampled, the ratio is 1.
#[test]
fn apply_shows_the_loss_beside_the_advantage() {
    let lab = Lab::new();
    lab.write(
        "both.rhai",
        "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }\nfn loss(batch, p) {\n    metric(\"answer\", 42);\n    -(exp(batch.logp - batch.old_logp) * batch.advantage).mean(\"batch\")\n}\n",
    );
    let shown = lab.run("apply both.rhai rollouts.jsonl").shown();
    insta::assert_snapshot!("apply_both", shown);
    let json = lab.json("apply both.rhai rollouts.jsonl");
    let number = |value: &Value| value.as_f64().expect("a number");
    let [loss, tokens] = [&json["loss"], &json["summary"]["tokens"]].map(number);
    let slope = number(&json["gradient"]["mean"]);
    assert!((slope * tokens - loss).abs() < 1e-12, "{slope} {loss}");
    let smallest = number(&json["gradient"]["min"]) * tokens;
    let largest = number(&json["summary"]["advantage"]["max"]);
    assert!((smallest + largest).abs() < 1e-12, "{smallest} {largest}");

    // Where no token counts, a loss is 0.
    lab.write(
        "none.jsonl",
        "{\"group\": 1, \"reward\": 1, \"advantage\": 1, \"logp\": [], \"old_logp\": []}\n",
    );
    let json = lab.json("apply ppo_clip none.jsonl");
    assert_eq!(json["loss"], 0.0);

    // Without log-probs the advantage stands alone, and what the loss lacks is said.
    lab.write(
        "bare.jsonl",
        "{\"group\": 1, \"reward\": 1, \"length\": 3}\n",
    );
    let ran = lab.ok("apply both.rhai bare.jsonl");
    let warning = "Warning: the loss is not computed: the batch has no column";
    assert!(ran.err.starts_with(warning), "{}", ran.err);
    ran.shows("1 response in 1 group of 1, 3 tokens");
}

/// Columns that recipes need and no rollouts without a critic, a teacher or the like have.
const NOT_IN_ROLLOUTS: &str = "agent step_reward state role value rollout_logp teacher_logp process_reward \
    sum_pi_squared reward_baseline truncated input_tokens entropy";

/// What `doc` offers works on rollouts with log-probs; GAE needs a critic's values.
#[test]
fn the_examples_of_recipes_work() {
    let lab = Lab::new();
    for builtin in BUILTINS {
        let doc = lab.run(&format!("doc {}", builtin.name)).out;
        let examples = doc
            .lines()
            .filter_map(|line| line.strip_prefix("  advlab "));
        for example in examples {
            let ran = lab.run(example);
            // Its doc says which column the example's rollouts need for it.
            let is_lacking = |column: &str| ran.err.contains(&format!("no column `{column}`"));
            let lacking = NOT_IN_ROLLOUTS.split(' ').find(|column| is_lacking(column));
            let is_known = lacking.is_some_and(|column| doc.contains(&format!("`{column}`")));
            assert!(ran.status == 0 || is_known, "{example}: {}", ran.err);
        }
    }
    // A loss on an advantage sees that of the file, and its own equivalent is written in its place.
    lab.run("apply dr_grpo rollouts.jsonl -o with.jsonl");
    let json = lab.json("apply policy_gradient with.jsonl");
    let [equivalent, std] = [&json["summary"]["advantage"], &json["gradient"]]
        .map(|spread| spread["std"].as_f64().expect("a number"));
    let tokens = json["summary"]["tokens"].as_f64().expect("a number");
    assert!(equivalent > 0.1 && (std * tokens - equivalent).abs() < 1e-12);
}

/// The rollouts go to standard output as they would to a file, and all else to standard error.
#[test]
fn apply_writes_to_a_pipe() {
    let lab = Lab::new();
    lab.ok("apply grpo rollouts.jsonl -o out.jsonl");
    let ran = lab.ok("apply grpo rollouts.jsonl -o -");
    assert!(ran.out == lab.read("out.jsonl") && !lab.path().join("-").exists());
    ran.says("256 responses in 32 groups of 8");
    let ran = lab.run("apply grpo rollouts.jsonl -o - --json");
    assert!(ran.out == lab.read("out.jsonl") && ran.err.starts_with("{\"recipe\":\"grpo\""));
}

/// As `repl` does; a folder without batches is among the wrong inputs.
#[test]
fn apply_on_a_run_takes_its_last_batch() {
    let lab = Lab::new();
    lab.write(
        "small.toml",
        "maze_size = 2\nrollout_batch_size = 2\ngroup_size = 2\nhidden_size = 8\nbatch_every = 1\neval_prompts = 1\nsteps = 3\nout = \"run\"\n",
    );
    lab.ok("train small.toml");
    let batch = "run/batches/step-000002.safetensors";
    let (of_run, of_batch) = (
        lab.run("apply rloo run"),
        lab.run(&format!("apply rloo {batch}")),
    );
    assert_eq!(
        of_run.out.replace(&time(&of_run.out), ""),
        of_batch.out.replace(&time(&of_batch.out), "")
    );
    let note = "Note: run is a run's folder: this is its last batch, run/batches/step-000002.safetensors (`--step N` takes another)";
    assert_eq!(of_run.err.lines().next(), Some(note));
    let json = lab.json("apply rloo run");
    assert_eq!(json["input"], batch);
    assert!(json["notes"][0].to_string().contains(batch), "{json}");
    // What was evaluated before the run was resumed belongs to it.
    lab.ok("train --resume run --steps 6")
        .shows("step 0     step 6");
}

/// The row that no two runs share.
fn time(out: &str) -> String {
    let row = out
        .lines()
        .find(|line| line.trim_start().starts_with("time "));
    row.expect("a row of times").to_string()
}

/// Metrics, prints, and a batch without a difference.
#[test]
fn apply_with_a_script_of_ones_own() {
    let lab = Lab::new();
    lab.write(
        "mine.rhai",
        "//! Nothing.\nfn advantage(batch, p) { print(\"a line\"); metric(\"answer\", 42); 0 * batch.reward }",
    );
    let shown = lab.run("apply mine.rhai rollouts.jsonl").shown();
    insta::assert_snapshot!("apply_own", shown);
}

#[test]
fn json_is_one_object_for_a_machine() {
    let lab = Lab::new();
    let ran = lab.run("apply passk rollouts.jsonl --set k=2 --json");
    assert_eq!((ran.status, ran.out.lines().count()), (0, 1));
    let mut json: Value = serde_json::from_str(&ran.out).expect("JSON");
    for time in ["read", "recipe"] {
        let seconds = json["seconds"][time].take();
        let is_positive = seconds.as_f64().is_some_and(|s| s > 0.0);
        assert!(is_positive, "{time}: {seconds}");
    }
    insta::assert_snapshot!("apply_json", serde_json::to_string_pretty(&json).unwrap());
    let odd = "fn advantage(batch, p) { metric(\"odd\", 0.0 / 0.0); batch.reward }";
    lab.write("odd.rhai", odd);
    let ran = lab.run("apply odd.rhai rollouts.jsonl --json");
    ran.shows("\"odd\":\"NaN\"");
}

#[test]
fn check() {
    let lab = Lab::new();
    lab.write(
        "bad.rhai",
        "fn advantage(batch, p) { batch.reward / batch.reward.std(\"group\") }",
    );
    insta::assert_snapshot!("check_bad", lab.run("check bad.rhai").shown());
    // Two errors of one script, one of them on one batch, and a warning.
    lab.write(
        "two.rhai",
        "fn advantage(batch, p) {\n    let r = batch.reward;\n    if r.mean(\"batch\").value() == 1.0 { return (r - 1) / 0; }\n    r / r.std(\"group\")\n}\nfn params() { #{ k: #{ value: 4 } } }\n",
    );
    insta::assert_snapshot!("check_two", lab.run("check two.rhai").shown());
}

/// What the advantage and the loss call alike stays apart.
#[test]
fn metrics_of_both_hooks_are_shown() {
    let lab = Lab::new();
    lab.write(
        "both.rhai",
        "fn advantage(batch, p) { metric(\"share\", 1); metric(\"own\", 2); batch.reward }
         fn loss(batch, p) { metric(\"share\", 3); -(batch.advantage * batch.logp).mean(\"batch\") }",
    );
    lab.write(
        "both.jsonl",
        "{\"group\": 1, \"reward\": 1, \"old_logp\": [-1, -2]}\n{\"group\": 1, \"reward\": 0, \"old_logp\": [-1]}\n",
    );
    let json = lab.json("apply both.rhai both.jsonl");
    let expected = serde_json::json!({ "advantage/share": 1.0, "own": 2.0, "loss/share": 3.0 });
    assert_eq!(json["metrics"], expected);
}

#[test]
fn check_on_rollouts() {
    let lab = Lab::new();
    lab.write(
        "score.rhai",
        "fn advantage(batch, p) { batch.score - batch.score.mean(\"group\") }",
    );
    let line = |i: usize| {
        let (group, reward) = (i / 4, i % 2);
        format!("{{\"group\": {group}, \"reward\": {reward}, \"score\": {i}}}\n")
    };
    let lines: String = (0..12).map(line).collect();
    lab.write("rollouts.jsonl", &lines);
    let run = |arguments: &str| lab.run(&format!("check {arguments}"));
    assert_eq!(run("score.rhai").status, 1);
    let ran = run("score.rhai grpo rollouts.jsonl");
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out.matches("its 3 groups").count(), 2);
    for swapped in ["", "grpo "] {
        let ran = run(&format!("{swapped}rollouts.jsonl score.rhai"));
        ran.ends(1, "`rollouts.jsonl` is a file of rollouts, not a recipe");
        ran.says("rollouts stand behind it");
    }
}

#[test]
fn every_built_in_passes_the_check() {
    let lab = Lab::new();
    let names: Vec<&str> = BUILTINS.iter().map(|builtin| builtin.name).collect();
    let ran = lab.ok(&format!("check {}", names.join(" ")));
    assert_eq!(ran.out.matches(" 0 fail,").count(), names.len());
}

#[test]
fn recipes() {
    let lab = Lab::new();
    let all = lab.ok("recipes").out;
    let first = all.split_once("\n\n").expect("several kinds").0;
    let names = first
        .lines()
        .map(|line| line.split(' ').next().unwrap_or(""));
    let start = [
        "start",
        "grpo",
        "dr_grpo",
        "passk",
        "reinforce_pp",
        "ppo_clip",
    ];
    assert!(names.eq(start), "{first}");
    assert!(all.lines().all(|line| line.chars().count() <= 80));
    for builtin in BUILTINS
        .iter()
        .filter(|one| one.kind != BuiltinKind::Shared)
    {
        assert!(
            all.lines()
                .any(|line| line.split(' ').next() == Some(builtin.name))
        );
    }
    lab.ok("recipes --needs valu");
    lab.run("recipes gspo").ends(1, "`advlab doc gspo`");
}

#[test]
fn doc() {
    let lab = Lab::new();
    let words = |ran: &str| ran.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = lab.run("doc");
    assert_eq!(all.status, 0);
    let lines = all.out.lines().count();
    assert!(lines <= 60, "{lines} lines");
    for class in Class::ALL {
        let section = lab.run(&format!("doc {class}"));
        for op in op::table().filter(|op| op.class == class) {
            assert!(all.out.contains(op.name), "{}", op.name);
            assert!(words(&section.out).contains(op.doc), "{}", op.name);
        }
    }
}

#[test]
fn words_are_searched_for() {
    let lab = Lab::new();
    for (arguments, found) in [
        ("doc leave one out", "rloo"),
        ("doc clip", "use `x.clamp(low, high)`"),
        ("recipes overlong", "dapo_overlong"),
        ("recipes leave one out", "grpo_loo"),
    ] {
        lab.ok(arguments).shows(found);
    }
    let mut session = PromptSession::new(&Host::new(), Paint::PLAIN);
    assert!(session.submit("?leave one out").text.contains("rloo"));
}

#[test]
fn every_function_and_recipe_is_explained() {
    let lab = Lab::new();
    for name in op::table()
        .map(|op| op.name)
        .chain(BUILTINS.iter().map(|builtin| builtin.name))
    {
        // A sign that looks like an option stands after `--`, as everywhere.
        let ran = lab.ok(&format!("doc -- {name}"));
        assert!(ran.out.contains(name), "{name}: {}", ran.out);
    }
}

/// No colour where there is no terminal.
#[test]
fn plain_text_in_a_pipe() {
    let lab = Lab::new();
    let all = "apply grpo rollouts.jsonl, doc mean, check grpo, recipes, doc nothing";
    for arguments in all.split(", ") {
        let shown = lab.run(arguments).shown();
        assert!(!shown.contains('\u{1b}'), "{arguments}: {shown}");
    }
}

/// `advlab doc | head -1`: the reader leaves early, and nobody is told.
#[test]
fn a_reader_who_leaves_is_no_error() {
    let lab = Lab::new();
    let all = "doc, recipes, check grpo passk rloo, apply grpo rollouts.jsonl";
    for arguments in all.split(", ") {
        let mut command = lab.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        drop(child.stdout.take());
        let mut err = String::new();
        let stderr = child.stderr.as_mut().expect("piped");
        stderr.read_to_string(&mut err).expect("UTF-8");
        let status = child.wait().expect("it ends");
        let is_silent = status.success() && err.is_empty();
        assert!(is_silent, "{arguments}: {status}: {err}");
    }
}

/// A misspelt loss would otherwise give way to the default one without a word.
#[test]
fn a_run_begins_with_the_warnings_of_its_recipe() {
    let lab = Lab::new();
    let odd = "fn advantage(batch, p) { batch.reward }\nfn los(batch, p) { batch.logp.mean(\"batch\") }\n";
    lab.write("odd.rhai", odd);
    let ran = lab.run("train --recipe odd.rhai --steps 1 --out run");
    ran.ends(0, "nothing calls the function `los`");
    assert!(!ran.err.contains("sign of the loss"), "{}", ran.err);
    let flipped = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }\nfn loss(batch, p) { (batch.advantage * batch.logp).mean(\"batch\") }\n";
    lab.write("flipped.rhai", flipped);
    let ran = lab.ok("train --recipe flipped.rhai --steps 1 --out flipped");
    let expected = "sign of the loss: a smaller loss lowers what the advantage says is good";
    ran.says(expected);
}

/// Who compares too few seeds learns it before the runs, which may take hours.
#[test]
fn compare_says_first_that_seeds_are_too_few() {
    let lab = Lab::new();
    let ran = lab.ok("compare grpo passk --seeds 1 --steps 1 --out compared");
    let first = "note: 1 seed of each cannot show a difference at 95 %: take four";
    assert!(ran.err.starts_with(first), "{}", ran.err);
    let enough = lab.run("compare grpo passk --seeds 4 --steps 1 --out compared");
    assert!(!enough.err.contains("note: "), "{}", enough.err);
}

/// The prompt follows a run's own loss, and what `-o` writes of its batch is an advantage that losses read.
#[test]
fn a_run_has_its_loss_and_its_batch_takes_an_advantage() {
    let lab = Lab::new();
    lab.write(
        "small.toml",
        "maze_size = 2\nrollout_batch_size = 2\ngroup_size = 4\nhidden_size = 8\nbatch_every = 1\neval_prompts = 1\nsteps = 2\nloss_recipe = \"policy_gradient\"\nout = \"run\"\n",
    );
    lab.ok("train small.toml");
    let prompt = lab.prompt("repl run", ":run\n");
    assert!(prompt.contains("(of the run: policy_gradient)"), "{prompt}");
    lab.ok("apply rloo run -o with.safetensors");
    lab.ok("apply gspo with.safetensors");
}

/// A loss over responses: by the batch's own advantage, which is no mean over tokens.
#[test]
fn apply_and_the_prompt_show_the_same_loss() {
    let lab = Lab::new();
    lab.ok("apply grpo rollouts.jsonl -o with.jsonl");
    let prompt = lab.prompt("repl with.jsonl", ":recipe topr\n:run\n");
    let applied = lab.run("apply topr with.jsonl").out;
    let loss = |text: &str| -> Option<f64> {
        let mut rows = text.lines().map(|line| line.trim_start());
        rows.find_map(|row| {
            row.strip_prefix("loss ")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
    };
    let is_same = loss(&prompt).is_some() && loss(&prompt) == loss(&applied);
    assert!(is_same, "{prompt}\n{applied}");
}
