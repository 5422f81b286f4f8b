//! What people write who come from Python, torch or Rust, and what it is here.

/// Lines of `words: what it is here`.
pub(super) struct Table(pub(super) &'static str);

/// Functions and methods of torch, numpy and the trainers.
pub(super) const FUNCTIONS: Table = Table(
    r#"
item: `x.value()` gives the number that a batch tensor is
unsqueeze squeeze expand_as broadcast_to repeat view reshape permute transpose flatten: tensors have levels instead of shapes, and levels broadcast by themselves: `r - r.mean("group")`
masked_mean masked_sum: masked tokens are left out already: `x.mean("batch")`; among some responses it is `x.mean("group", chosen)`, where `chosen` is 1
masked_fill masked_select: use `where(c, a, b)`
masked_whiten normalize standardize: use `x.whiten("batch")`, or "group"
log: the natural logarithm is `ln(x)`
log10 log2: the natural logarithm is `ln(x)`: divide by `ln(10)` or `ln(2)`
pow power: a power is `x ** 2`
var variance: the variance is `square(x.std("group"))`
relu: use `max(x, 0)`
clip: use `x.clamp(low, high)`
logsigmoid: use `log_sigmoid(x)`
maximum fmax amax: use `max(a, b)`; the largest of a level is `x.max("group")`
minimum fmin amin: use `min(a, b)`; the smallest of a level is `x.min("group")`
average avg nanmean: use `x.mean("group")`
numel size shape: how many values there are is `x.count("group")`, at each level
flip: sums from the end are `x.suffix_sum(gamma)`
argsort sort topk: ranks are `x.rank("group")`, 0 for the smallest
argmax argmin: the best of each group is `x == x.max("group")`, 1 there and 0 elsewhere
detach_ no_grad stop_gradient: use `x.detach()`
backward: a loss is returned, and its gradient is taken by advlab; a gradient in a formula is `grad(loss, x)`
float to_f64 double: `x.to_float()` makes a float; tensors need no conversion
int: `x.to_int()` makes an integer
str: `x.to_string()` makes a string
zeros_like zeros: use `0 * x`
ones_like ones: use `0 * x + 1`
isnan isfinite is_nan: use `is_finite(x)`: 1 where it is a number, 0 for NaN and infinity
rand randn rand_like: random numbers in [0, 1) are `batch.random("response")`
enumerate zip: no loop over responses is needed: tensor operations cover all of them; `for g in batch.groups { ... }` goes group by group
open open_file read write load save exec system: a recipe reads and writes no files: its data are columns of the batch, and parameters
timestamp time now: a recipe has no clock: its result depends on the batch, its state and the seed alone; the step is `batch.step`
"#,
);

/// Words of Python and other languages.
pub(super) const KEYWORDS: Table = Table(
    r#"
def: a function is `fn advantage(batch, p) { ... }`
lambda: an anonymous function is `|x| x + 1`
None null nil undefined: the empty value is `()`
True: use `true`
False: use `false`
pass: an empty block is `{ }`
self: the recipe's state is `this`
mut: variables can be changed as they are: `let x = ...;`
raise assert: to stop with a message, write `throw "..."`
nan NaN inf infinity: `is_finite(x)` says where a tensor is neither
and: use `&&` between booleans, and `&` between tensors, with brackets: `(a > b) & (c > d)`
or: use `||` between booleans, and `|` between tensors, with brackets: `(a > b) | (c > d)`
is: use `==`
not: use `!x`
if: a conditional is `if c { a } else { b }`, elementwise `where(c, a, b)`
elif: use `else if`
as: `x.to_float()` makes a float, `x.to_int()` an integer
for: an array is filled in a loop: `for g in batch.groups { ... }`
"#,
);

/// Signs and words that the language keeps for itself, or does not have.
pub(super) const RESERVED: Table = Table(
    r##"
#: a comment is `// ...`, a map `#{ k: 4 }`
++: one more is `x += 1`
--: one less is `x -= 1`
?: a conditional is `if c { a } else { b }`, elementwise `where(c, a, b)`
@: an elementwise product is `a * b`
===: equality is `==`
!== <>: inequality is `!=`
:= <-: a variable is declared by `let x = ...;`, and changed by `x = ...;`
=> ->: an anonymous function is `|x| x + 1`
::<: functions have no type parameters
var: the variance is `x.std("group") ** 2`; a variable is `let x = ...;`
this: `this` is the recipe's state, in its hooks only
print: it is a function: `print(x)`
eval: write the code into the script itself
"##,
);

/// Names that are no variables here.
pub(super) const NAMES: Table = Table(
    r#"
torch np numpy jnp F nn math tf: no library is needed, functions have no prefix: `exp(x)`, `where(c, a, b)`, `x.mean("group")`; `advlab doc` lists them
dim axis keepdim keepdims unbiased ddof correction dtype: arguments are not named, and a level takes the place of an axis: `x.mean("group")`; `std` has ddof 1, `population_std` ddof 0
rewards mask response_mask index values old_log_probs log_probs ref_log_prob token_level_rewards: columns belong to the batch, under advlab's names: `batch.reward`, `batch.old_logp`, ...; tokens outside of the mask are left out
"#,
);

/// Properties that tensors have elsewhere.
pub(super) const PROPERTIES: Table = Table(
    r#"
shape size ndim T dtype device: tensors have levels instead of shapes: `x.level` is its name, `x.len()` the number of values
grad: a gradient is `grad(loss, x)`
data: without a gradient it is `x.detach()`
"#,
);

impl Table {
    pub(super) fn find(&self, word: &str) -> Option<&'static str> {
        self.0.lines().find_map(|line| {
            let (words, here) = line.split_once(": ")?;
            words.split(' ').any(|known| known == word).then_some(here)
        })
    }
}

/// The columns that scripts ask for most, for whoever forgets the `batch.`.
pub(super) fn is_column(name: &str) -> bool {
    let columns = "reward token_reward correct logp old_logp ref_logp value entropy length advantage groups step";
    columns.split(' ').any(|column| column == name)
}
