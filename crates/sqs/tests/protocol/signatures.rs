//! Signatures by botocore, of all requests in `captured/`: in headers and in URLs, with and
//! without a session token; and what happens when anything of such a request is changed.

use proptest::prelude::*;
use towpath_sqs::sigv4::{AccessKey, SignedRequest, Signer, SigningKeys, Verifier};
use towpath_sqs::{Error, ErrorKind};

use crate::captured::Captured;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TOKEN: &str = "FwoGZXIvYXdzE//session+token==";

/// A request that can be changed before it is checked.
#[derive(Debug, Clone)]
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    key: AccessKey,
    signed_at_seconds: u64,
}

impl Request {
    fn of(captured: &Captured) -> Request {
        let session_token = Some(captured.text("token")).filter(|token| !token.is_empty());
        let mut request = Request {
            method: captured.text("method").to_owned(),
            path: captured.text("path").to_owned(),
            query: captured.text("query").to_owned(),
            headers: captured.headers(),
            body: captured.body(),
            key: AccessKey {
                secret: SECRET.to_owned(),
                session_token: session_token.map(ToOwned::to_owned),
            },
            signed_at_seconds: 0,
        };
        let date = match request.header("X-Amz-Date") {
            Some(date) => String::from_utf8(date.clone()).unwrap(),
            None => {
                let (_, date) = request.query.split_once("X-Amz-Date=").unwrap();
                date[..16].to_owned()
            }
        };
        request.signed_at_seconds = seconds(&date);
        request
    }

    fn all() -> impl Iterator<Item = Request> {
        Captured::all().map(|captured| Request::of(&captured))
    }

    fn posted() -> Request {
        Request::all().next().unwrap()
    }

    fn presigned() -> Request {
        Request::all().find(|request| request.method == "GET").unwrap()
    }

    fn with_token() -> Request {
        Request::all().find(|request| request.key.session_token.is_some()).unwrap()
    }

    fn header(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        let named = |header: &&mut (String, Vec<u8>)| header.0 == name;
        self.headers.iter_mut().find(named).map(|(_, value)| value)
    }

    fn replace(&mut self, name: &str, from: &str, to: &str) {
        let value = self.header(name).unwrap();
        let text = String::from_utf8(value.clone()).unwrap();
        assert!(text.contains(from), "{text}");
        *value = text.replace(from, to).into_bytes();
    }

    fn signer(&self) -> Result<Signer, Error> {
        self.signer_at(self.signed_at_seconds, &[])
    }

    fn signer_at(&self, now_seconds: u64, hosts: &[String]) -> Result<Signer, Error> {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), &value[..])).collect();
        let request = SignedRequest {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            headers: &headers,
            body: &self.body,
        };
        let key = |id: &str| (id == "AKIDEXAMPLE").then(|| self.key.clone());
        let mut known = SigningKeys::default();
        let (signer, derived) =
            Verifier { now_seconds, hosts, signing_keys: &known }.signer(&request, key)?;
        known.remember(derived.expect("nothing was known"));
        // What is remembered changes no answer.
        let again = Verifier { now_seconds, hosts, signing_keys: &known }.signer(&request, key);
        assert_eq!(again, Ok((signer.clone(), None)));
        Ok(signer)
    }

    fn refusal(&self) -> (ErrorKind, String) {
        let error = self.signer().expect_err("it was changed");
        (error.kind(), error.message().to_owned())
    }
}

/// All were recorded on one day.
fn seconds(date: &str) -> u64 {
    const BEGIN_OF_30_NOVEMBER_2026: u64 = 1_795_996_800;
    let time = date.strip_prefix("20261130T").unwrap();
    let number = |range: std::ops::Range<usize>| time[range].parse::<u64>().unwrap();
    BEGIN_OF_30_NOVEMBER_2026 + number(0..2) * 3600 + number(2..4) * 60 + number(4..6)
}

#[test]
fn what_botocore_signs_is_signed() {
    let mut count = 0;
    for request in Request::all() {
        let signer = request.signer().unwrap_or_else(|error| panic!("{error}\n{request:?}"));
        assert_eq!(signer.access_key_id, "AKIDEXAMPLE");
        assert_eq!(signer.region, "eu-west-1");
        count += 1;
    }
    assert_eq!(count, 364);
}

