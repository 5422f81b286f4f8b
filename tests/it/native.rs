//! Kernels of the built-ins give the bits of their scripts, whatever the batch, the parameters and the number of threads.

use std::sync::Arc;

use advlab::batch::{Batch, BatchBuilder, Computed, FloatBuffer};
use advlab::deep_stack;
use advlab::native::{Mode, Native};
use advlab::script::{Host, Loss, Outcome, Recipe};
use advlab::tensor::Guard;
use half::{bf16, f16};
use ndarray::{Array2, ShapeBuilder};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rayon::ThreadPoolBuilder;

/// Random batches for each test.
const BATCHES: u64 = 16;

/// Each recipe with a kernel, with settings and whether the kernel is written for these.
const SETTINGS: [(&str, &str, bool); 10] = [
    ("ppo_clip", "", true),
    ("ppo_clip", "kl_beta=0.1", true),
    ("ppo_clip", "kl_beta=0.01 aggregate=response", true),
    ("ppo_clip", "kl_beta=0.01 kl=k1", false),
    ("ppo_clip", "clip_high=0.28 clip_low=0", true),
    (
        "ppo_clip",
        "aggregate=response clip_low=0 clip_high=0",
        true,
    ),
    ("pacs", "", true),
    ("pacs", "beta=2.5", true),
    ("pacs", "adv_estimator=grpo", false),
    ("pacs", "weight_mode=none reward_method=mean", false),
];

/// The forms of token columns: f32, f64, compact, f16, bf16, and column by column.
const FORMS: usize = 6;

/// A random batch, and whether its token columns are plain: without holes.
fn random_batch(seed: u64) -> (Batch, bool) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let responses = rng.random_range(1..12);
    let (form, has_holes) = (seed as usize % FORMS, rng.random::<bool>());
    // Beyond a tile, so that sums have carries; the last column never counts.
    let longest = [8, 40, 2100][rng.random_range(0..3)];
    let mut drawn = |range: std::ops::Range<usize>| -> Vec<usize> {
        let numbers = (0..responses).map(|_| rng.random_range(range.clone()));
        numbers.collect()
    };
    let (lengths, holes, groups) = (drawn(0..longest), drawn(3..8), drawn(0..4));
    let counts = |(r, c): (usize, usize)| c < lengths[r] && !(has_holes && c % holes[r] == 1);
    let mask = Array2::from_shape_fn((responses, longest), counts);
    let rewards: Vec<f64> = (0..responses)
        .map(|_| match rng.random_range(0..6) {
            0 => 0.0,
            1 | 2 => 1.0,
            3 => 0.1,
            4 => -0.0,
            _ => rng.random_range(-2.0..2.0),
        })
        .collect();
    let mut builder = Batch::builder().groups(groups).mask(mask.view());
    // What says which responses are right: `reward`, `correct` or `token_reward`.
    let rewarded = rng.random_range(1..8);
    if rewarded & 1 != 0 {
        builder = builder.response("reward", rewards.clone());
    }
    if rewarded & 2 != 0 {
        let correct = rewards.iter().map(|&reward| f64::from(reward > 0.5));
        builder = builder.response("correct", correct.collect::<Vec<_>>());
    }
    let mut noise = || Array2::from_shape_fn(mask.dim(), |_| rng.random::<f64>());
    let old = noise() * -2.0;
    let mut columns = vec![("ref_logp", &old + noise() - 0.5)];
    if rewarded & 4 != 0 {
        columns.push(("token_reward", noise().mapv(|x| (x * 4.0).floor() / 4.0)));
    }
    if seed.is_multiple_of(2) {
        columns.push(("logp", &old + 0.6 * noise() - 0.3));
    }
    columns.push(("old_logp", old));
    let advantages: Vec<f64> = rewards.iter().map(|reward| reward - 0.3).collect();
    if seed.is_multiple_of(3) {
        columns.push(("advantage", noise() - 0.5))
    } else {
        builder = builder.response("advantage", advantages)
    }
    for (name, values) in columns {
        builder = token(builder, name, form, &mask, values);
    }
    let batch = builder.build().unwrap();
    let is_whole = |response| batch.layout().runs(response).len() < 2;
    let is_plain = (0..responses).all(is_whole);
    (batch, is_plain)
}

