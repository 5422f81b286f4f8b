//! A run's folder: its last batch, and the others by their steps.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

use super::session;

/// A padded batch of four responses, as a run keeps it.
fn keep(path: &Path, rewards: [f32; 4]) {
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
    session.open(run.path()).expect("a run");
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
        outcome.is_error && outcome.text.contains("it has those of 20, 140"),
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
