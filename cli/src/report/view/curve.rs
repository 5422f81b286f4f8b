//! Curves for a screen: a long run's points, as many to a mark as it takes.

use serde_json::{Value, json};

use super::follow::{Followed, Points};

/// The most marks of a curve: more are closer than a screen shows them.
const MARKS: u64 = 400;

/// How many steps a mark stands for: a power of two, so that the marks that are there stay when a run goes on.
pub(super) fn width(steps: u64) -> u64 {
    (steps / MARKS + 1).next_power_of_two()
}

/// The marks of all curves from a step on, which is the first of a mark: `[step, mean, least, most]`, or `[step, value]`
/// where each step has its own.
pub(super) fn curves(run: &Followed, width: u64, from: u64) -> Value {
    let of = |points: &Points| {
        let first = points.partition_point(|point| u64::from(point.0) < from);
        let all = points[first..].chunk_by(|a, b| u64::from(a.0) / width == u64::from(b.0) / width);
        let mark = |all: &[(u32, f32)]| {
            let step = all.first().map_or(0, |point| point.0);
            let values = || all.iter().map(|point| point.1);
            let mean = values().map(f64::from).sum::<f64>() / all.len() as f64;
            match width {
                1 => json!([step, rounded(mean)]),
                _ => {
                    let ends = [values().reduce(f32::min), values().reduce(f32::max)];
                    let [least, most] = ends.map(|end| rounded(end.unwrap_or(f32::NAN).into()));
                    json!([step, rounded(mean), least, most])
                }
            }
        };
        all.map(mark).collect::<Vec<Value>>()
    };
    let curves = run.curves.iter().map(|(name, points)| (name, of(points)));
    curves
        .filter(|(_, marks)| !marks.is_empty())
        .map(|(name, marks)| (name.clone(), marks.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Five digits of a number: no screen shows more.
pub(super) fn rounded(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(number)
}

/// What the numbers were before a step, and from it on: means over as many steps as there are between it and the next
/// change on either side, at most 50.
pub(super) fn around(run: &Followed, step: u64, (least, most): (u64, u64)) -> Value {
    let from = least.max(step.saturating_sub(50));
    let to = most.min(step + 50);
    let mean = |points: &Points, from: u64, to: u64| {
        let place = |step: u64| points.partition_point(|point| u64::from(point.0) < step);
        let own = points.get(place(from)..place(to)).unwrap_or_default();
        let sum: f64 = own.iter().map(|point| f64::from(point.1)).sum();
        (!own.is_empty()).then(|| rounded(sum / own.len() as f64))
    };
    let of = |(name, points): (&String, &Points)| {
        // An evaluation after the step before is one of what was before.
        let late = u64::from(name.starts_with("evaluation/"));
        // The first one of all comes before the first step.
        let first = if from == 0 { 0 } else { from + late };
        let before = mean(points, first, step + late);
        json!([name, before, mean(points, step + late, to + late)])
    };
    json!({ "from": from, "to": to, "means": run.curves.iter().map(of).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn marks_are_few_and_keep_the_extremes() {
        let mut run = Followed::new("nowhere".into(), Path::new("nowhere"));
        let points = (0..100_000u32).map(|step| (step, f32::from(u8::from(step == 77_777))));
        run.curves
            .insert("reward_mean".to_string(), points.collect());
        let width = width(100_000);
        let all = curves(&run, width, 0);
        let marks = all["reward_mean"].as_array().unwrap();
        assert!(marks.len() as u64 <= MARKS, "{}", marks.len());
        let most = marks.iter().filter_map(|mark| mark[3].as_f64());
        assert_eq!(most.fold(0.0, f64::max), 1.0);
        // From a mark on, they are the same marks.
        let tail = curves(&run, width, 99_999 / width * width);
        assert_eq!(tail["reward_mean"][0], *marks.last().unwrap());
    }

    #[test]
    fn means_around_a_change_end_at_its_neighbours() {
        let mut run = Followed::new("nowhere".into(), Path::new("nowhere"));
        let points = (0..100u32).map(|step| (step, if step < 40 { 1.0 } else { 3.0 }));
        run.curves.insert("loss".to_string(), points.collect());
        let evaluations = vec![(0, 5.0), (40, 6.0), (80, 8.0)];
        run.curves
            .insert("evaluation/pass@1".to_string(), evaluations);
        let all = around(&run, 40, (20, 60));
        let expected = json!([["evaluation/pass@1", 6.0, null], ["loss", 1.0, 3.0]]);
        assert_eq!(all["means"], expected);
        // The evaluation before the first step is one of the first version.
        let all = around(&run, 30, (0, 60));
        let expected = json!([["evaluation/pass@1", 5.0, 6.0], ["loss", 1.0, 2.3333]]);
        assert_eq!(all["means"], expected);
    }
}
