//! The objective that a design optimises, as a function of the chance p that a response is right.
//!
//! For groups of N responses with rewards 0 and 1, the expected update is F'(p) times the gradient of p, with
//! F'(p) = E over S ~ Bin(N - 1, p) of A+(S + 1) - A-(S) (Davis and Recht, arXiv 2510.13651; arXiv 2510.23049).

use KnownObjective::{Arcsine, Log, Logit, PassAt, Reward};

use super::curve::ROUNDING;
use super::{Curve, Design, NEUTRAL, Point, label, members};
use crate::Result;
use advlab::check::{on_policy, usual};
use advlab::script::{Hook, Outcome};
use advlab::tensor::{Level, ln_binomial};
use advlab::{Batch, Diagnostic, Recipe};

/// The number of values of p at which two objectives are compared.
const PLACES: usize = 512;

/// The objective that a design optimises.
#[derive(Clone, Debug)]
pub struct Objective {
    /// The recipe's name with its settings.
    pub name: String,
    pub size: usize,
    /// For each draw, the advantages of groups with 0 ... N right responses; there is a single draw if the advantages are exact.
    draws: Vec<Vec<Point>>,
    pub notes: Vec<String>,
}

impl Objective {
    /// Computes the objective of a recipe for groups of `size`. The objective is exact if the advantage depends only on the
    /// number of right responses of a group. If the advantage also depends on the order of the responses or on chance, the
    /// objective is a mean over random orders. Otherwise, it is estimated on responses and groups that are drawn from `input`; a
    /// missing `input` is an error.
    pub fn of(recipe: &Recipe, input: Option<&Batch>, size: usize) -> Result<Objective> {
        let usual = on_policy(&usual());
        let design = Design::of(recipe)?;
        let (exact, tried) = (Curve::of(recipe, &usual, size), design.outcome(&usual));
        let why = beyond_p(&exact, &tried);
        let curve = match (why, input) {
            (None, _) => exact?,
            (Some(_), Some(input)) => Curve::drawn(recipe, input, size)?,
            (Some(why), None) => {
                let name = recipe.name();
                let message = format!(
                    "the objective of {name} is not a function of p alone: it depends on {why}"
                );
                let mut error = Diagnostic::error(message);
                if let Err(cause) = exact {
                    error = error.with_note(cause[0].message.clone());
                }
                let help = "`--input FILE` estimates the objective on the groups of rollouts";
                return Err(error.with_help(help).into());
            }
        };
        let mut notes = Vec::new();
        if tried.is_ok_and(|one| one.advantage.level() == Level::Token) {
            let note = "the advantage is per token: A+ and A- are means over a response's tokens";
            notes.push(note.to_string());
        }
        let draws = curve.draws.len();
        if let Some(why) = why {
            notes.push(format!("the advantage depends on {why}: the numbers are means over {draws} batches drawn from the rollouts, with their standard errors"));
        }
        if curve.depends_on_order {
            notes.push(format!("the advantage depends on the order of a group's responses, or on chance: the numbers are means over {draws} orders, with their standard errors"));
        }
        if design.advantage.is_some() {
            let note = "the loss reads `batch.advantage`: it is shown with the advantage of";
            notes.push(format!("{note} {NEUTRAL}, at logp = old_logp"));
        } else if !recipe.has(Hook::Advantage) {
            notes.push("a loss: its equivalent advantage at logp = old_logp is shown".to_string());
        }
        if recipe.has(Hook::Init) {
            notes.push("the recipe keeps a state; the first step is shown".to_string());
        }
        Ok(Objective {
            name: label(recipe),
            size,
            draws: curve.draws,
            notes,
        })
    }

    /// Returns F'(p) and its standard error, which is 0 if the objective is exact.
    pub fn slope(&self, p: f64) -> (f64, f64) {
        self.mean(&binomial(self.size - 1, p))
    }

    /// Returns F(p), with F(0) = 0, and its standard error. F(p) is the sum over s of (A+(s + 1) - A-(s)) I_p(s + 1, N - s),
    /// divided by N. The incomplete beta function I_p(s + 1, N - s) is the chance that more than s of N responses are right.
    pub fn value(&self, p: f64) -> (f64, f64) {
        let mut more = binomial(self.size, p);
        for right in (1..self.size).rev() {
            more[right] += more[right + 1];
        }
        let weights = more[1..].iter().map(|chance| chance / self.size as f64);
        self.mean(&weights.collect::<Vec<f64>>())
    }

