//! A queue: send, receive, and what becomes of received messages.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};

use super::batch::{Batch, Chunk};
use super::http::{Call, HttpCluster, encoded};
use super::message::{
    OutgoingMessage, QueueMessage, Received, SentMessage, WrittenMessage, milliseconds,
};

/// Most messages or receipts of one request.
pub(crate) const BATCH_MAX: usize = 500;

/// A queue of a cluster. Any broker serves it; clones share their connections.
#[derive(Debug, Clone)]
pub struct Queue {
    http: HttpCluster,
    name: Arc<str>,
}

/// What to receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Most messages, at most 500.
    pub max: usize,
    /// How long to wait for the first one, at most 20 s.
    pub wait: Duration,
    /// How long they are hidden from others; nothing: as the queue has it.
    pub visibility: Option<Duration>,
    /// For which subscription; nothing: the queue's own.
    pub subscription: Option<String>,
    /// Who receives, for people who look.
    pub holder: Option<String>,
    /// A repeat of a receive with the same id is given the same messages while all of them are held. The price:
    /// what it was given cannot be given back uncounted ([`Queue::give_back`]); it stays hidden until its time has
    /// run out. So a receive has no id unless the caller gives one.
    pub attempt_id: Option<String>,
}

impl Default for ReceiveOptions {
    /// One message, if one is there.
    fn default() -> ReceiveOptions {
        ReceiveOptions {
            max: 1,
            wait: Duration::ZERO,
            visibility: None,
            subscription: None,
            holder: None,
            attempt_id: None,
        }
    }
}

/// What was done with a message; nothing more is to be said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Settled {}

impl HttpCluster {
    /// The names of all queues.
    ///
    /// # Errors
    /// When no broker answers.
    pub async fn queues(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Listed {
            name: String,
        }
        #[derive(Deserialize)]
        struct Page {
            queues: Vec<Listed>,
            next: Option<String>,
        }
        let (mut names, mut path) = (Vec::new(), "/queues".to_owned());
        loop {
            let page: Page = self.value(&Call::get(path, "listing queues")).await?;
            names.extend(page.queues.into_iter().map(|queue| queue.name));
            let Some(next) = page.next else { return Ok(names) };
            path = format!("/queues?after={}", encoded(&next));
        }
    }
}

impl Queue {
    /// The queue of this name. Nobody is asked yet.
    pub fn new(http: HttpCluster, name: impl Into<Arc<str>>) -> Queue {
        Queue { http, name: name.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a message; the answer comes when it is as safe as the queue's topic promises.
    ///
    /// # Errors
    /// Among others when the broker was lost before it answered: the message may have been sent. One with a
    /// `dedup_id` is sent again then.
    pub async fn send(&self, message: &OutgoingMessage) -> Result<SentMessage> {
        let results = self.send_all(std::slice::from_ref(message)).await?;
        results.into_iter().next().unwrap_or_else(|| Err(self.lost("a send")))
    }

    /// Sends messages, in requests of up to 500 and some megabytes; the results are in their order.
    ///
    /// # Errors
    /// When the queue is not there. What fails for a message is in its result.
    pub async fn send_all(&self, messages: &[OutgoingMessage]) -> Result<Vec<Result<SentMessage>>> {
        let batch = Batch {
            http: &self.http,
            path: self.path("messages"),
            doing: format!("sending to queue {:?}", self.name),
        };
        let body = |chunk: &[&OutgoingMessage]| {
            let messages: Vec<WrittenMessage> =
                chunk.iter().map(|message| WrittenMessage::from(*message)).collect();
            json!({ "messages": messages })
        };
        let chunk = Chunk { size: &OutgoingMessage::size, body: &body };
        let may_repeat = messages.iter().all(|message| message.dedup_id.is_some());
        batch.call(messages, &chunk, may_repeat).await
    }

    /// Receives messages, which are hidden from others until their time has run out.
    ///
    /// It is asked again where an answer does not come. What a broker has handed out with an answer that was lost
    /// on the way is hidden until its time has run out, unless there is an
    /// [`attempt_id`](ReceiveOptions::attempt_id).
    ///
    /// # Errors
    /// When no broker answers, or one refuses.
    pub async fn receive(&self, options: &ReceiveOptions) -> Result<Vec<QueueMessage>> {
        let mut body = json!({ "max": options.max, "wait_ms": milliseconds(options.wait) });
        let mut say = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[name] = value;
            }
        };
        say("visibility_ms", options.visibility.map(|time| milliseconds(time).into()));
        say("subscription", options.subscription.clone().map(Into::into));
        say("holder", options.holder.clone().map(Into::into));
        say("attempt_id", options.attempt_id.clone().map(Into::into));
        let call = Call {
            method: Method::POST,
            path: self.path("receive"),
            body: body.to_string().into(),
            doing: format!("receiving from queue {:?}", self.name),
            wait: options.wait,
            // What was handed out to nobody comes back: at once where the broker sees that nobody listens.
            is_repeatable: true,
        };
        let Received { messages } = self.http.value(&call).await?;
        let read = messages.into_iter().map(QueueMessage::try_from).collect::<Result<_, _>>();
        read.map_err(|error| Error::Malformed {
            address: self.name.to_string(),
            cause: error.to_string(),
        })
    }

