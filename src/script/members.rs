//! What scripts have beside the op table: the members of tensors and batches, and what a hook reports with.

/// A member of a tensor or a batch, or a function, that is no row of the op table.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// Its name.
    pub name: &'static str,
    /// Its owner.
    pub of: Owner,
    /// How it is written.
    pub call: &'static str,
    /// A description, in one line.
    pub doc: &'static str,
    /// A script on the example batch.
    pub example: &'static str,
    /// The value of the example, as a string.
    pub shows: &'static str,
    /// Its declaration for editors. Empty where it has none: for a column, as each has its own, and for what the syntax of
    /// declarations has no words for.
    pub declared: &'static str,
}

/// The owner of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A tensor.
    Tensor,
    /// A batch.
    Batch,
    /// Nothing: it is a function.
    Nobody,
}

macro_rules! members {
    ($($of:ident $name:literal $call:literal, $doc:literal, $example:literal => $shows:literal, $declared:literal;)+) => {
        &[$(Member {
            name: $name,
            of: Owner::$of,
            call: $call,
            doc: $doc,
            example: $example,
            shows: $shows,
            declared: $declared,
        }),+]
    };
}

/// All members, in the order of the reference.
pub const MEMBERS: &[Member] = members! {
    Batch "column" "batch.NAME",
        "a column: those of the file, and reward, correct, token_reward, length, logp where they follow from others",
        "batch.reward" => "response [1, 0, 1, 0, 0]",
        "";
    Batch "step" "batch.step",
        "the training step, 0 for a file",
        "batch.step + 1" => "1",
        "fn get step(batch: batch) -> int;";
    Batch "groups" "batch.groups",
        "one batch a group, to loop over",
        "let n = 0; for g in batch.groups { n += g.reward.len(); } n" => "5",
        "fn get groups(batch: batch) -> array;";
    Batch "map_groups" "batch.map_groups(|g| ...)",
        "a formula said group by group, put together over the batch",
        "batch.map_groups(|g| g.reward - g.reward.max(\"batch\"))" => "response [0, -1, 0, 0, 0]",
        "fn map_groups(batch: batch, f: Fn) -> tensor;";
    Batch "regroup" "batch.regroup(key)",
        "the batch with each group split by the values of a response tensor",
        "batch.regroup(batch.length).reward.mean(\"group\")" => "group [1, 0, 1, 0, 0]",
        "fn regroup(batch: batch, key: tensor) -> batch;";
    Batch "has" "batch.has(name)",
        "whether there is a column of that name",
        "batch.has(\"ref_logp\")" => "1",
        "fn has(batch: batch, name: string) -> bool;";
    Batch "random" "batch.random(level)",
        "uniform numbers in [0, 1), by seed, step and call: the same for any number of threads",
        "batch.random(\"response\").count(\"batch\")" => "batch [5]",
        "fn random(batch: batch, level: string) -> tensor;";
    Tensor "level" "x.level",
        "the level's name",
        "batch.reward.level" => "response",
        "fn get level(x: tensor) -> string;";
    Tensor "value" "x.value()",
        "the number that a batch tensor is",
        "batch.reward.mean(\"batch\").value()" => "0.4",
        "fn value(x: tensor) -> float;";
    Tensor "values" "x.values()",
        "all values, as an array of numbers",
        "batch.reward.values()" => "[1.0, 0.0, 1.0, 0.0, 0.0]",
        "fn values(x: tensor) -> array;";
    Tensor "len" "x.len()",
        "how many values there are",
        "batch.reward.len()" => "5",
        "fn len(x: tensor) -> int;";
    Tensor "index" "x[i]",
        "one value, by its index from 0 in the order of the level",
        "batch.reward[2]" => "1",
        "";
    Nobody "metric" "metric(name, x)",
        "reports a number with the step, under a name; a loss reports one for each update, and the step has their mean",
        "metric(\"accuracy\", batch.correct.mean(\"batch\")); batch.step" => "0",
        "fn metric(name: string, x: ?);";
    Nobody "print" "print(x)",
        "prints a line",
        "print(batch.reward.mean(\"batch\")); 0" => "0",
        "fn print(x: ?);";
};
