//! `towpath group ls`.

use clap::Args;

use super::lag::{explain_silence, group_lag, ratio, seconds};
use crate::broker_api::BrokerApi;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `group ls`.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only names that begin with this
    prefix: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &LsArgs) -> Outcome {
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let columns = [
        "group",
        "state",
        "protocol_type",
        "coordinator",
        "partitions",
        "lag_records",
        "lag_seconds",
        "retention_ratio",
        "time_to_loss_seconds",
        "lost_records",
    ];
    let mut table = Table::new("groups", &columns);
    let api = BrokerApi::of_any(session).await;
    let mut silence = None;
    for listing in session.admin.groups().await? {
        if !listing.group.starts_with(prefix) {
            continue;
        }
        let lag = group_lag(session, &listing.group, None, &api).await?;
        table.row(vec![
            listing.group.into(),
            listing.state.into(),
            listing.protocol_type.into(),
            listing.coordinator.0.into(),
            lag.rows.len().into(),
            Cell::count(lag.records()),
            seconds(lag.seconds()),
            ratio(lag.ratio()),
            seconds(lag.seconds_to_loss().map(|left| left as f64)),
            Cell::count(lag.lost()),
        ]);
        silence = silence.or(lag.silence);
    }
    session.print(&Report::new().table(table))?;
    explain_silence(session, silence.as_deref());
    Ok(Exit::Ok)
}