#[test]
fn nothing_that_is_signed_can_be_changed() {
    let mismatch = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::posted();
        change(&mut request);
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::SignatureDoesNotMatch);
        assert!(message.starts_with("The request signature we calculated does not match"));
    };
    mismatch(&|request| request.method = "PUT".to_owned());
    mismatch(&|request| request.path = "/1".to_owned());
    mismatch(&|request| request.query = "a=b".to_owned());
    mismatch(&|request| request.body[0] ^= 1);
    mismatch(&|request| request.body.clear());
    mismatch(&|request| request.key.secret.push('x'));
    mismatch(&|request| request.replace("Host", "queues", "queue"));
    mismatch(&|request| request.replace("X-Amz-Target", "AddPermission", "DeleteQueue"));
    mismatch(&|request| request.replace("Authorization", "eu-west-1", "eu-west-2"));
    mismatch(&|request| request.replace("Authorization", "Signature=", "Signature=0"));
    mismatch(&|request| request.replace("Authorization", "Signature=", "Signature=xx"));
    mismatch(&|request| request.headers.push(("host".to_owned(), b"other".to_vec())));
    mismatch(&|request| request.headers.retain(|(name, _)| name != "Content-Type"));
}

#[test]
fn what_must_be_signed_cannot_be_left_out() {
    let incomplete = |header: &str| {
        let mut request = Request::posted();
        request.replace("Authorization", header, "");
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::IncompleteSignature);
        assert!(message.ends_with("must be a 'SignedHeader' in the AWS Authorization."));
    };
    incomplete("host;");
    incomplete("x-amz-date;");
    incomplete("x-amz-target;");
    // Nobody makes another request of a presigned URL.
    let mut presigned = Request::presigned();
    presigned.headers.push(("x-amz-target".to_owned(), b"AmazonSQS.DeleteQueue".to_vec()));
    assert_eq!(presigned.refusal().0, ErrorKind::IncompleteSignature);
}

#[test]
fn a_header_is_signed_once() {
    for (from, to) in [("host;", "host;host;"), ("content-type;host", "host;content-type")] {
        let mut request = Request::posted();
        request.replace("Authorization", from, to);
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::IncompleteSignature);
        assert!(message.contains("must be distinct"), "{message}");
    }
}

#[test]
fn scopes_are_of_this_service_and_of_the_day() {
    let refusal = |from: &str, to: &str| {
        let mut request = Request::posted();
        request.replace("Authorization", from, to);
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::SignatureDoesNotMatch);
        message
    };
    assert_eq!(refusal("/sqs/", "/sns/"), "Credential should be scoped to correct service: 'sqs'.");
    assert_eq!(
        refusal("aws4_request", "aws5_request"),
        "Credential should be scoped with a valid terminator: 'aws4_request', not 'aws5_request'."
    );
    let day = refusal("/20261130/", "/20261129/");
    assert!(day.starts_with("Date in Credential scope does not match YYYYMMDD"), "{day}");
}

#[test]
fn clocks_may_differ_by_15_minutes() {
    let request = Request::posted();
    let at = |offset: i64| {
        let now = request.signed_at_seconds.checked_add_signed(offset).unwrap();
        request.signer_at(now, &[]).map_err(|error| (error.kind(), error.message().to_owned()))
    };
    assert!(at(900).is_ok() && at(-900).is_ok());
    let (kind, late) = at(901).unwrap_err();
    assert_eq!(kind, ErrorKind::SignatureDoesNotMatch);
    assert!(late.starts_with("Signature expired: 20261130T"), "{late}");
    assert!(late.ends_with(" - 15 min.)"), "{late}");
    let (kind, early) = at(-901).unwrap_err();
    assert_eq!(kind, ErrorKind::SignatureDoesNotMatch);
    assert!(early.starts_with("Signature not yet current: 20261130T"), "{early}");
    assert!(request.signer_at(u64::MAX, &[]).is_err() && request.signer_at(0, &[]).is_err());
}

#[test]
fn a_presigned_url_holds_as_long_as_it_says() {
    let request = Request::presigned();
    let at = |offset: i64| {
        let now = request.signed_at_seconds.checked_add_signed(offset).unwrap();
        request.signer_at(now, &[]).is_ok()
    };
    assert!(at(600) && at(-900));
    assert!(!at(601) && !at(-901));
    for (from, to) in [
        ("Expires=600", "Expires=6000"),
        ("Expires=600", "Expires=0"),
        ("Expires=600", "Expires=604801"),
        ("Action=AddPermission", "Action=DeleteQueue"),
        ("X-Amz-Algorithm", "X-Amz-Algorism"),
        ("SignedHeaders=host", "SignedHeaders=date"),
    ] {
        let mut changed = request.clone();
        changed.query = changed.query.replace(from, to);
        assert_ne!(changed.query, request.query);
        assert!(changed.signer().is_err(), "{to}");
    }
    let mut with_body = request.clone();
    with_body.body = b"Action=DeleteQueue".to_vec();
    assert!(with_body.signer().is_err());
}

