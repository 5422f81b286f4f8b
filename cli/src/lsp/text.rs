//! A document's text, with positions as editors count them: the line, and the number of UTF-16 units in the line before the
//! position, both counted from 0. Paths and URIs are also converted here.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use advlab::diagnostic::Span;
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub(super) struct Text {
    pub(super) all: Arc<str>,
    /// The byte offset of each line.
    starts: Vec<usize>,
}

impl Text {
    pub(super) fn new(all: impl Into<Arc<str>>) -> Text {
        let all = all.into();
        let ends = all.match_indices('\n').map(|(at, _)| at + 1);
        let starts = [0].into_iter().chain(ends).collect();
        Text { all, starts }
    }

    /// Returns the byte offset of a line, and the line without its line break. Lines beyond the last line are empty.
    fn line(&self, line: usize) -> (usize, &str) {
        let start = |line| self.starts.get(line).map_or(self.all.len(), |start| *start);
        let text = &self.all[start(line)..start(line.saturating_add(1))];
        (start(line), text.trim_end_matches(['\r', '\n']))
    }

    /// Returns the byte offset of a position. A position outside of the text counts as the nearest position in the text.
    pub(super) fn byte(&self, place: &Value) -> usize {
        let number = |name: &str| place[name].as_u64().unwrap_or_default() as usize;
        let ((start, line), mut units) = (self.line(number("line")), number("character"));
        for (at, letter) in line.char_indices() {
            if units < letter.len_utf16() {
                return start + at;
            }
            units -= letter.len_utf16();
        }
        start + line.len()
    }

    pub(super) fn place(&self, byte: usize) -> Value {
        let line = self.starts.partition_point(|start| *start <= byte) - 1;
        let before = self.all[self.starts[line]..byte].encode_utf16();
        json!({ "line": line, "character": before.count() })
    }

    pub(super) fn range(&self, bytes: Range<usize>) -> Value {
        json!({ "start": self.place(bytes.start), "end": self.place(bytes.end) })
    }

    /// Returns the byte range of a diagnostic's span, which counts lines and characters from 1.
    pub(super) fn bytes(&self, span: &Span) -> Range<usize> {
        let (start, line) = self.line(span.line.saturating_sub(1));
        let mut ends = line.char_indices().map(|(at, _)| start + at);
        let first = ends.nth(span.column.saturating_sub(1));
        let end = ends.nth(span.length.saturating_sub(1));
        let last = start + line.len();
        first.unwrap_or(last)..end.unwrap_or(last)
    }
}

/// Returns the path in a document's URI or, for a document without a file, the URI itself.
pub(super) fn path_of(uri: &str) -> PathBuf {
    let mut parts = uri.strip_prefix("file://").unwrap_or(uri).split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        bytes.extend(&part.as_bytes()[if code.is_some() { 2 } else { 0 }..]);
    }
    let path = String::from_utf8_lossy(&bytes).into_owned();
    // On Windows, the path in a URI has the form `/C:/folder`.
    let is_drive = path.starts_with('/') && path[1..].contains(':') && cfg!(windows);
    PathBuf::from(&path[usize::from(is_drive)..])
}

pub(super) fn uri_of(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', "/");
    let escaped = path.bytes().map(|byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"/-_.~:".contains(&byte);
        if is_plain {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("file://{slash}{}", escaped.collect::<String>())
}
