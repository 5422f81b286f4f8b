//! A run's folder: its last batch, and the others by their steps.

use std::io::Write;
use std::path::Path;

use advlab::Batch;
use ndarray::{Array2, array};

use super::{play, session};

/// A padded batch of four responses, as a run keeps it.
fn keep(path: &Path, rewards: [f64; 4]) {
    let batch = Batch::builder()
        .groups([0, 0, 1, 1])
        .mask(array![[1, 1], [1, 0], [1, 1], [1, 0]].view())
        .response("reward", rewards.to_vec())
        .token("old_logp", Array2::from_elem((4, 2), -0.5f32));
    let batch = batch.build().expect("a batch");
    batch.write_safetensors(path).expect("a file");
}

/// A run that goes on has its new batches.
#[test]
fn a_run_opens_with_its_last_batch_and_has_the_others_by_step() {
    let run = tempfile::tempdir().expect("a folder");
    let batches = run.path().join("batches");
    std::fs::create_dir(&batches).expect("a folder");
    let step = |name: &str| batches.join(format!("{name}.safetensors"));
    keep(&step("step-000020"), [1.0, 0.0, 0.0, 0.0]);
    keep(&step("step-000140"), [1.0, 1.0, 1.0, 0.0]);
    keep(&step("failed-000150-0a1b23"), [0.0; 4]);
    let mut session = session();
    session.open(run.path(), &[]).expect("a run");
    let about = session.about_data();
    for part in ["step-000140", "one of 2 batches, steps 20 to 140"] {
        assert!(about.contains(part), "{about}");
    }
    let dialogue = "> batch.reward.sum(\"batch\").value()
        = 3
        > :batch 20
        > batch.reward.sum(\"batch\").value()
        = 1
        > :batch 30
        ! the nearest steps with a batch are 20, 140
        > batch.reward.sum(\"batch\").value()
        = 1
        > batch.old_logp
        ~ f32";
    play(&mut session, dialogue);
    keep(&step("step-000160"), [1.0, 1.0, 1.0, 1.0]);
    std::fs::remove_file(step("step-000020")).expect("an old one");
    play(
        &mut session,
        "> :batch 160\n~ step-000160\n> :batch 20\n! the nearest steps with a batch are 140, 160",
    );
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
    assert!(about.contains("recipe: mine.rhai"), "{about}");
    let value = "> advantage().max(\"batch\").value()\n=";
    let first_run = first.display();
    let short = &edited[..6];
    // The edited version; that of step 1, with the same settings; another recipe; and the run's again.
    let dialogue = format!(
        "{value} 60
        > :set scale=4
        > :batch 1
        {value} 40
        > :recipe grpo
        > :batch 2
        ~ recipe: mine.rhai
        > :recipe
        ~ grpo e5123f
        > :recipe {first_run} scale=5
        ~ scale = 5
        {value} 100
        > :recipe {short}
        ~ {short}
        {value} 60
        > :recipe 00000000
        ! 00000000"
    );
    play(&mut session, &dialogue);

    let edited = first.join(script_of(&first));
    std::fs::write(&edited, "fn advantage(batch, p) { batch.reward }").expect("a script");
    let mut session = super::session();
    session
        .open(&first, &[])
        .expect("the batch is worth having");
    let about = session.about_data();
    assert!(about.contains("the run's recipe is not loaded"), "{about}");
}

/// The script that the last line of `reloads.jsonl` names.
fn script_of(run: &Path) -> String {
    let text = std::fs::read_to_string(run.join("reloads.jsonl")).expect("reloads");
    let line = text.lines().last().expect("a line");
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    line["script"].as_str().expect("a script").to_string()
}

#[test]
fn texts_of_a_run_are_shown_by_response() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("step.safetensors");
    let texts = ["4", "Two and two\n are \u{1b}[31mfive.\n\n#### 5"];
    let batch = Batch::builder()
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
  group means (2 responses): reward 0.5, length 5.5
  completion
    Two and two
     are \\u{1b}[31mfive.

    #### 5
  prompt
    What is 2 + 2?
  answer found: 5";
    assert_eq!(shown.replace("\n    \n", "\n\n"), expected);
    play(
        &mut session,
        "> :look\n~ response 0\n> :look 2\n! responses are numbered from 0 to 1",
    );
}
