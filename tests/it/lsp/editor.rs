//! An editor without a window: a client in the server's own process.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use lsp_server::{Connection, Message, Notification, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

pub struct Editor {
    client: Option<Connection>,
    server: Option<JoinHandle<anyhow::Result<bool>>>,
    folder: PathBuf,
    _made: Option<TempDir>,
    last: i32,
    answers: HashMap<i32, Value>,
    /// The open document: its name, version and text.
    document: (String, i64, String),
    /// What was told: the document, its version, and the diagnostics.
    pub told: Vec<(String, i64, Vec<Value>)>,
    read: usize,
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.client = None;
        let ended = self.server.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

impl Editor {
    /// In a folder of its own, with settings.
    pub fn new(settings: Value) -> Editor {
        let made = tempfile::tempdir().unwrap();
        let mut editor = Editor::within(made.path(), settings);
        editor._made = Some(made);
        editor
    }

    pub fn within(folder: &Path, settings: Value) -> Editor {
        let (server, client) = Connection::memory();
        let mut editor = Editor {
            client: Some(client),
            server: Some(std::thread::spawn(move || advlab_cli::lsp::serve(server))),
            folder: folder.to_path_buf(),
            _made: None,
            last: 0,
            answers: HashMap::new(),
            document: Default::default(),
            told: Vec::new(),
            read: 0,
        };
        let root = format!("file://{}", folder.display());
        let about =
            json!({ "capabilities": {}, "rootUri": root, "initializationOptions": settings });
        assert!(editor.ask("initialize", about)["capabilities"].is_object());
        editor.tell("initialized", json!({}));
        editor
    }

    pub fn uri(&self, name: &str) -> String {
        format!("file://{}", self.folder.join(name).display())
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn give(&self, message: Message) {
        let client = self.client.as_ref().unwrap();
        client.sender.send(message).unwrap();
    }

    pub fn tell(&self, method: &str, params: Value) {
        let note = Notification::new(method.to_string(), params);
        self.give(Message::Notification(note));
    }

    pub fn send(&mut self, method: &str, params: Value) -> i32 {
        self.last += 1;
        let request = Request::new(self.last.into(), method.to_string(), params);
        self.give(Message::Request(request));
        self.last
    }

    /// Takes in a message.
    fn receive(&mut self) {
        let client = self.client.as_ref().unwrap();
        match client.receiver.recv().unwrap() {
            Message::Response(response) => {
                let id: i32 = response.id.to_string().parse().unwrap();
                let all = json!(response);
                let answer = all.get("result").unwrap_or(&all["error"]).clone();
                let twice = self.answers.insert(id, answer);
                assert!(twice.is_none(), "{id} has two answers");
            }
            Message::Notification(note) if note.method.ends_with("publishDiagnostics") => {
                let found = note.params["diagnostics"].as_array().unwrap().clone();
                let version = note.params["version"].as_i64().unwrap_or(-1);
                let uri = note.params["uri"].as_str().unwrap().to_string();
                self.told.push((uri, version, found));
            }
            _ => {}
        }
    }

    pub fn answer_to(&mut self, id: i32) -> Value {
        while !self.answers.contains_key(&id) {
            self.receive();
        }
        self.answers[&id].clone()
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer_to(id)
    }

    pub fn open(&mut self, name: &str, text: &str) {
        self.document = (name.to_string(), 1, text.to_string());
        let about = json!({ "uri": self.uri(name), "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": about }));
    }

    /// Replaces the text; what was told before is about another one.
    pub fn change(&mut self, text: &str) {
        self.document.1 += 1;
        self.document.2 = text.to_string();
        let about = json!({ "uri": self.uri(&self.document.0), "version": self.document.1 });
        let params = json!({ "textDocument": about, "contentChanges": [{ "text": text }] });
        self.tell("textDocument/didChange", params);
        self.read = self.told.len();
    }

    pub fn version(&self) -> i64 {
        self.document.1
    }

