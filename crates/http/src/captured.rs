//! The parts of a path that a route captures, with our own error where they are not text.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::api_error::{ApiError, Code};

/// What a route captured.
pub(crate) struct Captured<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Captured<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(captured)) => Ok(Captured(captured)),
            Err(rejection) => {
                let message = format!("the path cannot be read: {}", rejection.body_text());
                Err(ApiError::new(Code::InvalidParameter, message))
            }
        }
    }
}
