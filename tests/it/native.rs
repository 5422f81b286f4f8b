//! Kernels of the built-ins give the bits of their scripts, whatever the batch, the parameters and the number of threads.

use std::sync::LazyLock;

use advlab::batch::{Batch, BatchBuilder, Computed, FloatBuffer, TokenValues};
use advlab::native::{Mode, Native};
use advlab::script::{Host, Limits, Loss, Outcome, Recipe};
use advlab::tensor::Executor;
use half::{bf16, f16};
use ndarray::{Array2, ShapeBuilder};
use proptest::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Rollouts as a test draws them.
#[derive(Clone, Debug)]
struct Rollouts {
    responses: Vec<Response>,
    kind: Kind,
    /// Which columns say what is right: `reward`, `correct`, `token_reward`.
    rewards: [bool; 3],
    has_logp: bool,
    /// By token, or by response.
    has_advantages: bool,
}

#[derive(Clone, Debug)]
struct Response {
    group: u8,
    reward: f64,
    /// Beyond a tile, so that sums and scans have carries; some tokens do not count.
    length: usize,
    holes: usize,
    seed: u32,
}

/// How token columns come.
#[derive(Clone, Copy, Debug)]
enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    Compact,
}

fn rollouts() -> impl Strategy<Value = Rollouts> {
    let reward = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(1.0),
        Just(0.1),
        -2.0..2.0f64,
        Just(-0.0)
    ];
    let length = prop_oneof![0usize..8, 0usize..40, 1000usize..2100];
    let response = (0u8..4, reward, length, 0usize..5, any::<u32>());
    let response = response.prop_map(|(group, reward, length, holes, seed)| Response {
        group,
        reward,
        length,
        holes,
        seed,
    });
    let kind = prop_oneof![
        Just(Kind::F16),
        Just(Kind::Bf16),
        Just(Kind::F32),
        Just(Kind::F64),
        Just(Kind::Compact)
    ];
    let rewards = prop_oneof![
        Just([true, false, false]),
        Just([false, true, false]),
        Just([false, false, true]),
        Just([true, true, true]),
        Just([true, false, true])
    ];
    let responses = prop::collection::vec(response, 1..12);
    (responses, kind, rewards, any::<[bool; 3]>()).prop_map(
        |(mut responses, kind, rewards, [has_logp, has_advantages, has_holes])| {
            if !has_holes {
                responses
                    .iter_mut()
                    .for_each(|response: &mut Response| response.holes = 0);
            }
            Rollouts {
                responses,
                kind,
                rewards,
                has_logp,
                has_advantages,
            }
        },
    )
}

impl Response {
    fn counts(&self, column: usize) -> bool {
        column < self.length && (self.holes == 0 || column % (self.holes + 3) != 1)
    }

    /// A number from 0 to 1 for a token of a column.
    fn noise(&self, column: usize, salt: u32) -> f64 {
        let mut x = self.seed ^ (column as u32).wrapping_mul(0x9e37_79b9) ^ salt.wrapping_mul(77);
        for shift in [16, 13, 16] {
            x = (x ^ (x >> shift)).wrapping_mul(0x85eb_ca6b);
        }
        f64::from(x) / f64::from(u32::MAX)
    }
}

impl Rollouts {
    /// Whether a loss's kernel is written for the token columns and settings.
    fn are_plain(&self, batch: &Batch, settings: &str) -> bool {
        let layout = batch.layout();
        let has_holes = (0..layout.responses()).any(|response| layout.runs(response).len() > 1);
        let is_known = !settings.contains("adv_estimator");
        !has_holes && is_known && !matches!(self.kind, Kind::F16 | Kind::Bf16)
    }

