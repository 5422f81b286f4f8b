//! The advantages of right and wrong responses, and the total |A|, as functions of the number of right responses in a group.

use serde_json::json;

use super::{Design, accuracies, label, largest_group, title};
use crate::Result;
use crate::number_text::{column, value};
use crate::paint::Paint;
use crate::report::Report;
use crate::report::draw::{Figure, Mark, Panel, Series};
use advlab::check::{groups_are_independent, on_policy, regrouped, shortened, with_rewards};
use advlab::script::{Computed, Statistics};
use advlab::session::Answer;
use advlab::{Batch, Diagnostic, Host, Recipe};
use advlab_train::random::{Purpose, RandomStream, StreamKey};

/// The approximate number of rows of the table below a curve.
const ROWS: usize = 9;
/// If other groups matter, a curve's batch has about this many additional groups per point, if there is room. Their accuracies
/// are the accuracies of the given batch.
const OWN: usize = 20;
/// The largest number of responses in these additional groups.
const RESPONSES: usize = 1 << 16;
/// The largest number of elements in a padded column of drawn responses; responses that are too long are shortened.
const CELLS: usize = 1 << 21;
/// The length below which no drawn response is shortened.
const LEAST: usize = 8;
/// The number of random draws if the advantage depends on more than the number of right responses.
const DRAWS: u64 = 64;
/// The largest relative difference that counts as a rounding error.
pub(super) const ROUNDING: f64 = 1e-9;

/// The advantages in a group with a given number of right responses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub right: usize,
    /// The mean advantage of the right responses, if there are any.
    pub of_right: Option<f64>,
    /// The mean advantage of the wrong responses, if there are any.
    pub of_wrong: Option<f64>,
    /// The sum of |A| over the group.
    pub total: f64,
    /// The sum of A^2 over the group.
    pub squares: f64,
}

impl Point {
    /// Returns the point that is computed from the responses `members`, and the largest difference between the advantages of a
    /// member and of the first member with the same label.
    pub(super) fn of(
        members: impl Iterator<Item = usize> + Clone,
        is_right: impl Fn(usize) -> bool,
        advantage: &[f64],
    ) -> (Point, f64) {
        let values = |right: bool| -> Vec<f64> {
            let own = members.clone().filter(|&one| is_right(one) == right);
            own.map(|one| advantage[one]).collect()
        };
        let (right, wrong) = (values(true), values(false));
        let mean =
            |own: &[f64]| (!own.is_empty()).then(|| Statistics::of(own.iter().copied()).mean);
        let off = |own: &[f64]| own.iter().fold(0.0, |most, x| (x - own[0]).abs().max(most));
        let all = || right.iter().chain(&wrong);
        let point = Point {
            right: right.len(),
            of_right: mean(&right),
            of_wrong: mean(&wrong),
            total: all().map(|x| x.abs()).sum(),
            squares: all().map(|x| x * x).sum(),
        };
        (point, off(&right).max(off(&wrong)))
    }
}

/// A recipe's advantages in groups of one size, for each number of right responses. An advantage per token is averaged over the
/// response; each advantage is multiplied by the response's weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// `points[r]` is for r right responses, averaged over the draws.
    pub points: Vec<Point>,
    /// Whether a group's advantages depend on the other groups of the batch, or cannot be computed without other groups.
    pub depends_on_batch: bool,
    /// Whether equal responses in a group can have different advantages, because of the responses' order or by chance; `false`
    /// for a drawn curve, where this is not tested.
    pub depends_on_order: bool,
    /// The points of each draw; there is a single draw if nothing is random.
    pub draws: Vec<Vec<Point>>,
}