#[test]
fn a_session_token_belongs_to_its_key() {
    let invalid = |request: &Request| {
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::InvalidClientTokenId);
        assert_eq!(message, "The security token included in the request is invalid.");
    };
    let request = Request::with_token();
    let mut other = request.clone();
    other.key.session_token = Some(TOKEN.to_owned() + "x");
    invalid(&other);
    let mut none = request.clone();
    none.key.session_token = None;
    invalid(&none);
    let mut wanted = Request::posted();
    wanted.key.session_token = Some(TOKEN.to_owned());
    invalid(&wanted);
    let mut unknown = Request::posted();
    unknown.replace("Authorization", "AKIDEXAMPLE", "AKIDOTHER");
    invalid(&unknown);
    let mut unsigned = request;
    unsigned.replace("Authorization", "x-amz-security-token;", "");
    assert_eq!(unsigned.refusal().0, ErrorKind::IncompleteSignature);
}

#[test]
fn a_host_that_a_proxy_has_changed_is_one_of_a_list() {
    let mut request = Request::posted();
    request.replace("Host", "queues.example:9324", "10.0.0.1:8080");
    let now = request.signed_at_seconds;
    assert!(request.signer_at(now, &[]).is_err());
    let hosts = ["other.example".to_owned(), "queues.example:9324".to_owned()];
    assert!(request.signer_at(now, &hosts).is_ok());
    assert!(request.signer_at(now, &hosts[..1]).is_err());
    assert!(Request::posted().signer_at(now, &hosts[..1]).is_ok());
}

#[test]
fn what_is_no_signature_says_so() {
    let mut unsigned = Request::posted();
    unsigned.headers.retain(|(name, _)| name != "Authorization");
    assert_eq!(
        unsigned.refusal(),
        (
            ErrorKind::MissingAuthenticationToken,
            "Request is missing Authentication Token".to_owned()
        )
    );
    let refusal = |from: &str, to: &str| {
        let mut request = Request::posted();
        request.replace("Authorization", from, to);
        let (kind, message) = request.refusal();
        assert_eq!(kind, ErrorKind::IncompleteSignature);
        message
    };
    assert_eq!(refusal("AWS4-HMAC-SHA256", "AWS"), "Unsupported AWS 'algorithm': 'AWS'.");
    for part in ["Credential", "SignedHeaders", "Signature"] {
        let message = refusal(&format!("{part}="), "x=");
        assert_eq!(message, format!("Authorization header requires '{part}' parameter."));
    }
    assert!(refusal("/sqs/", "/").starts_with("Credential must have exactly 5"));
    let mut undated = Request::posted();
    undated.replace("X-Amz-Date", "T", "t");
    assert!(undated.refusal().1.starts_with("Date must be in ISO-8601 'basic format'."));
    undated.headers.retain(|(name, _)| name != "X-Amz-Date");
    assert!(undated.refusal().1.ends_with("existence of a 'X-Amz-Date' header."));
}

#[test]
fn spellings_that_mean_the_same_are_the_same() {
    let mut request = Request::posted();
    for (name, value) in &mut request.headers {
        name.make_ascii_uppercase();
        value.insert(0, b' ');
        value.push(b' ');
    }
    assert!(request.signer().is_ok());
    let mut reordered = Request::presigned();
    let pairs: Vec<&str> = reordered.query.split('&').rev().collect();
    reordered.query = pairs.join("&").replace("%2A", "*");
    assert!(reordered.signer().is_ok());
    let mut tight = Request::posted();
    tight.replace("Authorization", ", ", ",");
    assert!(tight.signer().is_ok());
}

#[test]
fn secrets_are_not_shown() {
    let request = Request::with_token();
    assert_eq!(format!("{:?}", request.key), "AccessKey { .. }");
}

proptest! {
    #[test]
    fn a_changed_byte_of_the_body_is_seen(at in any::<prop::sample::Index>(), bit in 0..8) {
        let mut request = Request::posted();
        let at = at.index(request.body.len());
        request.body[at] ^= 1u8 << bit;
        prop_assert!(request.signer().is_err());
    }

    #[test]
    fn no_header_is_too_strange(authorization in any::<Vec<u8>>(), rest in ".*", query in ".*") {
        let mut request = Request::posted();
        *request.header("Authorization").unwrap() = authorization;
        prop_assert!(request.signer().is_err());
        *request.header("Authorization").unwrap() = format!("AWS4-HMAC-SHA256 {rest}").into_bytes();
        prop_assert!(request.signer().is_err());
        request.headers.retain(|(name, _)| name != "Authorization");
        request.query = format!("X-Amz-Signature=x&{query}");
        prop_assert!(request.signer().is_err());
    }
}
