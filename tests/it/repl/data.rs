//! A run's folder: its last batch, and the others by their steps.

use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

use super::session;

/// A padded batch of four responses, as a run keeps it.
pub(super) fn keep(path: &Path, rewards: [f32; 4]) {
    let bytes = |numbers: &[f32]| {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let index: Vec<u8> = [0i64, 0, 1, 1]
        .iter()
        .flat_map(|id| id.to_le_bytes())
        .collect();
    let (rewards, logp, mask) = (
        bytes(&rewards),
        bytes(&[-0.5; 8]),
        bytes(&[1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0]),
    );
    let view = |dtype, shape: &[usize], data| {
        TensorView::new(dtype, shape.to_vec(), data).expect("a tensor")
    };
    let tensors = [
        ("rewards", view(Dtype::F32, &[4], &rewards)),
        ("index", view(Dtype::I64, &[4], &index)),
        ("old_log_probs", view(Dtype::F32, &[4, 2], &logp)),
        ("response_mask", view(Dtype::F32, &[4, 2], &mask)),
    ];
    serialize_to_file(tensors, None, path).expect("a file");
}

#[test]
fn a_run_opens_with_its_last_batch_and_has_the_others_by_step() {
    let run = tempfile::tempdir().expect("a folder");
    let batches = run.path().join("batches");
    std::fs::create_dir(&batches).expect("a folder");
    keep(
        &batches.join("step-000020.safetensors"),
        [1.0, 0.0, 0.0, 0.0],
    );
    keep(
        &batches.join("step-000140.safetensors"),
        [1.0, 1.0, 1.0, 0.0],
    );
    keep(&batches.join("failed-000150-0a1b23.safetensors"), [0.0; 4]);

    let mut session = session();
    session.open(run.path(), &[]).expect("a run");
    let about = session.about_data();
    assert!(about.contains("step-000140"), "{about}");
    assert!(
        about.contains("2 batches of the run, of steps 20 to 140"),
        "{about}"
    );
    let right = "batch.reward.sum(\"batch\").value()";
    assert_eq!(session.submit(right).text, "3");
    let outcome = session.submit(":batch 20");
    assert!(!outcome.is_error, "{}", outcome.text);
    assert_eq!(session.submit(right).text, "1");
    let outcome = session.submit(":batch 30");
    assert!(
        outcome.is_error && outcome.text.contains("the nearest are those of 20, 140"),
        "{}",
        outcome.text
    );
    assert_eq!(
        session.submit(right).text,
        "1",
        "the batch is the one before"
    );
    assert!(session.submit("batch.old_logp").text.contains("f32"));
}

#[test]
fn a_variable_of_the_batch_before_stays_and_does_not_mix_with_the_new_one() {
    let mut session = session();
    session.submit("let r = batch.reward");
    session.submit(":load examples/rollouts.jsonl");
    assert_eq!(session.submit("r.len()").text, "128");
    assert_eq!(session.submit("batch.reward.len()").text, "256");
    let outcome = session.submit("r - batch.reward");
    assert!(outcome.is_error, "{}", outcome.text);
}

/// A run of three steps with a recipe, of which each batch is kept; gives the version of the recipe.
fn run(folder: &Path, recipe: &Path) -> String {
    use advlab_train::{Config, Event, Run};
    let params = [("scale".to_string(), toml::Value::from(3.0))];
    let config = Config {
        recipe: recipe.display().to_string(),
        params: params.into_iter().collect(),
        steps: 3,
        rollout_batch_size: 2,
        group_size: 4,
        batch_every: 1,
        eval_every: 0,
        tensorboard: false,
        out: folder.display().to_string(),
        ..Config::default()
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut run = Run::create(config).expect("a run");
    run.go(&stop, &mut |_: &Event<'_>| {}).expect("three steps");
    let recipe = advlab::Host::new().load(&recipe.display().to_string());
    recipe.expect("a recipe").version().as_str().to_string()
}

/// A recipe that multiplies its scale, 3 in the runs here, by a factor.
fn script(factor: u32) -> String {
    format!(
        "fn params() {{ #{{ scale: #{{ value: 1.0, doc: \"by how much\" }} }} }}\n\
         fn advantage(batch, p) {{ {factor} * p.scale + 0.0 * batch.reward }}\n"
    )
}

#[test]
fn a_run_opens_with_the_recipe_of_the_step_and_its_settings() {
    let place = tempfile::tempdir().expect("a folder");
    let file = place.path().join("mine.rhai");
    let (first, second) = (place.path().join("first"), place.path().join("second"));
    std::fs::write(&file, script(10)).expect("a script");
    run(&first, &file);
    std::fs::write(&file, script(20)).expect("a script");
    let edited = run(&second, &file);
    // As if the first run had gone on with the edited file from step 2 on.
    let kept = format!("scripts/{edited}");
    std::fs::create_dir(first.join(&kept)).expect("a folder");
    let script = format!("{kept}/mine.rhai");
    std::fs::copy(second.join(&script), first.join(&script)).expect("a copy");
    let line = serde_json::json!(
        { "step": 2, "event": "use", "script": script, "version": edited }
    );
    let mut reloads = std::fs::OpenOptions::new();
    let mut reloads = reloads.append(true).open(first.join("reloads.jsonl"));
    writeln!(reloads.as_mut().expect("reloads"), "{line}").expect("a line");

    let mut session = session();
    session.open(&first, &[]).expect("a run");
    let about = session.about_data();
    assert!(about.contains("its recipe is loaded: mine.rhai"), "{about}");
    let value = "advantage().max(\"batch\").value()";
    assert_eq!(session.submit(value).text, "60", "the edited version");
    session.submit(":set scale=4");
    session.submit(":batch 1");
    assert_eq!(session.submit(value).text, "40", "the version of that step");

    session.submit(":recipe grpo");
    session.submit(":batch 2");
    let outcome = session.submit(":recipe");
    assert!(outcome.text.starts_with("grpo"), "{}", outcome.text);
    let about = session.about_data();
    assert!(about.contains("first` loads its recipe"), "{about}");
    let outcome = session.submit(&format!(":recipe {} scale=5", first.display()));
    assert!(outcome.text.contains("scale = 5"), "{}", outcome.text);
    assert_eq!(session.submit(value).text, "100");

    let short = &edited[..6];
    let outcome = session.submit(&format!(":recipe {short}"));
    assert!(outcome.text.contains(short), "{}", outcome.text);
    assert_eq!(session.submit(value).text, "60", "with the run's settings");
    assert!(session.submit(":recipe 00000000").is_error);

    let edited = first.join(script_of(&first));
    std::fs::write(&edited, "fn advantage(batch, p) { batch.reward }").expect("a script");
    let mut session = super::session();
    session
        .open(&first, &[])
        .expect("the batch is worth having");
    let about = session.about_data();
    assert!(about.contains("its recipe is not loaded"), "{about}");
}

/// The script that the last line of `reloads.jsonl` names.
fn script_of(run: &Path) -> String {
    let text = std::fs::read_to_string(run.join("reloads.jsonl")).expect("reloads");
    let line = text.lines().last().expect("a line");
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    line["script"].as_str().expect("a script").to_string()
}

#[test]
fn fields_of_other_names_are_mapped() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("theirs.jsonl");
    let lines = "{\"prompt_id\": \"a\", \"score\": 1}\n{\"prompt_id\": \"a\", \"score\": 0}\n";
    std::fs::write(&file, lines).expect("rollouts");
    let mut session = session();
    let load = format!(":load {} --map group=prompt_id", file.display());
    assert!(session.submit(&load).is_error, "the reward is missing");
    let outcome = session.submit(&format!("{load} --map=reward=score"));
    assert!(!outcome.is_error, "{}", outcome.text);
    assert_eq!(
        session.submit("batch.reward.sum(\"batch\").value()").text,
        "1"
    );
    let outcome = session.submit(&format!("{load} --map reward"));
    assert!(outcome.text.contains("ours=theirs"), "{}", outcome.text);
}

#[test]
fn texts_of_a_run_are_shown_by_response() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("step.safetensors");
    let texts = ["4", "Two and two\n are \u{1b}[31mfive.\n\n#### 5"];
    let batch = advlab::Batch::builder()
        .groups([7, 7])
        .lengths([2, 9])
        .response("reward", vec![1.0, 0.0])
        .text("completion", texts.map(str::to_string).to_vec())
        .text("prompt", vec!["What is 2 + 2?".to_string(); 2]);
    let batch = batch.build().expect("a batch");
    batch.write_safetensors(&path).expect("a file");
    let mut session = session();
    session.open(&path, &[]).expect("a batch");
    let shown = session.submit(":look 1").text;
    let expected = "response 1   group 7, reward 0, length 9
  mean of its 2 responses: reward 0.5, length 5.5
  completion
    Two and two
    are \\u{1b}[31mfive.

    #### 5
  prompt
    What is 2 + 2?
  answer found: 5";
    assert_eq!(shown.replace("\n    \n", "\n\n"), expected);
    assert!(session.submit(":look").text.starts_with("response 0"));
    let beyond = session.submit(":look 2");
    assert!(
        beyond.is_error && beyond.text.contains("there are 0 to 1"),
        "{}",
        beyond.text
    );
}
