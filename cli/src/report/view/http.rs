//! The little of HTTP that the page needs: a request a connection, read and answered within bounds, so that whoever is
//! slow or says too much loses their connection and nobody else's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use httparse::Status;

/// The most bytes of a request line with its headers.
const HEAD: usize = 8 << 10;
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take to be taken: it may go through a slow tunnel.
const SLOWEST: Duration = Duration::from_secs(30);

/// A request within the bounds.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// What stands behind the path's `?`.
    pub(super) query: String,
    host: String,
}

/// What is answered, but for the stream of events.
pub(super) struct Answer {
    pub(super) status: &'static str,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn json(value: &serde_json::Value) -> Answer {
        Answer {
            status: "200 OK",
            kind: "application/json",
            body: value.to_string().into_bytes(),
        }
    }

    /// A status that is no success, and what to do about it.
    pub(super) fn refusal(status: &'static str, help: &str) -> Answer {
        Answer {
            status,
            kind: "text/plain; charset=utf-8",
            body: format!("{status}\n{help}").into_bytes(),
        }
    }

    pub(super) fn send(&self, stream: &TcpStream) -> io::Result<()> {
        let length = format!("Content-Length: {}\r\n", self.body.len());
        let head = head(self.status, self.kind, &length);
        send(stream, &[head.as_bytes(), &self.body].concat())
    }
}

/// The beginning of an answer. Other sites must not frame, read or run what this one says.
pub(super) fn head(status: &str, kind: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Connection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Referrer-Policy: no-referrer\r\n\r\n"
    )
}

/// Sends all within [`SLOWEST`], however many pieces the other side takes it in.
pub(super) fn send(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + SLOWEST;
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time until `end`, which has not come.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    (!left.is_zero())
        .then_some(left)
        .ok_or_else(|| ErrorKind::TimedOut.into())
}

impl Request {
    /// Reads a request: `Err` has what it is refused with, `None` where nobody is there to be told.
    pub(super) fn read(stream: &TcpStream) -> Result<Request, Option<Answer>> {
        let refused = |status| Err(Some(Answer::refusal(status, "")));
        let end = Instant::now() + PATIENCE;
        let mut bytes = Vec::new();
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 64];
            let mut parsed = httparse::Request::new(&mut headers);
            match parsed.parse(&bytes) {
                Ok(Status::Complete(_)) => return Ok(Request::of(&parsed)),
                Ok(Status::Partial) if bytes.len() > HEAD => {
                    return refused("431 Request Header Fields Too Large");
                }
                Ok(Status::Partial) => more(stream, end, &mut bytes)?,
                Err(_) => return refused("400 Bad Request"),
            }
        }
    }

    fn of(parsed: &httparse::Request<'_, '_>) -> Request {
        let target = parsed.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = parsed.headers.iter();
        let host = headers.find(|header| header.name.eq_ignore_ascii_case("host"));
        let host = host.map_or(&b""[..], |header| header.value);
        Request {
            method: parsed.method.unwrap_or_default().to_string(),
            path: path.to_string(),
            query: query.to_string(),
            host: String::from_utf8_lossy(host).into_owned(),
        }
    }

    /// Whether the host is this machine under a name of its own: a site elsewhere whose name leads here is none. The port
    /// may be that of a tunnel.
    pub(super) fn is_local(&self) -> bool {
        let (name, port) = self.host.split_once(':').unwrap_or((&self.host, "80"));
        ["localhost", "127.0.0.1"].contains(&name) && port.parse::<u16>().is_ok()
    }

    /// Whether it has the token. The comparison takes as long for any token of that length.
    pub(super) fn has(&self, token: &str) -> bool {
        let given = value(&self.query, "token").unwrap_or_default();
        let pairs = given.bytes().zip(token.bytes());
        given.len() == token.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// The number of that name behind the `?`.
pub(super) fn number(query: &str, name: &str) -> Option<u64> {
    value(query, name)?.parse().ok()
}

fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(pairs.find(|(own, _)| *own == name)?.1)
}

/// Reads what has come.
fn more(mut stream: &TcpStream, end: Instant, bytes: &mut Vec<u8>) -> Result<(), Option<Answer>> {
    let mut piece = [0; 4096];
    let read = left(end).and_then(|left| {
        stream.set_read_timeout(Some(left))?;
        stream.read(&mut piece)
    });
    match read {
        Ok(0) => return Err(None),
        Ok(count) => bytes.extend(&piece[..count]),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(_) => return Err(Some(Answer::refusal("408 Request Timeout", ""))),
    }
    Ok(())
}
