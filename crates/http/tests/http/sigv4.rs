//! Signs requests of SQS as its clients do (Signature Version 4). Made for tests, apart from what verifies it.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Who signs, when, and calling the server what.
#[derive(Clone, Copy)]
pub(crate) struct Signing<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) host: &'a str,
    /// In seconds, how far its clock is ahead.
    pub(crate) ahead: i64,
}

impl Signing<'_> {
    /// The moment, as signatures have it.
    pub(crate) fn time(self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let seconds = i64::try_from(now).unwrap() + self.ahead;
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years begin in March, so that the leap day is the last.
        let since = days + 719_468;
        let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let of_year = day - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let date = of_year - (153 * month + 2) / 5 + 1;
        let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        let year = year + era * 400 + later;
        let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
        format!("{year:04}{month:02}{date:02}T{hour:02}{minute:02}{second:02}Z")
    }

    pub(crate) fn signature(self, time: &str, canonical: &str) -> String {
        let (day, region) = (&time[..8], "eu-west-1");
        let scope = format!("{day}/{region}/sqs/aws4_request");
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
        let first = format!("AWS4{}", self.secret).into_bytes();
        let key =
            [day, region, "sqs", "aws4_request"].iter().fold(first, |key, part| hmac(&key, part));
        hexadecimal(&hmac(&key, &text))
    }

    /// The headers of a post to `/` with this body: of `x-amz-date` on, a line each.
    pub(crate) fn headers(self, action: &str, body: &str) -> String {
        let (time, host) = (self.time(), self.host);
        let names = "host;x-amz-date;x-amz-target";
        let canonical = format!(
            "POST\n/\n\nhost:{host}\nx-amz-date:{time}\nx-amz-target:AmazonSQS.{action}\n\n{names}\n{}",
            hash(body.as_bytes())
        );
        let signature = self.signature(&time, &canonical);
        let (id, day) = (self.id, &time[..8]);
        format!(
            "x-amz-date: {time}\r\nx-amz-target: AmazonSQS.{action}\r\n\
             authorization: AWS4-HMAC-SHA256 Credential={id}/{day}/eu-west-1/sqs/aws4_request, \
             SignedHeaders={names}, Signature={signature}\r\n"
        )
    }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
