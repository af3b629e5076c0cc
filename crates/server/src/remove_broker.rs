//! Takes a broker out of the cluster for good.
//!
//! ```text
//! metadata: it holds nothing, forget it ─▶ the leader of the quorum takes it out (by itself)
//!   ─▶ every voter that is left would come back without it after a crash ─▶ it may stop
//! ```
//!
//! Until the last step its vote may be needed, so whoever orders the removal is told when it is over.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use towpath_metadata::{Refusal, Reply, Request};
use towpath_model::BrokerId;

use crate::node::{Node, Unavailable};

/// Between two looks at the quorum.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a voter may take to say what it knows.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Why a broker is not removed, or not yet for good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemovalFailure {
    /// The metadata refuses; nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The metadata did not answer; whether it was removed is open.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It is removed, and these voters of the metadata quorum have not confirmed that they know.
    #[error(
        "broker {broker} is removed, but {} of the metadata quorum may still count on it", voters(.unaware)
    )]
    NotDurable {
        /// Who was removed.
        broker: BrokerId,
        /// Who has not confirmed it; empty: the quorum itself still has it.
        unaware: Vec<BrokerId>,
    },
}

fn voters(unaware: &[BrokerId]) -> String {
    let names: Vec<String> = unaware.iter().map(ToString::to_string).collect();
    if names.is_empty() { "the leader".to_owned() } else { format!("voters {}", names.join(", ")) }
}

impl Node {
    /// Removes a broker that holds nothing, and waits until it may stop.
    ///
    /// # Errors
    /// [`RemovalFailure`]; after [`RemovalFailure::NotDurable`] the call may be repeated, to wait on.
    pub async fn remove_broker(
        &self,
        broker: BrokerId,
        limit: Duration,
    ) -> Result<(), RemovalFailure> {
        let deadline = Instant::now() + limit;
        match self.ask_metadata(Request::RemoveBroker(broker)).await? {
            // An earlier call came so far.
            Reply::RemovedBroker(Err(Refusal::BrokerNotRegistered(_)))
                if self.unaware_of_removal(broker).await != Some(Vec::new()) => {}
            Reply::RemovedBroker(result) => result?,
            other => unreachable!("the answer to another question: {other:?}"),
        }
        loop {
            let unaware = self.unaware_of_removal(broker).await;
            if unaware.as_ref().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            if deadline <= Instant::now() {
                let unaware = unaware.unwrap_or_default();
                return Err(RemovalFailure::NotDurable { broker, unaware });
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Voters that may come back after a crash with this broker among the members; `None`: it still
    /// is one.
    async fn unaware_of_removal(&self, broker: BrokerId) -> Option<Vec<BrokerId>> {
        let report = self.driver().quorum_report();
        if report.members.iter().any(|member| member.id.broker() == broker) {
            return None;
        }
        let mut unaware = Vec::new();
        for voter in report.members.iter().filter(|member| member.is_voter) {
            let told = self.ask_member(voter.id.broker(), ANSWER_MAX).await;
            let knows = told.is_some_and(|told| {
                told.is_membership_durable
                    && told.members.iter().all(|member| member.id.broker() != broker)
            });
            if !knows {
                unaware.push(voter.id.broker());
            }
        }
        Some(unaware)
    }
}
