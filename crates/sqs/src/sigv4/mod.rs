//! Whether a request was signed by somebody who knows the secret of an access key: Signature Version
//! 4 of AWS, seen from the server.
//!
//! ```text
//!   secret ─date─region─sqs─aws4_request─▶ key          method, path, query, headers, SHA-256(body)
//!                                           │                     │ canonical form, SHA-256
//!                                           └──HMAC over algorithm, time, scope and that──▶ signature
//! ```
//!
//! A signature stands in the header `Authorization`, or in a URL's query (presigned). The caller
//! brings the time, the access keys and the names under which clients know this server; it must have
//! read all of the body, whose hash is never taken from the client: what was signed without the body
//! (UNSIGNED-PAYLOAD) does not match. What surprises: the client signs the host *it* sees, so a proxy
//! that changes `Host` breaks every signature, unless the name before the proxy is among
//! [`Verifier::hosts`].

mod canonical;
mod presented;
mod time;

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use self::presented::Presented;
use self::time::SignedAt;
use crate::error::{Error, ErrorKind};
use crate::hexadecimal::hexadecimal;

/// How far a client's clock may be from ours, in seconds. It is also for how long a request that
/// somebody has recorded can be sent again.
const SKEW_SECONDS_MAX: u64 = 15 * 60;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "sqs";
const TERMINATOR: &str = "aws4_request";

/// These decide which request it is, or whose: nobody may add them to a request that was signed
/// without them.
const SIGNED_IF_PRESENT: [&str; 2] = ["x-amz-target", "x-amz-security-token"];

/// A request, as it came.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// `POST` or `GET`.
    pub method: &'a str,
    /// The path, still escaped.
    pub path: &'a str,
    /// What follows the `?`, still escaped, or nothing.
    pub query: &'a str,
    /// All headers, in their order; their names in upper or lower case.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// All of the body.
    pub body: &'a [u8],
}

/// What belongs to an access key.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The secret; never sent.
    pub secret: String,
    /// The token that temporary keys are used with.
    pub session_token: Option<String>,
}

/// Says nothing of the secret.
impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").finish_non_exhaustive()
    }
}

/// Who has signed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The access key.
    pub access_key_id: String,
    /// The region that the client believes itself in; any word, and empty if it was not said.
    pub region: String,
}

/// What signatures are checked against.
#[derive(Debug, Clone, Copy)]
pub struct Verifier<'a> {
    /// Now, in seconds since 1970.
    pub now_seconds: u64,
    /// Names of this server, with the port where clients send one, that the header `Host` may have
    /// had when the request was signed. The one that it has now need not be among them.
    pub hosts: &'a [String],
    /// What is remembered of earlier requests.
    pub signing_keys: &'a SigningKeys,
}