    /// Computes the weighted sum of A+(s + 1) - A-(s) over s. Returns the mean of this sum over the draws, and the standard error
    /// of the mean.
    fn mean(&self, weights: &[f64]) -> (f64, f64) {
        let difference =
            |pair: &[Point]| pair[1].of_right.unwrap_or(0.0) - pair[0].of_wrong.unwrap_or(0.0);
        let of = |draw: &Vec<Point>| -> f64 {
            let differences = draw.windows(2).map(difference);
            differences.zip(weights).map(|(a, b)| a * b).sum()
        };
        let sums: Vec<f64> = self.draws.iter().map(of).collect();
        let number = sums.len() as f64;
        let mean = sums.iter().sum::<f64>() / number;
        let squares: f64 = sums.iter().map(|sum| (sum - mean) * (sum - mean)).sum();
        (mean, (squares / (number * (number - 1.0).max(1.0))).sqrt())
    }

    /// Returns the update of a group whose responses are right with probability p, 0 < p < 1. The update is the mean of A s over
    /// the responses; the scores s have mean 0 and variance 1, are independent given which responses are right, and have the
    /// given correlation with the label (1 if the response is right).
    pub fn update(&self, p: f64, correlation: f64) -> Update {
        let (size, number) = (self.size as f64, self.draws.len() as f64);
        let most = self.draws.iter().flatten().map(|point| point.total);
        let least = ROUNDING * most.fold(0.0, f64::max);
        let chances = binomial(self.size, p);
        let [mut mean, mut along, mut across, mut silent] = [0.0; 4];
        for (point, chance) in self.draws.iter().flat_map(|draw| draw.iter().zip(&chances)) {
            let [of_right, of_wrong] =
                [point.of_right, point.of_wrong].map(Option::unwrap_or_default);
            let right = point.right as f64;
            // The mean of A times the standardised label.
            let shift = right * of_right * (1.0 - p) - (size - right) * of_wrong * p;
            let shift = shift / (size * (p * (1.0 - p)).sqrt());
            let weight = chance / number;
            mean += weight * shift;
            along += weight * shift * shift;
            across += weight * point.squares / (size * size);
            silent += weight * f64::from(u8::from(point.total <= least));
        }
        let share = correlation * correlation;
        Update {
            mean: correlation * mean,
            variance: share * (along - mean * mean) + (1.0 - share) * across,
            silent,
        }
    }

    pub fn is_exact(&self) -> bool {
        self.draws.len() == 1
    }

    /// Returns the named objectives with their distances from this objective, the nearest first. The distance is the total
    /// variation between the two F', each scaled to a sum of 1 from p = 1/N to 1 - 1/N. The list is empty if F' is zero or
    /// somewhere negative, or if N < 3, because the range is then at most a single point.
    pub fn nearest(&self) -> Vec<(KnownObjective, f64)> {
        let (places, scale) = (self.places(), self.scale(None));
        let is_below = |&p: &f64| self.is_below(p, scale);
        if self.size < 3 || scale < 1e-12 || places.iter().any(is_below) {
            return Vec::new();
        }
        let density = |slope: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let slopes: Vec<f64> = places.iter().map(|&p| slope(p)).collect();
            let sum: f64 = slopes.iter().sum();
            slopes.iter().map(|slope| slope / sum).collect()
        };
        let own = density(&|p| self.slope(p).0);
        let far = |known: KnownObjective| {
            let other = density(&|p| known.slope(p));
            let apart: f64 = own.iter().zip(&other).map(|(a, b)| (a - b).abs()).sum();
            (known, apart / 2.0)
        };
        let all = KnownObjective::all(self.size).into_iter();
        let mut all: Vec<(KnownObjective, f64)> = all.map(far).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    }

    /// Returns whether F'(p) is negative by more than two standard errors plus a tolerance for rounding, which is relative to
    /// `scale`, the mean of F'.
    pub(super) fn is_below(&self, p: f64, scale: f64) -> bool {
        let (slope, error) = self.slope(p);
        slope + 2.0 * error < -(ROUNDING * scale.abs()).max(1e-12)
    }

    /// Returns the mean of F' from p = 1/N to 1 - 1/N, of this objective or of the named objective `known`.
    pub fn scale(&self, known: Option<KnownObjective>) -> f64 {
        let places = self.places();
        let slope = |&p: &f64| known.map_or_else(|| self.slope(p).0, |known| known.slope(p));
        places.iter().map(slope).sum::<f64>() / places.len() as f64
    }

    fn places(&self) -> Vec<f64> {
        let least = 1.0 / self.size as f64;
        let place = |index| least + (1.0 - 2.0 * least) * (index as f64 + 0.5) / PLACES as f64;
        (0..PLACES).map(place).collect()
    }
}

