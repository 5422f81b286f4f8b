//! Listens on this machine alone, with so many connections and no more.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::http::{Answer, Request, head, send};
use super::site::Site;
use crate::diagnostic::{Diagnostic, Diagnostics};

/// Where it is unless it is told otherwise.
const PORT: u16 = 8765;
/// The most connections at once, each on a thread that mostly waits; a page has two or three.
const CONNECTIONS: usize = 64;
/// How often a page that looks on is told what is new.
pub(super) const UPDATE: Duration = Duration::from_millis(200);
/// A page that is gone is noticed after so many updates without news.
const QUIET: u32 = 50;

/// A server that is listening.
pub struct Server {
    listener: TcpListener,
    site: Arc<Site>,
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
        let site = Arc::new(site);
        Ok(Server { listener, site })
    }

    /// The address of the page.
    ///
    /// # Errors
    /// The system's, where it does not know it.
    pub fn address(&self) -> io::Result<String> {
        let address: SocketAddr = self.listener.local_addr()?;
        Ok(format!("http://{address}/"))
    }

    /// Answers until the process ends.
    pub fn serve(self) {
        // Each connection holds one.
        let places = Arc::new(());
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                // Out of files or memory: that passes, or the run has other worries.
                thread::sleep(UPDATE);
                continue;
            };
            if Arc::strong_count(&places) <= CONNECTIONS {
                let (place, site) = (places.clone(), self.site.clone());
                let answer = move || {
                    // Whoever left cannot be told.
                    let _ = answer(stream, &site);
                    drop(place);
                };
                // Without a thread for it, the connection is closed.
                let _ = thread::Builder::new().spawn(answer);
            }
        }
    }
}

fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    let request = match Request::read(&mut stream) {
        Ok(request) => request,
        Err(None) => return Ok(()),
        Err(Some(refusal)) => return refusal.send(&mut stream),
    };
    let answer = match &*request.method {
        // Else any site could read this page under a name of its own.
        _ if !request.is_local() || request.is_foreign() => Answer::refusal("403 Forbidden"),
        "GET" if request.path == "/events" => return events(stream, site),
        _ => site.answer(&request),
    };
    answer.send(&mut stream)
}

/// Tells a page what is new for as long as it is there.
fn events(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    send(
        &mut stream,
        head("200 OK", "text/event-stream", "").as_bytes(),
    )?;
    let (mut sent, mut quiet) = (Vec::new(), 0);
    loop {
        match site.news(&mut sent) {
            Some(news) => send(&mut stream, format!("data: {news}\n\n").as_bytes())?,
            None if quiet == QUIET => send(&mut stream, b":\n\n")?,
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
