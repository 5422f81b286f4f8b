//! What the commands print where all goes well.

use std::io::Read;
use std::process::Stdio;

use advlab::batch::Batch;
use advlab::script::{BUILTINS, Host};
use advlab::tensor::op::{self, Class};
use advlab_cli::prompt::{Paint, PromptSession};
use serde_json::{Value, json};

use super::lab::Lab;

/// A number in the answer of a command.
#[track_caller]
fn number(json: &Value, path: &str) -> f64 {
    let found = json.pointer(path).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {path} in {json}"))
}

/// A recipe's own loss on its advantage.
const BOTH: &str = r#"
== both.rhai
fn advantage(batch, p) { metric("share", 1); metric("own", 2); batch.reward - batch.reward.mean("group") }
fn loss(batch, p) {
    metric("share", 3);
    -(exp(batch.logp - batch.old_logp) * batch.advantage).mean("batch")
}
== none.jsonl
{"group": 1, "reward": 1, "advantage": 1, "logp": [], "old_logp": []}
== bare.jsonl
{"group": 1, "reward": 1, "length": 3}
"#;

#[test]
fn commands() {
    let lab = Lab::new();
    lab.replay("commands");
    let edited = lab.run("apply mine.rhai rollouts.jsonl --set k=2").shown();
    let builtin = lab.run("apply passk rollouts.jsonl --set k=2").shown();
    assert_eq!(edited.replace("mine.rhai", "passk"), builtin);
    let recipe = advlab::script::Builtin::find("passk").expect("a built-in");
    assert_eq!(lab.read("mine.rhai"), recipe.text);
    for command in ["check", "recipes", "doc", "new"] {
        lab.ok(&format!("{command} --help"));
    }
    let written = lab.run("apply reinforce_pp rollouts.jsonl --set kl_beta=0 -o out.jsonl");
    insta::assert_snapshot!("apply_reinforce_pp", written.shown());
    assert_eq!(lab.read("out.jsonl").lines().count(), 256);
}

#[test]
fn weights_are_shown_as_shares_of_a_filter_or_with_their_spread() {
    let lab = Lab::new();
    for (weights, spread, share) in [
        ("2, 1", "min 1.0000   max 2.0000", ""),
        ("1, 0", "", "weight      0 for "),
        ("3, 0", "max 3.0000", "   0 for "),
    ] {
        let weight = format!("fn weight(batch, p) {{ where(batch.reward > 0, {weights}) }}");
        let advantage = "fn advantage(batch, p) { batch.reward - batch.reward.mean(\"group\") }";
        lab.write("mine.rhai", &format!("{weight}\n{advantage}"));
        let parts = format!("{spread}  &  {share}  =/>  0 for 0 ");
        lab.expect(&format!("0  apply mine.rhai rollouts.jsonl  =>  {parts}"));
    }
}