/// The update of a group along one direction; `docs/objectives.md` derives the formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    pub mean: f64,
    pub variance: f64,
    /// The share of groups without a signal, in which all advantages are 0.
    pub silent: f64,
}

impl Update {
    /// Returns the update of REINFORCE with the best constant baseline, b = E s^2 r / E s^2.
    pub fn best(size: usize, p: f64, correlation: f64) -> Update {
        let share = correlation * correlation;
        let baseline = share * (1.0 - p) + (1.0 - share) * p;
        let spread = p * (1.0 - p);
        Update {
            mean: correlation * spread.sqrt(),
            variance: (baseline * (1.0 - baseline) - share * spread) / size as f64,
            silent: 0.0,
        }
    }

    /// Returns the signal-to-noise ratio, which is the mean divided by the standard deviation, or 0 if there is no signal.
    pub fn ratio(self) -> f64 {
        match self.mean.abs() < 1e-12 {
            true => 0.0,
            false => self.mean / self.variance.max(0.0).sqrt(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownObjective {
    /// The reward itself: p.
    Reward,
    /// The log-likelihood of a right response: log p.
    Log,
    /// The log-odds log p - log(1 - p), up to a constant factor.
    Logit,
    /// Pass@k: 1 - (1 - p)^k.
    PassAt(usize),
    /// The arcsine of the square root of pass@k (which is p for k = 1), up to a constant factor.
    Arcsine(usize),
}

impl KnownObjective {
    /// Returns the named objectives with which a design is compared in groups of `size`.
    pub fn all(size: usize) -> Vec<KnownObjective> {
        let powers = || std::iter::successors(Some(2), |k| Some(2 * k)).take_while(|k| *k <= size);
        let mut all = vec![Reward, Log, Logit, Arcsine(1)];
        all.extend(powers().map(PassAt));
        all.extend(powers().map(Arcsine));
        all
    }

    pub fn name(self) -> String {
        match self {
            Reward => "reward".to_string(),
            Log => "log p".to_string(),
            Logit => "logit p".to_string(),
            PassAt(k) => format!("pass@{k}"),
            Arcsine(1) => "arcsin sqrt p".to_string(),
            Arcsine(k) => format!("arcsin sqrt pass@{k}"),
        }
    }

    /// Returns the derivative of the objective with respect to p, up to a constant factor.
    pub fn slope(self, p: f64) -> f64 {
        let fails = |k: usize| (1.0 - p).powi(k as i32);
        match self {
            Reward => 1.0,
            Log => 1.0 / p,
            Logit => 1.0 / (4.0 * p * (1.0 - p)),
            PassAt(k) => k as f64 * fails(k - 1),
            Arcsine(k) => fails(k - 1) / (fails(k) * (1.0 - fails(k))).sqrt(),
        }
    }
}

/// Returns the probabilities that 0, 1, ... n of n responses are right.
fn binomial(n: usize, p: f64) -> Vec<f64> {
    let chance = |right: usize| {
        // Computes the logarithm of a power; 0 to the power of 0 is 1.
        let power = |base: f64, of: usize| if of == 0 { 0.0 } else { of as f64 * base.ln() };
        let ways = ln_binomial(n as i64, right as i64).unwrap_or(f64::NEG_INFINITY);
        (ways + power(p, right) + power(1.0 - p, n - right)).exp()
    };
    (0..=n).map(chance).collect()
}

/// Names a property other than the number of right responses in the group on which an advantage depends. Returns `None` if no
/// such property was found.
fn beyond_p(curve: &Result<Curve>, tried: &Result<Outcome>) -> Option<&'static str> {
    match curve {
        Ok(curve) if curve.depends_on_batch => Some("the other groups of the batch"),
        // Tokens are not tested if the order of the responses matters, because equal responses then have different advantages
        // even if their tokens are equal.
        Ok(curve) if !curve.depends_on_order && tried.as_ref().is_ok_and(looks_at_tokens) => {
            Some("properties of a response beyond its correctness, such as its tokens")
        }
        Err(error) if error[0].missing_column().is_some() => {
            Some("columns that only real rollouts have")
        }
        _ => None,
    }
}

/// Returns whether responses of a group with the same label have different advantages because their tokens differ.
fn looks_at_tokens(outcome: &Outcome) -> bool {
    let (advantage, layout) = (outcome.advantage.by_response(), outcome.advantage.layout());
    let Some(correct) = &outcome.correct else {
        return false;
    };
    let largest = advantage.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let is_right = |one: usize| correct.at(one, 0) == 1.0;
    let spread = |group: usize| Point::of(members(layout, group), is_right, &advantage).1;
    (0..layout.groups()).any(|group| spread(group) > ROUNDING * largest)
}