    fn batch(&self) -> Batch {
        let rows = &self.responses;
        let width = rows.iter().map(|row| row.length).max().unwrap_or(0) + 1;
        let mask = Array2::from_shape_fn((rows.len(), width), |(r, c)| rows[r].counts(c));
        let last = |r: usize| (0..width).rev().find(|&c| rows[r].counts(c));
        let mut builder = Batch::builder()
            .groups(rows.iter().map(|row| i64::from(row.group)))
            .mask(mask.view());
        let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
        if self.rewards[0] {
            builder = builder.response("reward", rewards.clone());
        }
        if self.rewards[1] {
            let correct: Vec<f64> = rewards
                .iter()
                .map(|&r| f64::from(u8::from(r > 0.5)))
                .collect();
            builder = builder.response("correct", correct);
        }
        if self.rewards[2] {
            builder = self.token(builder, "token_reward", width, &|r, c| {
                let shaped = 0.25 * (rows[r].noise(c, 9) * 4.0).floor();
                if last(r) == Some(c) {
                    rows[r].reward
                } else {
                    shaped
                }
            });
        }
        let old = |r: usize, c: usize| -2.0 * rows[r].noise(c, 1);
        builder = self.token(builder, "old_logp", width, &old);
        if self.has_logp {
            builder = self.token(builder, "logp", width, &|r, c| {
                old(r, c) + 0.6 * rows[r].noise(c, 2) - 0.3
            });
        }
        builder = self.token(builder, "ref_logp", width, &|r, c| {
            old(r, c) + rows[r].noise(c, 3) - 0.5
        });
        if self.has_advantages {
            builder = self.token(builder, "advantage", width, &|r, c| {
                rows[r].noise(c, 5) - 0.5
            });
        } else {
            let advantages: Vec<f64> = rewards.iter().map(|reward| reward - 0.3).collect();
            builder = builder.response("advantage", advantages);
        }
        builder = self.token(builder, "value", width, &|r, c| rows[r].noise(c, 4));
        builder.build().expect("a batch")
    }

    /// Adds a token column; where the mask is 0 there is NaN.
    fn token(
        &self,
        builder: BatchBuilder,
        name: &str,
        width: usize,
        of: &dyn Fn(usize, usize) -> f64,
    ) -> BatchBuilder {
        let rows = &self.responses;
        let shape = (rows.len(), width);
        let cell = |(r, c): (usize, usize)| {
            if rows[r].counts(c) {
                of(r, c)
            } else {
                f64::NAN
            }
        };
        match self.kind {
            Kind::F16 => builder.token(
                name,
                Array2::from_shape_fn(shape, |at| f16::from_f64(cell(at))),
            ),
            Kind::Bf16 => builder.token(
                name,
                Array2::from_shape_fn(shape, |at| bf16::from_f64(cell(at))),
            ),
            Kind::F32 => builder.token(name, Array2::from_shape_fn(shape, |at| cell(at) as f32)),
            Kind::F64 => builder.token(name, Array2::from_shape_fn(shape, cell)),
            Kind::Compact => {
                let cells = (0..rows.len()).flat_map(|r| (0..width).map(move |c| (r, c)));
                let counted = cells.filter(|&(r, c)| rows[r].counts(c));
                let values: Vec<f32> = counted.map(|(r, c)| of(r, c) as f32).collect();
                builder.token(name, FloatBuffer::from(values))
            }
        }
    }
}

/// Settings of each recipe beside its defaults. No group is smaller than one response.
const SETTINGS: &[(&str, &[&str])] = &[
    ("grpo", &["", "std=population eps=0.01"]),
    ("dr_grpo", &[""]),
    ("rloo", &[""]),
    ("passk", &["k=1"]),
    (
        "grpo_lambda",
        &[
            "",
            "acc_top_lambda=0.7 length_penalty_alpha=0.3 length_eps=0.5 std=population",
            "acc_top_lambda=1",
        ],
    ),
    (
        "ppo_clip",
        &[
            "",
            "kl_beta=0.1",
            "kl_beta=0.01 kl=k1 aggregate=response",
            "kl_beta=0.5 kl=k2 clip_high=0.28",
            "kl_beta=0.02 kl=abs clip_low=0.25 clip_high=0.25",
            "aggregate=response clip_low=0 clip_high=0",
        ],
    ),
    (
        "pacs",
        &[
            "",
            "adv_estimator=grpo",
            "adv_estimator=grpo std=false reward_method=mean beta=0.3",
            "adv_estimator=naive weight_mode=only_positive",
            "weight_mode=only_positive",
            "weight_mode=only_negative beta=2.5",
            "weight_mode=none reward_method=mean",
            "adv_estimator=grpo weight_mode=none eps=0.01",
        ],
    ),
];

