//! An answer that keeps its share of memory until it has been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use crate::memory::Share;

/// A body of one piece.
pub(crate) struct Charged {
    bytes: Option<Bytes>,
    _share: Share,
}

impl Charged {
    pub(crate) fn new(bytes: Vec<u8>, share: Share) -> Charged {
        Charged { bytes: Some(bytes.into()), _share: share }
    }
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
