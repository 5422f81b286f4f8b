//! What people write who come from Python, torch or Rust, and what it is here.

/// Functions and methods of torch, numpy and the trainers, and what is said here for them.
const FUNCTIONS: &[(&[&str], &str)] = &[
    (&["item"], "one value as a number is `x.value()`"),
    (
        &[
            "unsqueeze",
            "squeeze",
            "expand_as",
            "broadcast_to",
            "repeat",
            "view",
            "reshape",
            "permute",
            "transpose",
            "flatten",
        ],
        "tensors have levels instead of shapes, and levels broadcast by themselves: `r - r.mean(\"group\")`",
    ),
    (
        &["masked_mean", "masked_sum"],
        "tokens that do not count are not there: `x.mean(\"batch\")`; among some responses it is `x.mean(\"group\", chosen)`, where `chosen` is 1",
    ),
    (
        &["masked_fill", "masked_select"],
        "that is `where(c, a, b)`",
    ),
    (
        &["masked_whiten", "normalize", "standardize"],
        "that is `x.whiten(\"batch\")`, or \"group\"",
    ),
    (&["log"], "the natural logarithm is `ln(x)`"),
    (
        &["log10", "log2"],
        "the natural logarithm is `ln(x)`: divide by `ln(10)` or `ln(2)`",
    ),
    (&["pow", "power"], "a power is `x ** 2`"),
    (
        &["var", "variance"],
        "the variance is `square(x.std(\"group\"))`",
    ),
    (&["relu"], "that is `max(x, 0)`"),
    (&["clip"], "that is `x.clamp(low, high)`"),
    (&["logsigmoid"], "that is `log_sigmoid(x)`"),
    (
        &["maximum", "fmax", "amax"],
        "that is `max(a, b)`; the largest of a level is `x.max(\"group\")`",
    ),
    (
        &["minimum", "fmin", "amin"],
        "that is `min(a, b)`; the smallest of a level is `x.min(\"group\")`",
    ),
    (
        &["average", "avg", "nanmean"],
        "that is `x.mean(\"group\")`",
    ),
    (
        &["numel", "size", "shape"],
        "how many values there are is `x.count(\"group\")`, at each level",
    ),
    (&["flip"], "sums from the end are `x.suffix_sum(gamma)`"),
    (
        &["argsort", "sort", "topk"],
        "ranks are `x.rank(\"group\")`, 0 for the smallest",
    ),
    (
        &["argmax", "argmin"],
        "the best of each group is `x == x.max(\"group\")`, 1 there and 0 elsewhere",
    ),
    (
        &["detach_", "no_grad", "stop_gradient"],
        "that is `x.detach()`",
    ),
    (
        &["backward"],
        "a loss is returned, and its gradient is taken by advlab; a gradient in a formula is `grad(loss, x)`",
    ),
    (
        &["float", "to_f64", "double"],
        "a number with a fraction is `x.to_float()`; tensors need no conversion",
    ),
    (&["int"], "a whole number is `x.to_int()`"),
    (&["str"], "a text is `x.to_string()`"),
    (&["zeros_like", "zeros"], "that is `0 * x`"),
    (&["ones_like", "ones"], "that is `0 * x + 1`"),
    (
        &["isnan", "isfinite", "is_nan"],
        "that is `is_finite(x)`: 1 where it is a number, 0 for NaN and infinity",
    ),
    (
        &["rand", "randn", "rand_like"],
        "random numbers in [0, 1) are `batch.random(\"response\")`",
    ),
    (
        &["enumerate", "zip"],
        "there is no loop over responses: tensors do that at once; `for g in batch.groups { ... }` goes group by group",
    ),
    (
        &[
            "open",
            "open_file",
            "read",
            "write",
            "load",
            "save",
            "exec",
            "system",
        ],
        "a recipe reads and writes no files: what it needs is a column of the batch, or a parameter",
    ),
    (
        &["timestamp", "time", "now"],
        "a recipe has no clock: its result depends on the batch, its state and the seed alone; the step is `batch.step`",
    ),
];

