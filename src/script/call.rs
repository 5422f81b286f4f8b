//! What the hooks of one step share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hmac_sha256::Hash as Sha256;

use super::reports::Reports;
use crate::tensor::Guard;

/// What the hooks of one step share: their bounds, their randomness, and what they report.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) guard: Arc<Guard>,
    pub(super) step: u64,
    pub(super) seed: u64,
    draws: AtomicU64,
    reports: Mutex<Reports>,
}

impl Call {
    pub(super) fn new(guard: Arc<Guard>, step: u64, seed: u64) -> Arc<Self> {
        Arc::new(Call {
            guard,
            step,
            seed,
            draws: AtomicU64::new(0),
            reports: Mutex::default(),
        })
    }

    pub(super) fn report(&self, f: impl FnOnce(&mut Reports)) {
        f(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn take_reports(&self) -> Reports {
        std::mem::take(&mut self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of the next random tensor: from the run's seed, the step, and how many were drawn before.
    pub(super) fn next_key(&self) -> u64 {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let mut hash = Sha256::new();
        for part in [self.seed, self.step, draw] {
            hash.update(part.to_le_bytes());
        }
        let digest = hash.finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |key, &byte| key << 8 | u64::from(byte))
    }
}
