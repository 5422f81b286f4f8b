//! Estimates of pass@k from groups of responses, without bias.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use crate::tensor::binomial_ratio;

/// Estimates of pass@k, the chance that one of k responses is right, for k = 1, 2, 4, ... up to the group's size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassAt(Vec<(usize, f64)>);

impl PassAt {
    /// Estimates from the responses that were right in each group, all groups having `group_size` responses.
    ///
    /// The estimate of a group is 1 - C(wrong, k) / C(n, k) (arXiv 2107.03374, eq. 1); groups weigh alike.
    pub fn of(right: &[usize], group_size: usize) -> PassAt {
        let estimate = |k: usize| {
            let fails = right.iter().map(|&right| {
                let wrong = (group_size - right) as i64;
                // k is at most the size of the group.
                binomial_ratio(wrong, group_size as i64, k as i64).unwrap_or(0.0)
            });
            let passed: f64 = fails.map(|fail| 1.0 - fail).sum();
            passed / right.len().max(1) as f64
        };
        let powers = std::iter::successors(Some(1), |k| Some(k * 2));
        let mut ks: Vec<usize> = powers.take_while(|k| *k < group_size).collect();
        ks.push(group_size);
        PassAt(ks.into_iter().map(|k| (k, estimate(k))).collect())
    }

    /// The estimate for `k`, where there is one.
    pub fn at(&self, k: usize) -> Option<f64> {
        let found = self.0.iter().find(|(other, _)| *other == k);
        found.map(|(_, estimate)| *estimate)
    }

    /// The largest k and its estimate.
    pub fn last(&self) -> Option<(usize, f64)> {
        self.0.last().copied()
    }
}

impl Serialize for PassAt {
    /// `{"pass@1": 0.5, "pass@2": 0.7}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self.0.iter();
        serializer.collect_map(all.map(|(k, estimate)| (format!("pass@{k}"), estimate)))
    }
}

impl<'de> Deserialize<'de> for PassAt {
    /// The keys `pass@k` of a map, which may have others.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PassAt, D::Error> {
        let map = BTreeMap::<String, f64>::deserialize(deserializer)?;
        let all = map.into_iter();
        let named = |(name, estimate): (String, f64)| {
            let k = name.strip_prefix("pass@")?.parse().ok()?;
            Some((k, estimate))
        };
        let mut all: Vec<(usize, f64)> = all.filter_map(named).collect();
        all.sort_by_key(|(k, _)| *k);
        Ok(PassAt(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_is_the_share_of_draws_with_a_right_response() {
        // Two of four right: of the six pairs, one has none.
        let pass = PassAt::of(&[2, 0], 4);
        assert_eq!(pass.at(1), Some(0.25));
        assert!((pass.at(2).unwrap() - 5.0 / 12.0).abs() < 1e-15);
        assert_eq!(pass.at(4), Some(0.5));
        assert_eq!(pass.at(3), None);
    }

    #[test]
    fn the_largest_k_is_the_group_even_where_it_is_no_power_of_two() {
        let pass = PassAt::of(&[1], 6);
        let json = serde_json::to_value(&pass).unwrap();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(|key| &**key).collect();
        assert_eq!(keys, ["pass@1", "pass@2", "pass@4", "pass@6"]);
        assert_eq!(serde_json::from_value::<PassAt>(json).unwrap(), pass);
        assert_eq!(pass.last(), Some((6, 1.0)));
        assert_eq!(PassAt::of(&[1], 1).last(), Some((1, 1.0)));
    }
}
