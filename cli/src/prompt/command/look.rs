//! `:look`: responses with their texts, the answer that was found, and what they got.

use std::ops::Range;

use super::super::session::Session;
use super::{Answered, wrong};
use advlab::Batch;
use advlab::batch::{Level, Tokenize, spans};
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, value};
use advlab::paint::{Paint, cut, visible, wrapped};
use advlab::session::Session as Script;
use advlab::suggest::{did_you_mean, nearest};
use advlab_answers::{self, Verdict};

/// Responses that are shown at once.
const MOST: usize = 8;

/// Tokens that are marked, those with the largest |A|.
const MARKED: usize = 5;

pub(in crate::prompt) fn look(session: &mut Session, what: &str) -> Answered {
    let mut batch = (*session.data.batch).clone();
    let mut lines = Vec::new();
    if let Ok(recipe) = session.recipe() {
        let (outcome, _) = session.try_recipe(&recipe)?;
        lines.extend(outcome.notes.iter().map(|note| session.note(note)));
        if matches!(outcome.advantage.level(), Level::Response | Level::Token) {
            batch = batch.with("advantage", &outcome.advantage);
        }
    }
    let mut looker = Looker {
        script: Script::new(session.script.host(), &batch),
        tokenizer: session.tokenizer.as_deref(),
        paint: session.paint,
        batch: &batch,
    };
    let found = looker.meant(what)?;
    for &response in found.iter().take(MOST) {
        lines.push(looker.response(response)?);
    }
    if found.len() > MOST {
        let all = counted(found.len(), "response");
        lines.push(session.dimmed(&format!("these are the first {MOST} of {all}")));
    }
    Ok(lines.join("\n"))
}

struct Looker<'a> {
    script: Script,
    batch: &'a Batch,
    tokenizer: Option<&'a dyn Tokenize>,
    paint: Paint,
}

