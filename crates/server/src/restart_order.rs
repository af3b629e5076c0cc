//! An order to start anew, from whoever may give one to whoever runs the process.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Why a process does not start anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRestart {
    /// Its data would be gone.
    #[error("the node keeps its data only until it stops, or has not started yet")]
    NotKept,
}

/// The order, which is given once.
#[derive(Debug)]
pub struct RestartOrder {
    is_allowed: AtomicBool,
    given: watch::Sender<bool>,
}

impl Default for RestartOrder {
    fn default() -> Self {
        RestartOrder { is_allowed: AtomicBool::new(false), given: watch::Sender::new(false) }
    }
}

impl RestartOrder {
    /// Somebody listens who carries it out.
    pub fn allow(&self) {
        self.is_allowed.store(true, Ordering::Relaxed);
    }

    /// Gives the order.
    ///
    /// # Errors
    /// [`NoRestart`].
    pub fn give(&self) -> Result<(), NoRestart> {
        if !self.is_allowed.load(Ordering::Relaxed) {
            return Err(NoRestart::NotKept);
        }
        self.given.send_replace(true);
        Ok(())
    }

    /// Waits until it is given.
    pub async fn given(&self) {
        let mut given = self.given.subscribe();
        // The sender lives as long as this.
        let _ = given.wait_for(|given| *given).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_is_given_once_somebody_listens() {
        let order = RestartOrder::default();
        assert_eq!(order.give(), Err(NoRestart::NotKept));
        order.allow();
        assert_eq!(order.give(), Ok(()));
        order.given().await;
    }
}
