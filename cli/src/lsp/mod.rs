//! The language server: diagnostics, values, completions and edits for an editor, about the text as it is typed.
//!
//! One thread reads the messages, and answers at once what the text alone answers; another one checks the texts (`check`). A
//! request about what a check finds waits for the check of the present text, so that no answer is about an older one.
//!
//! The protocol's JSON is read and written as such: the dozen shapes that are used take fewer lines than their types, which are
//! a crate that compiles for longer than this program's commands.

mod actions;
mod answers;
mod batch;
mod check;
mod code;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use advlab::script::{Builtin, Recipe};
use advlab::tensor::Guard;
use advlab::{Diagnostic, deep_stack};
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::batch::{Held, Tried};
use self::text::{Text, path_of, uri_of};

/// How long a text must be unchanged before it is checked.
const SETTLE: Duration = Duration::from_millis(150);
/// The most requests that wait for a check. Editors cancel those that they no longer need.
const WAITING: usize = 64;

/// Serves an editor until it says `exit` or closes the connection. Returns `false` if it did not say `shutdown` before.
///
/// # Errors
/// If `exit` comes before `initialize`, or if there is no folder for temporary files.
pub fn serve(connection: Connection) -> anyhow::Result<bool> {
    let (id, params) = connection.initialize_start()?;
    let folders = params["workspaceFolders"].as_array().into_iter().flatten();
    let folders = folders
        .map(|folder| &folder["uri"])
        .chain([&params["rootUri"]]);
    let sender = connection.sender.clone();
    let server = Server {
        // The error is ignored, because whoever closed the connection needs no answers.
        send: Box::new(move |message| drop(sender.send(message))),
        folders: folders.filter_map(Value::as_str).map(path_of).collect(),
        settings: params["initializationOptions"].clone(),
        can_refresh: params.pointer("/capabilities/workspace/inlayHint/refreshSupport")
            == Some(&true.into()),
        documents: BTreeMap::new(),
        serial: 0,
        waiting: Vec::new(),
        is_over: false,
        builtins: tempfile::Builder::new().prefix("advlab-").tempdir()?,
    };
    let about = json!({ "name": "advlab", "version": env!("CARGO_PKG_VERSION") });
    let about = json!({ "capabilities": answers::capabilities(), "serverInfo": about });
    server.respond(id, Ok(about));
    let shared = Shared {
        server: Mutex::new(server),
        bell: Condvar::new(),
    };
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| deep_stack::call(|| check::run(&shared)));
        let is_shut = shared.receive(&connection);
        let mut server = shared.lock();
        server.is_over = true;
        let documents = server.documents.values();
        documents.for_each(|document| document.guard.cancel());
        shared.bell.notify_one();
        is_shut
    }))
}

struct Shared {
    server: Mutex<Server>,
    /// Rings when a document may have to be checked.
    bell: Condvar,
}

struct Server {
    send: Box<dyn Fn(Message) + Send>,
    /// The workspace.
    folders: Vec<PathBuf>,
    /// `{ "batch": "rollouts.jsonl", "inlayHints": false }`.
    settings: Value,
    can_refresh: bool,
    /// By their URIs.
    documents: BTreeMap<String, Document>,
    /// The number of texts and requests so far.
    serial: u64,
    waiting: Vec<Request>,
    is_over: bool,
    /// The folder with the built-ins that were opened.
    builtins: TempDir,
}

struct Document {
    path: PathBuf,
    version: Value,
    /// Which of all texts this is.
    serial: u64,
    text: Text,
    /// When it is to be checked.
    due: Option<Instant>,
    /// Of the check that is running.
    guard: Arc<Guard>,
    /// The check of this text; `None` until it is done.
    checked: Option<Checked>,
    /// The batch of the last check, and the last text that compiled.
    tried: Option<Arc<Tried>>,
    recipe: Option<Recipe>,
}

struct Checked {
    diagnostics: Vec<Diagnostic>,
    /// What names and operators held, by the byte at which each begins.
    held: BTreeMap<usize, Held>,
}

type Answer = Result<Value, (ErrorCode, String)>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Server> {
        crate::lock(&self.server)
    }

    /// Answers messages until the end; whether `shutdown` was among them.
    fn receive(&self, connection: &Connection) -> bool {
        let mut is_shut = false;
        for message in &connection.receiver {
            let mut server = self.lock();
            match message {
                Message::Notification(note) if note.method == "exit" => return is_shut,
                Message::Notification(note) if !is_shut => {
                    server.notified(&note.method, &note.params);
                    self.bell.notify_one();
                }
                Message::Request(request) if is_shut => {
                    let error = (ErrorCode::InvalidRequest, "after shutdown".to_string());
                    server.respond(request.id, Err(error));
                }
                Message::Request(request) if request.method == "shutdown" => {
                    is_shut = true;
                    server.respond(request.id, Ok(Value::Null));
                }
                Message::Request(request) => server.requested(request),
                _ => {}
            }
        }
        is_shut
    }
}

