//! A socket whose peer must go on taking what is written to it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Fails a write that makes no progress for `limit`. Reading has its own deadlines elsewhere.
pub(crate) struct Stall {
    socket: TcpStream,
    limit: Duration,
    /// Runs while the peer takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Stall {
    pub(crate) fn new(socket: TcpStream, limit: Duration) -> Stall {
        Stall { socket, limit, stalled: None }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Turns a wait into an error when it has lasted too long.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limit;
        let stalled =
            self.stalled.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        match stalled.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let text = format!("the peer took nothing for {} s", limit.as_secs());
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
            }
        }
    }
}

impl AsyncRead for Stall {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stall {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let progress = Pin::new(&mut this.socket).poll_write(context, bytes);
        this.watch(context, progress)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let progress = Pin::new(&mut this.socket).poll_write_vectored(context, slices);
        this.watch(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let _client = client.unwrap();
        let mut stall = Stall::new(accepted.unwrap().0, Duration::from_millis(50));
        let block = vec![0; 1 << 20];
        let ended = loop {
            if let Err(error) = stall.write_all(&block).await {
                break error;
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
