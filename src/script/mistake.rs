//! The mistakes that scripts make: of each the message, and the help where there is one.

use rhai::EvalAltResult;

use super::error::CallError;
use crate::diagnostic::{Diagnostic, Diagnostics, Severity, Span};

/// Declares the mistakes. A row is `Name { fields } "message" => "help";` the strings name the fields in braces.
macro_rules! mistakes {
    ($($name:ident $({ $($field:ident),+ })? $message:literal $(=> $help:literal)?;)+) => {
        /// A mistake in a script or in how it is used, with the names and values that its message shows.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Mistake<'a> {
            $($name $({ $($field: &'a str),+ })?,)+
        }

        impl Mistake<'_> {
            fn message_and_help(self) -> (String, Option<String>) {
                match self {
                    $(Mistake::$name $({ $($field),+ })? => {
                        (format!($message), None$(.or(Some(format!($help))))?)
                    })+
                }
            }
        }
    };
}

mistakes! {
    // What the parser refuses.
    NoParameterList { name } "the function `{name}` has no parameter list"
        => "as in `fn advantage(batch, p) {{ ... }}`; an empty one is `()`";
    NoFunctionName "a function without a name"
        => "as in `fn advantage(batch, p) {{ ... }}`; an anonymous function is `|x| x + 1`";
    NoFunctionBody "a function without a body"
        => "its body is written in braces: `fn advantage(batch, p) {{ ... }}`";
    FunctionTwice { name } "the function `{name}` is defined twice, with as many parameters"
        => "rename or remove one of them";
    ParameterTwice { function, name } "the function `{function}` has two parameters `{name}`"
        => "rename one";
    NestedFunction "a function cannot be defined inside another function or a block"
        => "move it to the top level, or write a closure, `let f = |x| ...;`, and call it by \
            `f.call(x)`";
    TooDeep "brackets or blocks are nested too deeply" => "give the parts names, with `let`";
    NotAssignable "this cannot be assigned to"
        => "only a variable or a part of one can be; equality is `==`";
    NoExpression "an expression is missing here"
        => "a value, a variable or an expression is expected";
    EndsEarly "the script ends unexpectedly" => "is a `}}` or a `)` missing?";
    EndsInBlock "the script ends in the middle of a block" => "is a `}}` or a `)` missing?";
    MissingToken { token, purpose } "a `{token}` is missing {purpose}"
        => "is something missing before this?";
    UnclosedString "this string has no closing quote"
        => "a string ends in a `\"` on the same line; one in backquotes may have several lines";
    SingleQuotes "single quotes are for one character"
        => "a string is written in double quotes: \"group\"";
    NotANumber { text } "`{text}` is not a number" => "numbers look like `8`, `0.5` and `1e-6`";
    UnknownEscape { sign } "`{sign}` is not an escape that strings have"
        => "a backslash itself is `\\\\`";
    UnexpectedCharacter { sign } "`{sign}` is an unexpected character"
        => "names have the letters a to z, digits and `_`; other characters belong in comments \
            and strings";
    NothingBefore { sign } "something is missing before the `{sign}`"
        => "a value, a variable or an expression is expected";
    OutOfPlace { sign } "`{sign}` cannot be used here" => "is another operator meant?";
    NoEval "there is no `eval`" => "write the code into the script itself";
    ReservedWord { name } "`{name}` is a reserved word" => "choose another name";
    NotAnOperator { sign } "`{sign}` is not an operator of this language"
        => "is another operator meant?";
    NotInLanguage { word, help } "`{word}` is not part of this language" => "{help}";
    NotHere { word, help } "`{word}` in this place is not part of this language" => "{help}";
    ForbiddenName { name } "`{name}` cannot be used as a variable's name" => "choose another name";
    Constant { name } "`{name}` is a constant and cannot be changed"
        => "a variable is declared with `let` instead of `const`";
    // Variables and maps.
    ArrowFunction { name } "an anonymous function is not written with `=>`"
        => "write `|{name}| ...`";
    FormatString "a string with values in it is not written like this"
        => "use backquotes, with the values in `${{...}}`";
    BlockForMap { key } "plain braces are a block, which cannot contain a `:`"
        => "a map starts with `#{{`: `#{{ {key}: ... }}`";
    Comprehension "there are no list comprehensions"
        => "fill an array in a loop: `let sizes = []; for g in batch.groups {{ \
            sizes.push(g.reward.len()); }}`";
    NoVariable { name, help } "there is no variable `{name}`" => "{help}";
    NoKey { map, key, help } "{map} has no `{key}`" => "{help}";
    NoThis "`this`, the recipe's state, exists in hooks only"
        => "`this.f(x)` calls a function with it; a closure gets what it needs in a variable, \
            `let mean = this.mean;`";
    VariableInUse "a closure uses a variable that the call around it is changing"
        => "copy what the closure needs before the call: `let n = a.len();`";
    // Values of the wrong type.
    WrongType { expected, found, help } "expected {expected}, found {found}" => "{help}";
    NotIterable "`for` needs an array, a range or `batch.groups`"
        => "operations on tensors need no loop over responses or tokens; `for g in batch.groups \
            {{ ... }}` goes group by group";
    TensorCondition "a tensor cannot be used as a condition"
        => "elementwise it is `where(c, a, b)`, `&`, `|` and `!`; to branch, compare a single \
            value, as in `if x.mean(\"batch\") > 0.5`";
    LogicOfTensors { sign } "`{sign}{sign}` works on booleans, and one side is a tensor"
        => "elementwise it is `{sign}`, with brackets around comparisons: `(a > b) {sign} (c > d)`";
    TensorProperty { name } "a tensor has no property `{name}`"
        => "its only property is `level`; the rest are methods, such as `x.mean(\"group\")`";
    PropertyOf { owner, name } "{owner} has no `{name}`"
        => "maps and batches have properties, such as `p.k` and `batch.reward`";
    NotSettable { name, owner } "`{name}` of {owner} cannot be set"
        => "only the entries of maps can be set: `let m = #{{ x: 1 }}; m.x = 2;`";
    Immutable "a batch or a tensor cannot be changed in place"
        => "make a new one: `let r = where(c, a, batch.reward);`; a reward for all hooks is what \
            `reward(batch, p)` returns";
    IndexedTensor { index } "a tensor cannot be indexed by {index}"
        => "`x[0]` is its first value; a part of it is chosen with `where(c, x, 0)` or a \
            selection, `x.mean(\"group\", chosen)`";
    IndexedBatch { index } "a batch cannot be indexed by {index}"
        => "`batch.groups[0]` is its first group, `batch[\"reward\"]` a column";
    NotIndexable { object, index } "{object} cannot be indexed by {index}"
        => "arrays, maps, strings and tensors can be indexed: `a[0]`, `m[\"key\"]`";
    NoEntry { key } "there is no entry `{key}`" => "`key in map` tells whether there is one";
    OutOfRange { index, what, has } "index {index} is out of range: {what} {has}"
        => "indices count from 0, and from the end with -1";
    DividedByZero { operation } "an integer is divided by 0 in `{operation}`"
        => "`safe_div(a, b)` is 0 where b is 0";
    IntegerOverflow { operation } "the result of `{operation}` is too large for an integer"
        => "floats go further: `x.to_float()`, or `2.0` instead of `2`";
    ParsedNoNumber { text } "the string \"{text}\" is not a number"
        => "numbers look like `8`, `0.5` and `1e-6`";
    TensorIndex { index, level, length }
        "index {index} is out of range for a {level} tensor of {length} values"
        => "indices count from 0";
    NotOneValue { level } "`value()` needs a batch tensor, this is a {level} tensor"
        => "reduce it first, as in `x.mean(\"batch\").value()`";
    // Calls.
    NoFunction { name, arguments } "there is no function `{name}`{arguments}"
        => "`advlab doc` lists the functions that scripts have";
    ClosureArguments { given } "the closure does not take {given}"
        => "list as many parameters between the bars: `|a, b| ...`";
    OperatorArguments { sign, arguments, help } "`{sign}` does not work with {arguments}"
        => "{help}";
    ArgumentCount { name, takes, given, signature }
        "`{name}` of values takes {takes} arguments, and gets {given}"
        => "it is `{signature}`; of more values: `max(a, max(b, c))`";
    BitwisePower { sign } "`{sign}` is not defined for integers" => "a power is `x ** 2`";
    Sleep "a recipe cannot sleep: the run would wait for it" => "take the line out";
    // What a bound has stopped.
    TooManyOperations { millions }
        "stopped after {millions} million operations, more than any formula needs"
        => "is there an endless loop, or one over many responses that a tensor operation could \
            replace?";
    TooManyVariables "stopped: too many variables or imports"
        => "is there an endless loop, or one over many responses that a tensor operation could \
            replace?";
    TooManyCalls "stopped: calls are nested too deeply"
        => "does a function call itself without end?";
    ValueTooLarge { what, bound } "stopped: {what} grew beyond {bound}"
        => "does a loop keep adding to it? Values by response or token belong in tensors";
    VariableTooDeep { variable, bound }
        "stopped: `{variable}` nests arrays, maps or closures more than {bound} deep"
        => "does a loop put it into itself? To add to an array, write `a.push(x)`";
    MapTooLarge { variable, bound } "stopped: `{variable}` holds a map of more than {bound} entries"
        => "does a loop keep adding to it? Values by response or token belong in tensors";
    VariablesTooLarge { variable, bound }
        "stopped: with `{variable}`, the variables hold more than {bound} MiB"
        => "does a loop keep adding to it? Values by response or token belong in tensors";
    // What the lint finds.
    NoParameters { name } "the recipe has no parameter `{name}`"
        => "declare it: `fn params() {{ #{{ {name}: #{{ value: 4, min: 1, doc: \"...\" }} }} }}`";
    NoParameter { name, help } "the recipe has no parameter `{name}`" => "{help}";
    UnreadParameter { name } "the parameter `{name}` is declared and never read"
        => "a hook reads it as `p.{name}`";
    SetParameter { name }
        "`p.{name} = ...` changes this hook's copy of the parameter, whatever `--set {name}=...` \
         says"
        => "a value of the script's own is a variable: `let {name} = ...`";
    UncalledFunction { name, hook } "nothing calls the function `{name}`"
        => "did you mean the hook `{hook}`?";
    NotImported { module, name, help } "`{module}` has no function `{name}`" => "{help}";
    CalledVariable { name } "`{name}` is a variable, not a function"
        => "a closure is called as `{name}.call(...)`; a function is `fn {name}(...) {{ ... }}`";
    OwnArgumentCount { name, given, takes } "`{name}` does not take {given}" => "it takes {takes}";
    Curry "there is no function `curry`"
        => "a closure captures what it uses: `|x| f.call(numbers, x)`";
    NoLevel { level, help } "there is no level \"{level}\"" => "{help}";
    NoChoice { function, choice, choices } "`{function}` has no kind \"{choice}\""
        => "there is {choices}";
    FloorDivision "`//` begins a comment here, and floor division in Python"
        => "write `floor(a / b)`; a comment that looks like an operand belongs on a line of its \
            own";
    NegatedPower { base, exponent }
        "`-{base} ** {exponent}` is `(-{base}) ** {exponent}` here, and `-({base} ** {exponent})` \
         in Python and in algebra"
        => "write the brackets: `(-{base}) ** {exponent}` or `-({base} ** {exponent})`";
    // Recipes and imports.
    ScriptTooLarge { name, bytes } "{name}: the script has {bytes} bytes"
        => "values by response or token are columns of the batch: a script is a formula";
    HookParameters { hook, found } "the hook `{hook}` is defined as `{found}`"
        => "write `fn {hook}`; a function of your own needs another name";
    NearHook { function, hook } "the script has no hook, and `{function}` is not one"
        => "did you mean `{hook}`?";
    NoHook { name } "{name}: the script defines neither `advantage(batch, p)` nor `loss(batch, p)`"
        => "`advlab new FILE --from grpo` makes a recipe to start from";
    ParamsNoMap { found } "`params()` must return a map of parameters, it returned {found}"
        => "as in `fn params() {{ #{{ k: #{{ value: 4, min: 1, doc: \"...\" }} }} }}`";
    WrongParameter { error } "{error}"
        => "as in `k: #{{ value: 4, min: 1, max: 8, doc: \"...\" }}`, or with `choices: [\"a\", \
            \"b\"]`";
    ImportPath { path } "cannot import \"{path}\""
        => "an import is the name of a built-in, or of a file in the script's own folder";
    ImportUnreadable { path, file, why } "cannot import \"{path}\": {file}: {why}";
    NoImport { name, help } "there is no recipe \"{name}\" to import" => "{help}";
    CircularImport { ring, path } "circular import: {ring}\"{path}\""
        => "put what both need into a script of its own, and import that";
    LateImport { path } "cannot import \"{path}\" here"
        => "imports come at the top of the script, with their names written out";
    NoModule { name } "nothing is imported as `{name}`"
        => "to import a recipe of that name, write `import \"{name}\" as {name};` at the top of \
            the script";
    NotARecipe { name, kind } "`{name}` is {kind}, not a recipe"
        => "a recipe is a built-in's name, such as `grpo`, or the path of a .rhai script; \
            rollouts stand behind it: `advlab apply grpo rollouts.jsonl`";
    NoRecipe { name, help } "there is no recipe `{name}`" => "{help}";
    MissingScript { path, why, help } "cannot read {path}: {why}" => "{help}";
    UnreadableScript { path, why } "cannot read {path}: {why}";
    NotText { path, byte } "{path} is not text: its byte {byte} is not UTF-8";
    OtherBuiltin { name } "`{name}` is not the built-in of this version of advlab"
        => "import a copy of it: `advlab new mine.rhai --from {name}`";
    // Columns and keys.
    NoColumn { name, help } "the batch has no column `{name}`" => "{help}";
    TextColumn { name } "`{name}` is a column of texts, which are no numbers"
        => "as a key they tell responses apart: `batch.key(\"{name}\")`";
    ColumnValue { name, found } "column `{name}` cannot be {found}"
        => "a column is a tensor or a number: `batch.with(#{{ reward: batch.reward / 2 }})`";
    FixedColumn { name } "`{name}` is no column" => "`batch.regroup(key)` makes other groups";
    ForeignColumn { name } "column `{name}` cannot be a tensor of another batch"
        => "a batch of `regroup` has the responses of the whole, a group's has its own alone";
    KeyCompared { found } "a key is compared with a text, a number or a key, not with {found}"
        => "as in `batch.key(\"agent\") == \"solver\"`";
    KeyValue { found }
        "a value for each response's key is a number or a response tensor, not {found}"
        => "reduce it first, as in `x.mean(\"response\")`";
    TableBound "the most keys of a table are a number from 1 on" => "leave it out for 200000";
    MemoryFull { table, bound } "with \"{table}\", all that is remembered is more than {bound}"
        => "is a table's name or a key a new one each time? A table forgets its oldest keys \
            beyond a number: `remember(\"{table}\", key, x, 1000)`";
    NotRemembered { value, response } "{value} cannot be remembered, at {response}"
        => "`where(is_finite(x), x, 0)` keeps it out";
    RegroupedBy { found } "responses are grouped by a key or a response tensor, not by {found}"
        => "a text column is `batch.key(\"agent\")`";
    ForeignKey { function }
        "`{function}` takes a key or tensor of the batch itself, not of another batch"
        => "a group's batch has its own: `g.{function}(g.key(\"agent\"))`";
    KeyNames { found } "a key is made of the names of columns, not of {found}"
        => "as in `batch.key([\"agent\", \"episode\"])`";
    NoKeyColumn { name, names } "there is no column `{name}` to make a key of"
        => "there is {names}; which prompt a response answers is `group`";
    KeyLevel { name, level }
        "a key has one text or number a response, and `{name}` is a {level} column"
        => "reduce it first: `batch.regroup({name}.sum(\"response\"))`";
    KeyOfNoGroup "`key` is the name of one group, `g.key` in `for g in batch.groups`"
        => "those of all responses are `batch.key(\"group\")`";
    // Parameters.
    WrongValue { name, found, takes } "`{name}` is {found}: it takes {takes}";
    NearValue { name, found, near, takes }
        "`{name}` is {found}: did you mean `{near}`? It takes {takes}";
    NoSettings { name } "the recipe has no parameter `{name}`: it has none at all";
    NoSetting { name, near } "the recipe has no parameter `{name}`: {near}";
    NotASetting { name, found } "`{name}` cannot be {found}";
    Declaration { name, why } "parameter `{name}`: {why}";
    // The prompt.
    NoTypedImport { name } "nothing is imported as `{name}`"
        => "`import \"{name}\" as {name};` imports a recipe";
    FixedParameters "`p` holds the recipe's parameters, which are not changed here"
        => "`:set k=8` sets a parameter";
    FixedBatch "`batch` is the batch, and nothing else"
        => "choose another name; `:load FILE` makes another batch the batch";
    NoRecipeLoaded { hook } "`{hook}()` is a recipe's, and none is loaded"
        => "`:recipe grpo` loads one; a formula that you typed is run by `:run`";
    AnotherBatch { hook } "`{hook}` runs on the whole batch at the prompt, this is another"
        => "`advantage()` has the values of all groups: `where(batch.correct, advantage(), 0)` \
            shows some";
    RefusedSetting { error } "{error}" => "`:params` shows what the recipe has";
}

impl Mistake<'_> {
    pub(crate) fn at(self, span: Option<Span>) -> Diagnostic {
        Diagnostic::from(self).at(span)
    }

    pub(crate) fn error(self) -> Diagnostics {
        Diagnostic::from(self).into()
    }

    /// The diagnostic with another help, if there is one.
    pub(crate) fn or_help(self, help: Option<impl Into<String>>) -> Diagnostic {
        let mut diagnostic = Diagnostic::from(self);
        diagnostic.help = help.map(Into::into).or(diagnostic.help.take());
        diagnostic
    }

    pub(crate) fn warning(self) -> Diagnostic {
        let mut diagnostic = Diagnostic::from(self);
        diagnostic.severity = Severity::Warning;
        diagnostic
    }
}

impl From<Mistake<'_>> for Diagnostic {
    fn from(mistake: Mistake<'_>) -> Self {
        let (message, help) = mistake.message_and_help();
        let mut diagnostic = Diagnostic::error(message);
        diagnostic.help = help;
        diagnostic
    }
}

impl From<Mistake<'_>> for CallError {
    fn from(mistake: Mistake<'_>) -> Self {
        Diagnostic::from(mistake).into()
    }
}

impl From<Mistake<'_>> for Box<EvalAltResult> {
    fn from(mistake: Mistake<'_>) -> Self {
        CallError::from(mistake).into()
    }
}
