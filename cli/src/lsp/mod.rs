//! The language server: diagnostics, values, completions and edits for an editor, about the text as it is typed.
//!
//! One thread reads the messages, and immediately answers requests that need only the text; another thread checks the texts
//! (`check`). A request that needs the result of a check waits for the check of the current text, so that no answer is about an
//! older text.
//!
//! The protocol's messages are read and written as plain JSON values, because the crate with their types takes longer to compile
//! than the commands of this program, and only a dozen kinds of messages are used.

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
use anyhow::Context;
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::batch::{Held, Tried};
use self::text::{Text, path_of, uri_of};

/// How long a text must be unchanged before it is checked.
const SETTLE: Duration = Duration::from_millis(150);
/// The largest number of requests that wait for a check. Editors cancel requests that they no longer need.
const WAITING: usize = 64;

/// Serves an editor until the editor sends `exit` or closes the connection. Returns `false` if the editor did not send `shutdown`
/// before that.
///
/// # Errors
/// If `exit` comes before `initialize`, or if there is no folder for temporary files.
pub fn serve(connection: Connection) -> anyhow::Result<bool> {
    let (id, params) = connection
        .initialize_start()
        .context("the editor left before `initialize`")?;
    let folders = params["workspaceFolders"].as_array().into_iter().flatten();
    let roots = folders
        .map(|folder| &folder["uri"])
        .chain([&params["rootUri"]]);
    let sender = connection.sender.clone();
    let server = Server {
        // The error is ignored, because whoever closed the connection needs no answers.
        send: Box::new(move |message| drop(sender.send(message))),
        folders: roots.filter_map(Value::as_str).map(path_of).collect(),
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
    let answer = json!({ "capabilities": answers::capabilities(), "serverInfo": about });
    server.respond(id, Ok(answer));
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
    /// Wakes the checking thread when a document may have to be checked.
    bell: Condvar,
}

struct Server {
    send: Box<dyn Fn(Message) + Send>,
    /// The folders of the workspace.
    folders: Vec<PathBuf>,
    /// The settings, such as `{ "batch": "rollouts.jsonl", "inlayHints": false }`.
    settings: Value,
    can_refresh: bool,
    /// The open documents by their URIs.
    documents: BTreeMap<String, Document>,
    /// The number of texts and requests so far.
    serial: u64,
    waiting: Vec<Request>,
    is_over: bool,
    /// The folder with the files of built-ins that the user has opened.
    builtins: TempDir,
}

struct Document {
    path: PathBuf,
    version: Value,
    /// The number of this text among all texts and requests.
    serial: u64,
    text: Text,
    /// When the text is to be checked, if a check is still due.
    due: Option<Instant>,
    /// The guard of the check that is running.
    guard: Arc<Guard>,
    /// The check of this text; `None` until it is done.
    checked: Option<Checked>,
    /// The batch of the last check; `recipe` is the last text that compiled.
    tried: Option<Arc<Tried>>,
    recipe: Option<Recipe>,
}

struct Checked {
    diagnostics: Vec<Diagnostic>,
    /// The values of names and operators, by the byte at which each name or operator begins.
    held: BTreeMap<usize, Held>,
}

type Answer = Result<Value, (ErrorCode, String)>;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Server> {
        crate::lock(&self.server)
    }

    /// Answers messages until the connection ends. Returns whether `shutdown` was among the messages.
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
                Message::Request(request) if is_shut || request.method == "initialize" => {
                    let why = "`initialize` comes only once, and no request after `shutdown`";
                    let error = (ErrorCode::InvalidRequest, why.to_string());
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

    /// The path that the setting `batch` names, relative to the workspace.
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
                let settings = settings.get("advlab").unwrap_or(settings);
                // Editors without settings for the server send null.
                if settings.is_object() {
                    self.settings = settings.clone();
                }
                self.check_all();
            }
            // Other documents may import the saved script.
            "textDocument/didSave" => {
                self.serial += 1;
                for document in self.documents.values_mut() {
                    // The check that is running may have read the script before the save.
                    document.guard.cancel();
                    (document.serial, document.checked) = (self.serial, None);
                }
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

    /// Requests a check of all documents now, except of documents that are being edited.
    fn check_all(&mut self) {
        for document in self.documents.values_mut() {
            document.due.get_or_insert_with(Instant::now);
        }
    }

    /// Answers a request, or keeps it until the current text is checked.
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

    /// Answers the waiting requests whose documents have been checked or closed.
    fn answer_waiting(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.requested(request);
        }
    }

    /// The URI of a script's file, by the name of its source. For a built-in, a read-only file is written.
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
