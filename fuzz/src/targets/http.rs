//! What callers send over HTTP: bodies, queries, points in time.

use towpath_http::Part;

use crate::shape::Shape;
use crate::target::Target;

/// `which u8 │ bytes`.
pub(super) const HTTP: Target =
    Target { name: "http", seeds, run: parse, memory_max: 1 << 20, waits_for_others: false };

fn parse(input: &[u8]) -> Shape {
    let Some((which, bytes)) = input.split_first() else { return Shape::default() };
    let part = Part::ALL[usize::from(*which) % Part::ALL.len()];
    let shape = Shape::default().word(&format!("{part:?}"));
    match part.parse(bytes) {
        Err(code) => shape.word(&format!("{code:?}")),
        Ok(count) => shape.word("parsed").size(count),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds: [(u8, &str); 16] = [
        (0, r#"{"value":"v"}"#),
        (0, r#"{"key":"aGk=","key_encoding":"base64","value":null,"partition":2,"timestamp":5}"#),
        (0, r#"{"value":"v","producer_id":7,"sequence":3,"headers":{"a":"b"}}"#),
        (0, r#"{"value":"v","headers":[{"name":"a","value":"Yg==","value_encoding":"base64"}]}"#),
        (0, r#"{"messages":[{"value":"v","timestamp":"2026-01-01T00:00:00Z"},{"value":"w"}]}"#),
        (1, r#"{"topic":"t","partition":0,"offset":5,"metadata":"m"}"#),
        (1, r#"{"offsets":[{"topic":"t","partition":0,"offset":5}]}"#),
        (2, r#"{"name":"t","partitions":3,"configs":{"retention.ms":7,"durability":"relaxed"}}"#),
        (3, "offset=earliest&group=g&max_bytes=1000&wait_ms=5"),
        (3, "offset=17"),
        (4, "after=a%20b&limit=10"),
        (5, "timestamp=2026-01-01T00:00:00Z"),
        (6, "topic=t"),
        (7, "2026-02-29T23:59:60.123456+01:30"),
        (7, "latest"),
        (7, "1795974095250"),
    ];
    seeds.map(|(which, text)| [&[which], text.as_bytes()].concat()).into()
}
