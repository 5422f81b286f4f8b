//! What holds of every built-in recipe on any rollouts: order, padding, threads and other groups do not matter.

use std::sync::LazyLock;

use advlab::batch::Batch;
use advlab::batch::large::SpareMemory;
use advlab::check::groups_are_independent;
use advlab::native::{Mode, Native};
use advlab::script::{BUILTINS, Computed, Hook, Host, Recipe, Setting};
use advlab::tensor::Level;
use ndarray::Array2;
use proptest::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Rollouts as a test draws them; padding and order are decided when they become a batch.
#[derive(Clone, Debug)]
struct Rollouts {
    responses: Vec<Response>,
    /// Columns of padding beyond the longest row.
    slack: usize,
}

#[derive(Clone, Debug)]
struct Response {
    group: u8,
    reward: f64,
    /// The cells of its row: whether the token counts, and its numbers.
    cells: Vec<(bool, [f64; 4])>,
}

type OfResponse<'a> = &'a dyn Fn(&Response) -> f64;

fn rollouts() -> impl Strategy<Value = Rollouts> {
    let reward = prop_oneof![Just(0.0), Just(1.0), Just(0.1), -2.0..2.0f64];
    let numbers = prop::array::uniform4(-2.0..0.0f64);
    let cell = (prop::bool::weighted(0.8), numbers);
    let response = (0u8..4, reward, prop::collection::vec(cell, 0..7));
    let response = response.prop_map(|(group, reward, cells)| Response {
        group,
        reward,
        cells,
    });
    (prop::collection::vec(response, 1..14), 0usize..3)
        .prop_map(|(responses, slack)| Rollouts { responses, slack })
}

impl Rollouts {
    /// The responses of these indices; `padding` fills the cells that do not count.
    fn batch(&self, order: &[usize], padding: f64, is_f64: bool) -> Batch {
        let rows: Vec<&Response> = order.iter().map(|&index| &self.responses[index]).collect();
        let longest = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
        let shape = (rows.len(), longest + self.slack);
        let cell = |row: usize, column: usize| rows[row].cells.get(column);
        let counts = |(r, c)| cell(r, c).is_some_and(|(counts, _)| *counts);
        let mask = Array2::from_shape_fn(shape, counts);
        let numbers = |f: &dyn Fn(&[f64; 4]) -> f64| {
            Array2::from_shape_fn(shape, |(r, c)| match cell(r, c) {
                // What f32 holds too: tests of both are of the arithmetic, which a small std magnifies enough.
                Some((true, numbers)) => f64::from(f(numbers) as f32),
                _ => padding,
            })
        };
        // Each response is a trajectory of one turn.
        let mut builder = Batch::builder()
            .groups(rows.iter().map(|row| i64::from(row.group)))
            .mask(mask.view())
            .text("trajectory", order.iter().map(|index| index.to_string()));
        // From the response alone, so that they are permuted with it.
        let length = |row: &Response, of| (row.cells.len() % of) as f64;
        let columns: [(&str, OfResponse<'_>); 12] = [
            ("reward", &|row| row.reward),
            ("advantage", &|row| row.reward - 0.3),
            ("reward_baseline", &|row| (0.5 * row.reward).abs()),
            ("input_tokens", &|row| (3.0 * row.reward).abs()),
            ("turns", &|row| row.reward.abs()),
            ("step_reward", &|row| (0.7 * row.reward).abs()),
            ("truncated", &|_| 0.0),
            ("turn", &|_| 0.0),
            ("role", &|row| length(row, 2)),
            ("agent", &|row| length(row, 3)),
            ("episode", &|row| length(row, 2)),
            ("state", &|row| length(row, 3)),
        ];
        for (name, value) in columns {
            let values: Vec<f64> = rows.iter().map(|row| value(row)).collect();
            builder = builder.response(name, values);
        }
        let squares = |pi: f64| 1.0 - 2.0 * pi + 2.0 * pi * pi;
        for (name, values) in [
            ("old_logp", numbers(&|x| x[0])),
            ("rollout_logp", numbers(&|x| x[0] + 0.1 * x[3])),
            ("teacher_logp", numbers(&|x| x[1])),
            ("process_reward", numbers(&|x| 1.0 + x[2])),
            ("sum_pi_squared", numbers(&|x| squares(x[0].exp()))),
            ("entropy", numbers(&|x| -x[1])),
            ("ref_logp", numbers(&|x| x[0] + 0.1 * x[1])),
            ("logp", numbers(&|x| x[0] + 0.1 * x[2])),
            ("value", numbers(&|x| x[3])),
        ] {
            builder = match is_f64 {
                true => builder.token(name, values),
                false => builder.token(name, values.mapv(|x| x as f32)),
            };
        }
        builder.build().expect("a batch")
    }

    fn all(&self) -> Vec<usize> {
        (0..self.responses.len()).collect()
    }
}

/// Every built-in recipe, compiled once for all cases.
static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let host = Host::new();
    let load = |name: &str| {
        let mut recipe = host.load(name).expect("a built-in");
        // Any group size is at least 1, and not every recipe has a k.
        let _ = recipe.set("k", Setting::Whole(1));
        recipe
    };
    BUILTINS.iter().map(|builtin| load(builtin.name)).collect()
});

