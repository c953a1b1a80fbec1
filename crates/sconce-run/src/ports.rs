//! Published ports of a run with a network of its own: the supervisor listens on the host and
//! carries each connection to 127.0.0.1 inside.
//!
//! A socket belongs to the network in which it was made, whoever uses it. So init, which lives
//! inside, makes one for each connection and hands it out; nobody has to enter a namespace, which
//! a thread of a plain user's program could not.

use std::io::{self, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use sconce_schema::request::PublishedPort;

use crate::error::RunError;
use crate::sys::{signals, socket};

/// Ports that are listened on, with nobody yet to carry to.
#[derive(Debug, Default)]
pub(crate) struct PortListeners(Vec<(TcpListener, u16)>);

impl PortListeners {
    /// Listens on every port.
    ///
    /// # Errors
    /// [`RunError::PortInUse`] and [`RunError::Port`].
    pub(crate) fn bind_all(ports: &[PublishedPort]) -> Result<Self, RunError> {
        let listen = |port: &PublishedPort| {
            let address = SocketAddr::new(port.host_ip, port.host);
            let listener = TcpListener::bind(address).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => RunError::PortInUse(address),
                _ => RunError::Port { address, source },
            })?;
            let quiet = listener.set_nonblocking(true);
            quiet.map_err(|source| RunError::Port { address, source })?;
            Ok((listener, port.container))
        };
        ports.iter().map(listen).collect::<Result<_, _>>().map(Self)
    }

    /// Looks whether ports that a run's services will listen on themselves can be had now.
    ///
    /// # Errors
    /// As [`PortListeners::bind_all`].
    pub(crate) fn try_on(ports: &[PublishedPort]) -> Result<(), RunError> {
        Self::bind_all(ports).map(drop)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Carries connections until it is dropped, which ends those that are open.
#[derive(Debug)]
pub(crate) struct Forwarder {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    open: OpenConnections,
}

/// The connections that are open, both sides of each.
type OpenConnections = Arc<Mutex<Vec<(TcpStream, TcpStream)>>>;

impl Forwarder {
    /// Begins; `sockets` is where init hands sockets out.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start(listening: PortListeners, sockets: OwnedFd) -> io::Result<Self> {
        let stop = signals::stop_flag()?;
        let open = OpenConnections::default();
        let (stop_theirs, open_theirs) = (stop.try_clone()?, Arc::clone(&open));
        let thread = std::thread::Builder::new().name("ports".to_owned());
        Ok(Self {
            thread: Some(thread.spawn(move || {
                accept(&listening.0, &sockets, &stop_theirs, &open_theirs);
            })?),
            stop,
            open,
        })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The threads that carry end when their streams do.
        for (outside, inside) in self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            let _ = outside.shutdown(Shutdown::Both);
            let _ = inside.shutdown(Shutdown::Both);
        }
    }
}

fn accept(
    listening: &[(TcpListener, u16)],
    sockets: &OwnedFd,
    stop: &OwnedFd,
    open: &OpenConnections,
) {
    loop {
        let mut fds: Vec<_> = listening
            .iter()
            .map(|(listener, _)| PollFd::new(listener, PollFlags::IN))
            .chain([PollFd::new(stop, PollFlags::IN)])
            .collect();
        let _ = poll(&mut fds, None);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.last() == Some(&true) {
            return;
        }
        for ((listener, port), _) in listening.iter().zip(&ready).filter(|(_, ready)| **ready) {
            if let Ok((outside, _)) = listener.accept() {
                // A connection that cannot be carried is closed, as by a host that refuses it.
                let _ = connect(sockets, *port).and_then(|inside| carry(outside, inside, open));
            }
        }
    }
}

/// A connection to a port inside.
fn connect(sockets: &OwnedFd, port: u16) -> io::Result<TcpStream> {
    socket::send_message(sockets, b"s", &[])?;
    let message = socket::receive_message(sockets)?.ok_or(io::ErrorKind::BrokenPipe)?;
    let made = message
        .fds
        .into_iter()
        .next()
        .ok_or(io::ErrorKind::ConnectionRefused)?;
    rustix::net::connect(&made, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(TcpStream::from(made))
}

fn carry(outside: TcpStream, inside: TcpStream, open: &OpenConnections) -> io::Result<()> {
    outside.set_nonblocking(false)?;
    for stream in [&outside, &inside] {
        stream.set_nodelay(true)?;
    }
    let entry = (outside.try_clone()?, inside.try_clone()?);
    {
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        // Forget those that have ended: a stream without a peer is no longer connected.
        open.retain(|(outside, inside)| outside.peer_addr().is_ok() || inside.peer_addr().is_ok());
        open.push(entry);
    }
    for (from, to) in [
        (outside.try_clone()?, inside.try_clone()?),
        (inside, outside),
    ] {
        std::thread::Builder::new()
            .name("port".to_owned())
            .spawn(move || one_way(from, to))?;
    }
    Ok(())
}

/// Copies until one side ends, and passes that end on.
fn one_way(mut from: TcpStream, mut to: TcpStream) {
    let copied = io::copy(&mut from, &mut to).and_then(|_| to.flush());
    let _ = match copied {
        Ok(()) => to.shutdown(Shutdown::Write),
        // One side is broken: end both, or the other half would wait for ever.
        Err(_) => from
            .shutdown(Shutdown::Both)
            .and_then(|()| to.shutdown(Shutdown::Both)),
    };
}