    /// These have been worked, and do not come back. Deleting again what is gone is no error.
    ///
    /// # Errors
    /// When the queue is not there. What fails for a receipt is in its result.
    pub async fn delete(&self, receipts: &[String]) -> Result<Vec<Result<Settled>>> {
        self.settle("delete", receipts, &|receipts| json!({ "receipts": receipts })).await
    }

    /// Keeps these for so long from now on.
    ///
    /// # Errors
    /// As [`Queue::delete`]; `RECEIPT_STALE` says that a message is not held any more.
    pub async fn extend(
        &self,
        receipts: &[String],
        visibility: Duration,
    ) -> Result<Vec<Result<Settled>>> {
        let visibility_ms = milliseconds(visibility);
        let body =
            |receipts: &[&String]| json!({ "receipts": receipts, "visibility_ms": visibility_ms });
        self.settle("extend", receipts, &body).await
    }

    /// Gives these back: after `delay`, or when the queue's retry policy says. With a `note` they count as
    /// failed.
    ///
    /// # Errors
    /// As [`Queue::delete`].
    pub async fn release(
        &self,
        receipts: &[String],
        delay: Option<Duration>,
        note: Option<&str>,
    ) -> Result<Vec<Result<Settled>>> {
        let body = |receipts: &[&String]| {
            let mut body = json!({ "receipts": receipts });
            if let Some(delay) = delay {
                body["delay_ms"] = milliseconds(delay).into();
            }
            if let Some(note) = note {
                body["note"] = cut(note).into();
            }
            body
        };
        self.settle("release", receipts, &body).await
    }

    /// Gives these back at once: nobody has begun to work them, and they do not count as received. Those of a
    /// receive with an [`attempt_id`](ReceiveOptions::attempt_id) stay held for whoever repeats it.
    ///
    /// # Errors
    /// As [`Queue::delete`].
    pub async fn give_back(&self, receipts: &[String]) -> Result<Vec<Result<Settled>>> {
        let body = |receipts: &[&String]| json!({ "receipts": receipts, "uncounted": true });
        self.settle("release", receipts, &body).await
    }

    /// These can never be worked: they go to the dead-letter queue, with the reason.
    ///
    /// # Errors
    /// As [`Queue::delete`].
    pub async fn reject(&self, receipts: &[String], reason: &str) -> Result<Vec<Result<Settled>>> {
        let body = |receipts: &[&String]| json!({ "receipts": receipts, "note": cut(reason) });
        self.settle("reject", receipts, &body).await
    }

    /// How long a received message is hidden, if the receiver does not say.
    ///
    /// # Errors
    /// When the queue is not there, or no broker answers.
    pub async fn visibility_timeout(&self) -> Result<Duration> {
        #[derive(Deserialize)]
        struct Shown {
            settings: Settings,
        }
        #[derive(Deserialize)]
        struct Settings {
            visibility_timeout_ms: u64,
        }
        let path = format!("/queues/{}", encoded(&self.name));
        let call = Call::get(path, format!("looking at queue {:?}", self.name));
        let Shown { settings } = self.http.value(&call).await?;
        Ok(Duration::from_millis(settings.visibility_timeout_ms))
    }

    async fn settle(
        &self,
        verb: &str,
        receipts: &[String],
        body: &(dyn Fn(&[&String]) -> Value + Sync),
    ) -> Result<Vec<Result<Settled>>> {
        let batch = Batch {
            http: &self.http,
            path: self.path(verb),
            doing: format!("{verb} in queue {:?}", self.name),
        };
        batch.call(receipts, &Chunk { size: &String::len, body }, true).await
    }

    fn path(&self, verb: &str) -> String {
        format!("/queues/{}/{verb}", encoded(&self.name))
    }

    fn lost(&self, what: &str) -> Error {
        let cause = format!("{what} was not answered");
        Error::Malformed { address: self.name.to_string(), cause }
    }
}

/// What brokers keep of a note.
fn cut(note: &str) -> &str {
    const BYTES_MAX: usize = 1_024;
    &note[..note.floor_char_boundary(BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_note_is_cut_between_letters() {
        assert_eq!(cut("short"), "short");
        let long = "ü".repeat(600);
        assert_eq!(cut(&long).len(), 1_024);
        assert_eq!(cut(&format!("x{long}")).len(), 1_023);
    }
}
