//! `towpath group rm`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use towpath_client::ErrorCode;

use super::seek::refuse_live_members;
use crate::complete;
use crate::confirm::{Decision, confirm};
use crate::failure::{Exit, Outcome};
use crate::output::{Format, Report, Table};
use crate::session::Session;
use crate::units::plural;

/// Flags of `group rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The groups
    #[arg(required = true, add = ArgValueCompleter::new(complete::groups))]
    groups: Vec<String>,
}

pub(crate) async fn run(session: &Session, args: &RmArgs) -> Outcome {
    let mut table = Table::new("deleted", &["group", "partitions"]);
    for group in &args.groups {
        let Some(description) = session.admin.group(group).await? else {
            return Err(session.unknown_group(group).await);
        };
        refuse_live_members(&description)?;
        let offsets = session.admin.group_offsets(group).await?.len();
        let partitions = plural(i64::try_from(offsets).unwrap_or(i64::MAX), "partition");
        let what = format!("delete group {group} and its committed offsets in {partitions}");
        if confirm(session, &what, group)? == Decision::Go {
            match session.admin.delete_group(group).await {
                Err(error) if error.code() == Some(ErrorCode::GroupIdNotFound) => {
                    return Err(session.unknown_group(group).await);
                }
                outcome => outcome?,
            }
            session.say(format!("deleted {group}"));
        }
        table.row(vec![group.as_str().into(), offsets.into()]);
    }
    if matches!(session.global.output, Some(Format::Json | Format::Jsonl | Format::Tsv)) {
        session.print(&Report::new().table(table))?;
    }
    Ok(Exit::Ok)
}
