//! A plan as aligned equations, in which i is a response, g its group, k its trajectory, and t a token.

use super::Plan;
use super::rows::Notation;

/// Explanations of symbols that a reader may not know. An explanation is added if the equations contain the text paired with it.
const ABOUT: [(&str, &str); 9] = [
    ("mean}", "mean: the mean over the index below it"),
    (
        "{std}",
        "std: the standard deviation with n - 1, 0 for a single value",
    ),
    ("{pstd}", "pstd: the standard deviation with n"),
    ("{clip}", "clip(x, a, b): min(max(x, a), b)"),
    ("{sg}", "sg: no gradient"),
    ("{k1}", "k1(a, b): a - b"),
    ("{k2}", "k2(a, b): (a - b)^2 / 2"),
    ("{k3}", "k3(a, b): exp(b - a) - 1 + a - b"),
    ("t+1}", "x_{i,t+1}: 0 if t is the last token"),
];
impl Plan {
    /// Returns the formulas as equations in the environment `aligned`.
    pub fn latex(&self) -> String {
        let (hooks, _) = self.graph.statements(Notation::Latex);
        let lines = hooks.into_iter().flat_map(|(_, statements)| statements);
        let lines = lines.map(|(name, value)| format!("{name} &= {value}"));
        let lines = lines.collect::<Vec<String>>().join(" \\\\\n");
        let known = ABOUT.iter().filter(|(part, _)| lines.contains(part));
        let known: String = known.map(|(_, about)| format!("% {about}.\n")).collect();
        format!(
            "% In math mode, with the packages amsmath and amssymb. i, j: responses; g: the group of i; k: the trajectory of i; s, t: \
             tokens; T_i: the number of tokens of i.\n{known}\\begin{{aligned}}\n{lines}\n\\end{{aligned}}\n"
        )
    }
}