/// Adds a token column; where the mask is 0 there is NaN.
fn token(
    builder: BatchBuilder,
    name: &str,
    form: usize,
    mask: &Array2<bool>,
    mut values: Array2<f64>,
) -> BatchBuilder {
    values.zip_mut_with(mask, |value, &counts| {
        *value = if counts { *value } else { f64::NAN };
    });
    match form {
        0 => builder.token(name, values.mapv(|value| value as f32)),
        1 => builder.token(name, values),
        2 => {
            let counted = values.iter().zip(mask).filter(|(_, counts)| **counts);
            let values: Vec<f32> = counted.map(|(value, _)| *value as f32).collect();
            builder.token(name, FloatBuffer::from(values))
        }
        3 => builder.token(name, values.mapv(f16::from_f64)),
        4 => builder.token(name, values.mapv(bf16::from_f64)),
        _ => {
            let by_column = |at| values[at] as f32;
            builder.token(name, Array2::from_shape_fn(values.dim().f(), by_column))
        }
    }
}

/// A recipe as a script, and by its kernel.
fn both(name: &str, settings: &str) -> [Recipe; 2] {
    let native = Host::new().with_native(&Native::new(Mode::On));
    [Host::new(), native].map(|host| {
        let mut recipe = host.load(name).unwrap();
        for setting in settings.split_whitespace() {
            let (name, value) = setting.split_once('=').unwrap();
            recipe.set_text(name, value).unwrap();
        }
        recipe
    })
}

fn bits(computed: &Computed) -> (String, bool, Vec<u64>) {
    let buffer = computed.buffer();
    let bits = buffer.iter().map(f64::to_bits).collect();
    (computed.level().to_string(), buffer.is_f64(), bits)
}

fn told(metrics: &[(String, f64)], prints: &[String], notes: &[String]) -> String {
    let metrics = metrics.iter().map(|(name, value)| (name, value.to_bits()));
    format!("{:?} {prints:?} {notes:?}", metrics.collect::<Vec<_>>())
}

/// All that an outcome says, except times and memory.
fn shown(outcome: &Outcome) -> String {
    let of = |values: &Option<Computed>| values.as_ref().map(bits);
    let (advantage, loss) = (bits(&outcome.advantage), outcome.loss.map(f64::to_bits));
    let told = told(
        &outcome.reports.metrics,
        &outcome.reports.prints,
        &outcome.reports.notes,
    );
    let (reward, correct) = (of(&outcome.reward), of(&outcome.correct));
    format!("{reward:?} {advantage:?} {loss:?} {correct:?} {told}")
}

/// All that a loss says, except its time.
fn shown_loss(loss: &Loss) -> String {
    let gradient = (loss.value.to_bits(), bits(&loss.gradient));
    let told = told(
        &loss.reports.metrics,
        &loss.reports.prints,
        &loss.reports.notes,
    );
    format!("{gradient:?} {told}")
}

fn advantage(recipe: &Recipe, batch: &Batch) -> Outcome {
    let outcome = recipe.advantage(batch, &mut recipe.init().unwrap());
    outcome.unwrap_or_else(|error| panic!("{}", error.render(false)))
}

fn loss(recipe: &Recipe, batch: &Batch, of: Option<&Computed>) -> Loss {
    let loss = recipe.loss(batch, of, &mut recipe.init().unwrap());
    loss.unwrap_or_else(|error| panic!("{}", error.render(false)))
}

#[test]
fn kernels_have_the_bits_of_the_script() {
    let pools = [1, 2, 7].map(|threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads);
        deep_stack::pool(pool).build().unwrap()
    });
    let recipes = SETTINGS.map(|(name, settings, _)| both(name, settings));
    let given = ["reinforce_pp", "grpo"].map(|name| Host::new().load(name).unwrap());
    for seed in 0..BATCHES {
        let (batch, is_plain) = random_batch(seed);
        for ((name, settings, is_known), [script, native]) in SETTINGS.iter().zip(&recipes) {
            let (is_native, what) = (*is_known && is_plain, format!("{seed} {name} {settings}"));
            let expected = shown(&advantage(script, &batch));
            for pool in &pools {
                let outcome = pool.install(|| advantage(native, &batch));
                assert_eq!(outcome.reports.native.is_some(), is_native, "{what}");
                assert!(shown(&outcome) == expected, "{what}");
            }
            // With a given advantage, per token or per response.
            for given in &given {
                let given = advantage(given, &batch).advantage;
                let expected = shown_loss(&loss(script, &batch, Some(&given)));
                for pool in &pools {
                    let loss = pool.install(|| loss(native, &batch, Some(&given)));
                    assert_eq!(loss.reports.native.is_some(), is_native, "{what}");
                    assert!(shown_loss(&loss) == expected, "{what}");
                }
            }
        }
    }
}

