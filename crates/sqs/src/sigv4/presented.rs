//! What a client says of its signature, in `Authorization` or in the query.

use std::ops::RangeInclusive;

use super::time::SignedAt;
use super::{ALGORITHM, SignedRequest, canonical, incomplete};
use crate::error::{Error, ErrorKind};
use crate::hexadecimal::from_hexadecimal;
use crate::wire::query_parameters;

/// For how many seconds a presigned URL may hold: up to a week.
const EXPIRES_SECONDS: RangeInclusive<u64> = 1..=604_800;

/// A signature and what it claims.
#[derive(Debug)]
pub(super) struct Presented {
    pub(super) access_key_id: String,
    /// `20150830`, of the credential's scope.
    pub(super) day: String,
    pub(super) region: String,
    pub(super) service: String,
    pub(super) terminator: String,
    /// In lower case, in the order in which they were signed.
    pub(super) signed_headers: Vec<String>,
    pub(super) signature: Vec<u8>,
    pub(super) signed_at: SignedAt,
    pub(super) session_token: Option<String>,
    /// Only of presigned URLs: for how long they hold.
    pub(super) expires_seconds: Option<u64>,
}

/// What a request says of its credential, wherever and however it says it; nothing where it has a
/// signature that does not name one.
///
/// # Errors
/// MissingAuthenticationToken: it has none.
pub(super) fn claimed_credential(request: &SignedRequest<'_>) -> Result<Option<String>, Error> {
    if let Some(authorization) = canonical::header(request, "authorization") {
        let text = String::from_utf8_lossy(&authorization).into_owned();
        let parts = text.split([' ', ',']).filter_map(|part| part.trim().split_once('='));
        let mut credentials = parts.filter(|(name, _)| *name == "Credential");
        return Ok(credentials.next().map(|(_, credential)| credential.to_owned()));
    }
    let parameters = query_parameters(request.query)?;
    let parameter = |name: &str| {
        parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone())
    };
    let credential = parameter("X-Amz-Credential").or_else(|| parameter("AWSAccessKeyId"));
    credential.map(Some).ok_or_else(missing)
}

fn missing() -> Error {
    Error::new(ErrorKind::MissingAuthenticationToken, "Request is missing Authentication Token")
}

impl Presented {
    pub(super) fn of(request: &SignedRequest<'_>) -> Result<Presented, Error> {
        if let Some(authorization) = canonical::header(request, "authorization") {
            return Presented::in_header(request, &authorization);
        }
        let parameters = query_parameters(request.query)?;
        let parameter = |name: &str| {
            let found = parameters.iter().find(|(given, _)| given == name);
            found.map(|(_, value)| value.as_str())
        };
        if parameter("X-Amz-Algorithm").is_none() && parameter("X-Amz-Signature").is_none() {
            return Err(missing());
        }
        Presented::in_query(parameter)
    }

    /// Whether it is that of a URL.
    pub(super) fn is_presigned(&self) -> bool {
        self.expires_seconds.is_some()
    }

    fn in_header(request: &SignedRequest<'_>, authorization: &[u8]) -> Result<Presented, Error> {
        let header = |name: &str| {
            let value = canonical::header(request, name);
            value.and_then(|value| String::from_utf8(value.into_owned()).ok())
        };
        let authorization = std::str::from_utf8(authorization).unwrap_or_default();
        let (algorithm, rest) = authorization.split_once(' ').unwrap_or((authorization, ""));
        check_algorithm(algorithm)?;
        let part = |name: &str| {
            let mut parts = rest.split(',').filter_map(|part| part.trim().split_once('='));
            let found = parts.find(|(given, _)| *given == name).map(|(_, value)| value);
            found.ok_or_else(|| {
                incomplete(format!("Authorization header requires '{name}' parameter."))
            })
        };
        let date = header("x-amz-date").ok_or_else(|| {
            incomplete("Authorization header requires existence of a 'X-Amz-Date' header.")
        })?;
        Presented::read(&Parts {
            credential: part("Credential")?,
            signed_headers: part("SignedHeaders")?,
            signature: part("Signature")?,
            date: &date,
            session_token: header("x-amz-security-token").as_deref(),
            expires_seconds: None,
        })
    }

    fn in_query<'a>(parameter: impl Fn(&str) -> Option<&'a str>) -> Result<Presented, Error> {
        let required = |name: &str| {
            parameter(name).ok_or_else(|| {
                incomplete(format!("AWS query-string parameters must include '{name}'."))
            })
        };
        check_algorithm(required("X-Amz-Algorithm")?)?;
        let expires = required("X-Amz-Expires")?;
        let expires_seconds =
            expires.parse().ok().filter(|seconds| EXPIRES_SECONDS.contains(seconds));
        let expires_seconds = expires_seconds.ok_or_else(|| {
            incomplete("X-Amz-Expires must be a number of seconds from 1 to 604800.")
        })?;
        Presented::read(&Parts {
            credential: required("X-Amz-Credential")?,
            signed_headers: required("X-Amz-SignedHeaders")?,
            signature: required("X-Amz-Signature")?,
            date: required("X-Amz-Date")?,
            session_token: parameter("X-Amz-Security-Token"),
            expires_seconds: Some(expires_seconds),
        })
    }

    fn read(parts: &Parts<'_>) -> Result<Presented, Error> {
        let credential: Vec<&str> = parts.credential.split('/').collect();
        let Ok([access_key_id, day, region, service, terminator]) =
            <[&str; 5]>::try_from(credential)
        else {
            return Err(incomplete(format!(
                "Credential must have exactly 5 slash-delimited elements, e.g. \
                 keyid/date/region/service/term, got '{}'",
                parts.credential
            )));
        };
        let signed_at = SignedAt::parse(parts.date).ok_or_else(|| {
            incomplete(format!(
                "Date must be in ISO-8601 'basic format'. Got '{}'. See \
                 http://en.wikipedia.org/wiki/ISO_8601",
                parts.date
            ))
        })?;
        let signed_headers = parts.signed_headers.split(';').map(str::to_ascii_lowercase);
        Ok(Presented {
            access_key_id: access_key_id.to_owned(),
            day: day.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
            terminator: terminator.to_owned(),
            signed_headers: signed_headers.collect(),
            // What is no hexadecimal number is no signature of anything.
            signature: from_hexadecimal(parts.signature).unwrap_or_default(),
            signed_at,
            session_token: parts.session_token.map(ToOwned::to_owned),
            expires_seconds: parts.expires_seconds,
        })
    }
}

struct Parts<'a> {
    credential: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
    date: &'a str,
    session_token: Option<&'a str>,
    expires_seconds: Option<u64>,
}

fn check_algorithm(algorithm: &str) -> Result<(), Error> {
    if algorithm == ALGORITHM {
        Ok(())
    } else {
        Err(incomplete(format!("Unsupported AWS 'algorithm': '{algorithm}'.")))
    }
}
