//! The published formulas: every golden case, through the scripts in `stdlib/`, in f64 at 1e-9.
//!
//! `tests/golden/` holds a few cases of each method that always run; the whole set runs where `../shared` is there.

mod cases;
mod grpo;
mod grpo_lambda;
mod kl;
mod losses;
mod pacs;
mod passk;
mod reinforce_pp;

/// All cases once more, by libtorch.
#[cfg(feature = "torch")]
#[test]
fn all_by_libtorch() {
    cases::EXECUTOR.set(advlab::tensor::Executor::Torch);
    for test in [
        grpo::grpo_dr_grpo_and_rloo,
        grpo_lambda::grpo_lambda,
        kl::kl_estimators,
        losses::losses_on_an_advantage,
        pacs::pacs,
        pacs::pacs_weights,
        passk::passk_analytic,
        passk::passk_curves,
        passk::pass_at_k_estimator,
        reinforce_pp::reinforce_pp,
    ] {
        test();
    }
}
