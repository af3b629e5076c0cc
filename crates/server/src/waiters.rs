//! Tokens that requests wait on, and the tasks behind them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use towpath_driver::{Delivery, Net};
use towpath_model::Token;

const SHARDS: usize = 16;

/// Who waits for which token. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Waiters(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    next: AtomicU64,
    shards: [Mutex<HashMap<u64, oneshot::Sender<Delivery>>>; SHARDS],
}

impl Default for Shared {
    fn default() -> Self {
        // Token 0 is the driver's "nobody".
        Shared { next: AtomicU64::new(1), shards: Default::default() }
    }
}

impl Waiters {
    fn shard(&self, token: Token) -> &Mutex<HashMap<u64, oneshot::Sender<Delivery>>> {
        &self.0.shards[(token.0 % SHARDS as u64) as usize]
    }

    fn take(&self, token: Token) -> Option<oneshot::Sender<Delivery>> {
        self.shard(token).lock().expect("no panic holds the waiters").remove(&token.0)
    }

    /// A new token and what it will be told. The token must be known before the driver is asked:
    /// the answer may be faster than the asker.
    fn begin(&self) -> (Token, oneshot::Receiver<Delivery>) {
        let token = Token(self.0.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        self.shard(token).lock().expect("no panic holds the waiters").insert(token.0, sender);
        (token, receiver)
    }
}

impl Net for Waiters {
    fn deliver(&self, token: Token, delivery: Delivery) {
        if let Some(sender) = self.take(token) {
            // The asker may have given up between the lookup and this line.
            let _ = sender.send(delivery);
        }
    }
}

/// One wait; giving it up forgets the token.
#[derive(Debug)]
pub struct Wait {
    waiters: Waiters,
    token: Token,
    receiver: oneshot::Receiver<Delivery>,
}

impl Wait {
    /// Begins to wait on a new token.
    pub fn begin(waiters: &Waiters) -> Wait {
        let (token, receiver) = waiters.begin();
        Wait { waiters: waiters.clone(), token, receiver }
    }

    /// What the driver is to call.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The answer. `None` when the process stops before there is one.
    pub async fn answer(&mut self) -> Option<Delivery> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.waiters.take(self.token);
    }
}
