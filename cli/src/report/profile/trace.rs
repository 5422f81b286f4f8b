//! A profile as a trace that browsers and Perfetto show: chrome://tracing's JSON, complete events by thread.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use super::Measured;
use advlab::tensor::profile::StageKind;

/// What a trace begins with.
const TRACE: &[u8; 16] = b"{\"traceEvents\":[";

impl Measured {
    /// A trace of the run that the table is of: hooks and stages, in microseconds.
    pub fn trace(&self) -> Value {
        let began = self.trial.parts.first().map_or(0.0, |part| part.started);
        // The hooks and their stages on the thread that calls them, the blocks of passes on those that computed them.
        let event = |thread: usize, name: &str, started: f64, seconds: f64, args: Value| {
            json!({
                "ph": "X", "pid": 1, "tid": thread, "name": name,
                "ts": 1e6 * (started - began), "dur": 1e6 * seconds, "args": args,
            })
        };
        let name = |what: &str, thread: usize, name: &str| json!({ "ph": "M", "pid": 1, "tid": thread, "name": what, "args": { "name": name } });
        let mut events = vec![
            name("process_name", 0, &self.name),
            name("thread_name", 0, "script"),
        ];
        let threads = 1..=rayon::current_num_threads();
        events.extend(threads.map(|one| name("thread_name", one, &format!("worker {one}"))));
        let parts = self.trial.parts.iter();
        events.extend(parts.map(|part| event(0, part.name, part.started, part.seconds, json!({}))));
        for stage in &self.trial.stages {
            let operations = stage.operations.iter();
            let names: Vec<&str> = operations.map(|operation| operation.name).collect();
            let title = match stage.kind {
                StageKind::Pass => "pass",
                StageKind::InFull(_) => names[0],
                StageKind::Padding => "padding",
            };
            let args = json!({
                "operations": names, "read": stage.read, "written": stage.written,
            });
            events.push(event(0, title, stage.started, stage.seconds, args));
            let blocks = stage.blocks.iter();
            events.extend(blocks.map(|block| {
                event(
                    1 + block.thread,
                    "block",
                    block.started,
                    block.seconds,
                    json!({}),
                )
            }));
        }
        json!({ "traceEvents": events })
    }
}

/// Whether there is nothing at a path, or a trace, which another one may replace.
pub(super) fn may_replace(path: &Path) -> bool {
    let Ok(mut file) = File::open(path) else {
        return !path.exists();
    };
    let mut start = [0; TRACE.len()];
    file.read_exact(&mut start).is_ok() && start == *TRACE
}
