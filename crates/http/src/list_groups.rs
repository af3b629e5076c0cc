//! `GET /groups`: the groups by name, page by page, each with the worst of its lags. Each broker knows the
//! groups that it coordinates, so all of them are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_coordinator::groups::{Listing, Reply, Request};
use towpath_driver::OFFSETS_TOPIC;
use towpath_model::BrokerId;

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::forward::{ask_each, is_hop};
use crate::group_lag::lags;
use crate::limits::LISTED_GROUPS_MAX;
use crate::measure_lag::{Measured, measured};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Groups {
    groups: Vec<ListedGroup>,
    /// The `after` of the next page; null at the end.
    next: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct ListedGroup {
    group: String,
    state: String,
    members: usize,
    /// Partitions in which it has committed.
    partitions: usize,
    #[serde(flatten)]
    lag: GroupTotals,
}

/// A group's lags as one: sums of records, and the worst of everything else.
#[derive(Serialize, Deserialize, Default, Clone, Copy)]
struct GroupTotals {
    lag_records: i64,
    lag_seconds: Option<f64>,
    retention_ratio: Option<f64>,
    time_to_loss_seconds: Option<u64>,
    lost_records: i64,
}

impl GroupTotals {
    fn add(&mut self, lag: &Measured) {
        let worse = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.lag_records += lag.lag_records.unwrap_or(0);
        self.lost_records += lag.lost_records.unwrap_or(0);
        self.lag_seconds = worse(self.lag_seconds, lag.lag_seconds);
        self.retention_ratio = worse(self.retention_ratio, lag.retention_ratio);
        let left = self.time_to_loss_seconds.into_iter().chain(lag.time_to_loss_seconds);
        self.time_to_loss_seconds = left.min();
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Groups>, ApiError> {
    let query: Query = parse_query(&uri)?;
    let limit = query.limit.unwrap_or(LISTED_GROUPS_MAX);
    if limit == 0 || LISTED_GROUPS_MAX < limit {
        let message = format!("limit is 1 to {LISTED_GROUPS_MAX}");
        return Err(ApiError::new(Code::InvalidParameter, message));
    }
    let mut page = here(&app, &query.after.unwrap_or_default(), limit).await?;
    if !is_hop(&headers) {
        let path = uri.path_and_query().map_or("/groups", |path| path.as_str());
        let others = coordinators(&app)?.into_iter().map(|broker| (broker, Bytes::new()));
        for (_, told) in ask_each::<Groups>(&app, &Method::GET, path, others).await {
            page.join(told?, limit);
        }
    }
    Ok(Json(page))
}

impl Groups {
    /// Takes in the same page of another broker's groups.
    fn join(&mut self, other: Groups, limit: usize) {
        let mut is_more = self.next.is_some() || other.next.is_some();
        self.groups.extend(other.groups);
        self.groups.sort_by(|a, b| a.group.cmp(&b.group));
        // One that moves to another coordinator may be at both.
        self.groups.dedup_by(|a, b| a.group == b.group);
        is_more |= limit < self.groups.len();
        self.groups.truncate(limit);
        self.next = self.groups.last().filter(|_| is_more).map(|group| group.group.clone());
    }
}

/// The other brokers that coordinate groups.
fn coordinators(app: &App) -> Result<BTreeSet<BrokerId>, ApiError> {
    let image = app.node.driver().image();
    let mut coordinators = BTreeSet::new();
    let partitions = image.topic(OFFSETS_TOPIC).map_or(&[][..], |topic| &topic.partitions);
    for (index, state) in partitions.iter().enumerate() {
        let Some(leader) = state.leader else {
            let message = format!("nobody leads partition {index} of {OFFSETS_TOPIC}");
            return Err(ApiError::new(Code::Unavailable, message)
                .with_help("its groups cannot be listed; try again"));
        };
        coordinators.insert(leader);
    }
    coordinators.remove(&image.me());
    Ok(coordinators)
}

/// A page of the groups that are coordinated here.
async fn here(app: &App, after: &str, limit: usize) -> Result<Groups, ApiError> {
    let all = listings(app).await;
    let mut listed = all.into_iter().filter(|listing| *after < *listing.group).peekable();
    let page: Vec<Listing> = listed.by_ref().take(limit).collect();
    let is_more = listed.peek().is_some();
    let lags = lags(app, None).await?;
    let mut totals: BTreeMap<Arc<str>, (usize, GroupTotals)> = BTreeMap::new();
    for (row, lag) in lags.rows.iter().zip(measured(app, &lags.rows).await) {
        let (partitions, total) = totals.entry(row.group.clone()).or_default();
        *partitions += 1;
        total.add(&lag);
    }
    let groups = page.into_iter().map(|listing| {
        let (partitions, lag) = totals.get(&listing.group).copied().unwrap_or_default();
        ListedGroup {
            group: listing.group.as_ref().to_owned(),
            state: listing.state.as_str().to_owned(),
            members: listing.members,
            partitions,
            lag,
        }
    });
    let groups: Vec<ListedGroup> = groups.collect();
    let next = groups.last().filter(|_| is_more).map(|group| group.group.clone());
    Ok(Groups { groups, next })
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
    use super::*;

    #[test]
    fn a_group_is_as_badly_off_as_its_worst_partition() {
        let lag = |records, seconds, ratio, left: Option<u64>| Measured {
            lag_records: Some(records),
            lag_seconds: Some(seconds),
            retention_ratio: ratio,
            time_to_loss_seconds: left,
            ..Measured::default()
        };
        let mut totals = GroupTotals::default();
        totals.add(&lag(5, 10.0, None, None));
        totals.add(&lag(7, 3.0, Some(0.25), Some(90)));
        totals.add(&lag(0, 0.0, Some(0.75), Some(30)));
        assert_eq!((totals.lag_records, totals.lag_seconds), (12, Some(10.0)));
        assert_eq!((totals.retention_ratio, totals.time_to_loss_seconds), (Some(0.75), Some(30)));
    }

    fn page(names: &[&str], next: Option<&str>) -> Groups {
        let group = |name: &&str| ListedGroup {
            group: (*name).to_owned(),
            state: "Empty".to_owned(),
            members: 0,
            partitions: 0,
            lag: GroupTotals::default(),
        };
        Groups { groups: names.iter().map(group).collect(), next: next.map(str::to_owned) }
    }

    #[test]
    fn pages_of_several_brokers_are_one() {
        let joined = |mut one: Groups, other, limit| {
            one.join(other, limit);
            let names = one.groups.into_iter().map(|group| group.group);
            (names.collect::<Vec<_>>().join(" "), one.next)
        };
        let all = joined(page(&["b", "d"], None), page(&["a", "c", "d"], None), 9);
        assert_eq!(all, ("a b c d".to_owned(), None));
        let cut = joined(page(&["b", "d"], None), page(&["a", "c"], None), 3);
        assert_eq!(cut, ("a b c".to_owned(), Some("c".to_owned())));
        let more = joined(page(&["b", "d"], Some("d")), page(&[], None), 2);
        assert_eq!(more, ("b d".to_owned(), Some("d".to_owned())));
    }
}
