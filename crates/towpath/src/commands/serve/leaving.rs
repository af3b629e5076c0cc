//! Leaves a cluster orderly: others lead before this broker stops.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use towpath_server::Node;

/// How long leaving may take; then the broker stops all the same, and is missed.
const LEAVING_MAX: Duration = Duration::from_secs(10);
/// How long nobody may be the controller until nobody is asked any more: all others have stopped too.
const NO_CONTROLLER_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Asks the cluster to do without this broker, and waits until it does.
pub(super) async fn leave(node: &Node) {
    let driver = node.driver();
    if driver.image().broker_count() <= 1 || driver.standing().broker_epoch.is_none() {
        return;
    }
    driver.want_shutdown();
    let began = Instant::now();
    let mut controlled_at = began;
    while !driver.standing().may_shut_down {
        let now = Instant::now();
        if driver.controller().is_some() {
            controlled_at = now;
        }
        let is_over = LEAVING_MAX <= now - began || NO_CONTROLLER_MAX <= now - controlled_at;
        if is_over {
            tracing::warn!(
                "the cluster has not taken over what this broker leads: it stops \
                all the same, and others lead after broker.session.timeout.ms"
            );
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    driver.hand_over_office();
    let began = Instant::now();
    while driver.is_controller() && began.elapsed() < NO_CONTROLLER_MAX {
        sleep(LOOK_EVERY).await;
    }
}