impl Verifier<'_> {
    /// Finds out who has signed a request, and with which key that is worth to be remembered, if it was not yet.
    /// `access_key` gives what belongs to an access key id, if there is such a key.
    ///
    /// # Errors
    /// MissingAuthenticationToken: no signature. IncompleteSignature: one that cannot be read, or
    /// that leaves out what must be signed. InvalidClientTokenId: no such key, or not with this
    /// session token. SignatureDoesNotMatch: another request was signed, with another secret, for
    /// another service, or too long ago.
    pub fn signer(
        &self,
        request: &SignedRequest<'_>,
        access_key: impl FnOnce(&str) -> Option<AccessKey>,
    ) -> Result<(Signer, Option<DerivedKey>), Error> {
        let presented = Presented::of(request)?;
        check_signed_headers(request, &presented)?;
        check_scope(&presented)?;
        self.check_time(&presented)?;
        let key = access_key(&presented.access_key_id).ok_or_else(unknown_key)?;
        if !is_token_of(&key, presented.session_token.as_deref()) {
            return Err(unknown_key());
        }
        let derived = self.check_signature(request, &presented, &key)?;
        let signer = Signer { access_key_id: presented.access_key_id, region: presented.region };
        Ok((signer, derived))
    }

    fn check_time(&self, presented: &Presented) -> Result<(), Error> {
        let (now, signed_at) = (self.now_seconds, presented.signed_at.seconds());
        let latest = now.saturating_add(SKEW_SECONDS_MAX);
        if latest < signed_at {
            return Err(does_not_match(format!(
                "Signature not yet current: {} is still later than {} ({} + 15 min.)",
                presented.signed_at,
                SignedAt::from_seconds(latest),
                SignedAt::from_seconds(now)
            )));
        }
        // A presigned URL says for how long it holds; whoever makes it means our clock.
        let (valid_seconds, shown) = match presented.expires_seconds {
            Some(seconds) => (seconds, format!("{seconds} sec.")),
            None => (SKEW_SECONDS_MAX, "15 min.".to_owned()),
        };
        if signed_at.saturating_add(valid_seconds) < now {
            return Err(does_not_match(format!(
                "Signature expired: {} is now earlier than {} ({} - {shown})",
                presented.signed_at,
                SignedAt::from_seconds(now.saturating_sub(valid_seconds)),
                SignedAt::from_seconds(now)
            )));
        }
        Ok(())
    }

    fn check_signature(
        &self,
        request: &SignedRequest<'_>,
        presented: &Presented,
        key: &AccessKey,
    ) -> Result<Option<DerivedKey>, Error> {
        let received = canonical::header(request, "host").unwrap_or_default();
        let others = self.hosts.iter().map(|host| Cow::from(host.as_bytes()));
        let (signing_key, derived) = match self.signing_keys.find(presented, key) {
            Some(known) => (known.key, None),
            None => {
                let derived = DerivedKey::new(presented, key);
                (derived.key, Some(derived))
            }
        };
        let body_hash = hexadecimal(&Sha256::digest(request.body));
        for host in std::iter::once(received).chain(others) {
            let canonical = canonical::request(request, presented, &host, &body_hash);
            if is_signature(&signing_key, presented, &canonical) {
                return Ok(derived);
            }
        }
        Err(does_not_match(
            "The request signature we calculated does not match the signature you provided. Check \
             your AWS Secret Access Key and signing method. Consult the service documentation for \
             details.",
        ))
    }
}

/// Keys that were derived from secrets, for a day and a region: half of what a signature costs.
#[derive(Debug, Clone, Default)]
pub struct SigningKeys(Vec<DerivedKey>);

/// How many are remembered; regions are few, and each day has its own.
const SIGNING_KEYS_MAX: usize = 32;

/// One of them, with which somebody has signed.
#[derive(Clone, PartialEq, Eq)]
pub struct DerivedKey {
    day: String,
    region: String,
    access_key_id: String,
    secret: String,
    key: [u8; 32],
}

/// Says nothing of the secret.
impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivedKey").finish_non_exhaustive()
    }
}

impl DerivedKey {
    fn new(presented: &Presented, access_key: &AccessKey) -> DerivedKey {
        DerivedKey {
            day: presented.day.clone(),
            region: presented.region.clone(),
            access_key_id: presented.access_key_id.clone(),
            secret: access_key.secret.clone(),
            key: signing_key(presented, access_key),
        }
    }

    fn is_of(&self, presented: &Presented, access_key: &AccessKey) -> bool {
        self.access_key_id == presented.access_key_id
            && self.day == presented.day
            && self.region == presented.region
            && self.secret == access_key.secret
    }
}

impl SigningKeys {
    fn find(&self, presented: &Presented, access_key: &AccessKey) -> Option<&DerivedKey> {
        self.0.iter().find(|derived| derived.is_of(presented, access_key))
    }

    /// Remembers one; the one that was remembered first is forgotten where there are too many.
    pub fn remember(&mut self, derived: DerivedKey) {
        if self.0.contains(&derived) {
            return;
        }
        if SIGNING_KEYS_MAX <= self.0.len() {
            self.0.remove(0);
        }
        self.0.push(derived);
    }
}

