//! `:look`: responses with their texts, the answer that was found, their reward and their advantage.

use std::ops::Range;

use super::super::session::Session;
use super::Answered;
use crate::report::study::members;
use crate::wrong;
use advlab::Batch;
use advlab::batch::Level;
use advlab::diagnostic::Diagnostics;
use advlab::figures::{counted, value};
use advlab::files::{Tokenize, spans};
use advlab::paint::{Paint, cut, visible, wrapped};
use advlab::session::Session as Script;
use advlab::suggest::{did_you_mean, nearest};
use advlab_answers::{self, Verdict};

/// Responses that are shown at once.
const MOST: usize = 8;

/// Tokens that are marked, those with the largest |A|.
const MARKED: usize = 5;

/// Columns of responses that follow from others.
const COMPUTED: [&str; 4] = ["reward", "correct", "verified", "length"];

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
    let found = looker.meant(if what.is_empty() { "0" } else { what })?;
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
    /// The responses that are meant: by number, by group, the best or the worst, or those that meet a condition.
    fn meant(&mut self, what: &str) -> Result<Vec<usize>, Diagnostics> {
        let layout = self.batch.layout();
        if let Ok(number) = what.parse::<i64>() {
            let number = usize::try_from(number).ok();
            let number = number.filter(|one| *one < layout.responses());
            return number.map(|number| vec![number]).ok_or_else(|| {
                let message = format!("`{what}` is not the number of a response");
                wrong(
                    message,
                    format!("there are 0 to {}", layout.responses() - 1),
                )
            });
        }
        let is_it = |group: &usize| layout.group_id(*group).name() == what.trim_matches('"');
        if let Some(group) = (0..layout.groups()).find(is_it) {
            return Ok(members(layout, group).collect());
        }
        let sign = match what {
            "best" => 1.0,
            "worst" => -1.0,
            condition => return self.that_meet(condition),
        };
        let given = self.of_responses("advantage");
        let given = given.or_else(|| self.of_responses("reward"));
        let given = given.unwrap_or_default();
        let order = |&a: &usize, &b: &usize| (sign * given[a]).total_cmp(&(sign * given[b]));
        // Of equals the first one.
        let best = (0..given.len()).max_by(|a, b| order(a, b).then(b.cmp(a)));
        Ok(best.into_iter().collect())
    }

    /// The responses that meet a condition: a script's expression in which each column is a variable, and so is the key of
    /// each text.
    fn that_meet(&mut self, condition: &str) -> Result<Vec<usize>, Diagnostics> {
        let columns = self.batch.columns().chain(COMPUTED);
        let columns = columns.map(|name| format!("let {name} = batch.{name};"));
        let texts = self.batch.texts().map(|(name, _)| name).chain(["group"]);
        let texts = texts.filter(|name| condition.contains(name) && *name != condition);
        let keys = texts.map(|name| format!("let {name} = batch.key(\"{name}\");"));
        for definition in columns.chain(keys).collect::<Vec<_>>() {
            // A column that this batch cannot have is no variable.
            let _ = self.script.evaluate(&definition);
        }
        let help = "a response's number, a group's name, `best`, `worst`, or a condition on columns of responses, such as `correct == 0 & advantage > 0`";
        let numbers = self.script.numbers(condition).map_err(|mut error| {
            error.first_mut().help.get_or_insert(help.to_string());
            self.no_name(condition).unwrap_or(error)
        });
        let (level, values) = numbers?;
        if level != Some(Level::Response) {
            return Err(wrong(format!("`{condition}` names no responses"), help));
        }
        let found: Vec<usize> = (0..values.len()).filter(|&at| values[at] != 0.0).collect();
        match found.is_empty() {
            true => Err(wrong(
                format!("no response has `{condition}`"),
                "`best`, a response's number or another condition shows one that is there",
            )),
            false => Ok(found),
        }
    }

    /// The error if a single name, which may have signs in it, is neither a column nor a group.
    fn no_name(&self, name: &str) -> Option<Diagnostics> {
        let is_letter = |letter: char| letter.is_alphanumeric() || "_-.:/".contains(letter);
        if !name.chars().all(is_letter) {
            return None;
        }
        let layout = self.batch.layout();
        let groups = (0..layout.groups()).map(|group| layout.group_id(group).name());
        let groups: Vec<_> = groups.collect();
        let help = if self.batch.text(name).is_some() || name == "group" {
            format!("it is a text: compare it, as in `{name} == \"...\"`")
        } else if let Some(near) = nearest(name, groups.iter().map(|name| &**name)) {
            format!("did you mean the group `{near}`?")
        } else {
            did_you_mean(name, self.batch.columns().chain(COMPUTED))
        };
        let message = format!("`{name}` is neither a column nor a group");
        Some(wrong(message, help))
    }

    /// A column with one value per response: of tokens the mean. `None` if the batch does not have it.
    fn of_responses(&mut self, name: &str) -> Option<Vec<f64>> {
        let of_tokens = self.batch.token_column(name).is_some();
        let mean = if of_tokens { ".mean(\"response\")" } else { "" };
        let code = format!("batch.{name}{mean}");
        self.script.numbers(&code).ok().map(|(_, values)| values)
    }

    /// The numbers of a response, and the means of some of them over its group.
    fn numbers(&mut self, response: usize) -> (Vec<String>, Vec<String>) {
        const WITH_MEAN: [&str; 3] = ["reward", "length", "advantage"];
        let layout = self.batch.layout().clone();
        let group = layout.group_of(response);
        // The name may be a whole prompt.
        let name = layout.group_id(group).name().replace('\n', " ");
        let mut about = vec![format!("group {}", cut(&visible(&name), 40))];
        let mut means = Vec::new();
        let mut names: Vec<&str> = self.batch.response_columns().map(|one| one.0).collect();
        let others = WITH_MEAN.into_iter().filter(|name| !names.contains(name));
        names.extend(others.collect::<Vec<_>>());
        for name in names {
            let Some(values) = self.of_responses(name) else {
                continue;
            };
            about.push(format!("{} {}", visible(name), value(values[response])));
            let own: Vec<f64> = members(&layout, group).map(|one| values[one]).collect();
            if WITH_MEAN.contains(&name) && own.len() > 1 {
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                let largest = own.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
                // Advantages that sum to 0 do so up to rounding.
                let is_zero = mean.abs() <= 1e-12 * largest;
                means.push(format!(
                    "{name} {}",
                    value(if is_zero { 0.0 } else { mean })
                ));
            }
        }
        (about, means)
    }

    fn response(&mut self, response: usize) -> Answered {
        let (layout, paint) = (self.batch.layout().clone(), self.paint);
        let (about, means) = self.numbers(response);
        let title = paint.bold(&format!("response {response}"));
        let mut lines = vec![format!("{title}   {}", paint.dim(&about.join(", ")))];
        if !means.is_empty() {
            let size = layout.members(layout.group_of(response)).len();
            let text = format!("mean of its {size} responses: {}", means.join(", "));
            lines.push(paint.dim(&wrapped("  ", &text, paint.width)));
        }
        let tokens = layout.tokens_of(response);
        let length = tokens.len();
        let largest = self.largest(tokens);
        let completion = self.batch.text("completion").map(|texts| &*texts[response]);
        let spans = completion.and_then(|text| spans(text, length, self.tokenizer));
        for (name, texts) in self.batch.texts() {
            lines.push(paint.dim(&format!("  {}", visible(name))));
            let marks = match (&largest, &spans) {
                (Some(tokens), Some(spans)) if name == "completion" => {
                    let marks = tokens.iter().map(|(at, a)| (spans[*at].clone(), *a));
                    marks.collect()
                }
                _ => Vec::new(),
            };
            lines.extend(marked(&texts[response], marks, paint));
        }
        if let Some(completion) = completion {
            lines.extend(answer(completion, self.batch.solution(response).as_deref()));
        }
        if let Some(largest) = largest {
            let token = |&(at, a): &(usize, f64)| {
                let text = completion.zip(spans.as_ref());
                let own = text.and_then(|(text, spans)| text.get(spans[at].clone()));
                let own = own.map_or(String::new(), |own| format!(" `{}`", visible(own.trim())));
                format!("{at}{own} {}", value(a))
            };
            let tokens: Vec<String> = largest.iter().map(token).collect();
            let text = format!("largest |A|: tokens {}", tokens.join(", "));
            lines.push(wrapped("  ", &text, paint.width));
        }
        Ok(lines.join("\n"))
    }

    /// The tokens of a response with the largest |A|, by their place in it, if the advantage is per token.
    fn largest(&mut self, tokens: Range<usize>) -> Option<Vec<(usize, f64)>> {
        self.batch.token_column("advantage")?;
        let (_, values) = self.script.numbers("batch.advantage").ok()?;
        let mut largest: Vec<(usize, f64)> = values[tokens].iter().copied().enumerate().collect();
        largest.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        largest.truncate(MARKED);
        Some(largest)
    }
}

/// The answer in a completion beside that of its solution; nothing if there is neither.
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

/// The wrapped lines of a text, with some parts in the colour of their values' sign.
fn marked(text: &str, mut marks: Vec<(Range<usize>, f64)>, paint: Paint) -> Vec<String> {
    marks.sort_by_key(|(span, _)| span.start);
    let (mut shown, mut at) = (String::new(), 0);
    // Line by line: `visible` writes out control characters, line breaks too.
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
