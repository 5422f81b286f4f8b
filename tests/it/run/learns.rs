//! A run learns its task, whatever the number of threads.

use advlab::train::Config;

use super::lab::{Lab, STATEFUL};

#[test]
fn a_run_learns() {
    let mut lab = Lab::new("");
    lab.config = Config {
        maze_size: 3,
        recipe: "grpo".to_string(),
        steps: 60,
        rollout_batch_size: 32,
        group_size: 16,
        hidden_size: 64,
        lr: 3e-3,
        eval_prompts: 64,
        eval_every: 20,
        out: lab.config.out.clone(),
        ..Config::default()
    };
    let rows = lab.unstopped();
    let pass = |step: usize| rows[step]["evaluation"]["pass@1"].as_f64().unwrap();
    let before = &rows[0]["initial_evaluation"];
    let first = before["pass@1"].as_f64().unwrap();
    assert!(
        first < 0.2 && pass(59) > first + 0.3,
        "{first} -> {}",
        pass(59)
    );
    let count = |field: &str| rows.iter().filter(|row| !row[field].is_null()).count();
    assert_eq!((count("evaluation"), count("initial_evaluation")), (3, 1));
    assert_eq!(rows[0]["kl"], 0.0);
    assert!(rows[59]["kl"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_number_of_threads_changes_no_number() {
    let lab = Lab::new(STATEFUL);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(|| lab.unstopped())
    };
    let one = on(1);
    assert_eq!(one, on(3));
    assert_eq!(one.len(), 24);
}

#[test]
fn arithmetic_is_a_task_of_runs_too() {
    let mut lab = Lab::new(STATEFUL);
    lab.config.task = "arithmetic".to_string();
    lab.config.arithmetic_digits = 1;
    lab.config.steps = 6;
    assert_eq!(lab.unstopped().len(), 6);
}
