//! The keys of the task `math`.

use serde::{Deserialize, Serialize};

use super::Config;
use crate::task::Task;
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// The table `[math]`: what a run with `task = "math"` reads beside the other keys.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MathConfig {
    pub data: String,
    pub question_field: String,
    pub answer_field: String,
    pub prompt_template: String,
    pub chat_template: bool,
}

impl Config {
    /// What the task `math` lacks: a policy that reads text, and where model and questions are.
    pub(super) fn lacks_for_math(&self) -> Option<(&'static str, Diagnostic)> {
        let wrong = |key, found: &str, expected| {
            let problem = Diagnostic::error(format!("{key} is {found:?}, and the task is math"));
            Some((key, problem.expected(expected)))
        };
        if self.task != "math" {
            None
        } else if self.policy != "transformer" {
            wrong("policy", &self.policy, "`transformer`, which reads text")
        } else if self.transformer.model.is_empty() {
            wrong(
                "transformer.model",
                "",
                "a folder of a model with its tokenizer",
            )
        } else if self.math.data.is_empty() {
            wrong("math.data", "", "a JSONL file of questions and answers")
        } else {
            None
        }
    }

    #[cfg(feature = "torch")]
    pub(super) fn make_math(&self) -> Result<Box<dyn Task>, Diagnostics> {
        use std::path::Path;

        use crate::policy::{Text, Transformer};
        use crate::task::Math;
        let folder = Path::new(&self.transformer.model);
        let vocabulary = Transformer::read_config(folder)?.vocabulary;
        let text = Text::load(folder, u32::try_from(vocabulary).unwrap_or(u32::MAX))?
            .with_stops(&self.transformer.stop_strings);
        let longest = self.transformer.max_new_tokens;
        Ok(Box::new(Math::load(&self.math, text.into(), longest)?))
    }

    #[cfg(not(feature = "torch"))]
    pub(super) fn make_math(&self) -> Result<Box<dyn Task>, Diagnostics> {
        Err(super::without_libtorch("`task = \"math\"`"))
    }
}