/// Two groups of 10 and of 6 tokens, each with half of the sum of |A|; a design against it, and one that takes the second group.
/// The shares are the same if there are a thousand million times as many tokens, which nobody could look at one by one.
#[test]
fn masses_of_several_designs_stand_side_by_side() {
    let lab = Lab::new();
    let rows = [("a", 1, 1), ("a", 0, 2), ("a", 0, 3), ("a", 0, 4)];
    let more = [("b", 1, 2), ("b", 1, 2), ("b", 0, 1), ("b", 0, 1)];
    let rows = || rows.into_iter().chain(more);
    let lines = |line: &dyn Fn((&str, u8, usize)) -> Value| -> String {
        rows().map(|row| format!("{}\n", line(row))).collect()
    };
    let few = lines(
        &|(group, reward, length)| json!({ "group": group, "reward": reward, "old_logp": vec![-0.5; length] }),
    );
    let many = lines(
        &|(group, reward, length)| json!({ "group": group, "reward": reward, "length": length * 1_000_000_000 }),
    );
    lab.write("rows.jsonl", &few);
    lab.write("many.jsonl", &many);
    let centred = "let x = batch.reward - batch.reward.mean(\"group\");";
    lab.advantage("against.rhai", &format!("{centred} -x"));
    let half = "x * (batch.reward.mean(\"group\") > 0.3)";
    lab.advantage("half.rhai", &format!("{centred} {half}"));
    for rows in ["rows", "many"] {
        let json = lab.json(&format!("mass dr_grpo against.rhai half.rhai {rows}.jsonl"));
        for (design, by, part, expected) in [
            (0, "accuracy", "(0, 1/4]", 0.5),
            (0, "response", "right", 2.75 / 6.0),
            (1, "accuracy", "(1/4, 1/2]", 0.5),
            (2, "accuracy", "(0, 1/4]", 0.0),
            (2, "response", "right", 2.0 / 3.0),
        ] {
            let parts = json["designs"][design]["parts"].as_array().expect("parts");
            let mut own = parts
                .iter()
                .filter(|one| one["by"] == by && one["part"] == part);
            let found = number(own.next().expect("the part"), "/advantage");
            let is_so = (found - expected).abs() < 1e-12;
            assert!(is_so, "{rows} {design} {by} {part}: {found}");
        }
        let effective = number(&json, "/designs/2/summary/effective_responses");
        assert!((effective - 3.6).abs() < 1e-12, "{effective}");
        let pairs = |key: &str| [0, 1, 2].map(|pair| number(&json["pairs"][pair], key));
        assert_eq!(pairs("/opposite_sign"), [1.0, 0.0, 0.375]);
        assert_eq!(pairs("/one_is_zero"), [0.0, 0.625, 0.625]);
        assert!((number(&json, "/pairs/0/correlation") + 1.0).abs() < 1e-12);
    }
    lab.ok("mass dr_grpo half.rhai rows.jsonl --out both");
    let table = lab.read("both/mass.csv");
    let head = "recipe,by,part,tokens,advantage,gradient\n";
    let row = "\nhalf,accuracy,\"(0, 1/4]\",0.625,0,0\n";
    assert!(table.starts_with(head) && table.contains(row), "{table}");
    assert!(lab.read("both/mass.svg").contains("accuracy of the group"));
    // One design has a figure in its files too, as wide as is asked.
    lab.ok("mass dr_grpo rows.jsonl --out one.svg --width single");
    assert!(lab.read("one.svg").contains("width=\"312\""));
    let prompt = lab.prompt("repl rows.jsonl", ":mass dr_grpo against.rhai\n");
    assert!(prompt.contains("dr_grpo, against"), "{prompt}");
}

/// A copy is the built-in as long as nothing in it is edited.
#[test]
fn apply_says_where_kernels_answered() {
    let lab = Lab::new();
    let own = Host::new().load("pacs").expect("pacs");
    let edited = own.text().replace("fn loss", "// Mine.\nfn loss");
    lab.write("copy.rhai", own.text());
    lab.write("edited.rhai", &edited);
    lab.expect(
        "0  apply pacs rollouts.jsonl --native on  =>  (native)
         0  apply copy.rhai rollouts.jsonl --native on  =>  (native)
         0  apply edited.rhai rollouts.jsonl --native on  =/>  (native)
         0  apply pacs rollouts.jsonl --native off  =/>  (native)",
    );
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
    let file = lab.path().join("batch.safetensors");
    batch
        .build()
        .expect("a batch")
        .write_safetensors(file)
        .expect("a file");
    for name in ["\"old_logp\"", "\"old\" + \"_logp\""] {
        let asked = format!("let there = batch.has({name}); if !there {{ throw \"not there\" }}");
        let print = format!("print(batch[{name}].sum(\"batch\").value());");
        lab.advantage("sum.rhai", &format!("{asked} {print} batch.reward"));
        let ran = lab.ok("apply sum.rhai batch.safetensors");
        assert!(ran.out.starts_with("-3.5\n"), "{}", ran.out);
    }
}

