//! A connection whose client has to read what it is sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A client that takes no octet for this long is asleep: its connection is closed, and an event stream resumes where it was.
const UNREAD_MAX: Duration = Duration::from_secs(20);

/// A stream on which a write that waits for too long is an error.
pub(super) struct Patient<S> {
    stream: S,
    /// Runs while a write waits.
    until: Option<Pin<Box<Sleep>>>,
    unread_max: Duration,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, until: None, unread_max: UNREAD_MAX }
    }
}

impl<S: AsyncWrite + Unpin> Patient<S> {
    fn judged<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let unread_max = self.unread_max;
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(unread_max)));
        match until.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, octets);
        self.judged(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.judged(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.judged(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_client_that_reads_nothing_is_cut_off_and_a_slow_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let unread_max = Duration::from_millis(40);
            let (deaf, server) = tokio::io::duplex(16);
            let mut server = Patient { unread_max, ..Patient::new(server) };
            let e = server.write_all(&[0; 64]).await.unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::TimedOut);
            drop(deaf);
            let (mut slow, server) = tokio::io::duplex(16);
            let mut server = Patient { unread_max: Duration::from_secs(60), ..Patient::new(server) };
            let reader = async {
                let mut read = 0;
                while read < 64 {
                    tokio::task::yield_now().await;
                    read += slow.read(&mut [0; 8]).await.unwrap();
                }
            };
            let (_, written) = tokio::join!(reader, server.write_all(&[0; 64]));
            written.unwrap();
        });
    }
}
