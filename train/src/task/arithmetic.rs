//! The arithmetic task: the sum of two numbers of n digits, answered digit by digit.

use super::{Prompt, Task, TaskShape, Texts, within, words};
use crate::config::DIGITS;
use crate::error::Result;
use crate::random::RandomStream;

const STOP: u32 = 10;
const EQUALS: u32 = 11;
const PLUS: u32 = 12;

/// The characters that show the tokens 0 to 12.
const SIGNS: [char; 13] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', '■', '=', '+',
];

/// The task of adding two numbers of n digits.
///
/// - A prompt is `a + b =`, where `a` and `b` have exactly n digits, the most significant first: 2n + 2 tokens, 0 to 9 for the
///   digits, 12 for `+`, 11 for `=`. Its features are the 2n digits in one-hot encoding, `[2n * 10]`.
/// - A response gives the sum's digits, the least significant first, so that each digit depends only on the two digits in its
///   place and on the carry from the place before. Then comes the stop token, 10. A response is right if it is the exact sum
///   without leading zeros and stops within n + 2 tokens.
/// - Either both `a + b` and `b + a` are held out or neither is, because they have the same answer.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    digits: usize,
}

impl Arithmetic {
    /// Returns the task of adding two numbers of `digits` digits.
    pub fn new(digits: usize) -> Result<Self> {
        within("arithmetic: digits", digits, DIGITS)?;
        Ok(Self { digits })
    }

    /// Returns the two numbers of a prompt, or `None` if the prompt is not a sum of two numbers with `digits` digits.
    fn terms(&self, prompt: &Prompt) -> Option<(u64, u64)> {
        let (a, rest) = prompt.tokens.split_at_checked(self.digits)?;
        let (&plus, rest) = rest.split_first()?;
        let (b, equals) = rest.split_at_checked(self.digits)?;
        let is_sum = plus == PLUS && equals == [EQUALS];
        Some((number(a.iter())?, number(b.iter())?)).filter(|_| is_sum)
    }
}