/// Recipes that draw, that take the first of tokens that tie, or that remember by key from response to response.
const BY_ORDER: [&str; 5] = ["passk_bootstrap", "clip_cov", "kl_cov", "rae", "spo"];

fn advantage(recipe: &Recipe, batch: &Batch) -> Result<Computed, TestCaseError> {
    let mut state = recipe.init().expect("no state");
    match recipe.advantage(batch, &mut state) {
        Ok(outcome) => Ok(outcome.advantage),
        Err(error) => Err(TestCaseError::fail(error.render(false))),
    }
}

/// The values of a response: one, or one a token.
fn of(computed: &Computed, response: usize) -> Vec<f64> {
    let tokens = computed.layout().tokens_of(response).len();
    match computed.level() {
        Level::Response => vec![computed.at(response, 0)],
        _ => (0..tokens).map(|t| computed.at(response, t)).collect(),
    }
}

fn bits(computed: &Computed) -> Vec<u64> {
    computed.buffer().iter().map(f64::to_bits).collect()
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * a.abs().max(1.0);
    a.len() == b.len() && a.iter().zip(b).all(is_near)
}

static POOLS: LazyLock<[ThreadPool; 2]> = LazyLock::new(|| {
    [1, 4].map(|threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads);
        pool.build().expect("threads")
    })
});

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn permuting_responses_permutes_advantages(
        rollouts in rollouts(),
        keys in prop::collection::vec(any::<u32>(), 14),
    ) {
        let mut order = rollouts.all();
        order.sort_by_key(|&index| keys[index]);
        // Which of two groups comes first decides a tie of these: that order stays.
        let by_group = ["grpo_lambda", "passk_by_entropy"];
        let mut stable = rollouts.all();
        let first = |group: u8| rollouts.responses.iter().position(|r| r.group == group);
        stable.sort_by_key(|&index| (first(rollouts.responses[index].group), keys[index]));
        let free_of_order = |recipe: &&Recipe| !BY_ORDER.contains(&recipe.name());
        let batch = |order: &[usize]| rollouts.batch(order, 0.0, true);
        let (unchanged, any, by_groups) = (batch(&rollouts.all()), batch(&order), batch(&stable));
        for recipe in RECIPES.iter().filter(free_of_order) {
            let (order, permuted) = match by_group.contains(&recipe.name()) {
                true => (&stable, &by_groups),
                false => (&order, &any),
            };
            let (base, permuted) = (advantage(recipe, &unchanged)?, advantage(recipe, permuted)?);
            for (row, &response) in order.iter().enumerate() {
                let (was, is) = (of(&base, response), of(&permuted, row));
                prop_assert!(close(&was, &is, 1e-9), "{}: {was:?} became {is:?}", recipe.name());
            }
        }
    }

    #[test]
    fn padding_never_matters(rollouts in rollouts()) {
        let wider = Rollouts { slack: rollouts.slack + 3, ..rollouts.clone() };
        let batch = |padding: f64| rollouts.batch(&rollouts.all(), padding, true);
        let (zeros, wider) = (batch(0.0), wider.batch(&rollouts.all(), -1e300, true));
        let others = [batch(f64::NAN), batch(f64::INFINITY), wider];
        for recipe in RECIPES.iter() {
            let base = bits(&advantage(recipe, &zeros)?);
            for other in &others {
                prop_assert_eq!(&base, &bits(&advantage(recipe, other)?), "{}", recipe.name());
            }
        }
    }

    #[test]
    fn one_thread_and_four_give_the_same_bits(rollouts in rollouts()) {
        let [one, four] = &*POOLS;
        let batch = rollouts.batch(&rollouts.all(), f64::NAN, true);
        for recipe in RECIPES.iter() {
            let run = || advantage(recipe, &batch);
            prop_assert_eq!(bits(&one.install(run)?), bits(&four.install(run)?), "{}", recipe.name());
        }
    }

    #[test]
    fn results_written_as_rows_have_the_same_bits(rollouts in rollouts(), is_f64: bool) {
        let batch = rollouts.batch(&rollouts.all(), f64::NAN, is_f64);
        let by_script = Host::new().with_padded_results();
        let by_kernel = by_script.clone().with_native(&Native::new(Mode::On));
        for recipe in RECIPES.iter() {
            let base = advantage(recipe, &batch)?;
            let padded = base.to_padded().mapv(f32::to_bits);
            for host in [&by_script, &by_kernel] {
                let recipe = recipe.on(host);
                let computed = advantage(&recipe, &batch)?;
                let copied = computed.to_padded().mapv(f32::to_bits);
                prop_assert_eq!(&copied, &padded, "{}", recipe.name());
                let spare = SpareMemory::default();
                let shared = computed.clone().into_rows(&spare).expect("memory");
                prop_assert_eq!(bits(&computed), bits(&base), "{}", recipe.name());
                let alone = computed.into_rows(&spare).expect("memory");
                for rows in [&shared, &alone] {
                    let rows: Vec<u32> = rows.iter().map(|x| x.to_bits()).collect();
                    prop_assert_eq!(rows, padded.iter().copied().collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn f32_is_near_f64(rollouts in rollouts()) {
        let batches = [true, false].map(|is_f64| rollouts.batch(&rollouts.all(), 0.0, is_f64));
        for recipe in RECIPES.iter() {
            // Of nearly equal tokens f32 may rank another one first.
            if ["clip_cov", "kl_cov"].contains(&recipe.name()) {
                continue;
            }
            let (wide, narrow) = (advantage(recipe, &batches[0])?, advantage(recipe, &batches[1])?);
            // A std near 0 magnifies what f32 rounds off; equal rewards are exact in both.
            let (wide, narrow): (Vec<f64>, Vec<f64>) =
                (wide.buffer().iter().collect(), narrow.buffer().iter().collect());
            prop_assert!(close(&wide, &narrow, 1e-3), "{}: {wide:?} and {narrow:?}", recipe.name());
        }
    }
}

#[test]
fn what_check_calls_group_independent_is() {
    let mut recipes: Vec<&Recipe> = RECIPES.iter().collect();
    recipes.retain(|recipe| {
        // The example has not all the columns.
        let is = groups_are_independent(recipe, &Batch::example());
        // A loss is averaged over the batch.
        recipe.has(Hook::Advantage) && is.is_ok_and(|is| is)
    });
    let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name()).collect();
    // With k = 1 all groups of `passk_by_entropy` are alike.
    let expected = "grpo dr_grpo rloo grpo_loo maxrl opo opmd asymre rec w_reinforce passk passk_full_sampling passk_exceeding \
        passk_combination passk_by_entropy pkpo grpo_passk reinforce entropy_advantage dapo_overlong kimi_length step_grpo \
        zero_variance_filter difficulty_filter";
    let expected: Vec<&str> = expected.split_whitespace().collect();
    assert_eq!(names, expected);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let property = |rollouts: Rollouts| {
        let batch = |members: &[usize]| rollouts.batch(members, 0.0, true);
        let groups = (0u8..4).map(|group| {
            let mut members = rollouts.all();
            members.retain(|&index| rollouts.responses[index].group == group);
            members
        });
        let groups = groups.filter(|members| !members.is_empty());
        let groups: Vec<_> = groups.map(|members| (batch(&members), members)).collect();
        let all = batch(&rollouts.all());
        for recipe in &recipes {
            let whole = advantage(recipe, &all)?;
            for (alone, members) in &groups {
                let alone = advantage(recipe, alone)?;
                for (row, &response) in members.iter().enumerate() {
                    let (was, is) = (of(&whole, response), of(&alone, row));
                    let name = recipe.name();
                    prop_assert!(close(&was, &is, 1e-12), "{name}: {was:?} alone {is:?}");
                }
            }
        }
        Ok(())
    };
    let ran = runner.run(&rollouts(), property);
    ran.unwrap_or_else(|error| panic!("{error}"));
}
