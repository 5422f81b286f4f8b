//! A small HTTP server on the loopback interface. It answers whoever has the token, within bounds: a client that is slow, sends
//! too much or opens many connections loses its own and nobody else's.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};

use super::site::{Site, random};
use crate::wrong;
use advlab::diagnostic::Diagnostics;

/// The port if none is given.
const PORT: u16 = 8765;
/// The most connections of a kind at once, each on a thread that mostly waits; a page has two or three.
const CONNECTIONS: usize = 32;
/// How often an open page is sent what is new.
pub(super) const UPDATE: Duration = Duration::from_millis(200);
/// A closed page is noticed after so many updates without news.
const QUIET: u32 = 50;
/// The most bytes of a request line with its headers, and the time that they may take to arrive.
const HEAD: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that an answer may take to be received: it may go through a slow tunnel.
const SLOWEST: Duration = Duration::from_secs(30);

/// A server that is listening.
pub struct Server {
    listener: TcpListener,
    token: String,
    site: Site,
    /// Connections whose request has not shown the token: other users of the machine can make these.
    strangers: Connections,
    /// Requests with the token, among them the streams of events, which last.
    users: Connections,
}

/// Open connections of one kind, the oldest first.
#[derive(Default)]
struct Connections(Mutex<VecDeque<Arc<TcpStream>>>);

impl Connections {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<TcpStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; of too many, the oldest is closed.
    fn add(&self, stream: &Arc<TcpStream>) {
        let mut all = self.lock();
        all.push_back(stream.clone());
        if all.len() > CONNECTIONS
            && let Some(oldest) = all.pop_front()
        {
            // The other side may have closed it already.
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }

    fn remove(&self, stream: &Arc<TcpStream>) {
        self.lock().retain(|one| !Arc::ptr_eq(one, stream));
    }
}

impl Server {
    /// Listens on a port of 127.0.0.1; if none is given, on the usual one, or on a free one if that is taken.
    pub fn bind(site: Site, port: Option<u16>) -> Result<Server, Diagnostics> {
        let on = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            Some(port) => on(port),
            None => on(PORT).or_else(|_| on(0)),
        };
        let listener = listener.map_err(|error| {
            let port = port.unwrap_or(PORT);
            let message = format!("cannot listen on 127.0.0.1:{port}: {error}");
            wrong(message, "choose another with --port; 0 is any that is free")
        })?;
        Ok(Server {
            listener,
            token: random()?,
            site,
            strangers: Connections::default(),
            users: Connections::default(),
        })
    }

    /// The address of the page, with the token: all users of a machine reach its ports.
    pub fn address(&self) -> io::Result<String> {
        let address = self.listener.local_addr()?;
        Ok(format!("http://{address}/?token={}", self.token))
    }

    /// Answers until the process ends.
    pub fn serve(self) {
        let server = Arc::new(self);
        for stream in server.listener.incoming() {
            let Ok(stream) = stream else {
                // Out of file handles or memory, which may pass.
                thread::sleep(UPDATE);
                continue;
            };
            let stream = Arc::new(stream);
            server.strangers.add(&stream);
            let (own, connection) = (server.clone(), stream.clone());
            let answer = move || {
                // A client that left cannot be told.
                let _ = own.answer(&connection);
                own.strangers.remove(&connection);
                own.users.remove(&connection);
            };
            if thread::Builder::new().spawn(answer).is_err() {
                server.strangers.remove(&stream);
            }
        }
    }

    fn answer(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        let refuse = |status: &str, help: &str| {
            let body = format!("{status}\n{help}");
            send(stream, status, "text/plain; charset=utf-8", &body)
        };
        let request = match Request::read(stream) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(status) => return refuse(status, ""),
        };
        if !request.is_local() || !request.has(&self.token) {
            let help = "open the whole address that advlab printed, with its token\n";
            return refuse("403 Forbidden", help);
        }
        self.strangers.remove(stream);
        self.users.add(stream);
        if request.method != "GET" {
            return refuse("405 Method Not Allowed", "");
        }
        match &*request.path {
            "/events" => events(stream, &self.site),
            "/" => send(
                stream,
                "200 OK",
                "text/html; charset=utf-8",
                &self.site.page(),
            ),
            path => match self.site.find(path, &request.query) {
                Some(found) => send(stream, "200 OK", "application/json", &found.to_string()),
                None => refuse("404 Not Found", ""),
            },
        }
    }
}

/// Sends a page what is new for as long as it is open.
fn events(stream: &TcpStream, site: &Site) -> io::Result<()> {
    send_bytes(stream, head("200 OK", "text/event-stream", "").as_bytes())?;
    let (mut sent, mut quiet) = (Vec::new(), 0);
    loop {
        match site.news(&mut sent) {
            Some(news) => send_bytes(stream, format!("data: {news}\n\n").as_bytes())?,
            None if quiet == QUIET => send_bytes(stream, b":\n\n")?,
            None => {
                quiet += 1;
                thread::sleep(UPDATE);
                continue;
            }
        }
        quiet = 0;
        thread::sleep(UPDATE);
    }
}

fn send(stream: &TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = format!("Content-Length: {}\r\n", body.len());
    let head = head(status, kind, &length);
    send_bytes(stream, format!("{head}{body}").as_bytes())
}

/// The beginning of an answer. Other sites must not frame, read or run it.
fn head(status: &str, kind: &str, more: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Connection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Referrer-Policy: no-referrer\r\n\r\n"
    )
}

/// Sends all within [`SLOWEST`], in however many pieces the other side receives it.
fn send_bytes(mut stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
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

/// The time until `end`; an error once it has come.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    let left = (!left.is_zero()).then_some(left);
    left.ok_or_else(|| ErrorKind::TimedOut.into())
}

/// A request within the bounds.
struct Request {
    method: String,
    path: String,
    /// What follows the path's `?`.
    query: String,
    host: String,
}

impl Request {
    /// Reads a request; `None` if the client left. The error is the status with which it is refused.
    fn read(mut stream: &TcpStream) -> Result<Option<Request>, &'static str> {
        let end = Instant::now() + PATIENCE;
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let mut headers = [EMPTY_HEADER; 64];
            let mut parsed = httparse::Request::new(&mut headers);
            match parsed.parse(&bytes) {
                Ok(Status::Complete(_)) => return Ok(Some(Request::of(&parsed))),
                Ok(Status::Partial) if bytes.len() > HEAD => {
                    return Err("431 Request Header Fields Too Large");
                }
                Ok(Status::Partial) => {}
                Err(_) => return Err("400 Bad Request"),
            }
            let read = left(end).and_then(|left| {
                stream.set_read_timeout(Some(left))?;
                stream.read(&mut piece)
            });
            match read {
                Ok(0) => return Ok(None),
                Ok(count) => bytes.extend(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err("408 Request Timeout"),
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

    /// Whether the host is a name of this machine, not that of a site whose name leads here. The port may be that of a tunnel.
    fn is_local(&self) -> bool {
        let (name, port) = self.host.split_once(':').unwrap_or((&self.host, "80"));
        ["localhost", "127.0.0.1"].contains(&name) && port.parse::<u16>().is_ok()
    }

    /// Whether it has the token. The comparison takes as long for any token of that length.
    fn has(&self, token: &str) -> bool {
        let given = parameter(&self.query, "token").unwrap_or_default();
        let pairs = given.bytes().zip(token.bytes());
        given.len() == token.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// A parameter of a query.
pub(super) fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(pairs.find(|(own, _)| *own == name)?.1)
}