/// A copy to the last byte, with the shipped imports, is the built-in under another name; an edit of either is not.
#[test]
fn an_edited_copy_or_import_runs_as_the_script_that_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new().with_native(&Native::new(Mode::On));
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let batch = Batch::example();
    let is_native = || {
        let recipe = host.load(folder.path().join("mine.rhai").to_str().unwrap());
        loss(&recipe.unwrap(), &batch, None)
            .reports
            .native
            .is_some()
    };
    let pacs = host.load("pacs").unwrap().text().to_string();
    write("mine.rhai", &pacs);
    assert!(is_native());
    write("mine.rhai", &format!("{pacs}\n"));
    assert!(!is_native());
    write("mine.rhai", &pacs);
    write("aggregate.rhai", "fn weighted(batch, x) { x }\n");
    assert!(!is_native());
}

/// If a kernel cannot know what to say, the script says it.
#[test]
fn errors_are_those_of_the_script() {
    for (name, why) in [("ppo_clip", "no advantage"), ("pacs", "no log-probs")] {
        let batch = Batch::builder().groups([0, 0, 1, 1]).lengths([2; 4]);
        let batch = batch
            .response("reward", vec![1.0, 0.0, 0.0, 0.0])
            .build()
            .unwrap();
        let errors = both(name, "").map(|recipe| {
            let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
            outcome.expect_err(why).render(false)
        });
        assert_eq!(errors[0], errors[1], "{name}: {why}");
    }
}

/// At the second call of a kind both ways are compared, and the kernel answers from then on; calls of other settings are compared
/// anew.
#[test]
fn a_hook_is_switched_to_its_kernel() {
    let mut batches = (0..BATCHES).map(random_batch);
    let (batch, _) = batches.find(|(_, is_plain)| *is_plain).unwrap();
    let host = Host::new().with_native(&Native::new(Mode::Auto));
    // A kernel is faster than the script, unless the machine was busy during its run: then calls of this kind stay the script's.
    let is_switched = (1..1000).any(|beta| {
        let mut recipe = host.load("pacs").unwrap();
        recipe.set_text("beta", &beta.to_string()).unwrap();
        let are_native = [(); 4].map(|()| advantage(&recipe, &batch).reports.native.is_some());
        assert_eq!(are_native[..2], [false; 2]);
        assert_eq!(are_native[2], are_native[3]);
        are_native[2]
    });
    assert!(is_switched);
}

/// Kernels keep to the memory of the call: if they have none, the script runs, which needs more and says so.
#[test]
fn a_kernel_without_memory_leaves_the_hook_to_the_script() {
    const RESPONSES: usize = 4000;
    let rewards: Vec<f64> = (0..RESPONSES).map(|i| (i % 3) as f64).collect();
    let batch = Batch::builder()
        .groups((0..RESPONSES as i64).map(|response| response / 4))
        .lengths([2; RESPONSES])
        .response("reward", rewards.clone())
        .response("advantage", rewards)
        .token("old_logp", FloatBuffer::from(vec![0.0f32; 2 * RESPONSES]));
    let batch = batch.build().unwrap();
    let run_within = |guard: &Arc<Guard>, name: &str, mode: Mode| {
        let host = Host::new().with_guard(guard.clone());
        let recipe = host.with_native(&Native::new(mode)).load(name).unwrap();
        recipe.advantage(&batch, &mut recipe.init().unwrap())
    };
    let run =
        |name: &str, mode: Mode, memory: usize| run_within(&Guard::new(None, memory), name, mode);
    let guard = Guard::new(None, 1 << 30);
    run_within(&guard, "pacs", Mode::On).unwrap();
    let least = guard.peak();
    let outcome = run("pacs", Mode::On, least).unwrap();
    assert!(outcome.reports.native.is_some());
    let errors = [Mode::Off, Mode::On].map(|mode| {
        let outcome = run("pacs", mode, least - 1);
        outcome.expect_err("there is no room").render(false)
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("MiB"), "{}", errors[0]);
}