impl Curve {
    /// Computes the curve for groups of `size`. The curve is computed on one batch, which has the token columns of `like`, a
    /// group for each number of right responses, and, if other groups matter, groups whose accuracies are those of `like`'s
    /// groups. All responses are one token long and differ only in whether they are right; if their order matters, it is random.
    pub fn of(recipe: &Recipe, like: &Batch, size: usize) -> Result<Curve> {
        let design = Design::of(recipe)?;
        let mut groups: Vec<usize> = (0..=size).collect();
        let mut first = alike(like, size, &groups, None)?;
        // A group that is alone gets other random numbers, which are no influence of the other groups.
        let depends_on_batch = match is_random(recipe, &first)? {
            true => others_matter(&design, like, size)?,
            false => !groups_are_independent(recipe, &first)?,
        };
        if depends_on_batch {
            groups = in_proportion(&accuracies_of(like), size);
            first = alike(like, size, &groups, None)?;
        }
        let (exact, spread) = points(&design, &first, size)?;
        let shuffled = |draw| -> Result<Vec<Point>> {
            let batch = alike(like, size, &groups, Some(&mut stream(draw)))?;
            Ok(points(&design, &batch, size)?.0)
        };
        let rounding = ROUNDING * exact.iter().fold(0.0f64, |most, one| most.max(one.total));
        let differs = |(a, b): (&Point, &Point)| (a.total - b.total).abs() > rounding;
        let depends_on_order = spread > rounding || exact.iter().zip(&shuffled(0)?).any(differs);
        let draws = match depends_on_order {
            true => (0..DRAWS).map(shuffled).collect::<Result<_, _>>()?,
            false => vec![exact],
        };
        Ok(Curve::over(draws, depends_on_batch, depends_on_order))
    }

    /// Computes the curve for responses that are drawn, with their tokens, from `input`. If the other groups of the batch matter,
    /// their accuracies are drawn from those of `input`.
    pub fn drawn(recipe: &Recipe, input: &Batch, size: usize) -> Result<Curve> {
        let design = Design::of(recipe)?;
        let own = accuracies_of(input);
        let pools = pools(input)?;
        let depends_on_batch = !groups_are_independent(recipe, input)?;
        let draw = |draw| {
            let mut stream = stream(draw);
            let groups = match depends_on_batch {
                true => {
                    let drawn: Vec<f64> = own.iter().map(|_| *stream.pick(&own)).collect();
                    in_proportion(&drawn, size)
                }
                false => (0..=size).collect(),
            };
            let batch = from_pools(input, &pools, size, &groups, &mut stream);
            Ok(points(&design, &batch, size)?.0)
        };
        let draws = (0..DRAWS).map(draw).collect::<Result<_>>()?;
        Ok(Curve::over(draws, depends_on_batch, false))
    }

    fn over(draws: Vec<Vec<Point>>, depends_on_batch: bool, depends_on_order: bool) -> Curve {
        let point = |right: usize| {
            let of = |number: fn(&Point) -> Option<f64>| {
                let values = draws.iter().map(|draw| number(&draw[right]));
                let values = values.collect::<Option<Vec<f64>>>();
                values.map(|all| Statistics::of(all.into_iter()).mean)
            };
            Point {
                right,
                of_right: of(|point| point.of_right),
                of_wrong: of(|point| point.of_wrong),
                total: of(|point| Some(point.total)).unwrap_or_default(),
                squares: of(|point| Some(point.squares)).unwrap_or_default(),
            }
        };
        Curve {
            points: (0..draws[0].len()).map(point).collect(),
            depends_on_batch,
            depends_on_order,
            draws,
        }
    }
}

fn stream(draw: u64) -> RandomStream {
    StreamKey::new(0, Purpose::Estimates, 0).stream(draw)
}