const LOSSES: [&str; 2] = ["ppo_clip", "pacs"];

static POOLS: LazyLock<[ThreadPool; 3]> = LazyLock::new(|| {
    [1, 2, 7].map(|threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads")
    })
});

/// A recipe as a script by either executor, and by kernels.
fn three(name: &str, settings: &str) -> [Recipe; 3] {
    let naive = Host::new().with_executor(Executor::Naive);
    let native = Host::new().with_native(&Native::new(Mode::On));
    [naive, Host::new(), native].map(|host| {
        let mut recipe = host.load(name).expect("a built-in");
        for setting in settings.split_whitespace() {
            let (name, value) = setting.split_once('=').expect("a setting");
            recipe.set_text(name, value).expect("a value");
        }
        recipe
    })
}

fn bits(computed: &Computed) -> (String, bool, Vec<u64>) {
    let buffer = computed.buffer();
    let bits = buffer.iter().map(f64::to_bits).collect();
    (computed.level().to_string(), buffer.is_f64(), bits)
}

/// All that an outcome says, but for times and memory.
fn shown(outcome: &Outcome) -> String {
    let of = |values: &Option<Computed>| values.as_ref().map(bits);
    let advantage = (bits(&outcome.advantage), outcome.loss.map(f64::to_bits));
    let told = told(&outcome.metrics, &outcome.prints, &outcome.notes);
    let (reward, correct) = (of(&outcome.reward), of(&outcome.correct));
    format!("{reward:?} {advantage:?} {correct:?} {told}")
}

/// All that a loss says, but for its time.
fn shown_loss(loss: &Loss) -> String {
    let gradient = (loss.value.to_bits(), bits(&loss.gradient));
    let told = told(&loss.metrics, &loss.prints, &loss.notes);
    format!("{gradient:?} {told}")
}

fn told(metrics: &[(String, f64)], prints: &[String], notes: &[String]) -> String {
    let metrics = metrics.iter().map(|(name, value)| (name, value.to_bits()));
    format!("{:?} {prints:?} {notes:?}", metrics.collect::<Vec<_>>())
}

fn advantage(recipe: &Recipe, batch: &Batch) -> Result<Outcome, TestCaseError> {
    let mut state = recipe.init().expect("no state");
    let outcome = recipe.advantage(batch, &mut state);
    outcome.map_err(|error| TestCaseError::fail(error.render(false)))
}

