//! Kernels of the built-ins give the bits of their scripts, whatever the batch, the parameters and the number of threads.

use std::sync::LazyLock;

use advlab::batch::{Batch, BatchBuilder, Computed};
use advlab::native::{Mode, Native};
use advlab::script::{Host, Loss, Outcome, Recipe};
use advlab::tensor::Executor;
use half::{bf16, f16};
use ndarray::Array2;
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
    (responses, kind, rewards, any::<(bool, bool)>()).prop_map(
        |(responses, kind, rewards, (has_logp, has_advantages))| Rollouts {
            responses,
            kind,
            rewards,
            has_logp,
            has_advantages,
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
                builder.token(name, advlab::batch::FloatBuffer::from(values))
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
        "reinforce_pp",
        &[
            "",
            "kl_beta=0 reward_clip=0.5",
            "kl_beta=0.3 kl=k2 gamma=0.9 kl_clamp=0.11",
            "kl_beta=0.25 kl=k3 reward_clip=0.75",
            "kl=abs std=false",
            "kl_beta=0 gamma=0.95",
        ],
    ),
    (
        "reinforce_pp_baseline",
        &["", "std=false", "gamma=0.5 kl_beta=0.1"],
    ),
    ("gae", &["", "gamma=0.99 lambda=0.9", "whiten=false"]),
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
            "weight_mode=only_negative beta=2.5",
            "adv_estimator=grpo weight_mode=none eps=0.01",
        ],
    ),
];

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
    let metrics: Vec<(&str, u64)> = (outcome.metrics.iter())
        .map(|(name, value)| (name.as_str(), value.to_bits()))
        .collect();
    format!(
        "{:?} {:?} {:?} {:?} {metrics:?} {:?} {:?}",
        outcome.reward.as_ref().map(bits),
        bits(&outcome.advantage),
        outcome.loss.map(f64::to_bits),
        outcome.correct.as_ref().map(bits),
        outcome.prints,
        outcome.notes,
    )
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

/// All that a loss says, but for its time.
fn told(loss: &Loss) -> String {
    let metrics: Vec<(&str, u64)> = (loss.metrics.iter())
        .map(|(name, value)| (name.as_str(), value.to_bits()))
        .collect();
    let (value, gradient) = (loss.value.to_bits(), bits(&loss.gradient));
    format!(
        "{value:?} {gradient:?} {metrics:?} {:?} {:?}",
        loss.prints, loss.notes
    )
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
                prop_assert!(outcome.native.is_some(), "{} {}", name, settings);
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
        for (name, settings) in SETTINGS.iter().filter(|(name, _)| ["ppo_clip", "pacs"].contains(name)) {
            let of = if by_token { "reinforce_pp" } else { "grpo" };
            let of = advantage(&three(of, "")[0], &batch)?.advantage;
            let settings = pick.get(settings);
            let [naive, fused, native] = three(name, settings);
            let script = told(&loss(&fused, &batch, Some(&of))?);
            prop_assert_eq!(&script, &told(&loss(&naive, &batch, Some(&of))?));
            for pool in &*POOLS {
                let loss = pool.install(|| loss(&native, &batch, Some(&of)))?;
                prop_assert!(loss.native.is_some(), "{} {}", name, settings);
                prop_assert_eq!(&script, &told(&loss), "{} {}", name, settings);
            }
        }
    }
}

/// What an edit changes is the script from then on; a copy to the last byte is the built-in under another name.
#[test]
fn an_edited_copy_runs_as_the_script_that_it_is() {
    let host = Host::new().with_native(&Native::new(Mode::On));
    let text = host.load("grpo").unwrap().text().to_string();
    let is_native = |text: &str| {
        let recipe = host.compile("mine", text).unwrap();
        recipe
            .advantage(&Batch::example(), &mut recipe.init().unwrap())
            .unwrap()
            .native
            .is_some()
    };
    assert!(is_native(&text));
    assert!(!is_native(&format!("{text}\n")));
}

/// An import of the same name that is another script makes another recipe.
#[test]
fn an_import_that_is_not_the_shipped_one_is_no_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new().with_native(&Native::new(Mode::On));
    let text = host
        .load("reinforce_pp_baseline")
        .unwrap()
        .text()
        .to_string();
    let own = host
        .load("reinforce_pp")
        .unwrap()
        .text()
        .replace("1e-8", "1e-7");
    let path = folder.path().join("mine.rhai");
    std::fs::write(&path, text).unwrap();
    let is_native = || {
        let recipe = host.load(path.to_str().unwrap()).unwrap();
        recipe
            .advantage(&Batch::example(), &mut recipe.init().unwrap())
            .unwrap()
            .native
            .is_some()
    };
    assert!(is_native());
    std::fs::write(folder.path().join("reinforce_pp.rhai"), own).unwrap();
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
        ("reinforce_pp", column([1.0, 0.0, 0.0, 0.0]), "no log-probs"),
        ("gae", column([1.0, 0.0, 0.0, 0.0]), "no values"),
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

