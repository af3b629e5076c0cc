//! Amazon SQS spoken raw: JSON, signed as every SDK signs it. ElasticMQ does not look at signatures; both are
//! sent the same.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::http::HttpConnection;

/// The access key that brokers are started with.
pub(crate) const KEYS: &str = "BENCH 0123456789abcdef0123456789abcdef";
const KEY_ID: &str = "BENCH";
const SECRET: &str = "0123456789abcdef0123456789abcdef";
const REGION: &str = "eu-west-1";
const SIGNED_HEADERS: &str = "content-type;host;x-amz-date;x-amz-target";

/// A client with one connection.
pub(crate) struct SqsClient {
    connection: HttpConnection,
    host: String,
}

impl SqsClient {
    pub(crate) async fn open(address: SocketAddr) -> Result<SqsClient> {
        let connection = HttpConnection::open(address).await?;
        Ok(SqsClient { connection, host: address.to_string() })
    }

    /// Carries out one action.
    pub(crate) async fn call(&mut self, action: &str, body: &Value) -> Result<Value> {
        let body = body.to_string();
        let headers = self.headers(action, &body);
        let answer = self.connection.post("/", &headers, body.as_bytes()).await;
        let answer = answer.with_context(|| action.to_owned())?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    fn headers(&self, action: &str, body: &str) -> String {
        let (date, time) = date_and_time();
        let target = format!("AmazonSQS.{action}");
        let body_hash = hexadecimal(&Sha256::digest(body));
        let canonical = format!(
            "POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{}\nx-amz-date:{time}\n\
             x-amz-target:{target}\n\n{SIGNED_HEADERS}\n{body_hash}",
            self.host
        );
        let scope = format!("{date}/{REGION}/sqs/aws4_request");
        let canonical_hash = hexadecimal(&Sha256::digest(canonical));
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{canonical_hash}");
        let first = authenticate(format!("AWS4{SECRET}").as_bytes(), date.as_bytes());
        let key = [REGION, "sqs", "aws4_request"]
            .iter()
            .fold(first, |key, part| authenticate(&key, part.as_bytes()));
        let signature = hexadecimal(&authenticate(&key, to_sign.as_bytes()));
        format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: {target}\r\n\
             x-amz-date: {time}\r\nauthorization: AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, \
             SignedHeaders={SIGNED_HEADERS}, Signature={signature}\r\n"
        )
    }
}

fn authenticate(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length is taken");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `20261130` and `20261130T201500Z`.
fn date_and_time() -> (String, String) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(now / 86_400);
    let date = format!("{year:04}{month:02}{day:02}");
    let (hour, minute, second) = (now / 3_600 % 24, now / 60 % 60, now % 60);
    (date.clone(), format!("{date}T{hour:02}{minute:02}{second:02}Z"))
}

/// The date of a day since 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_787), (2026, 11, 30));
    }
}
