//! `GET /groups`: the groups by name, page by page, each with the worst of its lags.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_coordinator::groups::{Listing, Reply, Request};
use towpath_driver::Lag;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::group_lag::lags;
use crate::limits::LISTED_GROUPS_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(crate) struct Groups {
    groups: Vec<ListedGroup>,
    /// The `after` of the next page; null at the end.
    next: Option<String>,
}

#[derive(Serialize)]
struct ListedGroup {
    group: String,
    state: &'static str,
    members: usize,
    /// Partitions in which it has committed.
    partitions: usize,
    #[serde(flatten)]
    lag: GroupTotals,
}

/// A group's lags as one: sums of records, and the worst of everything else.
#[derive(Serialize, Default, Clone, Copy)]
struct GroupTotals {
    lag_records: i64,
    lag_seconds: Option<f64>,
    retention_ratio: Option<f64>,
    time_to_loss_seconds: Option<u64>,
    lost_records: i64,
}

impl GroupTotals {
    fn add(&mut self, lag: &Lag) {
        let worse = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.lag_records += lag.records;
        self.lost_records += lag.lost_records;
        self.lag_seconds = worse(self.lag_seconds, lag.age_seconds());
        self.retention_ratio = worse(self.retention_ratio, lag.rounded_ratio());
        let left = self.time_to_loss_seconds.into_iter().chain(lag.seconds_to_loss());
        self.time_to_loss_seconds = left.min();
    }
}

pub(crate) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Groups>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let limit = query.limit.unwrap_or(LISTED_GROUPS_MAX);
    if limit == 0 || LISTED_GROUPS_MAX < limit {
        let message = format!("limit is 1 to {LISTED_GROUPS_MAX}");
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let after = query.after.unwrap_or_default();
    let all = listings(&app).await;
    let mut listed = all.into_iter().filter(|listing| *after < *listing.group).peekable();
    let page: Vec<Listing> = listed.by_ref().take(limit).collect();
    let is_more = listed.peek().is_some();
    let lags = lags(&app, None).await?;
    let mut totals: BTreeMap<Arc<str>, (usize, GroupTotals)> = BTreeMap::new();
    for row in &lags.rows {
        let (partitions, total) = totals.entry(row.group.clone()).or_default();
        *partitions += 1;
        row.lag().into_iter().for_each(|lag| total.add(lag));
    }
    let groups = page.into_iter().map(|listing| {
        let (partitions, lag) = totals.get(&listing.group).copied().unwrap_or_default();
        ListedGroup {
            group: listing.group.as_ref().to_owned(),
            state: listing.state.as_str(),
            members: listing.members,
            partitions,
            lag,
        }
    });
    let groups: Vec<ListedGroup> = groups.collect();
    let next = groups.last().filter(|_| is_more).map(|group| group.group.clone());
    Ok(Json(Groups { groups, next }))
}

/// Every group that is coordinated here, by name.
pub(crate) async fn listings(app: &App) -> Vec<Listing> {
    let mut all = Vec::new();
    for place in app.node.driver().group_places() {
        let list = Request::List { states: Vec::new(), types: Vec::new() };
        if let Ok(Reply::List(groups)) = app.node.ask_groups_at(place, list).await {
            all.extend(groups);
        }
    }
    all.sort_by(|a, b| a.group.cmp(&b.group));
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_group_is_as_badly_off_as_its_worst_partition() {
        let lag = |records, seconds, ratio, left: Option<u64>| Lag {
            records,
            age: Some(Duration::from_secs(seconds)),
            retention_ratio: ratio,
            time_to_loss: left.map(Duration::from_secs),
            ..Lag::default()
        };
        let mut totals = GroupTotals::default();
        totals.add(&lag(5, 10, None, None));
        totals.add(&lag(7, 3, Some(0.25), Some(90)));
        totals.add(&lag(0, 0, Some(0.75), Some(30)));
        assert_eq!((totals.lag_records, totals.lag_seconds), (12, Some(10.0)));
        assert_eq!((totals.retention_ratio, totals.time_to_loss_seconds), (Some(0.75), Some(30)));
    }
}
