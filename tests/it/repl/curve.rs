//! The curve of Pass@k: where the total |A| of a group of 32 peaks.

use advlab::Host;
use advlab_cli::prompt;
use advlab_cli::report::study::Curve;

use super::{play, session};

/// The most total |A| and where it is, from the line that says so.
fn peak(arguments: &str) -> (f64, usize) {
    let text = session().submit(&format!(":curve {arguments}")).text;
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("the total |A|"));
    let line = line.expect("a line with the peak");
    let number = |word: &str| word.trim_end_matches(',').parse::<f64>().ok();
    let numbers: Vec<f64> = line.split_whitespace().filter_map(number).collect();
    (numbers[0], numbers[1] as usize)
}

#[test]
fn the_peaks_of_passk_are_those_of_the_paper() {
    assert_eq!(peak("passk k=1 --n 32"), (32.0, 16));
    assert_eq!(peak("passk k=4 --n 32"), (10.36, 8));
    assert_eq!(peak("passk k=8 --n 32"), (5.181, 4));
}

/// A clipped loss pushes up to the clip, and not beyond: the line falls at it from one value to the other.
#[test]
fn a_clipped_loss_is_drawn_with_its_corners() {
    let folder = tempfile::tempdir().expect("a folder");
    for (recipe, advantage, clip, before, after) in [
        ("ppo_clip", "A = 1", 1.2, 1.2, 0.0),
        ("ppo_clip", "A = -1", 0.8, 0.0, -0.8),
        // Not where samples are taken at equal distances.
        ("ppo_clip clip_high=0.283", "A = 1", 1.283, 1.283, 0.0),
    ] {
        let file = folder.path().join("s.csv");
        let command = format!("> :surface {recipe} --out {}", file.display());
        play(&mut session(), &command);
        let text = std::fs::read_to_string(&file).expect("the figure");
        let point = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            let [.., name, x, y, _] = cells[..] else {
                return None;
            };
            (name == advantage).then(|| [x.parse().unwrap(), y.parse().unwrap()])
        };
        let line: Vec<[f64; 2]> = text.lines().filter_map(point).collect();
        let mut jumps = line
            .windows(2)
            .filter(|pair| (pair[0][1] - pair[1][1]).abs() > 0.5);
        let (Some(&[[x0, y0], [x1, y1]]), None) = (jumps.next(), jumps.next()) else {
            panic!("{recipe}: {line:?}")
        };
        let is_there = x0 <= clip + 1e-9 && x1 >= clip - 1e-9 && x1 - x0 < 2e-6;
        let falls = (y0 - before).abs() < 1e-5 && (y1 - after).abs() < 1e-5;
        assert!(is_there && falls && line.len() < 200, "{recipe}: {line:?}");
    }
}

/// A right response is never pushed down, a wrong one never up, and what a group gains it loses.
#[test]
fn right_up_wrong_down_and_nothing_in_total() {
    let host = Host::new();
    for name in ["passk", "grpo", "dr_grpo", "rloo"] {
        let recipe = host.load(name).expect("a built-in");
        let curve = Curve::of(&recipe, &prompt::builtin(), 8).expect("a curve");
        for point in curve.points {
            let (up, down) = (point.of_right.unwrap_or(0.0), point.of_wrong.unwrap_or(0.0));
            assert!(up >= 0.0 && down <= 0.0, "{name}: {point:?}");
            let sum = point.right as f64 * up + (8 - point.right) as f64 * down;
            assert!(sum.abs() < 1e-9, "{name}: {point:?}");
        }
    }
}

/// A weight of groups that is normalised over the batch, and advantages normalised over all responses: a group alone
/// would have a weight of 1, and another standard deviation for each number of right ones.
#[test]
fn a_design_that_is_normalised_over_the_batch_is_drawn_in_the_proportions_of_the_batch() {
    let host = Host::new();
    let weighted = "fn advantage(batch, p) {
        let w = batch.correct.mean(\"group\");
        (batch.reward - w) * w / w.mean(\"batch\")
    }";
    let weighted = host.compile("weighted", weighted).expect("a recipe");
    let curve = Curve::of(&weighted, &prompt::builtin(), 8).expect("a curve");
    assert!(curve.depends_on_batch);
    // The batch has 54 right responses of 128, and no group with 5 of 8.
    let mean = 54.0 / 128.0;
    for point in &curve.points[1..] {
        let accuracy = point.right as f64 / 8.0;
        let expected = (1.0 - accuracy) * accuracy / mean;
        let of_right = point.of_right.expect("a right one");
        assert!((of_right - expected).abs() <= 0.05 * expected, "{point:?}");
    }

    let whitened = host.load("reinforce_pp").expect("a built-in");
    let curve = Curve::of(&whitened, &prompt::builtin(), 8).expect("a curve");
    assert!(curve.depends_on_batch);
    let expected = (1.0 - mean) / (mean * (1.0 - mean)).sqrt();
    for point in &curve.points[1..] {
        let of_right = point.of_right.expect("a right one");
        assert!((of_right - expected).abs() < 0.03, "{point:?}");
    }
    let says = |recipe: &str| {
        let text = session().submit(&format!(":curve {recipe} --n 4")).text;
        text.replace('\n', " ")
            .contains("Groups influence each other")
    };
    assert!(says("reinforce_pp") && !says("grpo"));
}