    pub fn has_news(&self) -> bool {
        self.read < self.told.len()
    }

    /// The next diagnostics of the open document's text.
    pub fn diagnostics(&mut self) -> Vec<Value> {
        loop {
            while !self.has_news() {
                self.receive();
            }
            let (uri, version, found) = &self.told[self.read];
            self.read += 1;
            if *uri == self.uri(&self.document.0) && *version == self.version() {
                return found.clone();
            }
        }
    }

    /// The answer at the place between two texts.
    pub fn at(&mut self, method: &str, before: &str, after: &str, more: Value) -> Value {
        let mut params = self.place(before, after);
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        self.ask(&format!("textDocument/{method}"), params)
    }

    pub fn send_at(&mut self, method: &str, before: &str, after: &str) -> i32 {
        let params = self.place(before, after);
        self.send(&format!("textDocument/{method}"), params)
    }

    /// The place between two texts, which may have a blank between them, as the cells of a table have none at their ends.
    fn place(&self, before: &str, after: &str) -> Value {
        let text = &self.document.2;
        let find = |both: String| Some(text.find(&both)? + both.len() - after.len());
        let [close, apart] = [format!("{before}{after}"), format!("{before} {after}")].map(find);
        let at = close.into_iter().chain(apart).min();
        let start = &text[..at.unwrap_or_else(|| panic!("{before}{after}"))];
        let line = start.rsplit('\n').next().unwrap_or_default();
        json!({
            "textDocument": { "uri": self.uri(&self.document.0) },
            "position": { "line": start.matches('\n').count(), "character": line.encode_utf16().count() },
            "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 99_999, "character": 0 } },
        })
    }

    fn byte(&self, place: &Value) -> usize {
        let number = |name: &str| place[name].as_u64().unwrap() as usize;
        let lines = self.document.2.split_inclusive('\n');
        let before: usize = lines.take(number("line")).map(str::len).sum();
        let units = self.document.2[before..].chars().scan(0, |units, letter| {
            *units += letter.len_utf16();
            Some((*units, letter.len_utf8()))
        });
        let letters = units.take_while(|(units, _)| *units <= number("character"));
        before + letters.map(|(_, bytes)| bytes).sum::<usize>()
    }

    fn bytes(&self, range: &Value) -> Range<usize> {
        self.byte(&range["start"])..self.byte(&range["end"])
    }

    /// The text at the range of a diagnostic.
    pub fn marked(&self, diagnostic: &Value) -> String {
        self.document.2[self.bytes(&diagnostic["range"])].to_string()
    }

    /// The text after an edit of the workspace; the message of an error.
    pub fn edited(&self, edit: &Value) -> String {
        if let Some(message) = edit["message"].as_str() {
            return message.to_string();
        }
        let mut text = self.document.2.clone();
        let uri = self.uri(&self.document.0);
        for edit in edit["changes"][uri].as_array().unwrap().iter().rev() {
            text.replace_range(
                self.bytes(&edit["range"]),
                edit["newText"].as_str().unwrap(),
            );
        }
        text
    }
}

/// How a server ends that gets these messages, and then no more.
pub fn session(messages: &str) -> String {
    let (server, client) = Connection::memory();
    let server = std::thread::spawn(move || advlab_cli::lsp::serve(server));
    for (id, message) in messages.split_whitespace().enumerate() {
        let document = json!({ "uri": "file:///a.rhai", "version": 1, "text": "fn advantage(batch, p) { loop { } }" });
        let params = json!({ "textDocument": document, "capabilities": {} });
        let note = |method: &str| {
            Message::Notification(Notification::new(method.to_string(), params.clone()))
        };
        let message = match message {
            "open" => note("textDocument/didOpen"),
            "exit" | "initialized" => note(message),
            method => {
                Message::Request(Request::new((id as i32).into(), method.to_string(), params))
            }
        };
        // A server that has ended takes no more.
        let _ = client.sender.send(message);
    }
    drop(client.sender);
    format!("{:?}", server.join().unwrap())
}