/// Returns the points of the first groups, which have 0, 1, ... right responses, and the largest of the differences that
/// [`Point::of`] returns.
fn points(design: &Design<'_>, batch: &Batch, size: usize) -> Result<(Vec<Point>, f64)> {
    let outcome = design.outcome(batch)?;
    let advantage = outcome.advantage.by_response().into_iter().enumerate();
    let advantage: Vec<f64> = advantage.map(|(one, x)| x * outcome.counts(one)).collect();
    let labels = outcome.correct.as_ref().map(Computed::by_response);
    let labels = labels.unwrap_or_default();
    let of_group = |right: usize| {
        let members = right * size..(right + 1) * size;
        Point::of(members, |one| labels[one] == 1.0, &advantage)
    };
    let (points, spreads): (Vec<Point>, Vec<f64>) = (0..=size).map(of_group).unzip();
    Ok((points, spreads.into_iter().fold(0.0, f64::max)))
}

/// Returns whether another seed changes the recipe's advantages.
fn is_random(recipe: &Recipe, batch: &Batch) -> Result<bool> {
    let host = recipe.host().clone();
    let seed = host.seed().wrapping_add(1);
    let of = |recipe: &Recipe| -> Result<Vec<f64>> {
        Ok(Design::of(recipe)?.outcome(batch)?.advantage.by_response())
    };
    Ok(of(recipe)? != of(&recipe.on(&host.with_seed(seed)))?)
}