/// Who a request says has signed it, without a look at the signature: for a server that lets in
/// everybody who reaches it. Clients that know AWS's older signatures do not say a region.
///
/// # Errors
/// MissingAuthenticationToken: no signature at all.
pub fn claimed_signer(request: &SignedRequest<'_>) -> Result<Signer, Error> {
    let credential = presented::claimed_credential(request)?.unwrap_or_default();
    let mut parts = credential.split('/');
    let access_key_id = parts.next().unwrap_or_default().to_owned();
    let region = parts.nth(1).unwrap_or_default().to_owned();
    Ok(Signer { access_key_id, region })
}

fn check_signed_headers(request: &SignedRequest<'_>, presented: &Presented) -> Result<(), Error> {
    // In order, as clients must sign them, each is there once: what is hashed is no larger than the
    // request, however often a stranger names its largest header.
    if !presented.signed_headers.is_sorted_by(|before, after| before < after) {
        return Err(incomplete(
            "'SignedHeaders' must be distinct and in the order of their names.",
        ));
    }
    let is_signed = |name: &str| presented.signed_headers.iter().any(|signed| signed == name);
    if !is_signed("host") {
        return Err(incomplete(
            "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.",
        ));
    }
    if !presented.is_presigned() && !is_signed("x-amz-date") {
        return Err(incomplete("'X-Amz-Date' must be a 'SignedHeader' in the AWS Authorization."));
    }
    for name in SIGNED_IF_PRESENT {
        if canonical::has_header(request, name) && !is_signed(name) {
            return Err(incomplete(format!(
                "'{name}' must be a 'SignedHeader' in the AWS Authorization."
            )));
        }
    }
    Ok(())
}

fn check_scope(presented: &Presented) -> Result<(), Error> {
    if presented.service != SERVICE {
        return Err(does_not_match(format!(
            "Credential should be scoped to correct service: '{SERVICE}'."
        )));
    }
    if presented.terminator != TERMINATOR {
        return Err(does_not_match(format!(
            "Credential should be scoped with a valid terminator: '{TERMINATOR}', not '{}'.",
            presented.terminator
        )));
    }
    let day = presented.signed_at.day();
    if presented.day != day {
        return Err(does_not_match(format!(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from \
             HTTP: '{}' != '{day}', from '{}'.",
            presented.day, presented.signed_at
        )));
    }
    Ok(())
}

/// Compares in a time that does not depend on where they differ.
fn is_token_of(key: &AccessKey, token: Option<&str>) -> bool {
    match (&key.session_token, token) {
        (None, None) => true,
        (Some(expected), Some(token)) => {
            let expected = hmac(key.secret.as_bytes(), expected.as_bytes()).finalize().into_bytes();
            hmac(key.secret.as_bytes(), token.as_bytes()).verify(&expected).is_ok()
        }
        _ => false,
    }
}

fn signing_key(presented: &Presented, key: &AccessKey) -> [u8; 32] {
    let first = format!("AWS4{}", key.secret).into_bytes();
    let parts = [&presented.day, &presented.region, &presented.service, &presented.terminator];
    let key = parts
        .iter()
        .fold(first, |key, part| hmac(&key, part.as_bytes()).finalize().into_bytes().to_vec());
    key.try_into().expect("SHA-256 has 32 bytes")
}

/// Takes the same time wherever the signatures differ.
fn is_signature(signing_key: &[u8], presented: &Presented, canonical_request: &[u8]) -> bool {
    let Presented { day, region, service, terminator, signed_at, .. } = presented;
    let hash = hexadecimal(&Sha256::digest(canonical_request));
    let signed = format!("{ALGORITHM}\n{signed_at}\n{day}/{region}/{service}/{terminator}\n{hash}");
    hmac(signing_key, signed.as_bytes()).verify_slice(&presented.signature).is_ok()
}

fn hmac(key: &[u8], bytes: &[u8]) -> Hmac<Sha256> {
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(key);
    let mut mac = mac.expect("HMAC takes keys of any length");
    mac.update(bytes);
    mac
}

fn unknown_key() -> Error {
    Error::new(
        ErrorKind::InvalidClientTokenId,
        "The security token included in the request is invalid.",
    )
}

fn incomplete(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::IncompleteSignature, message)
}

fn does_not_match(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::SignatureDoesNotMatch, message)
}
