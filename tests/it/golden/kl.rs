//! The estimators of the KL divergence.

use advlab::batch::Batch;
use advlab::script::Host;

use super::cases::{cases, close, numbers};

/// The estimators of `kl`, clamped and not, and their derivatives by logp.
#[test]
fn kl_estimators() {
    for case in cases("baselines.json") {
        if case["method"] != "kl_estimator" {
            continue;
        }
        let (inputs, expected) = (&case["inputs"], &case["expected"]);
        let logp = numbers(&inputs["logp"]);
        let batch = Batch::builder()
            .groups(vec![0; logp.len()])
            .ragged("old_logp", logp.iter().map(|&x| vec![x]))
            .ragged(
                "ref_logp",
                numbers(&inputs["logp_ref"]).iter().map(|&x| vec![x]),
            )
            .build()
            .expect("a golden case's batch");
        let host = Host::new();
        let values = |text: &str| match host.evaluate(text, &batch) {
            Ok(answer) => answer.numbers(),
            Err(error) => panic!("{}", error.render(false)),
        };
        for kind in ["k1", "k2", "k3"] {
            let kl = format!("kl(batch.old_logp, batch.ref_logp, \"{kind}\")");
            close(&values(&kl), &numbers(&expected[kind]), kind);
            let clamped = format!("{kl}.clamp(-10, 10)");
            close(
                &values(&clamped),
                &numbers(&expected[format!("{kind}_clamp10")]),
                &clamped,
            );
            let gradient = format!("grad({kl}.sum(\"batch\"), batch.old_logp)");
            close(
                &values(&gradient),
                &numbers(&expected[format!("grad_{kind}")]),
                &gradient,
            );
        }
    }
}
