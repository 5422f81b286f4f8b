//! A profile as JSON: all figures, in seconds and bytes.

use serde_json::{Value, json};

use super::{InFull, Measured};
use advlab::script::Version;
use advlab::tensor::profile::StageKind;

impl Measured {
    /// All figures, in seconds and bytes.
    pub fn json(&self) -> Value {
        let trial = &self.trial;
        let in_full = &self.in_full;
        let stages = trial.stages.iter().filter_map(|stage| {
            let kind = match stage.kind {
                StageKind::Pass => "pass",
                StageKind::Padding => "padding",
                StageKind::InFull(_) => return None,
            };
            let operations = stage.operations.iter();
            let names: Vec<&str> = operations.map(|operation| operation.name).collect();
            Some(json!({
                "kind": kind, "seconds": stage.seconds, "read": stage.read,
                "written": stage.written, "operations": names,
            }))
        });
        let whole = in_full.iter().map(|one| {
            json!({
                "kind": "in full", "seconds": one.seconds, "read": one.read,
                "written": one.written, "operations": [one.name], "line": one.place.as_ref().map(|place| place.1),
                "script": one.place.as_ref().and_then(|place| place.0.as_deref()),
                "times": one.times, "why": one.why,
            })
        });
        let stages = stages.chain(whole);
        let fallbacks = in_full.iter().filter_map(InFull::fallback);
        let lines = self.lines.iter().map(|line| {
            json!({
                "script": line.source.as_deref(), "line": line.number, "text": line.text,
                "seconds": line.seconds, "read": line.read, "written": line.written,
            })
        });
        let map_groups = trial.map_groups.iter().map(|call| {
            json!({
                "script": call.origin.source.as_deref(), "line": call.origin.line,
                "by_one_call": call.by_group.is_none(), "told": call.to_string(),
            })
        });
        let seconds = |runs: &[f64]| (!runs.is_empty()).then(|| json!({ "seconds": runs }));
        json!({
            "recipe": self.name,
            "version": self.version.as_ref().map(Version::as_str),
            "responses": self.layout.responses(),
            "groups": self.layout.groups(),
            "tokens": self.layout.tokens(),
            "threads": rayon::current_num_threads(),
            "script": seconds(&self.fused),
            "script_new_array": seconds(&self.fused_anew),
            "naive": seconds(&self.naive),
            "native": seconds(&self.native),
            "stages": stages.collect::<Vec<_>>(),
            "lines": lines.collect::<Vec<_>>(),
            "in_script": trial.in_script(),
            "fell_back": fallbacks.collect::<Vec<_>>(),
            "map_groups": map_groups.collect::<Vec<_>>(),
            "peak_bytes": trial.peak,
            "bandwidth": self.bandwidth,
        })
    }
}
