//! `towpath group show`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::lag::{explain_silence, group_lag, lag_table, loss_table, ratio, seconds};
use crate::broker_api::BrokerApi;
use crate::complete;
use crate::failure::{Exit, Outcome};
use crate::output::{Cell, Report, Table};
use crate::session::Session;

/// Flags of `group show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The group
    #[arg(add = ArgValueCompleter::new(complete::groups))]
    group: String,
}

pub(crate) async fn run(session: &Session, args: &ShowArgs) -> Outcome {
    let group = args.group.as_str();
    let Some(description) = session.admin.group(group).await? else {
        return Err(session.unknown_group(group).await);
    };
    let api = BrokerApi::of(session, description.coordinator).await;
    let lag = group_lag(session, group, Some(&description), &api).await?;
    let columns = ["member_id", "instance_id", "client_id", "host", "partitions"];
    let mut members = Table::new("members", &columns);
    for member in &description.members {
        members.row(vec![
            member.member_id.as_str().into(),
            Cell::or_none(member.instance_id.clone()),
            member.client_id.as_str().into(),
            member.client_host.as_str().into(),
            Cell::list(member.assignment.iter().map(ToString::to_string)),
        ]);
    }
    let report = Report::new()
        .field("group", group)
        .field("state", description.state.as_str())
        .field("protocol_type", description.protocol_type.as_str())
        .field("protocol", description.protocol.as_str())
        .field("coordinator", description.coordinator.0)
        .field("lag_records", Cell::count(lag.records()))
        .field("lag_seconds", seconds(lag.seconds()))
        .field("retention_ratio", ratio(lag.ratio()))
        .field("time_to_loss_seconds", seconds(lag.seconds_to_loss().map(|left| left as f64)))
        .field("lost_records", Cell::count(lag.lost()))
        .table(members)
        .table(lag_table(lag.rows.iter().map(|row| (group, row))))
        .table(loss_table(&lag.losses));
    session.print(&report)?;
    explain_silence(session, lag.silence.as_deref());
    Ok(Exit::Ok)
}
