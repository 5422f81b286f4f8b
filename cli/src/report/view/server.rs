//! A small HTTP server on the loopback interface. It serves only clients with the token. Connections are closed if a client is
//! slow or sends too much, or if there are too many unauthenticated connections; other authenticated clients are not affected.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Header, Status};

use super::{Site, parameter, random};
use crate::{Result, lock, wrong};

const PORT: u16 = 8765;
/// The largest number of unauthenticated connections, which is limited because each connection occupies a waiting thread.
const STRANGERS: usize = 32;
/// The limits of a request's head: the size, the number of headers, and the time after which an incomplete head, or a client
/// that sends nothing, is refused.
const HEAD: usize = 8 << 10;
const HEADERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest time that the client may take to receive a part of a response; it is long because a tunnel may be slow.
const SLOWEST: Duration = Duration::from_secs(30);

pub struct Server {
    listener: TcpListener,
    token: String,
    site: Site,
    /// The unauthenticated connections, the oldest first; their number is limited because any local user can open connections.
    strangers: Mutex<VecDeque<Arc<TcpStream>>>,
}

/// The status, the media type and the body of a response.
type HttpResponse = (&'static str, &'static str, String);

impl Server {
    /// Listens on a port of 127.0.0.1; if no port is given, on 8765, or on a free port if 8765 is in use.
    pub fn bind(site: Site, port: Option<u16>) -> Result<Server> {
        let on = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            Some(port) => on(port),
            None => on(PORT).or_else(|_| on(0)),
        };
        let listener = listener.map_err(|error| {
            let port = port.unwrap_or(PORT);
            let message = format!("cannot listen on 127.0.0.1:{port}: {error}");
            wrong(
                message,
                "choose another port with --port; 0 means any free port",
            )
        })?;
        Ok(Server {
            listener,
            token: random()?,
            site,
            strangers: Mutex::default(),
        })
    }

    /// Returns the address of the page. The address includes the token, because every user of the machine can reach the port.
    pub fn address(&self) -> io::Result<String> {
        let address = self.listener.local_addr()?;
        Ok(format!("http://{address}/?token={}", self.token))
    }

    /// Answers requests until the process ends.
    pub fn serve(self) {
        let server = Arc::new(self);
        for stream in server.listener.incoming() {
            let Ok(stream) = stream else {
                // The loop waits, because a lack of file handles or memory may be temporary.
                thread::sleep(Duration::from_millis(200));
                continue;
            };
            let stream = Arc::new(stream);
            let mut strangers = lock(&server.strangers);
            strangers.push_back(stream.clone());
            if strangers.len() > STRANGERS
                && let Some(oldest) = strangers.pop_front()
            {
                // The error is ignored, because the client may have closed the connection already.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            drop(strangers);
            let (own, connection) = (server.clone(), stream.clone());
            let answer = move || {
                // The error is ignored, because a client that has disconnected cannot receive an error.
                let _ = own.answer(&connection);
                own.forget(&connection);
            };
            if thread::Builder::new().spawn(answer).is_err() {
                server.forget(&stream);
            }
        }
    }

    /// Removes a connection that is closed or authenticated from the list of unauthenticated connections.
    fn forget(&self, stream: &Arc<TcpStream>) {
        lock(&self.strangers).retain(|one| !Arc::ptr_eq(one, stream));
    }

    fn answer(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        let (status, kind, body) = match head(stream) {
            Err(status) => refusal(status, ""),
            Ok(None) => return Ok(()),
            Ok(Some(head)) => self.found(&head, stream),
        };
        // These headers stop other sites from framing the HTTP response, reading it, or running it as a script.
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\n\r\n",
            body.len()
        );
        let mut stream: &TcpStream = stream;
        stream.set_write_timeout(Some(SLOWEST))?;
        stream.write_all((head + body.as_str()).as_bytes())
    }

    /// Returns the response to a request, given the bytes of the request's head.
    fn found(&self, head: &[u8], stream: &Arc<TcpStream>) -> HttpResponse {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        // The error is ignored, because the function `head` has already parsed these bytes without an error.
        let _ = request.parse(head);
        let target = request.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let is_host = |header: &&Header<'_>| header.name.eq_ignore_ascii_case("host");
        let host = request.headers.iter().find(is_host);
        let host = host.map_or(&b""[..], |header| header.value);
        let token = parameter(query, "token").unwrap_or_default();
        if !is_local(&String::from_utf8_lossy(host)) || !is_equal(token, &self.token) {
            let help = "open the whole address that advlab printed, with its token\n";
            return refusal("403 Forbidden", help);
        }
        self.forget(stream);
        if request.method != Some("GET") {
            return refusal("405 Method Not Allowed", "");
        }
        if path == "/" {
            let page = self.site.page(&serde_json::json!({}));
            return ("200 OK", "text/html; charset=utf-8", page);
        }
        match self.site.find(path, query) {
            Some(found) => ("200 OK", "application/json", found.to_string()),
            None => refusal("404 Not Found", ""),
        }
    }
}

fn refusal(status: &'static str, help: &str) -> HttpResponse {
    let body = format!("{status}\n{help}");
    (status, "text/plain; charset=utf-8", body)
}

/// Reads the head of a request. Returns `None` if the client disconnected. The error is the status with which the request is
/// refused.
fn head(mut stream: &TcpStream) -> Result<Option<Vec<u8>>, &'static str> {
    const LATE: &str = "408 Request Timeout";
    let started = Instant::now();
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(PATIENCE)).map_err(|_| LATE)?;
    loop {
        match httparse::Request::new(&mut [EMPTY_HEADER; HEADERS]).parse(&bytes) {
            Ok(Status::Complete(_)) => return Ok(Some(bytes)),
            Ok(Status::Partial) if bytes.len() > HEAD => {
                return Err("431 Request Header Fields Too Large");
            }
            Ok(Status::Partial) if started.elapsed() > PATIENCE => return Err(LATE),
            Ok(Status::Partial) => {}
            Err(_) => return Err("400 Bad Request"),
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(count) => bytes.extend(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(LATE),
        }
    }
}

/// Returns whether a host is a name of this machine rather than the name of a site that resolves to this machine. Any port is
/// accepted, because a tunnel may use another port than the server.
fn is_local(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    ["localhost", "127.0.0.1"].contains(&name) && port.parse::<u16>().is_ok()
}

/// Compares tokens in a time that depends only on their lengths, so that the time does not reveal how much of a guess is right.
fn is_equal(given: &str, token: &str) -> bool {
    let pairs = given.bytes().zip(token.bytes());
    given.len() == token.len() && pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
