//! Binomial coefficients and their ratios, computed by products and running sums of logarithms.
//!
//! Differences of `lgamma` have errors of up to 3e-10 at n = 100000. A product of k factors has 2 k rounding errors of half an
//! ulp each: at n = 100000, a relative error of 1e-11 in the worst case, and 1e-14 in practice, because they partly cancel.

/// The maximum number of factors in a product. Such a product takes a few milliseconds, and no batch has so many responses.
/// Without a bound, a script could request a product that takes hours, because the loop does not check the deadline.
const FACTORS: i64 = 1_000_000;

fn bounded(factors: i64) -> Result<(), String> {
    if factors > FACTORS {
        return Err(format!(
            "a product of {factors} factors is too long: at most {FACTORS} are possible"
        ));
    }
    Ok(())
}

/// Returns C(n, k): 0 if n < k or n < 0, and infinity if C(n, k) exceeds the range of f64. `k` must be at least 0.
pub(crate) fn binomial(n: i64, k: i64) -> f64 {
    if n < k || n < 0 {
        return 0.0;
    }
    let k = k.min(n - k);
    let mut product = 1.0f64;
    for i in 1..=k {
        // Exact while the numbers are below 2^53, because the product and the quotient C(n - k + i, i) are integers.
        let (factor, divisor) = ((n - k + i) as f64, i as f64);
        let next = product * factor / divisor;
        // Near the largest f64, `product * factor` exceeds the range, though the quotient need not.
        product = if next.is_infinite() {
            product / divisor * factor
        } else {
            next
        };
        // The loop multiplies at most about a thousand factors, because each factor at least doubles the product.
        if product.is_infinite() {
            break;
        }
    }
    product
}

/// Returns ln C(n, k), which is -infinity if n < k or n < 0. `k` must be at least 0. Fails if more than `FACTORS` factors are
/// needed.
pub fn ln_binomial(n: i64, k: i64) -> Result<f64, String> {
    if n < k || n < 0 {
        return Ok(f64::NEG_INFINITY);
    }
    let k = k.min(n - k);
    bounded(k)?;
    let mut product = 1.0f64;
    let mut logarithm = 0.0f64;
    for i in 1..=k {
        product *= (n - k + i) as f64 / i as f64;
        if product > 1e250 {
            logarithm += product.ln();
            product = 1.0;
        }
    }
    Ok(logarithm + product.ln())
}

/// Returns C(a, k) / C(b, k) for 0 <= k <= b, which is 0 if a < k or a < 0.
///
/// The result is the product of (a - i) / (b - i) over i < k. If 0 <= b - a < k, the equal ratio C(b - k, b - a) / C(b, b - a) is
/// computed instead, a product of only b - a factors. Fails if this product has more than `FACTORS` factors.
pub fn binomial_ratio(a: i64, b: i64, k: i64) -> Result<f64, String> {
    if a < k || a < 0 {
        return Ok(0.0);
    }
    let rest = b - a;
    let (top, factors) = if (0..k).contains(&rest) {
        (b - k, rest)
    } else {
        (a, k)
    };
    bounded(factors)?;
    Ok((0..factors)
        .map(|i| (top - i) as f64 / (b - i) as f64)
        .product())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C(n, k) exactly, as far as u128 goes.
    fn exact(n: u128, k: u128) -> u128 {
        (1..=k).fold(1, |product, i| product * (n - k + i) / i)
    }

    #[test]
    fn small_ones_are_exact_and_large_ones_to_1e_12() {
        for n in 0..60 {
            for k in 0..=n {
                let expected = exact(n, k) as f64;
                let got = binomial(n as i64, k as i64);
                assert!(
                    (got - expected).abs() <= 1e-14 * expected,
                    "C({n}, {k}): {got}"
                );
                assert!(
                    (ln_binomial(n as i64, k as i64).unwrap() - expected.ln()).abs()
                        <= 1e-13 * expected.ln().max(1.0)
                );
            }
        }
        assert_eq!(binomial(5, 6), 0.0);
        assert_eq!(binomial(-1, 0), 0.0);
        assert_eq!(binomial(100_000, 50_000), f64::INFINITY);
        assert_eq!(binomial(1030, 515), f64::INFINITY);
        for (n, expected) in [(1024, 4.481254552098971e306), (1029, 1.429820686498904e308)] {
            assert!((binomial(n, n / 2) / expected - 1.0).abs() < 1e-13, "{n}");
        }
        assert_eq!(ln_binomial(3, 4), Ok(f64::NEG_INFINITY));
    }

    /// ln of a product of rationals, as a compensated sum: independent of the code above.
    fn ln_ratio(a: i64, b: i64, k: i64) -> f64 {
        let (mut sum, mut lost) = (0.0f64, 0.0f64);
        for i in 0..k {
            let term = (-((b - a) as f64) / (b - i) as f64).ln_1p();
            let next = sum + (term - lost);
            lost = (next - sum) - (term - lost);
            sum = next;
        }
        sum
    }

    #[test]
    fn ratios_are_within_1e_12_up_to_a_hundred_thousand() {
        for (a, b, k) in [
            (99_999, 100_000, 50_000),
            (99_000, 100_000, 300),
            (60_000, 100_000, 700),
            (50_000, 100_000, 4),
            (99_990, 100_000, 99_000),
        ] {
            let expected = ln_ratio(a, b, k).exp();
            let got = binomial_ratio(a, b, k).unwrap();
            assert!(
                (got - expected).abs() <= 1e-12 * expected,
                "{a} {b} {k}: {got} {expected}"
            );
        }
        // ln C(100000, 50000) from exact integer arithmetic.
        let expected = 69_308.735_799_409_4;
        assert!((ln_binomial(100_000, 50_000).unwrap() - expected).abs() <= 1e-12 * expected);
    }

    #[test]
    fn degenerate_ratios() {
        assert_eq!(binomial_ratio(3, 4, 4), Ok(0.0));
        assert_eq!(
            binomial_ratio(-1, 3, 0),
            Ok(0.0),
            "no wrong response at all"
        );
        assert_eq!(binomial_ratio(0, 0, 0), Ok(1.0));
        assert_eq!(binomial_ratio(4, 4, 4), Ok(1.0));
    }

    #[test]
    fn endless_products_are_refused_and_short_ones_of_large_numbers_are_not() {
        let n = 1 << 53;
        assert_eq!(binomial(n, n / 2), f64::INFINITY);
        assert!(ln_binomial(n, n / 2).is_err());
        assert!(binomial_ratio(n - n / 4, n, n / 2).is_err());
        assert!(binomial_ratio(n, n - 1, n / 2).is_err());
        assert_eq!(binomial_ratio(3, n, n / 2), Ok(0.0));
        assert_eq!(binomial_ratio(n / 2, n, 1), Ok(0.5));
        assert_eq!(binomial_ratio(n - 1, n, n / 2), Ok(0.5));
        assert_eq!(ln_binomial(n, n - 1), Ok((n as f64).ln()));
    }
}
