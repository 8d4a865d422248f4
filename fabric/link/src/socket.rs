//! TCP sockets with the options that links need.

use core::time::Duration;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};

/// A listener that never blocks.
pub(crate) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Begins a connection.
pub(crate) fn call(to: SocketAddr, silence_max: Duration) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    tune(&socket, silence_max)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(e) => Err(e.into()),
    }
}

/// Sends at once, and notices a peer that vanished, whether anything is sent or not.
pub(crate) fn tune(socket: &impl AsFd, silence_max: Duration) -> io::Result<()> {
    let probe = (silence_max / 4).max(Duration::from_secs(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, probe)?;
    sockopt::set_tcp_keepintvl(socket, probe)?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(silence_max.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// Whether a connection that was begun is established.
pub(crate) fn outcome(socket: &TcpStream) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}
