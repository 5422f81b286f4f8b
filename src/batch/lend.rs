//! Lends a batch's borrowed arrays to the script engine, which takes only values of any lifetime, and takes them back.
//!
//! Rhai's values are `'static`, a trainer's arrays are not. Copying one f32 column of 8192 x 4096 takes 70 ms on two
//! cores, a quarter of what GRPO takes on it in all, and twice the memory. A lease instead keeps a raw view behind a
//! lock; [`Batch::lend`] ends every lease before it returns, also when a panic passes through, so that a tensor that a
//! script has kept somewhere finds [`LeaseEnded`] and never freed memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use ndarray::{ArrayView2, Ix2, RawArrayView};

use super::column::{LeaseEnded, TokenStore, TokenValues};
use super::{Batch, Layout};

/// A view on lease: readable until [`Lease::end`].
pub(crate) struct Lease<T> {
    view: RwLock<Option<RawArrayView<T, Ix2>>>,
}

impl<T> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}

// SAFETY: a lease gives out shared references to `T` and nothing else, so it may be used from several threads, or move
// to one, exactly where `&T` may: where `T: Sync`. The raw pointer alone is what keeps these from being automatic.
unsafe impl<T: Sync> Send for Lease<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Lease<T> {}

impl<T> Lease<T> {
    /// The caller must end the lease before the view's lifetime does; [`Batch::lend`] alone calls this.
    fn new(view: &ArrayView2<'_, T>) -> Arc<Self> {
        Arc::new(Lease {
            view: RwLock::new(Some(view.raw_view())),
        })
    }

    pub(crate) fn read<R>(&self, f: impl FnOnce(ArrayView2<'_, T>) -> R) -> Result<R, LeaseEnded> {
        let view = self.view.read().unwrap_or_else(PoisonError::into_inner);
        let Some(raw) = view.as_ref() else {
            return Err(LeaseEnded);
        };
        // SAFETY: the raw view was made from an `ArrayView2` whose lifetime lasts until the lease has ended, and `end`
        // waits for this read lock. The lifetime given out is bounded by `f`, for which the lock is held.
        Ok(f(unsafe { (*raw).deref_into_view() }))
    }

    fn end(&self) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A batch as the script host holds it for the time of one call.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    pub(crate) layout: Arc<Layout>,
    pub(crate) responses: BTreeMap<Arc<str>, Arc<[f64]>>,
    pub(crate) tokens: BTreeMap<Arc<str>, TokenStore>,
    pub(crate) step: u64,
}

impl Lent {
    /// Whether token tensors that come from coarser ones alone are f64: as the token columns are, where there is one.
    pub(crate) fn is_f64(&self) -> bool {
        self.tokens.is_empty() || self.tokens.values().any(TokenStore::is_f64)
    }
}

/// Ends all leases when it is dropped.
#[derive(Default)]
struct Leases {
    of_f32: Vec<Arc<Lease<f32>>>,
    of_f64: Vec<Arc<Lease<f64>>>,
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.of_f32.iter().for_each(|lease| lease.end());
        self.of_f64.iter().for_each(|lease| lease.end());
    }
}

impl Batch<'_> {
    /// Calls `f` with the batch's columns free of lifetimes. Views can be read until `f` has returned.
    pub(crate) fn lend<R>(&self, f: impl FnOnce(&Lent) -> R) -> R {
        let mut leases = Leases::default();
        let tokens = self
            .tokens
            .iter()
            .map(|(name, values)| {
                let store = match values {
                    TokenValues::Shared32(array) => TokenStore::Shared32(array.clone()),
                    TokenValues::Shared64(array) => TokenStore::Shared64(array.clone()),
                    TokenValues::View32(view) => {
                        let lease = Lease::new(view);
                        leases.of_f32.push(lease.clone());
                        TokenStore::Lent32(lease)
                    }
                    TokenValues::View64(view) => {
                        let lease = Lease::new(view);
                        leases.of_f64.push(lease.clone());
                        TokenStore::Lent64(lease)
                    }
                    TokenValues::Compact(values) => TokenStore::Compact(values.clone()),
                };
                (name.clone(), store)
            })
            .collect();
        f(&Lent {
            layout: self.layout.clone(),
            responses: self.responses.clone(),
            tokens,
            step: self.step,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn a_kept_column_is_readable_during_the_loan_and_refused_after_it() {
        let owned = array![[1.0f32, 2.0], [3.0, 4.0]];
        let batch = Batch::builder()
            .groups([0, 0])
            .token("old_logp", owned.view())
            .build()
            .unwrap();
        let kept = batch.lend(|lent| {
            let store = lent.tokens["old_logp"].clone();
            let sum = store.read(|row| match row {
                super::super::Row::Padded32(view) => view.sum(),
                _ => panic!("a view stays a padded f32 array"),
            });
            assert_eq!(sum, Ok(10.0));
            store
        });
        drop(batch);
        drop(owned);
        assert_eq!(kept.read(|_| ()), Err(LeaseEnded));
    }

    #[test]
    fn a_panic_during_the_loan_ends_it_too() {
        let owned = array![[1.0f64]];
        let batch = Batch::builder()
            .groups([0])
            .token("old_logp", owned.view())
            .build()
            .unwrap();
        let kept = std::sync::Mutex::new(None);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            batch.lend(|lent| {
                *kept.lock().unwrap() = Some(lent.tokens["old_logp"].clone());
                panic!("a recipe went wrong");
            })
        }));
        assert!(outcome.is_err());
        let kept = kept.lock().unwrap().take().unwrap();
        assert_eq!(kept.read(|_| ()), Err(LeaseEnded));
    }
}