/// A recipe's own loss sees its advantage; at the policy that sampled, the ratio is 1. What both hooks call alike stays apart.
#[test]
fn apply_shows_the_loss_beside_the_advantage() {
    let lab = Lab::new();
    lab.files(BOTH);
    let shown = lab.run("apply both.rhai rollouts.jsonl").shown();
    insta::assert_snapshot!("apply_both", shown);
    let json = lab.json("apply both.rhai rollouts.jsonl");
    let metrics = json!({ "advantage/share": 1.0, "own": 2.0, "loss/share": 3.0 });
    assert_eq!(json["metrics"], metrics);
    let [loss, tokens] = ["/loss", "/summary/tokens"].map(|path| number(&json, path));
    let slope = number(&json, "/gradient/mean");
    assert!((slope * tokens - loss).abs() < 1e-12, "{slope} {loss}");
    let smallest = number(&json, "/gradient/min") * tokens;
    let largest = number(&json, "/summary/advantage/max");
    assert!((smallest + largest).abs() < 1e-12, "{smallest} {largest}");
    // Where no token counts, a loss is 0.
    assert_eq!(lab.json("apply ppo_clip none.jsonl")["loss"], 0.0);
    // Without log-probs the advantage stands alone, and what the loss lacks is said.
    let ran = lab.ok("apply both.rhai bare.jsonl");
    let warning = "Warning: the loss is not computed: the batch has no column";
    assert!(ran.err.starts_with(warning), "{}", ran.err);
    ran.shows("1 response in 1 group of 1, 3 tokens");
}

/// Columns that recipes need and no rollouts without a critic, a teacher or the like have.
const NOT_IN_ROLLOUTS: &str = "agent step_reward state_score flawed state role value rollout_logp teacher_logp process_reward \
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
    let equivalent = number(&json, "/summary/advantage/std");
    let std = number(&json, "/gradient/std") * number(&json, "/summary/tokens");
    assert!(equivalent > 0.1 && (std - equivalent).abs() < 1e-12);
}

/// The rollouts go to standard output as they would to a file, and all else to standard error.
#[test]
fn apply_writes_to_a_pipe() {
    let lab = Lab::new();
    lab.ok("apply grpo rollouts.jsonl -o out.jsonl");
    for (flags, said) in [
        ("", "256 responses in 32 groups of 8"),
        (" --json", "{\"recipe\":\"grpo\""),
    ] {
        let ran = lab.ok(&format!("apply grpo rollouts.jsonl -o -{flags}"));
        assert!(ran.out == lab.read("out.jsonl") && !lab.path().join("-").exists());
        ran.says(said);
    }
}

/// As `repl` does; a folder without batches is among the wrong inputs.
#[test]
fn apply_on_a_run_takes_its_last_batch() {
    let lab = Lab::new();
    lab.small_run("group_size = 2; steps = 3");
    lab.ok("train small.toml");
    let batch = "run/batches/step-000002.safetensors";
    let of_run = lab.run("apply rloo run");
    let of_batch = lab.run(&format!("apply rloo {batch}")).shown();
    let start = |text: &str| text.split("\n---").next().map(str::to_string);
    assert_eq!(start(&of_run.shown()), start(&of_batch));
    let note = "Note: run is a run's folder: its last batch is read, run/batches/step-000002.safetensors (`--step N` reads another)";
    assert_eq!(of_run.err.lines().next(), Some(note));
    let json = lab.json("apply rloo run");
    assert_eq!(json["input"], batch);
    assert!(json["notes"][0].to_string().contains(batch), "{json}");
    // What was evaluated before the run was resumed belongs to it.
    lab.ok("train --resume run --steps 6")
        .shows("step 0     step 6");
}

/// Metrics, prints, and a batch without a difference.
#[test]
fn apply_with_a_script_of_ones_own() {
    let lab = Lab::new();
    lab.advantage(
        "mine.rhai",
        "print(\"a line\"); metric(\"answer\", 42); 0 * batch.reward",
    );
    let shown = lab.run("apply mine.rhai rollouts.jsonl").shown();
    insta::assert_snapshot!("apply_own", shown);
}

