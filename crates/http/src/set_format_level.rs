//! `POST /cluster/format-level?level=`: raises the level of formats, once every node reads the next one.
//! From then on no node can go back to a program that does not.

use axum::extract::State;
use axum::http::Uri;
use serde::{Deserialize, Serialize};
use towpath_metadata::{Reply, Request};

use crate::answer::Json;
use crate::api_error::{ApiError, Code};
use crate::app::App;
use crate::body::parse_query;
use crate::refusals;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    level: u16,
}

#[derive(Serialize)]
pub(crate) struct Level {
    format_level: u16,
}

pub(crate) async fn handle(State(app): State<App>, uri: Uri) -> Result<Json<Level>, ApiError> {
    let Query { level } = parse_query(&uri)?;
    let request = Request::SetFormatLevel(level);
    match app.node.ask_metadata(request).await.map_err(refusals::of_unavailable)? {
        Reply::FormatLevelSet(result) => {
            let format_level = result.map_err(|refusal| refusals::of_metadata(&refusal))?;
            Ok(Json(Level { format_level }))
        }
        _ => Err(ApiError::new(Code::Internal, "the metadata gave an answer out of turn")),
    }
}
