//! The published formulas: every golden case, through the scripts in `stdlib/`, in f64 at 1e-9.
//!
//! `tests/golden/` holds a few cases of each method that always run; the whole set runs where `../shared` is there.

mod cases;
mod grpo;
mod grpo_lambda;
mod kl;
mod objectives;
mod pacs;
mod passk;
mod reinforce_pp;
mod table;

/// All cases once more, by libtorch.
#[cfg(feature = "torch")]
#[test]
fn all_by_libtorch() {
    cases::EXECUTOR.set(advlab::tensor::Executor::Torch);
    for test in [
        grpo::grpo_dr_grpo_rloo_and_maxrl,
        grpo_lambda::grpo_lambda,
        kl::kl_estimators,
        pacs::pacs,
        pacs::pacs_weights,
        passk::passk_analytic,
        passk::passk_curves,
        passk::passk_variants,
        passk::passk_of_draws,
        passk::pkpo,
        passk::pass_at_k_estimator,
        reinforce_pp::reinforce_pp,
        table::built_ins_give_their_golden_values,
        table::the_loss_of_no_tokens_is_zero,
    ] {
        test();
    }
}
