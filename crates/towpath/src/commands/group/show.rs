//! `towpath group show`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use super::lag::{group_lag, lag_table};
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
    let rows = group_lag(session, group, Some(&description)).await?;
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
    let lag: i64 = rows.iter().filter_map(|row| row.lag()).sum();
    let report = Report::new()
        .field("group", group)
        .field("state", description.state.as_str())
        .field("protocol_type", description.protocol_type.as_str())
        .field("protocol", description.protocol.as_str())
        .field("coordinator", description.coordinator.0)
        .field("lag_records", Cell::count(lag))
        .table(members)
        .table(lag_table(rows.iter().map(|row| (group, row))));
    session.print(&report)?;
    Ok(Exit::Ok)
}
