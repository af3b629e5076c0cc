//! Series about replication: what this broker leads and holds, and who keeps up.

use towpath_driver::ReplicationReport;

use super::exposition::{Exposition, Kind};

pub(super) fn write(out: &mut Exposition, report: &ReplicationReport) {
    out.single(
        "towpath_controller_active",
        Kind::Gauge,
        "1 on the broker that decides for the cluster; the sum over all brokers is 1",
        usize::from(report.is_controller),
    );
    out.single("towpath_partitions_led", Kind::Gauge, "Partitions that it leads", report.led);
    out.single(
        "towpath_replicas_held",
        Kind::Gauge,
        "Partitions that it holds a replica of, those that it leads included",
        report.held,
    );
    out.single(
        "towpath_under_replicated_partitions",
        Kind::Gauge,
        "Partitions led here of which a replica is not in sync",
        report.under_replicated,
    );
    out.single(
        "towpath_under_min_in_sync_partitions",
        Kind::Gauge,
        "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all is refused",
        report.under_min_in_sync,
    );
    out.single(
        "towpath_leaderless_partitions",
        Kind::Gauge,
        "Partitions of the whole cluster that nobody leads, as this broker knows; every broker tells the same",
        report.leaderless,
    );
    out.single(
        "towpath_in_sync_shrinks",
        Kind::Counter,
        "Times that a replica has left the in-sync set of a partition led here",
        report.in_sync_shrinks,
    );
    out.single(
        "towpath_in_sync_expands",
        Kind::Counter,
        "Times that a replica has joined the in-sync set of a partition led here",
        report.in_sync_expands,
    );
    let mut family = out.family(
        "towpath_replication_lag_records",
        Kind::Gauge,
        "Records that a follower has not made durable of the partition led here that it lacks most of",
    );
    for (follower, lag) in &report.lags {
        family.sample(&[("follower", &follower.0.to_string())], *lag);
    }
}