impl Server {
    fn respond(&self, id: RequestId, answer: Answer) {
        (self.send)(Message::Response(match answer {
            Ok(value) => Response::new_ok(id, value),
            Err((code, message)) => Response::new_err(id, code as i32, message),
        }));
    }

    fn tell(&self, method: &str, params: Value) {
        let note = Notification::new(method.to_string(), params);
        (self.send)(Message::Notification(note));
    }

    /// The file of the setting, from the workspace.
    fn batch(&self) -> Option<PathBuf> {
        let path = self.settings["batch"]
            .as_str()
            .filter(|path| !path.is_empty())?;
        Some(
            self.folders
                .first()
                .map_or(path.into(), |folder| folder.join(path)),
        )
    }

    fn notified(&mut self, method: &str, params: &Value) {
        let document = &params["textDocument"];
        let uri = document["uri"].as_str().unwrap_or_default();
        let version = &document["version"];
        match method {
            "textDocument/didOpen" => {
                let text = document["text"].as_str().unwrap_or_default();
                self.set_text(uri, version, Text::new(text), Duration::ZERO);
            }
            "textDocument/didChange" => {
                let changes = params["contentChanges"].as_array().into_iter().flatten();
                if let Some(document) = self.documents.get(uri) {
                    let text = document.text.clone();
                    let text = changes.fold(text, |text, change| text.changed(change));
                    self.set_text(uri, version, text, SETTLE);
                }
            }
            "textDocument/didClose" => {
                let closed = self.documents.remove(uri);
                closed.iter().for_each(|closed| closed.guard.cancel());
                let gone = json!({ "uri": uri, "diagnostics": [] });
                self.tell("textDocument/publishDiagnostics", gone);
                self.answer_waiting();
            }
            "workspace/didChangeConfiguration" => {
                let settings = &params["settings"];
                self.settings = settings.get("advlab").unwrap_or(settings).clone();
                self.check_all();
            }
            // Other documents may import it.
            "textDocument/didSave" => {
                let all = self.documents.values_mut();
                all.for_each(|document| document.checked = None);
                self.check_all();
            }
            "$/cancelRequest" => {
                let id = &params["id"];
                let is_it = |request: &Request| json!(request.id) == *id;
                if let Some(at) = self.waiting.iter().position(is_it) {
                    self.refuse(at, ErrorCode::RequestCanceled);
                }
            }
            _ => {}
        }
    }

    /// Opens a document, or replaces its text.
    fn set_text(&mut self, uri: &str, version: &Value, text: Text, settle: Duration) {
        self.serial += 1;
        let old = self.documents.remove(uri);
        old.iter().for_each(|old| old.guard.cancel());
        let (tried, recipe) = old.map_or((None, None), |old| (old.tried, old.recipe));
        let document = Document {
            path: path_of(uri),
            version: version.clone(),
            serial: self.serial,
            text,
            due: Some(Instant::now() + settle),
            guard: Guard::unlimited(),
            checked: None,
            tried,
            recipe,
        };
        self.documents.insert(uri.to_string(), document);
    }

    /// Has all documents looked at now, except those that are being typed.
    fn check_all(&mut self) {
        for document in self.documents.values_mut() {
            document.due.get_or_insert_with(Instant::now);
        }
    }

    /// Answers a request, or has it wait for the check of the present text.
    fn requested(&mut self, request: Request) {
        if let Some(answer) = self.answer(&request) {
            return self.respond(request.id, answer);
        }
        self.waiting.push(request);
        if self.waiting.len() > WAITING {
            self.refuse(0, ErrorCode::ContentModified);
        }
    }

    fn refuse(&mut self, waiting: usize, code: ErrorCode) {
        let request = self.waiting.remove(waiting);
        self.respond(request.id, Err((code, "the text has changed".to_string())));
    }

    /// Answers the requests whose documents are checked or closed by now.
    fn answer_waiting(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.requested(request);
        }
    }

    /// The file of a script by the name of its source. For a built-in, one that a reader cannot change is made.
    fn uri_of_source(&self, source: &str) -> String {
        let Some(builtin) = Builtin::importable().find(|builtin| builtin.name == source) else {
            return uri_of(Path::new(source));
        };
        let file = self.builtins.path().join(format!("{source}.rhai"));
        // Errors are ignored: the editor then says that there is no such file.
        if std::fs::write(&file, builtin.text).is_ok()
            && let Ok(about) = std::fs::metadata(&file)
        {
            let mut rights = about.permissions();
            rights.set_readonly(true);
            let _ = std::fs::set_permissions(&file, rights);
        }
        uri_of(&file)
    }
}
