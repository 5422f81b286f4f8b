//! Shows the differences between two dumps of one batch in groups, masks, columns and texts.

use std::collections::{BTreeSet, HashMap};

use serde_json::json;

use crate::number_text::{counted, value};
use crate::paint::{Paint, table};
use crate::report::Report;
use crate::{Result, wrong};
use advlab::Batch;
use advlab::batch::Layout;
use advlab::script::Host;
use advlab::session::Session;
use advlab::tensor::Level;

/// Two values count as equal if they differ by at most this fraction of the larger value, because trainers dump f32.
const ROUNDING: f64 = 1e-6;
/// Columns that may be computed from other columns.
const COMPUTED: [&str; 3] = ["reward", "correct", "length"];

/// A row of the table.
struct Row {
    what: String,
    /// The number of responses that differ; `None` if only one file has the column, or if its level differs between the files.
    differ: Option<usize>,
    detail: String,
}

/// Compares two batches response by response. Responses are paired by their order within groups of the same name if both batches
/// have the same group names and no name is a number, or if the numbers of responses differ. Otherwise, responses are paired by
/// their order in the batches.
///
/// # Errors
/// Returns an error if no two responses can be compared.
pub fn report(names: [&str; 2], batches: [&Batch; 2], paint: Paint) -> Result<Report> {
    let mut report = Report::new(paint);
    let [a, b] = batches.map(Batch::layout);
    for (letter, name, layout) in [("  a", names[0], a), ("  b", names[1], b)] {
        let responses = counted(layout.responses(), "response");
        report.row(letter, 5, &format!("{name}: {responses}"));
    }
    let pairs = pairs(a, b);
    if pairs.is_empty() {
        let help = "give dumps of the same batch: `--map group=FIELD` names the field of the prompts in both files";
        return Err(wrong("the two files have no group of the same name", help));
    }
    if a.responses() != b.responses() {
        let compared = counted(pairs.len(), "response");
        report.note(&format!(
            "only the {compared} that both files have in groups of the same name are compared"
        ));
    }
    report.line("");
    let mut rows = vec![groups(a, b, &pairs), masks(a, b, &pairs)];
    rows.extend(columns(batches, &pairs));
    for (name, texts) in batches[0].texts() {
        rows.push(match batches[1].text(name) {
            Some(others) => Row::of(
                name,
                &pairs,
                |a, b| texts[a] != others[b],
                |_| String::new(),
            ),
            None => Row::only_in("a", name),
        });
    }
    let others = batches[1].texts().map(|(name, _)| name);
    let others = others.filter(|name| batches[0].text(name).is_none());
    rows.extend(others.map(|name| Row::only_in("b", name)));
    let head = ["", "", ""].map(str::to_string).to_vec();
    let cells = rows.iter().map(|row| {
        let differ = match row.differ {
            Some(0) => "equal".to_string(),
            Some(number) => format!("{} differ", counted(number, "response")),
            None => String::new(),
        };
        vec![format!("  {}", row.what), differ, row.detail.clone()]
    });
    let table = table(&[head].into_iter().chain(cells).collect::<Vec<_>>());
    table[1..]
        .iter()
        .for_each(|line| report.line(line.trim_end()));
    let rows = rows.iter();
    report.rows = rows
        .map(|row| json!({ "what": row.what, "differ": row.differ, "detail": row.detail }))
        .collect();
    report.about =
        json!({ "a": names[0], "b": names[1], "compared": pairs.len(), "rows": report.rows });
    Ok(report)
}