/// Returns whether the labels of other groups change the advantages in a group, if all groups keep their random numbers.
fn others_matter(design: &Design<'_>, like: &Batch, size: usize) -> Result<bool> {
    let of = |groups: Vec<usize>| -> Result<Vec<Point>> {
        Ok(points(design, &alike(like, size, &groups, None)?, size)?.0)
    };
    let given = of((0..=size).collect())?;
    let rounding = ROUNDING * given.iter().fold(0.0f64, |most, one| most.max(one.total));
    let of_point = |one: &Point| [Some(one.total), one.of_right, one.of_wrong];
    for parity in 0..2 {
        // In every second group, no response is right or, if none was, half of the responses are.
        let other = |right: usize| if right == 0 { size.div_ceil(2) } else { 0 };
        let keep = |right: usize| right % 2 == parity;
        let groups = (0..=size).map(|right| if keep(right) { right } else { other(right) });
        let changed = of(groups.collect())?;
        let pairs = given.iter().zip(&changed).filter(|(a, _)| keep(a.right));
        let differs = |(a, b): (Option<f64>, Option<f64>)| {
            a.zip(b).is_some_and(|(a, b)| (a - b).abs() > rounding)
        };
        let mut pairs = pairs.flat_map(|(a, b)| of_point(a).into_iter().zip(of_point(b)));
        if pairs.any(differs) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the share of right responses in each group, or an empty list if the batch does not say which responses are right.
fn accuracies_of(batch: &Batch) -> Vec<f64> {
    match Host::new().evaluate("batch.correct", batch) {
        Ok(Answer::Tensor(correct)) => accuracies(&correct),
        _ => Vec::new(),
    }
}

/// Returns the number of right responses in each group of a batch: first every number from 0 to `size`, then the numbers that the
/// accuracies give, repeated if there is room.
fn in_proportion(accuracies: &[f64], size: usize) -> Vec<usize> {
    let room = RESPONSES / size;
    let right = |accuracy: &f64| (accuracy * size as f64).round() as usize;
    let mut own: Vec<usize> = accuracies.iter().map(right).collect();
    // If there are too many groups, an evenly spaced sample is used.
    own.sort_unstable();
    let every = accuracies.len().div_ceil(room).max(1);
    let own: Vec<usize> = own.into_iter().step_by(every).collect();
    let count = own.len().max(1);
    let copies = (OWN * (size + 1)).div_ceil(count).min(room / count).max(1);
    (0..=size).chain(own.repeat(copies)).collect()
}

/// Returns the labels of groups with the given numbers of right responses. The first responses of a group are right or, if there
/// is a stream, randomly chosen responses.
fn labels(size: usize, groups: &[usize], mut stream: Option<&mut RandomStream>) -> Vec<f64> {
    let mut labels = Vec::with_capacity(size * groups.len());
    for &right in groups {
        let start = labels.len();
        labels.extend((0..size).map(|response| f64::from(u8::from(response < right))));
        if let Some(stream) = &mut stream {
            stream.shuffle(&mut labels[start..]);
        }
    }
    labels
}

/// Returns a batch whose groups have the given numbers of right responses; all responses have the same length and are otherwise
/// equal.
fn alike(
    like: &Batch,
    size: usize,
    groups: &[usize],
    stream: Option<&mut RandomStream>,
) -> Result<Batch> {
    let labels = labels(size, groups, stream);
    let responses = labels.len();
    let mut builder = Batch::builder()
        .groups((0..responses).map(|response| (response / size) as i64))
        .lengths(vec![1; responses])
        .step(like.step())
        .response("reward", labels.clone())
        .response("correct", labels);
    // Log-probs and other token columns are constant, because the curve compares only right and wrong responses.
    let names = like.token_columns().map(|(name, _)| name);
    for name in names.filter(|name| *name != "token_reward") {
        let number = if name.ends_with("logp") { -0.5 } else { 0.5 };
        builder = builder.ragged(name, vec![[number]; responses]);
    }
    builder.build()
}

/// Returns the wrong and the right responses of a batch. It is an error if either kind has no response.
fn pools(input: &Batch) -> Result<[Vec<usize>; 2]> {
    let correct = Host::new().evaluate("batch.correct", input)?.numbers();
    let pools = [0.0, 1.0].map(|label| -> Vec<usize> {
        let all = 0..correct.len();
        all.filter(|&one| correct[one] == label).collect()
    });
    for (kind, pool) in ["wrong", "right"].iter().zip(&pools) {
        if pool.is_empty() {
            let none = format!("no response is {kind}, so mixed groups cannot be drawn");
            return Err(Diagnostic::error(none).into());
        }
    }
    Ok(pools)
}

/// Returns a batch of groups whose responses are drawn from another batch, with their tokens; `logp` equals `old_logp`.
fn from_pools(
    input: &Batch,
    pools: &[Vec<usize>; 2],
    size: usize,
    groups: &[usize],
    stream: &mut RandomStream,
) -> Batch {
    let labels = labels(size, groups, Some(stream));
    let any = |label: &f64| *stream.pick(&pools[usize::from(*label == 1.0)]);
    let taken: Vec<usize> = labels.iter().map(any).collect();
    let most = (CELLS / taken.len().max(1)).max(LEAST);
    let drawn = shortened(&input.select(&taken), &|_| most);
    let grouped = regrouped(&drawn, &|response| response / size);
    on_policy(&with_rewards(&grouped, |response, _| labels[response]))
}

/// Reports the curves of recipes for groups of `size` or, if `size` is `None`, of the size of the batch's largest group.
pub fn report(
    recipes: Vec<Recipe>,
    batch: &Batch,
    size: Option<usize>,
    paint: Paint,
) -> Result<Report> {
    let size = size.unwrap_or_else(|| largest_group(batch));
    let curve = |recipe: Recipe| Ok((Curve::of(&recipe, batch, size)?, recipe));
    let curves: Vec<(Curve, Recipe)> = recipes.into_iter().map(curve).collect::<Result<_>>()?;
    let any = |test: fn(&Curve) -> bool| curves.iter().any(|(curve, _)| test(curve));
    let mut note = "Responses are one token long, with a log-prob of -0.5 and an entropy of 0.5: the effect of differences in these numbers is not shown.".to_string();
    if any(|curve| curve.depends_on_order) {
        note.push_str(" The result depends on the order of a group's responses, or on chance: the numbers are means over random orders.");
    }
    if any(|curve| curve.depends_on_batch) {
        note.push_str(" Groups influence each other: the numbers are for one batch, whose groups have accuracies distributed as in the rollouts.");
    }
    let mut report = Report::new(paint);
    if let [(curve, _)] = &curves[..] {
        list(&curve.points, &mut report);
    }
    report.aside("", &note);
    for (curve, recipe) in &curves {
        let name = label(recipe);
        let row = |point: &Point| json!({ "recipe": name, "right": point.right, "a_right": point.of_right, "a_wrong": point.of_wrong, "total": point.total });
        report.rows.extend(curve.points.iter().map(row));
    }
    report.about = json!({ "n": size, "note": note });
    report.figure = Some(figure(size, &curves));
    Ok(report)
}

type Number = fn(&Point) -> Option<f64>;

/// The numbers that a curve draws and lists in its table.
const NUMBERS: [(&str, Number); 3] = [
    ("A+ right", |point| point.of_right),
    ("A- wrong", |point| point.of_wrong),
    ("total |A|", |point| Some(point.total)),
];

/// Draws the curves of one recipe, or of several recipes in the same panels.
fn figure(size: usize, curves: &[(Curve, Recipe)]) -> Figure {
    let series = |name: &str, curve: &Curve, number: Number| {
        let points = curve.points.iter();
        let points = points.filter_map(|point| Some((point.right as f64, number(point)?)));
        Series::new(name, Mark::Line, points)
    };
    let panel = |y: &str, all| Panel::new(format!("right responses of {size}"), y, all);
    if let [(curve, recipe)] = curves {
        let [right, wrong, total] = NUMBERS;
        let advantage = [right, wrong].map(|(name, number)| series(name, curve, number));
        let total = panel(total.0, vec![series("", curve, total.1)]);
        let title = format!("{}, a group of {size}", title(recipe));
        return Figure::new(title, 2, vec![panel("advantage", advantage.into()), total]);
    }
    let all = NUMBERS.map(|(y, number)| {
        let lines = curves.iter();
        let lines = lines.map(|(curve, recipe)| series(&label(recipe), curve, number));
        panel(y, lines.collect())
    });
    Figure::new(format!("groups of {size}"), 3, all.into())
}

/// Adds a table with some points of a curve, and a line that says for which number of right responses the total is largest.
fn list(points: &[Point], report: &mut Report) {
    let larger = |peak: Point, point: &Point| match point.total > peak.total * (1.0 + ROUNDING) {
        true => *point,
        false => peak,
    };
    let peak = points.iter().fold(points[0], larger);
    if peak.total == 0.0 {
        return report.line("the advantage is 0 everywhere");
    }
    let last = points.len() - 1;
    let step = last.div_ceil(ROWS - 1).max(1);
    let is_shown = |right| [peak.right, last].contains(&right) || right.is_multiple_of(step);
    let shown = || points.iter().filter(|point| is_shown(point.right));
    let columns = NUMBERS.map(|(_, number)| {
        let values = shown().map(|one| number(one).unwrap_or(f64::NAN));
        column(&values.collect::<Vec<f64>>())
    });
    let heads = ["right", "A+", "A-", "total |A|"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    rows.extend(shown().enumerate().map(|(index, point)| {
        let cells = columns.iter().map(|own| own[index].replace("NaN", "-"));
        [point.right.to_string()].into_iter().chain(cells).collect()
    }));
    report.table(&rows);
    let (total, right) = (value(peak.total), peak.right);
    let most = format!("the total |A| is largest, {total}, with {right} right");
    report.line(most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_groups_a_sample_in_their_proportions_is_drawn() {
        let many: Vec<f64> = (0..1_000_000)
            .map(|group| f64::from(group % 4) / 4.0)
            .collect();
        for size in [8, 1024] {
            let groups = in_proportion(&many, size);
            assert!(groups.len() * size <= RESPONSES + size * (size + 1));
            let share = |right: usize| groups.iter().filter(|own| **own == right).count();
            let quarter = groups.len().saturating_sub(size) / 4;
            assert!(
                [0, size / 4, size / 2]
                    .iter()
                    .all(|&right| share(right).abs_diff(quarter) <= 3)
            );
        }
    }
}
