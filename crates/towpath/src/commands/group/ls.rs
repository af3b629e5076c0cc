//! `towpath group ls`.

use clap::Args;

use super::lag::group_lag;
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
    let columns = ["group", "state", "protocol_type", "coordinator", "partitions", "lag_records"];
    let mut table = Table::new("groups", &columns);
    for listing in session.admin.groups().await? {
        if !listing.group.starts_with(prefix) {
            continue;
        }
        let rows = group_lag(session, &listing.group, None).await?;
        let lag: i64 = rows.iter().filter_map(|row| row.lag()).sum();
        table.row(vec![
            listing.group.into(),
            listing.state.into(),
            listing.protocol_type.into(),
            listing.coordinator.0.into(),
            rows.len().into(),
            Cell::count(lag),
        ]);
    }
    session.print(&Report::new().table(table))?;
    Ok(Exit::Ok)
}
