//! Asks whoever is at the seeds who they are, so that a broker needs to know addresses only, no numbers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use towpath_model::BrokerId;

use super::Routes;
use super::context::{Context, jittered};
use super::dial::{Failure, dial};
use super::handshake::Refusal;
use super::hello::{Class, PeerAddress};

/// Between two looks. A seed is asked when nobody of those who were there is connected.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Asks until the broker stops.
pub(crate) async fn ask(context: Arc<Context>, routes: Arc<Routes>) {
    let mut watch = context.addresses.watch();
    let mut found: BTreeMap<PeerAddress, Found> = BTreeMap::new();
    loop {
        let seeds = watch.borrow_and_update().seeds().to_vec();
        found.retain(|seed, _| seeds.contains(seed));
        for seed in seeds {
            let is_connected = |found: &Found| match found {
                Found::Peer(id) => {
                    routes.of(*id).is_some_and(|peer| peer.is_connected(Class::Control))
                }
                Found::Itself => true,
                Found::Refused(_) => false,
            };
            if found.get(&seed).is_some_and(is_connected) {
                continue;
            }
            match dial(&context, &seed, Class::Control, None).await {
                Ok((_, hello)) => {
                    let address = hello.address.unwrap_or_else(|| seed.clone());
                    context.addresses.learn(hello.node_id, address, context.limits.peers_max);
                    found.insert(seed, Found::Peer(hello.node_id));
                }
                Err(Failure::Refused(Refusal::Itself)) => {
                    found.insert(seed, Found::Itself);
                }
                Err(Failure::Refused(refusal)) => {
                    let suppressed = context.refused(&refusal);
                    let said = Found::Refused(refusal.to_string());
                    if found.get(&seed) != Some(&said)
                        && let Some(suppressed) = suppressed
                    {
                        tracing::warn!(%seed, suppressed, "no connection to another broker: {refusal}");
                        found.insert(seed, said);
                    }
                }
                Err(failure) => tracing::debug!(%seed, "no broker found: {failure}"),
            }
        }
        let rest = tokio::time::sleep(jittered(LOOK_EVERY));
        tokio::select! {
            () = rest => {}
            Ok(()) = watch.changed() => watch.mark_changed(),
        }
    }
}

/// Who is at a seed.
#[derive(Debug, PartialEq)]
enum Found {
    Peer(BrokerId),
    Itself,
    /// Somebody who refuses, or is refused; the text was said once.
    Refused(String),
}
