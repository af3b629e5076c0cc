//! `POST /lag`: how far a reader at given offsets is behind, and how long it has until retention overtakes
//! it. A broker answers for the partitions that it leads: whoever coordinates a group asks their leaders.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use towpath_driver::{GroupLag, Lag, Standing};
use towpath_model::{BrokerId, Offset, PartitionIndex, TopicPartition};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::{AtMost, parse_json, read_body};
use crate::forward::{ask_each, leader_of};
use crate::limits::LAGS_MAX;

/// Where a reader is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    topic: String,
    partition: i32,
    /// The first offset that it has not processed.
    offset: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Places {
    offsets: AtMost<LAGS_MAX, Place>,
}

#[derive(Serialize)]
struct GivenPlaces<'p> {
    offsets: &'p [Place],
}

/// How far a reader is behind; everything is null where nobody who leads the partition was asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) log_start_offset: Option<i64>,
    pub(crate) high_watermark: Option<i64>,
    pub(crate) lag_records: Option<i64>,
    pub(crate) lag_seconds: Option<f64>,
    pub(crate) lag_bytes: Option<u64>,
    pub(crate) retention_ratio: Option<f64>,
    pub(crate) time_to_loss_seconds: Option<u64>,
    pub(crate) lost_records: Option<i64>,
}

impl Measured {
    pub(crate) fn of((standing, lag): &(Standing, Lag)) -> Measured {
        Measured {
            log_start_offset: Some(standing.log_start_offset.0),
            high_watermark: Some(standing.high_watermark.0),
            lag_records: Some(lag.records),
            lag_seconds: lag.age_seconds(),
            lag_bytes: Some(lag.bytes),
            retention_ratio: lag.rounded_ratio(),
            time_to_loss_seconds: lag.seconds_to_loss(),
            lost_records: Some(lag.lost_records),
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Lags {
    /// In the order of what was asked.
    lags: Vec<Measured>,
}

pub(crate) async fn handle(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Lags>, ApiError> {
    let (bytes, _share) = read_body(&app.memory, &headers, body).await?;
    let places = parse_json::<Places>(&bytes)?.offsets.0;
    for place in &places {
        let topic = app.topic(&place.topic)?;
        if u32::try_from(place.partition).map_or(true, |index| topic.partitions.get() <= index) {
            return Err(topic.no_partition(place.partition));
        }
    }
    // Headers of records are read from the disk for it.
    let look = move || {
        let driver = app.node.driver();
        let lag = |place: &Place| {
            driver.lag_at(&place.topic, PartitionIndex(place.partition), Offset(place.offset))
        };
        let lags = places.iter().map(|place| lag(place).as_ref().map(Measured::of));
        lags.map(Option::unwrap_or_default).collect()
    };
    let looked = tokio::task::spawn_blocking(look).await;
    let lags =
        looked.map_err(|_| ApiError::new(Code::Internal, "the lag could not be computed"))?;
    Ok(Json(Lags { lags }))
}

/// The lag of each row: as it was found here, or as the leader of its partition says.
pub(crate) async fn measured(app: &App, rows: &[GroupLag]) -> Vec<Measured> {
    let mut measured: Vec<Measured> = Vec::with_capacity(rows.len());
    let mut elsewhere: BTreeMap<BrokerId, Vec<usize>> = BTreeMap::new();
    let me = app.node.driver().broker_id();
    for (at, row) in rows.iter().enumerate() {
        measured.push(row.here.as_ref().map(Measured::of).unwrap_or_default());
        let leader = row.here.is_none().then(|| leader_of_row(app, row)).flatten();
        if let Some(leader) = leader.filter(|leader| *leader != me) {
            elsewhere.entry(leader).or_default().push(at);
        }
    }
    let body = |places: &Vec<usize>| {
        let places = places.iter().map(|at| Place {
            topic: rows[*at].topic.as_str().to_owned(),
            partition: rows[*at].partition.0,
            offset: rows[*at].committed.0,
        });
        let places: Vec<Place> = places.collect();
        let given = GivenPlaces { offsets: &places };
        Bytes::from(serde_json::to_vec(&given).expect("texts and numbers are JSON"))
    };
    let bodies: Vec<_> = elsewhere.iter().map(|(leader, at)| (*leader, body(at))).collect();
    for (leader, told) in ask_each::<Lags>(app, &Method::POST, "/lag", bodies).await {
        match told {
            Ok(told) => {
                let rows = elsewhere.get(&leader).into_iter().flatten();
                rows.zip(told.lags).for_each(|(at, lag)| measured[*at] = lag);
            }
            Err(error) => {
                tracing::debug!(%leader, error = %error.message, "the lag in some partitions is not known");
            }
        }
    }
    measured
}

fn leader_of_row(app: &App, row: &GroupLag) -> Option<BrokerId> {
    let topic = app.node.driver().image().topic(row.topic.as_str())?.id;
    leader_of(app, TopicPartition { topic, partition: row.partition })
}
