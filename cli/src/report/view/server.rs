//! Listens on the loopback interface, answers whoever has the token, and holds a bounded number of connections.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::http::{Answer, Request, head, send};
use super::site::{Site, random};
use advlab::diagnostic::{Diagnostic, Diagnostics};

/// Where it is unless it is told otherwise.
const PORT: u16 = 8765;
/// The most connections of a kind at once, each on a thread that mostly waits; a page has two or three.
const CONNECTIONS: usize = 32;
/// How often a page that looks on is told what is new.
pub(super) const UPDATE: Duration = Duration::from_millis(200);
/// A page that is gone is noticed after so many updates without news.
const QUIET: u32 = 50;

/// A server that is listening.
pub struct Server {
    listener: TcpListener,
    token: String,
    site: Site,
    /// Connections whose request has not shown the token: other users of the machine can make these.
    strangers: Open,
    /// Requests with the token, among them the streams of events, which last.
    users: Open,
}

/// Open connections of one kind, the oldest first.
#[derive(Default)]
struct Open(Mutex<VecDeque<Arc<TcpStream>>>);

impl Open {
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
            // One that is closed already has gone by itself.
            let _ = oldest.shutdown(Shutdown::Both);
        }
    }

    fn remove(&self, stream: &Arc<TcpStream>) {
        self.lock().retain(|one| !Arc::ptr_eq(one, stream));
    }
}

impl Server {
    /// Listens on a port of 127.0.0.1; on the usual one, or another where that is taken, if none is given.
    ///
    /// # Errors
    /// [`Diagnostics`] where the port cannot be had.
    pub fn bind(site: Site, port: Option<u16>) -> Result<Server, Diagnostics> {
        let on = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let listener = match port {
            Some(port) => on(port),
            None => on(PORT).or_else(|_| on(0)),
        };
        let listener = listener.map_err(|error| {
            let port = port.unwrap_or(PORT);
            Diagnostic::error(format!("cannot listen on 127.0.0.1:{port}: {error}"))
                .with_help("choose another with --port; 0 is any that is free")
        })?;
        Ok(Server {
            listener,
            token: random()?,
            site,
            strangers: Open::default(),
            users: Open::default(),
        })
    }

    /// The address of the page, with the token: without it nothing is shown, as all users of a machine reach its ports.
    ///
    /// # Errors
    /// The system's, where it does not know it.
    pub fn address(&self) -> io::Result<String> {
        let address: SocketAddr = self.listener.local_addr()?;
        Ok(format!("http://{address}/?token={}", self.token))
    }

    /// Answers until the process ends.
    pub fn serve(self) {
        let server = Arc::new(self);
        for stream in server.listener.incoming() {
            let Ok(stream) = stream else {
                // Out of files or memory: that passes, or the run has other worries.
                thread::sleep(UPDATE);
                continue;
            };
            let stream = Arc::new(stream);
            server.strangers.add(&stream);
            let answer = {
                let (server, stream) = (server.clone(), stream.clone());
                move || {
                    // Whoever left cannot be told.
                    let _ = server.answer(&stream);
                    server.strangers.remove(&stream);
                    server.users.remove(&stream);
                }
            };
            if thread::Builder::new().spawn(answer).is_err() {
                // Without a thread for it, the connection is closed.
                server.strangers.remove(&stream);
            }
        }
    }

    fn answer(&self, stream: &Arc<TcpStream>) -> io::Result<()> {
        let request = match Request::read(stream) {
            Ok(request) => request,
            Err(None) => return Ok(()),
            Err(Some(refusal)) => return refusal.send(stream),
        };
        if !request.is_local() || !request.has(&self.token) {
            let help = "open the whole address that advlab printed, with its token\n";
            return Answer::refusal("403 Forbidden", help).send(stream);
        }
        self.strangers.remove(stream);
        self.users.add(stream);
        match (&*request.method, &*request.path) {
            ("GET", "/events") => events(stream, &self.site),
            ("GET", _) => self.site.answer(&request).send(stream),
            _ => Answer::refusal("405 Method Not Allowed", "").send(stream),
        }
    }
}

/// Tells a page what is new for as long as it is there.
fn events(stream: &TcpStream, site: &Site) -> io::Result<()> {
    send(stream, head("200 OK", "text/event-stream", "").as_bytes())?;
    let (mut sent, mut quiet) = (Vec::new(), 0);
    loop {
        match site.news(&mut sent) {
            Some(news) => send(stream, format!("data: {news}\n\n").as_bytes())?,
            None if quiet == QUIET => send(stream, b":\n\n")?,
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