/// Kernels answer within the bounds of a call, too.
#[test]
fn memory_that_is_not_there_is_told_of_by_the_script() {
    let limits = advlab::script::Limits {
        memory: 1 << 10,
        ..Default::default()
    };
    let host = Host::new().with_limits(limits);
    let batch = Batch::builder()
        .groups([0, 0])
        .lengths([4096, 4096])
        .response("reward", vec![1.0, 0.0])
        .token(
            "old_logp",
            advlab::batch::FloatBuffer::from(vec![0.0f32; 8192]),
        )
        .token(
            "ref_logp",
            advlab::batch::FloatBuffer::from(vec![0.0f32; 8192]),
        )
        .build()
        .unwrap();
    let errors = [host.clone(), host.with_native(&Native::new(Mode::On))].map(|host| {
        let recipe = host.load("reinforce_pp").unwrap();
        let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
        outcome.expect_err("there is no room").render(false)
    });
    assert_eq!(errors[0], errors[1]);
    assert!(errors[0].contains("MiB"), "{}", errors[0]);
}

/// Scripts that call hooks of built-ins, and whether kernels may answer these.
const IMPORTING: &[(&str, bool)] = &[
    (
        "import \"passk\" as passk;
         fn advantage(batch, p) { metric(\"k\", 1); passk::advantage(batch, #{ k: 1 }) }",
        true,
    ),
    (
        "import \"grpo\" as grpo;
         fn reward(batch, p) { batch.reward - 0.01 * batch.length }
         fn advantage(batch, p) { 2 * grpo::advantage(batch, #{ std: \"sample\", eps: 0 }) }",
        true,
    ),
    (
        "import \"rloo\" as rloo;
         fn reward(batch, p) { batch.token_reward * 0.5 }
         fn advantage(batch, p) { rloo::advantage(batch, p) }",
        false,
    ),
    (
        "import \"grpo_lambda\" as lambda;
         fn params() { lambda::params() }
         fn reward(batch, p) { lambda::reward(batch, p) }
         fn advantage(batch, p) { lambda::advantage(batch, p) }",
        true,
    ),
    (
        "import \"reinforce_pp\" as rpp;
         fn params() { rpp::params() }
         fn advantage(batch, p) {
             let a = rpp::advantage(batch, p);
             where(batch.correct, a, 0.5 * a)
         }",
        true,
    ),
    (
        "import \"reinforce_pp\" as rpp;
         fn params() { rpp::params() }
         fn loss(batch, p) { -(rpp::advantage(batch, p) * batch.logp).mean(\"batch\") }",
        true,
    ),
    (
        "import \"dr_grpo\" as dr;
         fn advantage(batch, p) { batch.map_groups(|g| dr::advantage(g, p)) }",
        false,
    ),
    (
        "import \"dr_grpo\" as dr;
         fn advantage(batch, p) { dr::kernel::advantage(batch, p, 2 * batch.reward) }",
        false,
    ),
    (
        "import \"dr_grpo\" as dr;
         fn advantage(batch, p) { dr::advantage(batch.regroup(batch.correct), p) }",
        false,
    ),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn imported_hooks_have_the_bits_of_the_script(rollouts in rollouts()) {
        let batch = rollouts.batch();
        for (text, may_be_native) in IMPORTING {
            let [script, native] = [Mode::Off, Mode::On].map(|mode| {
                let host = Host::new().with_native(&Native::new(mode));
                host.compile("importing", text).expect("a recipe")
            });
            let native = advantage(&native, &batch)?;
            prop_assert_eq!(native.native.is_some(), *may_be_native, "{}", text);
            prop_assert_eq!(shown(&advantage(&script, &batch)?), shown(&native), "{}", text);
        }
    }
}

/// What a script says of an imported hook that fails does not change with the kernels.
#[test]
fn errors_of_imported_hooks_are_those_of_the_script() {
    let batch = Batch::builder()
        .groups([0, 0, 1, 1])
        .lengths([2; 4])
        .response("reward", vec![1.0, 0.0, 0.0, 0.0]);
    let batch = batch.build().unwrap();
    let bodies = [
        "passk::advantage(batch, #{})",
        "passk::advantage(batch, #{ k: 3 })",
        "passk::advantage(batch, #{ k: \"two\" })",
        "passk::advantage(batch, #{ k: 1 }) / 0",
        "passk::advantage(batch.reward, #{ k: 1 })",
    ];
    for body in bodies {
        let text = format!("import \"passk\" as passk;\nfn advantage(batch, p) {{ {body} }}");
        let [script, native] = [Mode::Off, Mode::On].map(|mode| {
            let host = Host::new().with_native(&Native::new(mode));
            let recipe = host.compile("importing", &text).unwrap();
            let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
            outcome.expect_err(body).render(false)
        });
        assert_eq!(script, native, "{body}");
        assert!(script.matches("called at").count() <= 1, "{script}");
    }
}

/// Its share is measured, both ways are compared, and the kernel answers from then on; of each setting anew.
#[test]
fn an_imported_hook_is_switched_and_told_of() {
    let native = Native::with_threshold(Mode::Auto, 0.0);
    let host = Host::new().with_native(&native);
    let text = "import \"passk\" as passk;
        fn params() { #{ k: #{ value: 2 } } }
        fn advantage(batch, p) { passk::advantage(batch, #{ k: p.k }) }";
    let mut recipe = host.compile("mine", text).unwrap();
    let batch = Batch::builder()
        .groups([0; 4])
        .lengths([2; 4])
        .response("reward", vec![1.0, 0.0, 0.0, 1.0]);
    let batch = batch.build().unwrap();
    let are_native = |recipe: &Recipe| {
        [(); 4].map(|()| {
            let outcome = recipe.advantage(&batch, &mut recipe.init().unwrap());
            outcome.unwrap().native.is_some()
        })
    };
    assert_eq!(are_native(&recipe), [false, false, false, true]);
    let told = native.changes();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].hook, "passk::advantage");
    assert_eq!(told[0].version, *recipe.version());
    // Another k beyond 1 is the same to the kernel, 1 may not be.
    recipe.set_text("k", "3").unwrap();
    assert_eq!(are_native(&recipe), [true; 4]);
    recipe.set_text("k", "1").unwrap();
    assert_eq!(are_native(&recipe), [false, false, false, true]);
}

/// A script of a built-in's name beside the recipe is that script; so is one that imports such a one.
#[test]
fn an_import_that_was_edited_runs_as_the_script_that_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new().with_native(&Native::new(Mode::On));
    let path = folder.path().join("mine.rhai");
    let text = "import \"grpo_lambda\" as lambda;
        fn params() { lambda::params() }
        fn advantage(batch, p) { lambda::advantage(batch, p) }";
    std::fs::write(&path, text).unwrap();
    let is_native = || {
        let recipe = host.load(path.to_str().unwrap()).unwrap();
        let outcome = recipe.advantage(&Batch::example(), &mut recipe.init().unwrap());
        outcome.unwrap().native.is_some()
    };
    assert!(is_native());
    let grpo = host
        .load("grpo")
        .unwrap()
        .text()
        .replace("safe_div(r", "safe_div(2 * r");
    std::fs::write(folder.path().join("grpo.rhai"), grpo).unwrap();
    assert!(!is_native());
}

/// Kernels take no memory that the call has not, and the script does without.
#[test]
fn a_kernel_for_which_there_is_no_room_leaves_the_hook_to_the_script() {
    const RESPONSES: usize = 4000;
    let batch = Batch::builder()
        .groups((0..RESPONSES as i64).map(|response| response / 4))
        .lengths([1; RESPONSES])
        .response(
            "reward",
            (0..RESPONSES).map(|r| (r % 3) as f64).collect::<Vec<_>>(),
        );
    let batch = batch.build().unwrap();
    let run = |memory: usize| {
        let limits = advlab::script::Limits {
            memory,
            ..Default::default()
        };
        let host = Host::new()
            .with_limits(limits)
            .with_native(&Native::new(Mode::On));
        let grpo = host.load("grpo").unwrap();
        grpo.advantage(&batch, &mut grpo.init().unwrap()).unwrap()
    };
    assert!(run(1 << 30).native.is_some());
    let script = Host::new().load("grpo").unwrap();
    let script = script
        .advantage(&batch, &mut script.init().unwrap())
        .unwrap();
    assert!(run(script.peak_bytes).native.is_none());
}

/// What answers without having been compared is told of once.
#[test]
fn kernels_that_answer_unasked_are_told_of() {
    let native = Native::new(Mode::On);
    let host = Host::new().with_native(&native);
    let text = "import \"dr_grpo\" as dr; fn advantage(batch, p) { dr::advantage(batch, p) }";
    for recipe in [
        host.load("rloo").unwrap(),
        host.compile("mine", text).unwrap(),
    ] {
        for _ in 0..3 {
            recipe
                .advantage(&Batch::example(), &mut recipe.init().unwrap())
                .unwrap();
        }
    }
    let told = native.changes();
    let hooks: Vec<&str> = told.iter().map(|change| change.hook.as_str()).collect();
    assert_eq!(hooks, ["advantage", "dr_grpo::advantage"]);
    assert!(told.iter().all(|change| change.script.is_none()));
    assert!(told[0].to_string().contains("`advantage` is native, in "));
}