/// Returns the number with these digits (the most significant first), or `None` if a token is not a digit or the number is too
/// large.
fn number<'a>(mut digits: impl Iterator<Item = &'a u32>) -> Option<u64> {
    digits.try_fold(0u64, |sum, &digit| {
        let digit = (digit < 10).then_some(u64::from(digit))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

impl Task for Arithmetic {
    fn shape(&self) -> TaskShape {
        TaskShape {
            prompt_features: 2 * self.digits * 10,
            vocabulary: 11,
            alphabet: SIGNS.len(),
            max_response_tokens: self.digits + 2,
            stop: STOP,
        }
    }

    fn draw(&self, stream: &mut RandomStream) -> Prompt {
        let mut digit = |index| match index {
            0 if self.digits > 1 => 1 + stream.below(9) as u32,
            _ => stream.below(10) as u32,
        };
        let mut term = || (0..self.digits).map(&mut digit).collect::<Vec<u32>>();
        let (a, b) = (term(), term());
        let tokens = [&a[..], &[PLUS], &b, &[EQUALS]].concat();
        Prompt::one_hot(tokens, a.into_iter().chain(b), 0..10)
    }

    fn identity(&self, prompt: &Prompt) -> Vec<u32> {
        let mut tokens = prompt.tokens.clone();
        if self.terms(prompt).is_some_and(|(a, b)| a > b) {
            let (first, second) = tokens.split_at_mut(self.digits + 1);
            first[..self.digits].swap_with_slice(&mut second[..self.digits]);
        }
        tokens
    }

    fn verify(&self, prompt: &Prompt, response: &[u32]) -> bool {
        let Some((a, b)) = self.terms(prompt) else {
            return false;
        };
        // Digits after the stop token do not count.
        let Some(end) = response.iter().position(|&token| token == STOP) else {
            return false;
        };
        let digits = &response[..end];
        let in_time = response.len() <= self.shape().max_response_tokens;
        let leading_zero = digits.len() > 1 && digits.last() == Some(&0);
        let exact = !digits.is_empty() && number(digits.iter().rev()) == Some(a + b);
        in_time && exact && !leading_zero
    }

    fn solution(&self, prompt: &Prompt) -> Option<Vec<u32>> {
        let (a, b) = self.terms(prompt)?;
        let digits = std::iter::successors(Some(a + b), |rest| Some(rest / 10).filter(|&r| r > 0));
        let digits = digits.map(|rest| (rest % 10) as u32);
        Some(digits.chain([STOP]).collect())
    }

    /// Returns the sum as text, and the digits of the response (the least significant first), separated by spaces so that each
    /// digit counts as a token.
    fn texts(&self, prompt: &Prompt, response: &[u32]) -> Result<Texts> {
        let sum = self.terms(prompt);
        let sum = sum.map_or(String::new(), |(a, b)| format!("{a} + {b} ="));
        Ok(vec![
            ("prompt", sum),
            ("completion", words(response, &SIGNS)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, StreamKey};

    fn prompt(a: &[u32], b: &[u32]) -> Prompt {
        Prompt {
            tokens: [a, &[PLUS], b, &[EQUALS]].concat(),
            features: vec![],
        }
    }

    #[test]
    fn of_all_responses_exactly_the_sum_is_right() {
        let task = Arithmetic::new(1).unwrap();
        for (a, b) in [(0, 0), (2, 3), (4, 6), (9, 9)] {
            let sum: Vec<u32> = match a + b {
                sum @ 0..10 => vec![sum],
                sum => vec![sum % 10, 1],
            };
            // The loop covers all responses of three tokens; tokens after the stop token do not count.
            for code in 0..11u32.pow(3) {
                let response = [code / 121, code / 11 % 11, code % 11];
                let end = response.iter().position(|&token| token == STOP);
                let expected = end.is_some_and(|end| response[..end] == sum);
                let found = task.verify(&prompt(&[a], &[b]), &response);
                assert_eq!(found, expected, "{response:?}");
            }
        }
    }

    #[test]
    fn the_response_must_stop_in_time_and_hold_digits_alone() {
        let task = Arithmetic::new(2).unwrap();
        let sum = prompt(&[2, 7], &[8, 5]);
        assert!(task.verify(&sum, &[2, 1, 1, STOP]));
        let wrong: [&[u32]; 5] = [
            &[2, 1, 1],
            &[2, 1, 1, 0, STOP],
            &[2, 1, 11, STOP],
            &[STOP],
            &[],
        ];
        for response in wrong {
            assert!(!task.verify(&sum, response), "{response:?}");
        }
        assert!(!task.verify(&prompt(&[2], &[8, 5]), &[7, 8, STOP]));
    }

    #[test]
    fn a_solution_is_right() {
        let task = Arithmetic::new(2).unwrap();
        let solution = |a: &[u32], b: &[u32]| task.solution(&prompt(a, b));
        assert_eq!(solution(&[2, 7], &[8, 5]), Some(vec![2, 1, 1, STOP]));
        assert_eq!(solution(&[1, 0], &[1, 0]), Some(vec![0, 2, STOP]));
        assert_eq!(solution(&[2], &[8, 5]), None);
        let zero = Arithmetic::new(1).unwrap().solution(&prompt(&[0], &[0]));
        assert_eq!(zero, Some(vec![0, STOP]));
    }

    #[test]
    fn prompts_have_n_digits_and_features_that_say_them() {
        let task = Arithmetic::new(3).unwrap();
        let key = StreamKey::new(0, Purpose::TrainingPrompts, 0);
        for index in 0..200 {
            let prompt = task.draw(&mut key.stream(index));
            let (a, b) = task.terms(&prompt).unwrap();
            assert!((100..1000).contains(&a) && (100..1000).contains(&b));
            let digit = |hot: &[f32]| {
                assert_eq!(hot.iter().sum::<f32>(), 1.0);
                hot.iter().position(|&x| x == 1.0).unwrap() as u32
            };
            let digits: Vec<u32> = prompt.features.chunks(10).map(digit).collect();
            let tokens = [&digits[..3], &[PLUS], &digits[3..], &[EQUALS]].concat();
            assert_eq!(tokens, prompt.tokens);
        }
    }

    #[test]
    fn the_order_of_the_terms_does_not_change_the_identity() {
        let task = Arithmetic::new(2).unwrap();
        let (one, other) = (prompt(&[2, 7], &[8, 5]), prompt(&[8, 5], &[2, 7]));
        assert_eq!(task.identity(&one), task.identity(&other));
        assert_ne!(
            task.identity(&one),
            task.identity(&prompt(&[2, 5], &[8, 7]))
        );
    }
}