/// Returns the pairs of responses to compare, as indices in `a` and in `b`.
fn pairs(a: &Layout, b: &Layout) -> Vec<(usize, usize)> {
    let names = |layout: &Layout| -> BTreeSet<String> {
        let groups = 0..layout.groups();
        groups
            .map(|group| layout.group_id(group).name().into_owned())
            .collect()
    };
    // Names that are numbers are used only if the batches differ in size, because each trainer may number the groups anew.
    let is_text = |name: &String| name.parse::<i64>().is_err();
    let is_by_name = names(a) == names(b) && names(a).iter().all(is_text);
    if a.responses() == b.responses() && !is_by_name {
        return (0..a.responses())
            .map(|response| (response, response))
            .collect();
    }
    let of = |layout: &Layout| -> HashMap<String, Vec<usize>> {
        let groups = (0..layout.groups()).map(|group| {
            let own = layout
                .members(group)
                .iter()
                .map(|&response| response as usize);
            (layout.group_id(group).name().into_owned(), own.collect())
        });
        groups.collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let both = of_a
        .iter()
        .filter_map(|(name, own)| Some(own.iter().zip(of_b.get(name)?)));
    let mut pairs: Vec<(usize, usize)> = both.flatten().map(|(a, b)| (*a, *b)).collect();
    pairs.sort_unstable();
    pairs
}

impl Row {
    fn only_in(file: &str, what: &str) -> Row {
        Row {
            what: what.to_string(),
            differ: None,
            detail: format!("only in {file}"),
        }
    }

    /// Returns a row about a property that may differ in each pair of responses; `detail` describes the first pair that differs.
    fn of(
        what: &str,
        pairs: &[(usize, usize)],
        differs: impl Fn(usize, usize) -> bool,
        detail: impl Fn((usize, usize)) -> String,
    ) -> Row {
        let found: Vec<_> = pairs.iter().filter(|(a, b)| differs(*a, *b)).collect();
        let detail = found.first().map(|&&(a, b)| match detail((a, b)) {
            detail if detail.is_empty() => format!("first difference in response {a}"),
            detail => detail,
        });
        Row {
            what: what.to_string(),
            differ: Some(found.len()),
            detail: detail.unwrap_or_default(),
        }
    }
}

/// Compares the groups. Two groups are equal if they have the same responses, whatever the groups' names are.
fn groups(a: &Layout, b: &Layout, pairs: &[(usize, usize)]) -> Row {
    let of = |&(own, other): &(usize, usize)| (a.group_of(own), b.group_of(other));
    let mut counts: [HashMap<_, usize>; 3] = Default::default();
    for (own, other) in pairs.iter().map(of) {
        for (counts, key) in counts.iter_mut().zip([
            (Some(own), None),
            (None, Some(other)),
            (Some(own), Some(other)),
        ]) {
            *counts.entry(key).or_default() += 1;
        }
    }
    let [of_a, of_b, of_both] = &counts;
    let differs = |own, other| {
        let (own, other) = of(&(own, other));
        let both = of_both[&(Some(own), Some(other))];
        of_a[&(Some(own), None)] != both || of_b[&(None, Some(other))] != both
    };
    Row::of("groups", pairs, differs, |_| String::new())
}

/// Compares the masks. Two masks are equal if the same tokens count; positions are relative to the first token that counts.
fn masks(a: &Layout, b: &Layout, pairs: &[(usize, usize)]) -> Row {
    let places = |layout: &Layout, response: usize| -> Vec<(u32, u32)> {
        let runs = layout.runs(response);
        let first = runs.first().map_or(0, |run| run.start);
        runs.iter()
            .map(|run| (run.start - first, run.len))
            .collect()
    };
    let differs = |own, other| places(a, own) != places(b, other);
    let tokens = |(own, other): (usize, usize)| {
        let [of_a, of_b] = [a.tokens_of(own).len(), b.tokens_of(other).len()];
        let place = ["", ", at other positions"][usize::from(of_a == of_b)];
        let of_a = counted(of_a, "unmasked token");
        format!("first difference in response {own}: {of_a} in a, {of_b} in b{place}")
    };
    Row::of("mask", pairs, differs, tokens)
}

fn columns(batches: [&Batch; 2], pairs: &[(usize, usize)]) -> Vec<Row> {
    let host = Host::new();
    let mut sessions = batches.map(|batch| Session::new(&host, batch));
    let names = batches.iter().flat_map(|batch| batch.columns());
    let names: BTreeSet<&str> = names.chain(COMPUTED).collect();
    let row = |name: &str| {
        let text = format!("batch.{name}");
        let [a, b] = sessions
            .each_mut()
            .map(|session| session.numbers(&text).ok());
        let detail = match (a, b) {
            (None, None) => return None,
            (Some(_), None) => "only in a".to_string(),
            (None, Some(_)) => "only in b".to_string(),
            (Some((level, a)), Some((other, b))) if level == other => {
                let layouts = batches.map(|batch| &**batch.layout());
                return level.map(|level| column(name, level, layouts, [&a, &b], pairs));
            }
            (Some((a, _)), Some((b, _))) => {
                let [a, b] = [a, b].map(|level| level.map_or("batch", Level::name));
                format!("one value per {a} in a, one per {b} in b")
            }
        };
        let what = name.to_string();
        Some(Row {
            what,
            differ: None,
            detail,
        })
    };
    names.into_iter().filter_map(row).collect()
}

/// Returns a row about a column: the largest difference, and whether the column in `b` is the column in `a` times a constant.
fn column(
    name: &str,
    level: Level,
    layouts: [&Layout; 2],
    values: [&[f64]; 2],
    pairs: &[(usize, usize)],
) -> Row {
    let of = |index: usize, response: usize| {
        let layout = layouts[index];
        let range = match level {
            Level::Token => layout.tokens_of(response),
            Level::Response => response..response + 1,
            _ => layout.group_of(response)..layout.group_of(response) + 1,
        };
        &values[index][range]
    };
    let is_equal = |(a, b): (&f64, &f64)| {
        (a - b).abs() <= ROUNDING * a.abs().max(b.abs()) || a == b || a.is_nan() && b.is_nan()
    };
    let differs = |a, b| {
        let (a, b) = (of(0, a), of(1, b));
        a.len() != b.len() || !a.iter().zip(b).all(is_equal)
    };
    let all = || {
        pairs
            .iter()
            .flat_map(|&(a, b)| of(0, a).iter().zip(of(1, b)).map(move |pair| (a, pair)))
    };
    let gap = |(_, (a, b)): &(usize, (&f64, &f64))| (*a - *b).abs();
    let largest = all()
        .filter(|pair| !is_equal(pair.1))
        .max_by(|x, y| gap(x).total_cmp(&gap(y)));
    // The factor that brings `a` closest to `b`, by least squares.
    let sum = |of: fn(f64, f64) -> f64| all().map(|(_, (a, b))| of(*a, *b)).sum::<f64>();
    let factor = sum(|a, b| a * b) / sum(|a, _| a * a);
    let scaled = |(_, (a, b)): (usize, (&f64, &f64))| is_equal((&(a * factor), b));
    let most = match largest {
        None => "different numbers of tokens".to_string(),
        Some((response, (a, b))) => {
            let at = format!(
                "largest difference in response {response}: {} and {}",
                value(*a),
                value(*b)
            );
            match factor.is_finite() && all().all(scaled) {
                true => format!("{at}; b is {} times a", value(factor)),
                false => at,
            }
        }
    };
    Row::of(name, pairs, differs, |_| most.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(groups: &[i64], rewards: &[f64], logp: Vec<Vec<f64>>) -> Batch {
        let builder = Batch::builder().groups(groups.iter().copied());
        let builder = builder
            .response("reward", rewards.to_vec())
            .ragged("old_logp", logp);
        builder.build().unwrap()
    }

    #[test]
    fn what_parts_two_dumps_is_named() {
        let logp = vec![vec![-1.0], vec![-2.0, -3.0], vec![-1.0], vec![-1.0]];
        let a = batch(&[0, 0, 1, 1], &[1.0, 0.0, 2.0, 4.0], logp.clone());
        let told = |b: &Batch| {
            let rows = report(["a", "b"], [&a, b], Paint::PLAIN).unwrap().rows;
            let rows = rows.iter().filter(|row| row["differ"] != 0);
            let rows =
                rows.map(|row| format!("{} {} {}", row["what"], row["differ"], row["detail"]));
            rows.collect::<Vec<_>>().join("\n").replace('"', "")
        };
        // Different names of groups and rounding to f32 do not count as differences.
        let same = batch(
            &[7, 7, 5, 5],
            &[1.0, 0.0, 2.0, f64::from(4.0f32 + 2e-6)],
            logp.clone(),
        );
        assert_eq!(told(&same), "");
        let twice = batch(&[0, 1, 1, 0], &[2.0, 0.0, 4.0, 8.0], logp.clone());
        assert_eq!(
            told(&twice),
            "groups 4 first difference in response 0\nreward 3 largest difference in response 3: 4 and 8; b is 2 times a"
        );
        let shorter = vec![vec![-1.0], vec![-2.0], vec![-1.0], vec![-1.5]];
        let shorter = batch(&[0, 0, 1, 1], &[1.0, 0.0, 2.0, 4.0], shorter);
        let of_masks = "mask 1 first difference in response 1: 2 unmasked tokens in a, 1 in b\nlength 1 largest difference in response 1: 2 and 1\nold_logp 2 largest difference in response 3: -1 and -1.5";
        assert_eq!(told(&shorter), of_masks);
        // Groups that are named by prompts are matched by name, whatever their order.
        let prompts = |names: [&str; 4], rewards: &[f64]| {
            let builder = Batch::builder()
                .groups(names)
                .response("reward", rewards.to_vec());
            builder.lengths([1; 4]).build().unwrap()
        };
        let (p, q) = (
            prompts(["p", "p", "q", "q"], &[1.0, 0.0, 2.0, 4.0]),
            prompts(["q", "p", "q", "p"], &[2.0, 1.0, 4.0, 0.0]),
        );
        let rows = report(["a", "b"], [&p, &q], Paint::PLAIN).unwrap().rows;
        assert!(rows.iter().all(|row| row["differ"] == 0), "{rows:?}");
        assert!(
            report(
                ["a", "b"],
                [&p, &prompts(["r"; 4], &[0.0; 4]).select(&[0, 1])],
                Paint::PLAIN
            )
            .is_err()
        );
        // If one batch has fewer responses, groups are matched by name, and the first responses of each group are compared.
        let fewer = batch(&[1, 0], &[2.0, 1.0], vec![vec![-1.0], vec![-1.0]]);
        assert_eq!(told(&fewer), "");
    }
}