impl Looker<'_> {
    /// The responses that are meant: by number, by group, the best or the worst, or those of a condition.
    fn meant(&mut self, what: &str) -> Result<Vec<usize>, Diagnostics> {
        let layout = self.batch.layout();
        let responses = layout.responses();
        if let Ok(number) = if what.is_empty() { "0" } else { what }.parse::<i64>() {
            if let Some(number) = usize::try_from(number).ok().filter(|one| *one < responses) {
                return Ok(vec![number]);
            }
            let message = format!("`{what}` is not the number of a response");
            return Err(wrong(message, format!("there are 0 to {}", responses - 1)));
        }
        let name = what.trim_matches('"');
        if let Some(group) =
            (0..layout.groups()).find(|&group| layout.group_id(group).name() == name)
        {
            return Ok(layout
                .members(group)
                .iter()
                .map(|&member| member as usize)
                .collect());
        }
        if let "best" | "worst" = what {
            let sign = if what == "best" { 1.0 } else { -1.0 };
            let given = self
                .of_responses("advantage")
                .or_else(|| self.of_responses("reward"));
            let given = given.unwrap_or_default();
            let best = (0..given.len()).max_by(|&a, &b| {
                // Of equals the first one.
                (sign * given[a])
                    .total_cmp(&(sign * given[b]))
                    .then(b.cmp(&a))
            });
            return Ok(best.into_iter().collect());
        }
        // `=` sets a variable, as in most languages.
        let compared = compared(what);
        if compared != what {
            let help = format!("did you mean `{compared}`?");
            return Err(wrong(format!("`=` compares nothing in `{what}`"), help));
        }
        let code = self.with_columns(what)?;
        let (level, values) = self.script.numbers(&code)?;
        if level != Some(Level::Response) {
            let help = "a response's number, a group's name, `best`, `worst`, or a condition on columns of responses, such as `correct == 0 & advantage > 0`";
            return Err(wrong(format!("`{what}` names no responses"), help));
        }
        let found: Vec<usize> = (0..values.len()).filter(|&at| values[at] != 0.0).collect();
        match found.is_empty() {
            true => Err(wrong(
                format!("no response has `{what}`"),
                "`best`, a response's number or another condition shows one that is there",
            )),
            false => Ok(found),
        }
    }

    /// A condition in which columns stand by their names alone, those of texts and `group` as keys; there is nothing else
    /// that it could name.
    fn with_columns(&self, condition: &str) -> Result<String, Diagnostics> {
        const COMPUTED: [&str; 4] = ["reward", "correct", "verified", "length"];
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
        let mut code = String::new();
        let mut word = String::new();
        let mut is_text = false;
        for letter in condition.chars().chain(std::iter::once(' ')) {
            if is_letter(letter) {
                word.push(letter);
                continue;
            }
            let mut written = word.clone();
            let is_name = word.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
            if is_name && !is_text && letter != '(' && !code.ends_with('.') {
                let is_column = self.batch.has(&word) || COMPUTED.contains(&&*word);
                let is_key = word == "group" || self.batch.text(&word).is_some();
                if is_column {
                    written = format!("batch.{word}");
                } else if is_key && word != condition {
                    written = format!("batch.key(\"{word}\")");
                } else if !["batch", "true", "false"].contains(&&*word) {
                    let names = self.batch.response_columns().map(|(name, _)| name);
                    let names = names.chain(self.batch.token_columns().map(|(name, _)| name));
                    let names =
                        names.chain(COMPUTED.into_iter().filter(|name| !self.batch.has(name)));
                    // A group's name may have signs in it.
                    let is_name = |letter: char| is_letter(letter) || "-.:/".contains(letter);
                    let named = match condition.chars().all(is_name) {
                        true => condition,
                        false => &word,
                    };
                    let message = format!("`{named}` is neither a column nor a group");
                    let layout = self.batch.layout();
                    let groups = (0..layout.groups()).map(|group| layout.group_id(group).name());
                    let groups: Vec<_> = groups.collect();
                    let near = nearest(named, groups.iter().map(|name| &**name));
                    let help = if is_key {
                        format!("it is a text: compare it, as in `{word} == \"...\"`")
                    } else if code.contains("batch.key(") {
                        "a text is written in quotes, as in `group == \"maze-01\"`".to_string()
                    } else if let Some(near) = near {
                        format!("did you mean the group `{near}`?")
                    } else {
                        did_you_mean(&word, names)
                    };
                    return Err(wrong(message, help));
                }
            }
            is_text ^= letter == '"';
            code.push_str(&written);
            code.push(letter);
            word.clear();
        }
        Ok(code.trim_end().to_string())
    }

    /// A column, one value a response: of tokens the mean. `None` where the batch has none.
    fn of_responses(&mut self, name: &str) -> Option<Vec<f64>> {
        let of_tokens = self.batch.token_column(name).is_some();
        let mean = if of_tokens { ".mean(\"response\")" } else { "" };
        let code = format!("batch.{name}{mean}");
        self.script.numbers(&code).ok().map(|(_, values)| values)
    }

    /// The numbers of a response, and beside those that matter the means of its group.
    fn numbers(&mut self, response: usize) -> (Vec<String>, Vec<String>) {
        let layout = self.batch.layout().clone();
        let group = layout.group_of(response);
        let members = layout.members(group);
        // It may be a whole prompt.
        let name = layout.group_id(group).name().replace('\n', " ");
        let mut about = vec![format!("group {}", cut(&visible(&name), 40))];
        let mut beside = Vec::new();
        let own = self.batch.response_columns();
        let mut names: Vec<String> = own.map(|(name, _)| name.to_string()).collect();
        for name in ["reward", "length", "advantage"] {
            if !names.iter().any(|own| own == name) {
                names.push(name.to_string());
            }
        }
        for name in names {
            let Some(values) = self.of_responses(&name) else {
                continue;
            };
            about.push(format!("{} {}", visible(&name), value(values[response])));
            if ["reward", "length", "advantage"].contains(&&*name) && members.len() > 1 {
                let of_group = members.iter().map(|&member| values[member as usize]);
                let (sum, size) =
                    of_group.fold((0.0, 0.0), |(sum, size), x| (sum + x, x.abs().max(size)));
                let mean = sum / members.len() as f64;
                // Advantages that sum to 0 do so up to rounding.
                let is_none = mean.abs() <= 1e-12 * size;
                beside.push(format!(
                    "{name} {}",
                    value(if is_none { 0.0 } else { mean })
                ));
            }
        }
        (about, beside)
    }

    fn response(&mut self, response: usize) -> Answered {
        let (layout, paint) = (self.batch.layout().clone(), self.paint);
        let group = layout.group_of(response);
        let (about, beside) = self.numbers(response);
        let title = paint.bold(&format!("response {response}"));
        let mut lines = vec![format!("{title}   {}", paint.dim(&about.join(", ")))];
        if !beside.is_empty() {
            let size = layout.members(group).len();
            let text = format!("mean of its {size} responses: {}", beside.join(", "));
            lines.push(paint.dim(&wrapped("  ", &text, paint.width)));
        }
        let tokens = self.largest(layout.tokens_of(response));
        let text_of = |name: &str| self.batch.text(name).map(|texts| &*texts[response]);
        let length = layout.tokens_of(response).len();
        let completion = text_of("completion");
        let spans = completion.and_then(|text| spans(text, length, self.tokenizer));
        for (name, texts) in self.batch.texts() {
            let text = &texts[response];
            lines.push(paint.dim(&format!("  {}", visible(name))));
            let marks = match (&tokens, &spans) {
                (Some(tokens), Some(spans)) if name == "completion" => {
                    let marks = tokens.iter().map(|(at, a)| (spans[*at].clone(), *a));
                    marks.collect()
                }
                _ => Vec::new(),
            };
            lines.extend(marked(text, marks, paint));
        }
        if let Some(completion) = completion {
            lines.extend(answer(completion, self.batch.solution(response).as_deref()));
        }
        if let Some(tokens) = tokens {
            lines.push(self.told(&tokens, completion.zip(spans.as_ref())));
        }
        Ok(lines.join("\n"))
    }

    /// The tokens of a response with the largest |A|, counted from its first, where the advantage is one of tokens.
    fn largest(&mut self, tokens: Range<usize>) -> Option<Vec<(usize, f64)>> {
        self.batch.token_column("advantage")?;
        let (_, values) = self.script.numbers("batch.advantage").ok()?;
        let mut largest: Vec<(usize, f64)> = values[tokens].iter().copied().enumerate().collect();
        largest.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        largest.truncate(MARKED);
        Some(largest)
    }

    /// A line with the tokens that have the largest |A|.
    fn told(&self, tokens: &[(usize, f64)], text: Option<(&str, &Vec<Range<usize>>)>) -> String {
        let token = |&(at, a): &(usize, f64)| {
            let own = text.and_then(|(text, spans)| text.get(spans[at].clone()));
            let own = own.map_or(String::new(), |own| format!(" `{}`", visible(own.trim())));
            format!("{at}{own} {}", value(a))
        };
        let tokens: Vec<String> = tokens.iter().map(token).collect();
        let text = format!("largest |A|: tokens {}", tokens.join(", "));
        wrapped("  ", &text, self.paint.width)
    }
}

