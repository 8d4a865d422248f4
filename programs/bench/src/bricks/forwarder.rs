//! A TCP forwarder that delays what passes: a home that is far away, without privileges or the kernel's help.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Octets read at once.
const CHUNK_OCTETS: usize = 16 << 10;

/// Forwards from a new address to `to`, each way with half of `rtt`. The threads end with the process.
///
/// The kernel answers TCP's handshake at once, where a far home takes a round trip: the first octets of a connection make up for it.
pub(super) fn start(to: SocketAddr, rtt: Duration) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // A connection that cannot be forwarded ends, and the measurement with it.
            let _ = forward(near, to, rtt);
        }
    });
    Ok(address)
}

fn forward(near: TcpStream, to: SocketAddr, rtt: Duration) -> io::Result<()> {
    let far = TcpStream::connect(to)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let handshake_until = Instant::now() + rtt;
    pipe(near.try_clone()?, far.try_clone()?, rtt / 2, handshake_until);
    pipe(far, near, rtt / 2, Instant::now());
    Ok(())
}

/// Moves octets one way: one thread reads and notes when they are due, the other writes them then.
fn pipe(mut from: TcpStream, mut to: TcpStream, delay: Duration, not_before: Instant) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut octets = vec![0; CHUNK_OCTETS];
        while let Ok(n) = from.read(&mut octets) {
            let due = Instant::now().max(not_before) + delay;
            if n == 0 || sender.send((due, octets[..n].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, octets) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&octets).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_arrive_in_order_after_the_delay() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let at = start(server.local_addr().unwrap(), Duration::from_millis(20)).unwrap();
        let begin = Instant::now();
        let mut near = TcpStream::connect(at).unwrap();
        near.write_all(b"question").unwrap();
        let (mut far, _) = server.accept().unwrap();
        let mut octets = [0; 8];
        far.read_exact(&mut octets).unwrap();
        // The handshake's round trip and half of one.
        assert!(&octets == b"question" && begin.elapsed() >= Duration::from_millis(30));
        let begin = Instant::now();
        far.write_all(b"answer").unwrap();
        near.read_exact(&mut octets[..6]).unwrap();
        assert!(&octets[..6] == b"answer" && begin.elapsed() >= Duration::from_millis(10));
    }
}
