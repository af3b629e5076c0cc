//! Answers in JSON, with a line's end for those who read them in a terminal; large ones keep their
//! share of memory until they have been sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::memory::Share;

/// A value as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(Body::from(to_line(&self.0)))
    }
}

impl<T: Serialize> Json<T> {
    /// The same with a share of memory that lives until the peer has taken everything.
    pub(crate) fn charged(self, share: Share) -> Response {
        self.charged_all(vec![share])
    }

    /// The same with several shares.
    pub(crate) fn charged_all(self, shares: Vec<Share>) -> Response {
        json(charged(to_line(&self.0), shares))
    }
}

/// A body with shares of memory that live until the peer has taken everything.
pub(crate) fn charged(bytes: Vec<u8>, shares: Vec<Share>) -> Body {
    match shares.is_empty() {
        true => Body::from(bytes),
        false => Body::new(Charged { bytes: Some(bytes.into()), _shares: shares }),
    }
}

fn to_line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("texts, numbers and lists are JSON");
    line.push(b'\n');
    line
}

fn json(body: Body) -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// A body of one piece.
struct Charged {
    bytes: Option<Bytes>,
    _shares: Vec<Share>,
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
