//! The sandbox: bounds the resources of a script, so that no recipe exhausts a run's time, memory or stack.
//!
//! A script's `try` catches none of these errors. Most come from the engine as `ErrorTerminated`, `ErrorDataTooLarge`
//! and the like, which cannot be caught; errors that tensors' native functions report are converted to these (`raise`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::diagnostic::{Diagnostic, Diagnostics};

/// Calls within calls. A hook needs three or four.
pub(super) const CALL_LEVELS: usize = 32;
/// Expressions within expressions, outside and inside functions.
pub(super) const EXPRESSION_DEPTH: usize = 64;

/// The stack that scripts run on.
///
/// The engine drops, clones and compares values by recursion, and a value can be as deep as it has elements: 2^15 arrays and
/// 2^14 maps, nested in each other, take below 1 KiB per level in a debug build. Only touched pages become memory.
const STACK: usize = 256 << 20;

/// Runs code that touches a script's values, on any thread, with a stack that is large enough for the deepest value.
pub(crate) fn on_deep_stack<R>(run: impl FnOnce() -> R) -> R {
    // Not again for a hook that is called from a check, or from another hook's call.
    stacker::maybe_grow(STACK / 2, STACK, run)
}

/// Runs code that may call scripts on a deep stack. A panic of ours becomes an ordinary error: a script must not end a run.
pub(crate) fn guarded<R>(doing: &str, run: impl FnOnce() -> R) -> Result<R, Diagnostics> {
    catch_unwind(AssertUnwindSafe(|| on_deep_stack(run))).map_err(|panic| {
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        let text = owned.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        Diagnostic::error(format!("advlab itself failed {doing}: {text}"))
            .with_help("this is a defect of advlab: please report it with the script")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Batch;
    use crate::script::bounds::{ARRAY_ELEMENTS, MAP_ENTRIES};
    use crate::script::{Host, Recipe};
    use rhai::{Array, Dynamic, Engine, Map};

    /// As deep as the limits of elements and entries let a value be, and which the engine walks by recursion.
    const DEEPEST: usize = ARRAY_ELEMENTS + MAP_ENTRIES;

    fn nested(depth: usize) -> Dynamic {
        let mut value = Dynamic::UNIT;
        for level in 0..depth {
            value = match level % 3 {
                0 => Dynamic::from_map(Map::from([("a".into(), value)])),
                _ => Dynamic::from_array(Array::from([value])),
            };
        }
        value
    }

    #[test]
    fn the_deepest_value_is_cloned_and_dropped() {
        on_deep_stack(|| {
            let value = nested(DEEPEST);
            assert!(value.clone().is_array());
        });
    }

    /// Comparing takes time quadratic in the depth, so the test uses an eighth of the depth on an eighth of the stack.
    #[test]
    fn a_deep_value_is_shown_and_compared() {
        stacker::grow(STACK / 8, || {
            let value = nested(DEEPEST / 8);
            assert!(value.to_string().len() > DEEPEST / 8);
            let engine = Engine::new();
            let mut scope = rhai::Scope::new();
            scope.push_dynamic("a", value.clone());
            scope.push_dynamic("b", value);
            let are_equal: bool = engine.eval_with_scope(&mut scope, "a == b").unwrap();
            assert!(are_equal);
        });
    }

    fn recipe(body: &str) -> Result<Recipe, Diagnostics> {
        Host::new().compile("nested", &format!("fn advantage(batch, p) {{ {body} }}"))
    }

    /// A script that is nested itself is refused or done, however deep; a script is dropped on any thread.
    #[test]
    fn no_text_overflows_the_stack() {
        const DEEP: usize = 30_000;
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{", "1", "}"),
            ("-", "1", ""),
            ("!", "true", ""),
            ("#{a:", "1", "}"),
            ("if true {", "1", "}"),
            ("if true {1} else ", "{1}", ""),
            ("|x| ", "1", ""),
            ("1+", "1", ""),
            ("1*1+", "1", ""),
            ("2**", "2", ""),
            ("`${", "1", "}`"),
            ("loop {", "break;", "}"),
            ("switch 1 { 1 => ", "1", "}"),
            ("f(", "1", ")"),
            ("true && ", "true", ""),
            ("x = ", "1", ""),
            ("x ?? ", "1", ""),
            ("let x = 1;", "", ""),
            ("batch", "", ".a"),
            ("batch", "", ".abs()"),
            ("batch", "", "[0]"),
        ] {
            let (open, close) = match inner {
                "" if !close.is_empty() => (open.to_string(), close.repeat(DEEP)),
                _ => (open.repeat(DEEP), close.repeat(DEEP)),
            };
            if let Ok(recipe) = recipe(&format!("{open}{inner}{close}; batch.reward")) {
                let _ = recipe.advantage(&Batch::example(), &mut recipe.init().unwrap());
            }
        }
    }
}