/// A condition with `==` for each `=` that is part of no other sign.
fn compared(condition: &str) -> String {
    let letters: Vec<char> = condition.chars().collect();
    let near = |index: usize| letters.get(index).copied().unwrap_or(' ');
    let is_part =
        |index: usize| near(index + 1) == '=' || "=<>!".contains(near(index.wrapping_sub(1)));
    let mut is_text = false;
    let written = letters.iter().enumerate().map(|(index, letter)| {
        is_text ^= *letter == '"';
        match letter {
            '=' if !is_text && !is_part(index) => "==".to_string(),
            letter => letter.to_string(),
        }
    });
    written.collect()
}

/// The answer of a completion, beside that of its solution; nothing where neither has one to be found.
fn answer(completion: &str, solution: Option<&str>) -> Option<String> {
    let shown =
        |answer: Option<String>| answer.map_or("none".to_string(), |text| visible(text.trim()));
    let Some(solution) = solution else {
        let answer = advlab_answers::answer(completion)?;
        return Some(format!("  answer found: {}", shown(Some(answer))));
    };
    let (verdict, reference, answer) = advlab_answers::compared(solution, completion);
    let verdict = match verdict {
        Verdict::Equal => "right",
        Verdict::Different => "wrong",
        Verdict::NoAnswer => "no answer",
        Verdict::Undecided => "not decided, so wrong",
    };
    Some(format!(
        "  answer found: {} ({verdict}; the reference's: {})",
        shown(answer),
        shown(reference)
    ))
}

/// The lines of a text, wrapped, with some parts in the colour of their values' sign.
fn marked(text: &str, mut marks: Vec<(Range<usize>, f64)>, paint: Paint) -> Vec<String> {
    marks.sort_by_key(|(span, _)| span.start);
    let (mut shown, mut at) = (String::new(), 0);
    // Line by line below: what a terminal would obey is written out there.
    let plain = |part: &str| {
        let lines: Vec<String> = part.split('\n').map(visible).collect();
        lines.join("\n")
    };
    for (span, a) in marks {
        let (Some(before), Some(own)) = (text.get(at..span.start), text.get(span.clone())) else {
            continue;
        };
        let inner = own.trim();
        let lead = own.len() - own.trim_start().len();
        let code = if a < 0.0 { "1;31" } else { "1;32" };
        shown.push_str(&plain(before));
        shown.push_str(&plain(&own[..lead]));
        shown.push_str(&paint.with(code, &plain(inner)));
        shown.push_str(&plain(&own[lead + inner.len()..]));
        at = span.end;
    }
    shown.push_str(&plain(text.get(at..).unwrap_or_default()));
    shown
        .lines()
        .map(|line| wrapped("    ", line, paint.width))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::compared;

    #[test]
    fn a_single_equals_sign_compares() {
        for (condition, expected) in [
            ("reward=1", "reward==1"),
            ("correct = 0 & length >= 3", "correct == 0 & length >= 3"),
            (
                r#"role == "a=b" | reward != 0"#,
                r#"role == "a=b" | reward != 0"#,
            ),
        ] {
            assert_eq!(compared(condition), expected);
        }
    }
}
