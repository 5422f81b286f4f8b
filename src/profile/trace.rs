//! A profile as a trace that browsers and Perfetto show: chrome://tracing's JSON, complete events by thread.

use serde_json::{Value, json};

use super::Measured;

impl Measured {
    /// A trace of the run that the table is of: hooks and stages, in microseconds.
    pub fn trace(&self) -> Value {
        let began = self.trial.parts.first().map_or(0.0, |part| part.started);
        let event = |name: &str, started: f64, seconds: f64, args: Value| {
            json!({
                "ph": "X", "pid": 1, "tid": 0, "name": name,
                "ts": 1e6 * (started - began), "dur": 1e6 * seconds, "args": args,
            })
        };
        let name = |what: &str, name: &str| json!({ "ph": "M", "pid": 1, "tid": 0, "name": what, "args": { "name": name } });
        let mut events = vec![
            name("process_name", self.recipe.name()),
            name("thread_name", "script"),
        ];
        let parts = self.trial.parts.iter();
        events.extend(parts.map(|part| event(part.name, part.started, part.seconds, json!({}))));
        for stage in &self.trial.stages {
            let operations = stage.operations.iter();
            let names: Vec<&str> = operations.map(|operation| operation.name).collect();
            let title = if stage.is_pass { "pass" } else { names[0] };
            let origin = stage.operations[0].origin.as_ref();
            let args = json!({
                "operations": names, "read": stage.read, "written": stage.written,
                "line": origin.filter(|_| !stage.is_pass).map(|origin| origin.line),
            });
            events.push(event(title, stage.started, stage.seconds, args));
        }
        json!({ "traceEvents": events, "displayTimeUnit": "ms" })
    }
}
