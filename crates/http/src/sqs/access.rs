//! Who asks: a signature by a key that was configured, or on somebody's own machine any.

use std::sync::PoisonError;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use towpath_driver::Clock;
use towpath_sqs::sigv4::{SignedRequest, Signer, Verifier, claimed_signer};
use towpath_sqs::{Error, ErrorKind};

use crate::app::App;

/// Who has signed a request.
pub(super) fn signer(app: &App, parts: &Parts, body: &[u8]) -> Result<Signer, Error> {
    check_page(&parts.headers)?;
    let headers: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = SignedRequest {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        headers: &headers,
        body,
    };
    let sqs = &app.sqs;
    if sqs.keys.is_empty() && app.is_on_loopback && sqs.lets_anybody_in_on_loopback {
        return claimed_signer(&request);
    }
    let now = app.node.driver().clock().now().wall.0;
    let hosts: Vec<String> = sqs.advertised.iter().map(|url| host_of(url).to_owned()).collect();
    let verified = Verifier {
        now_seconds: u64::try_from(now / 1000).unwrap_or_default(),
        hosts: &hosts,
        signing_keys: &app.signing_keys.read().unwrap_or_else(PoisonError::into_inner),
    }
    .signer(&request, |id| sqs.keys.get(id));
    if sqs.keys.is_empty()
        && let Some(suppressed) = app.node.may_complain()
    {
        tracing::warn!(
            suppressed,
            "an SQS request was refused: this server has no access keys (--sqs-keys-file FILE)"
        );
    }
    let (signer, derived) = verified?;
    if let Some(derived) = derived {
        let mut known = app.signing_keys.write().unwrap_or_else(PoisonError::into_inner);
        known.remember(derived);
    }
    Ok(signer)
}

/// A web page that somebody merely visits can make their browser ask this machine, also by a mere image;
/// browsers then say so, and programs do not.
fn check_page(headers: &HeaderMap) -> Result<(), Error> {
    let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
    if site.is_none_or(|site| site == b"none" || site == b"same-origin") {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::AccessDenied,
        "A web page of another address may not use this server.",
    ))
}

/// Of `http://host:port`.
fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host).trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_others_are_told_by_what_browsers_say() {
        let site = |site: &'static str| {
            let headers: HeaderMap =
                [("sec-fetch-site".parse().unwrap(), site.parse().unwrap())].into_iter().collect();
            check_page(&headers).is_ok()
        };
        assert!(check_page(&HeaderMap::new()).is_ok() && site("none") && site("same-origin"));
        assert!(!site("cross-site") && !site("same-site") && !site("?"));
    }

    #[test]
    fn an_advertised_address_has_a_host() {
        assert_eq!(host_of("https://sqs.example.org/"), "sqs.example.org");
        assert_eq!(host_of("http://10.0.0.1:9324"), "10.0.0.1:9324");
    }
}