#[test]
fn json_is_one_object_for_a_machine() {
    let lab = Lab::new();
    let ran = lab.ok("apply passk rollouts.jsonl --set k=2 --json");
    assert_eq!(ran.out.lines().count(), 1);
    let mut json: Value = serde_json::from_str(&ran.out).expect("JSON");
    for time in ["read", "recipe"] {
        assert!(number(&json, &format!("/seconds/{time}")) > 0.0, "{time}");
        json["seconds"][time].take();
    }
    insta::assert_snapshot!("apply_json", serde_json::to_string_pretty(&json).unwrap());
    lab.advantage("odd.rhai", "metric(\"odd\", 0.0 / 0.0); batch.reward");
    lab.expect("0  apply odd.rhai rollouts.jsonl --json  =>  \"odd\":\"NaN\"");
}

#[test]
fn check() {
    let lab = Lab::new();
    lab.advantage("bad.rhai", "batch.reward / batch.reward.std(\"group\")");
    insta::assert_snapshot!("check_bad", lab.run("check bad.rhai").shown());
    // Two errors of one script, one of them on one batch, and a warning.
    lab.files(
        r#"== two.rhai
fn advantage(batch, p) {
    let r = batch.reward;
    if r.mean("batch").value() == 1.0 { return (r - 1) / 0; }
    r / r.std("group")
}
fn params() { #{ k: #{ value: 4 } } }
"#,
    );
    insta::assert_snapshot!("check_two", lab.run("check two.rhai").shown());
}

#[test]
fn check_on_rollouts() {
    let lab = Lab::new();
    lab.advantage("score.rhai", "batch.score - batch.score.mean(\"group\")");
    let line = |i: usize| {
        let row = json!({ "group": i / 4, "reward": i % 2, "score": i });
        format!("{row}\n")
    };
    lab.write("rollouts.jsonl", &(0..12).map(line).collect::<String>());
    assert_eq!(lab.run("check score.rhai").status, 1);
    let ran = lab.ok("check score.rhai grpo rollouts.jsonl");
    assert_eq!(ran.out.matches("the batch's 3 groups").count(), 2);
    for swapped in ["", "grpo "] {
        let ran = lab.run(&format!("check {swapped}rollouts.jsonl score.rhai"));
        ran.ends(1, "`rollouts.jsonl` is a file of rollouts, not a recipe");
        ran.says("put the rollouts after it");
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
    let names: Vec<&str> = all
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    let start = "start grpo dr_grpo passk reinforce_pp ppo_clip";
    assert_eq!(names[..6].join(" "), start);
    assert!(all.lines().all(|line| line.chars().count() <= 80));
    for builtin in BUILTINS {
        assert!(names.contains(&builtin.name), "{}", builtin.name);
    }
    lab.ok("recipes --needs valu");
    lab.run("recipes gspo").ends(1, "`advlab doc gspo`");
}

#[test]
fn doc() {
    let lab = Lab::new();
    let words = |ran: &str| ran.split_whitespace().collect::<Vec<_>>().join(" ");
    let all = lab.ok("doc").out;
    assert!(all.lines().count() <= 60, "{all}");
    for class in Class::ALL {
        let section = words(&lab.run(&format!("doc {class}")).out);
        for op in op::table().filter(|op| op.class == class) {
            assert!(
                all.contains(op.name) && section.contains(op.doc),
                "{}",
                op.name
            );
        }
    }
    lab.expect(
        "0  doc leave one out  =>  rloo
         0  doc clip  =>  use `x.clamp(low, high)`
         0  doc noise  =>  docs/objectives.md
         0  recipes overlong  =>  dapo_overlong
         0  recipes leave one out  =>  grpo_loo",
    );
    let mut session = PromptSession::new(&Host::new(), Paint::PLAIN);
    assert!(session.submit("?leave one out").text.contains("rloo"));
}

#[test]
fn every_function_and_recipe_is_explained() {
    let lab = Lab::new();
    let recipes = BUILTINS.iter().map(|builtin| builtin.name);
    for name in op::table().map(|op| op.name).chain(recipes) {
        // A sign that looks like an option stands after `--`, as everywhere.
        lab.ok(&format!("doc -- {name}")).shows(name);
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
    lab.files(
        r#"== odd.rhai
fn advantage(batch, p) { batch.reward }
fn los(batch, p) { batch.logp.mean("batch") }
== flipped.rhai
fn advantage(batch, p) { batch.reward - batch.reward.mean("group") }
fn loss(batch, p) { (batch.advantage * batch.logp).mean("batch") }
"#,
    );
    let flipped = "sign of the loss: lowering the loss lowers the probability of responses that the advantage favours";
    lab.expect(&format!(
        "0  train --recipe odd.rhai --steps 1 --out run  =>  nothing calls the function `los`  =/>  sign of the loss
         0  train --recipe flipped.rhai --steps 1 --out flipped  =>  {flipped}"
    ));
}

/// Who compares too few seeds learns it before the runs, which may take hours.
#[test]
fn compare_says_first_that_seeds_are_too_few() {
    let lab = Lab::new();
    let small = "--steps 1 --set rollout_batch_size=4 --set eval_prompts=8 --out compared";
    let ran = lab.ok(&format!("compare grpo passk --seeds 1 {small}"));
    let first = "note: 1 seed per design cannot show a difference at the 95 % level: use 4";
    assert!(ran.err.starts_with(first), "{}", ran.err);
    // Of several claims, each takes more.
    lab.expect(&format!(
        "0  compare grpo passk --seeds 4 {small}  =/>  note: 
         0  compare grpo passk rloo --seeds 4 {small}  =>  note: 4 seeds per design cannot show a difference at the 95 % level: use 5"
    ));
}

/// Of runs that are longer than the comparison, the numbers are those where the comparison ends.
#[test]
fn compare_reads_a_longer_run_up_to_its_own_steps() {
    let lab = Lab::new();
    let small = "--seeds 1 --set rollout_batch_size=4 --set eval_prompts=8 --set eval_every=1";
    lab.expect(&format!(
        "0  compare grpo --steps 3 {small} --out compared  =>  are those after 3 steps, the last
         0  compare grpo --steps 2 {small} --out compared  =>  are those after 2 steps, the last"
    ));
    let seldom = small.replace("eval_every=1", "eval_every=2");
    lab.expect(&format!(
        "0  compare grpo --steps 4 {seldom} --out seldom  =>  are those after 4 steps, the last
         1  compare grpo --steps 3 {seldom} --out seldom  =>  `--steps` can be one of 0, 2, 4
         1  compare grpo --steps 2 {small} --score pass16 --out untrained  =>  did you mean `pass@16`?"
    ));
    assert!(!lab.path().join("untrained").exists());
}

/// The prompt follows a run's own loss, and what `-o` writes of its batch is an advantage that losses read.
#[test]
fn a_run_has_its_loss_and_its_batch_takes_an_advantage() {
    let lab = Lab::new();
    lab.small_run("group_size = 4; steps = 2; loss_recipe = \"policy_gradient\"");
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
    let number = |line: &str| {
        line.trim_start()
            .strip_prefix("loss ")?
            .trim()
            .split(' ')
            .next()?
            .parse()
            .ok()
    };
    let loss = |text: &str| -> Option<f64> { text.lines().find_map(number) };
    let is_same = loss(&prompt).is_some() && loss(&prompt) == loss(&applied);
    assert!(is_same, "{prompt}\n{applied}");
}

/// The shares by the turns of a trajectory, and by a column: texts, few numbers, many numbers, and a column of tokens.
#[test]
fn mass_is_split_by_turns_and_by_any_column() {
    let lab = Lab::new();
    let row = |at: usize| {
        let (trajectory, turn) = if at < 6 { (0, at) } else { (at - 5, 0) };
        let (agent, score) = (["solver", "critic"][at % 2], at as f64 / 2.0);
        let reward = usize::from(at == 5 || at == 7);
        format!(
            r#"{{"group": "a", "reward": {reward}, "length": 2, "trajectory": {trajectory}, "turn": {turn}, "agent": "{agent}", "score": {score}, "old_logp": [-0.1, -0.2]}}"#
        )
    };
    let rows: Vec<String> = (0..12).map(row).collect();
    lab.write("turns.jsonl", &rows.join("\n"));
    lab.advantage(
        "mine.rhai",
        "batch.reward.sum(\"trajectory\") + 0 * batch.reward",
    );
    let parts = |column: &str, by: &str| -> Vec<(String, f64, f64)> {
        let json = lab.json(&format!("mass mine.rhai turns.jsonl --by {column}"));
        let all = json["parts"].as_array().unwrap().iter();
        let own = all.filter(|part| part["by"] == by);
        let part = |part: &Value| {
            let [tokens, advantage] = ["/tokens", "/advantage"].map(|path| number(part, path));
            let name = part["part"].as_str().unwrap();
            (name.to_string(), tokens, advantage)
        };
        own.map(part).collect()
    };
    // The trajectory of six turns has six of the seven advantages: one success counts six times.
    let turns = [
        ("<= 1 turns", 0.5, 1.0 / 7.0),
        ("<= 6 turns", 0.5, 6.0 / 7.0),
    ];
    let agents = [("critic", 0.5, 4.0 / 7.0), ("solver", 0.5, 3.0 / 7.0)];
    for (by, expected) in [("trajectory", turns), ("agent", agents)] {
        let found = parts("agent", by);
        assert_eq!(found.len(), 2, "{by}: {found:?}");
        for ((name, tokens, advantage), (named, of, share)) in found.iter().zip(expected) {
            assert!(
                name == named && (tokens - of).abs() < 1e-12,
                "{by}: {found:?}"
            );
            assert!((advantage - share).abs() < 1e-12, "{by}: {found:?}");
        }
    }
    let names = |by: &str| {
        parts(by, by)
            .into_iter()
            .map(|(name, ..)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names("score"), ["<= 1", "<= 2.5", "<= 4", "<= 5.5"]);
    assert_eq!(names("old_logp"), ["-0.2", "-0.1"]);
    lab.run("mass mine.rhai turns.jsonl --by scroe")
        .says("did you mean `score`?");
}

/// The shares of the summands are metrics of `apply` and of a run, if they are asked for.
#[test]
fn summands_are_metrics() {
    let lab = Lab::new();
    lab.advantage(
        "sum.rhai",
        "let bonus = 0.1 * batch.reward.rank(\"batch\"); batch.reward - bonus",
    );
    let is_whole = |metrics: &Value| {
        let share = |name: &str| metrics[format!("advantage/{name}/share")].as_f64();
        let [reward, bonus] = ["reward", "-bonus"].map(|name| share(name).expect("a share"));
        assert!(
            (reward + bonus - 1.0).abs() < 1e-6 && bonus > 0.0,
            "{metrics}"
        );
        assert!(
            metrics["advantage/-bonus/std"]
                .as_f64()
                .is_some_and(|std| std > 0.0)
        );
    };
    assert_eq!(
        lab.json("apply sum.rhai rollouts.jsonl")["metrics"],
        json!({})
    );
    is_whole(&lab.json("apply sum.rhai rollouts.jsonl --terms")["metrics"]);
    lab.small_run("recipe = \"sum.rhai\"; steps = 2; terms = true");
    lab.ok("train small.toml");
    let rows = lab.read("run/metrics.jsonl");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).expect("a row");
        is_whole(&row["metrics"]);
    }
    lab.run("plan sum.rhai --terms").shows("-bonus");
}