fn loss(recipe: &Recipe, batch: &Batch, of: Option<&Computed>) -> Result<Loss, TestCaseError> {
    let mut state = recipe.init().expect("no state");
    let loss = recipe.loss(batch, of, &mut state);
    loss.map_err(|error| TestCaseError::fail(error.render(false)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn advantages_have_the_bits_of_the_script(rollouts in rollouts(), pick in any::<prop::sample::Index>()) {
        let batch = rollouts.batch();
        for (name, settings) in SETTINGS {
            let settings = pick.get(settings);
            let [naive, fused, native] = three(name, settings);
            let script = shown(&advantage(&fused, &batch)?);
            prop_assert_eq!(&script, &shown(&advantage(&naive, &batch)?));
            for pool in &*POOLS {
                let outcome = pool.install(|| advantage(&native, &batch))?;
                let is_native = rollouts.are_plain(&batch, settings) || !LOSSES.contains(name);
                prop_assert_eq!(outcome.native.is_some(), is_native, "{} {}", name, settings);
                prop_assert_eq!(&script, &shown(&outcome), "{} {}", name, settings);
            }
            let padded = |recipe: &Recipe| {
                let layout = batch.layout();
                let mut array = Array2::from_elem((layout.responses(), layout.width()), f32::NAN);
                let written = recipe.advantage_into(&batch, &mut recipe.init()?, &mut array.view_mut())?;
                Ok::<_, advlab::Diagnostics>((array.mapv(f32::to_bits), written.advantage))
            };
            prop_assert_eq!(padded(&fused).unwrap(), padded(&native).unwrap(), "{} {}", name, settings);
        }
    }

    #[test]
    fn losses_have_the_bits_of_the_script(
        rollouts in rollouts(),
        pick in any::<prop::sample::Index>(),
        by_token in any::<bool>(),
    ) {
        let batch = rollouts.batch();
        for (name, settings) in SETTINGS.iter().filter(|(name, _)| LOSSES.contains(name)) {
            let of = if by_token { "reinforce_pp" } else { "grpo" };
            let of = advantage(&Host::new().load(of).expect("a built-in"), &batch)?.advantage;
            let settings = pick.get(settings);
            let [naive, fused, native] = three(name, settings);
            let script = shown_loss(&loss(&fused, &batch, Some(&of))?);
            prop_assert_eq!(&script, &shown_loss(&loss(&naive, &batch, Some(&of))?));
            for pool in &*POOLS {
                let loss = pool.install(|| loss(&native, &batch, Some(&of)))?;
                let is_native = rollouts.are_plain(&batch, settings);
                prop_assert_eq!(loss.native.is_some(), is_native, "{} {}", name, settings);
                prop_assert_eq!(&script, &shown_loss(&loss), "{} {}", name, settings);
            }
        }
    }
}

/// A copy to the last byte, with the shipped imports, is the built-in under another name; an edit of either is not.
#[test]
fn an_edited_copy_or_import_runs_as_the_script_that_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new().with_native(&Native::new(Mode::On));
    let text = |name: &str| host.load(name).unwrap().text().to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let is_native = || {
        let recipe = host.load(folder.path().join("mine.rhai").to_str().unwrap());
        let recipe = recipe.unwrap();
        let outcome = recipe.advantage(&Batch::example(), &mut recipe.init().unwrap());
        outcome.unwrap().native.is_some()
    };
    let (lambda, own) = (text("grpo_lambda"), text("grpo"));
    write("mine.rhai", &lambda);
    assert!(is_native());
    write("mine.rhai", &format!("{lambda}\n"));
    assert!(!is_native());
    write("mine.rhai", &lambda);
    let edited = own.replace("safe_div(r", "safe_div(2 * r");
    assert_ne!(edited, own);
    write("grpo.rhai", &edited);
    assert!(!is_native());
}

/// Where a kernel cannot know what to say, the script says it.
#[test]
fn errors_are_those_of_the_script() {
    let column = |values: [f64; 4]| {
        Batch::builder()
            .groups([0, 0, 1, 1])
            .lengths([2; 4])
            .response("reward", values.to_vec())
    };
    let batches = [
        (
            "passk",
            column([1.0, 0.0, 0.0, 0.0]),
            "k is beyond the groups",
        ),
        ("rloo", column([1.7e308, -1.7e308, 0.0, 0.0]), "too large"),
        ("ppo_clip", column([1.0, 0.0, 0.0, 0.0]), "no advantage"),
        ("pacs", column([1.0, 0.0, 0.0, 0.0]), "no log-probs"),
    ];
    for (name, batch, why) in batches {
        let batch = batch.build().unwrap();
        let errors = three(name, "").map(|recipe| {
            let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
            outcome.expect_err(why).render(false)
        });
        assert_eq!(errors[1], errors[2], "{name}: {why}");
    }
}

/// Columns or rows that kernels were not written for are left to the script, also in the middle of a run.
#[test]
fn a_kernel_declines_holes_strides_and_half_precision() {
    let shape = (2, 6);
    let mask = |hole: usize| Array2::from_shape_fn(shape, |(_, column)| column != hole);
    let batch = |logp: TokenValues, hole: usize| {
        let old = Array2::from_shape_fn(shape, |(row, column)| -0.1 * (row + column) as f32);
        let builder = Batch::builder().groups([0, 0]).mask(mask(hole).view());
        let builder = builder
            .response("correct", vec![1.0, 0.0])
            .token("old_logp", old);
        let builder = builder.response("advantage", vec![1.0, -1.0]);
        builder.token("logp", logp).build().unwrap()
    };
    let value = |(row, column): (usize, usize)| -0.2 * (row * column) as f32;
    let rows: TokenValues = Array2::from_shape_fn(shape, value).into();
    let strided: TokenValues = Array2::from_shape_fn(shape.f(), value).into();
    let half: TokenValues = Array2::from_shape_fn(shape, |at| f16::from_f32(value(at))).into();
    for name in ["ppo_clip", "pacs"] {
        for (logp, hole, is_native) in [
            (&rows, 5, true),
            (&rows, 2, false),
            (&strided, 5, false),
            (&half, 5, false),
        ] {
            let batch = batch(logp.clone(), hole);
            let [_, script, native] = three(name, "").map(|recipe| {
                let mut state = recipe.init().unwrap();
                recipe.loss(&batch, None, &mut state).unwrap()
            });
            assert_eq!(native.native.is_some(), is_native, "{name} {hole} {logp:?}");
            assert_eq!(
                shown_loss(&script),
                shown_loss(&native),
                "{name} {hole} {logp:?}"
            );
        }
    }
}

/// The hook's share is measured, both ways are compared, and the kernel answers from then on; of other settings anew.
#[test]
fn a_hook_is_switched_and_told_of() {
    let batch = Batch::builder()
        .groups([0; 4])
        .lengths([2; 4])
        .response("correct", vec![1.0, 0.0, 0.0, 1.0]);
    let batch = batch.build().unwrap();
    // A kernel is some five times faster than the script, unless the machine was busy during its run.
    let is_switched = (0..20).any(|_| {
        let native = Native::with_threshold(Mode::Auto, 0.0);
        let mut recipe = Host::new().with_native(&native).load("passk").unwrap();
        ["2", "3"].iter().all(|k| {
            recipe.set_text("k", k).unwrap();
            let are_native = [(); 4].map(|()| {
                let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
                outcome.unwrap().native.is_some()
            });
            let told = native.changes();
            assert_eq!(are_native, [false, false, false, told.len() == 1]);
            for told in &told {
                let told_of = (told.hook, &told.version);
                assert_eq!(told_of, ("advantage", recipe.version()));
                assert!(told.kernel < told.script && told.disagrees_on.is_none());
            }
            !told.is_empty()
        })
    });
    assert!(is_switched);
}

/// Kernels keep to the memory of the call: where they have none, the script runs, or says so.
#[test]
fn a_kernel_without_memory_leaves_the_hook_to_the_script() {
    const RESPONSES: usize = 4000;
    let rewards = (0..RESPONSES).map(|response| (response % 3) as f64);
    let builder = Batch::builder()
        .groups((0..RESPONSES as i64).map(|response| response / 4))
        .lengths([2; RESPONSES])
        .response("reward", rewards.clone().collect::<Vec<_>>())
        .response("advantage", rewards.collect::<Vec<_>>())
        .token("old_logp", FloatBuffer::from(vec![0.0f32; 2 * RESPONSES]));
    let batch = builder.build().unwrap();
    let run = |name: &str, mode: Mode, memory: usize| {
        let limits = Limits {
            memory,
            ..Limits::default()
        };
        let host = Host::new().with_limits(limits);
        let recipe = host.with_native(&Native::new(mode)).load(name).unwrap();
        recipe.advantage(&batch, &mut recipe.init().unwrap())
    };
    assert!(run("grpo", Mode::On, 1 << 30).unwrap().native.is_some());
    let peak = run("grpo", Mode::Off, 1 << 30).unwrap().peak_bytes;
    assert!(run("grpo", Mode::On, peak).unwrap().native.is_none());
    let errors = [Mode::Off, Mode::On].map(|mode| {
        let outcome = run("ppo_clip", mode, 1 << 10);
        outcome.expect_err("there is no room").render(false)
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("MiB"), "{}", errors[0]);
}