/// Words of Python and other languages, and what is said here for them.
const KEYWORDS: &[(&[&str], &str)] = &[
    (&["def"], "a function is `fn advantage(batch, p) { ... }`"),
    (&["lambda"], "a function without a name is `|x| x + 1`"),
    (&["None", "null", "nil", "undefined"], "nothing is `()`"),
    (&["True"], "that is `true`"),
    (&["False"], "that is `false`"),
    (&["elif"], "that is `else if`"),
    (&["pass"], "an empty block is `{ }`"),
    (&["not"], "that is `!x`"),
    (&["self"], "the recipe's state is `this`"),
    (
        &["mut"],
        "variables can be changed as they are: `let x = ...;`",
    ),
    (
        &["raise", "assert"],
        "to end with a message, write `throw \"...\"`",
    ),
    (
        &["nan", "NaN", "inf", "infinity"],
        "`is_finite(x)` says where a tensor is neither",
    ),
];

/// Names that are no variables here, and what is meant by them.
const NAMES: &[(&[&str], &str)] = &[
    (
        &["torch", "np", "numpy", "jnp", "F", "nn", "math", "tf"],
        "no library is needed, functions stand alone: `exp(x)`, `where(c, a, b)`, `x.mean(\"group\")`; `advlab doc` lists them",
    ),
    (
        &[
            "dim",
            "axis",
            "keepdim",
            "keepdims",
            "unbiased",
            "ddof",
            "correction",
            "dtype",
        ],
        "arguments have no names, and a level stands for the axis: `x.mean(\"group\")`; `std` has ddof 1, `population_std` ddof 0",
    ),
    (
        &[
            "rewards",
            "mask",
            "response_mask",
            "index",
            "values",
            "old_log_probs",
            "log_probs",
            "ref_log_prob",
            "token_level_rewards",
        ],
        "columns are of the batch, under advlab's names: `batch.reward`, `batch.old_logp`, ...; tokens outside of the mask are not there at all",
    ),
];

/// Words between two operands.
const OPERATORS: &[(&str, &str)] = &[
    (
        "and",
        "it is `&&` between single truths, and `&` between tensors, with brackets: `(a > b) & (c > d)`",
    ),
    (
        "or",
        "it is `||` between single truths, and `|` between tensors, with brackets: `(a > b) | (c > d)`",
    ),
    ("is", "it is `==`"),
    ("not", "it is `!x`"),
    (
        "if",
        "a choice is `if c { a } else { b }`, and value by value `where(c, a, b)`",
    ),
    ("elif", "it is `else if`"),
    (
        "as",
        "a number with a fraction is `x.to_float()`, a whole one `x.to_int()`",
    ),
    (
        "for",
        "an array is made in a loop: `for g in batch.groups { ... }`",
    ),
];

/// Properties that tensors have elsewhere.
const PROPERTIES: &[(&[&str], &str)] = &[
    (
        &["shape", "size", "ndim", "T", "dtype", "device"],
        "tensors have levels instead of shapes: `x.level` is its name, `x.len()` the number of values",
    ),
    (&["grad"], "a gradient is `grad(loss, x)`"),
    (&["data"], "without a gradient it is `x.detach()`"),
];

fn find(table: &[(&[&str], &'static str)], name: &str) -> Option<&'static str> {
    let row = table.iter().find(|(names, _)| names.contains(&name));
    row.map(|(_, here)| *here)
}

pub(super) fn function(name: &str) -> Option<&'static str> {
    find(FUNCTIONS, name)
}

pub(super) fn keyword(name: &str) -> Option<&'static str> {
    find(KEYWORDS, name)
}

pub(super) fn name(name: &str) -> Option<&'static str> {
    find(NAMES, name)
}

pub(in super::super) fn property(name: &str) -> Option<&'static str> {
    find(PROPERTIES, name)
}

pub(super) fn operator(word: &str) -> Option<&'static str> {
    let row = OPERATORS.iter().find(|(theirs, _)| *theirs == word);
    row.map(|(_, here)| *here)
}

/// The columns that scripts ask for most, for whoever forgets the `batch.`.
pub(super) const COLUMNS: [&str; 12] = [
    "reward",
    "token_reward",
    "correct",
    "logp",
    "old_logp",
    "ref_logp",
    "value",
    "entropy",
    "length",
    "advantage",
    "groups",
    "step",
];
