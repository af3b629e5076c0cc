//! The one form of a request that client and server hash, however HTTP has spelled it.

use std::borrow::Cow;
use std::fmt::Write;

use super::SignedRequest;
use super::presented::Presented;
use crate::wire::unescape;

/// Most are no longer.
const USUAL_BYTES: usize = 512;

/// The canonical request, as if the header `Host` were `host`. `body_hash` is that of the body, in
/// hexadecimal.
pub(super) fn request(
    request: &SignedRequest<'_>,
    presented: &Presented,
    host: &[u8],
    body_hash: &str,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(USUAL_BYTES);
    out.extend(request.method.as_bytes());
    out.push(b'\n');
    out.extend(path(request.path).as_bytes());
    out.push(b'\n');
    out.extend(query(request.query).as_bytes());
    out.push(b'\n');
    for name in &presented.signed_headers {
        out.extend(name.as_bytes());
        out.push(b':');
        if name == "host" {
            out.extend(host);
        } else {
            out.extend(header(request, name).unwrap_or_default().iter());
        }
        out.push(b'\n');
    }
    out.push(b'\n');
    for (at, name) in presented.signed_headers.iter().enumerate() {
        out.extend(if at == 0 { &b""[..] } else { b";" });
        out.extend(name.as_bytes());
    }
    out.push(b'\n');
    out.extend(body_hash.as_bytes());
    out
}

/// A header's value: without white space around it, with single spaces in it, and joined by commas
/// where there are several. `name` is in lower case.
pub(super) fn header<'a>(request: &SignedRequest<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let mut named = request.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    if let (Some((_, only)), None) = (named.next(), named.next())
        && is_single_spaced(only)
    {
        return Some(only.trim_ascii().into());
    }
    let named = request.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
    let values = named.map(|(_, value)| {
        let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.collect::<Vec<_>>().join(&b' ')
    });
    let values: Vec<Vec<u8>> = values.collect();
    (!values.is_empty()).then(|| values.join(&b',').into())
}

/// Whether all white space is single spaces.
fn is_single_spaced(value: &[u8]) -> bool {
    let mut was_space = false;
    value.iter().all(|byte| {
        let follows_space = std::mem::replace(&mut was_space, byte.is_ascii_whitespace());
        !was_space || *byte == b' ' && !follows_space
    })
}

/// Whether there is such a header.
pub(super) fn has_header(request: &SignedRequest<'_>, name: &str) -> bool {
    request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
}

/// The path without `.`, `..` and empty segments, escaped once more: S3's paths alone are not.
fn path(raw: &str) -> String {
    if raw == "/" {
        return raw.to_owned();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in raw.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    let mut path = String::from("/");
    path.push_str(&segments.join("/"));
    if raw.ends_with('/') && !segments.is_empty() {
        path.push('/');
    }
    escape(path.as_bytes(), b"/")
}

/// The query sorted by name and value, without the signature, each escaped in the one way.
fn query(raw: &str) -> String {
    if raw.is_empty() {
        return String::new();
    }
    let pairs = raw.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let escaped =
        pairs.map(|(name, value)| (escape(&unescape(name), b""), escape(&unescape(value), b"")));
    let mut pairs: Vec<(String, String)> =
        escaped.filter(|(name, _)| name != "X-Amz-Signature").collect();
    pairs.sort_unstable();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

fn escape(bytes: &[u8], kept: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || kept.contains(byte) {
            out.push(char::from(*byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_detours_and_are_escaped_once_more() {
        for (raw, canonical) in [
            ("", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/1/jobs", "/1/jobs"),
            ("/1//./jobs/", "/1/jobs/"),
            ("/1/../2/jobs", "/2/jobs"),
            ("/../..", "/"),
            ("/a%20b/~", "/a%2520b/~"),
            ("/ä", "/%C3%A4"),
        ] {
            assert_eq!(path(raw), canonical, "{raw}");
        }
    }

    #[test]
    fn queries_are_sorted_and_escaped_in_one_way() {
        assert_eq!(query("b=2&a=1&&a=%30&c"), "a=0&a=1&b=2&c=");
        assert_eq!(query("a=b+c%2b%7e*/"), "a=b%20c%2B~%2A%2F");
        assert_eq!(query("X-Amz-Signature=x&X-Amz-Date=y"), "X-Amz-Date=y");
    }

    #[test]
    fn headers_are_joined_and_their_white_space_is_single() {
        let request = SignedRequest {
            method: "GET",
            path: "/",
            query: "",
            headers: &[("My-Header", b"  a   b\t c "), ("Other", b"x"), ("my-header", b"d")],
            body: b"",
        };
        assert_eq!(header(&request, "my-header"), Some(b"a b c,d".into()));
        assert_eq!(header(&request, "mine"), None);
    }
}
