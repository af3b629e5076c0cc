//! Which messages: the flags that `redrive` and `drop` share.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::when::{When, now_millis, parse_when};

#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Only dead letters with this reason: too-many-receives, expired, rejected, undecodable
    #[arg(long)]
    reason: Option<String>,
    /// Only those that come from this queue
    #[arg(long, value_name = "QUEUE")]
    source: Option<String>,
    /// Only those that were rejected with a note that has this in it
    #[arg(long, value_name = "TEXT")]
    note_contains: Option<String>,
    /// Only those of this message group
    #[arg(long)]
    group: Option<String>,
    /// Only those whose value has this in it
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only those with this header: NAME, NAME=VALUE, or NAME~PART
    #[arg(long = "header", value_name = "CONDITION", value_parser = parse_header)]
    headers: Vec<HeaderCondition>,
    /// Only these messages
    #[arg(long = "id")]
    ids: Vec<String>,
    /// Only those that were sent first at that time or later: -2h, RFC 3339, @MILLISECONDS
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    sent_from: Option<i64>,
    /// Only those that were sent first before that time
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    sent_before: Option<i64>,
    /// Only those that came to this queue at that time or later
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    dead_from: Option<i64>,
    /// Only those that came to this queue before that time
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    dead_before: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HeaderCondition(Value);

impl FilterArgs {
    /// As the API has it.
    pub(super) fn as_json(&self) -> Value {
        let mut filter = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            filter.extend(value.map(|value| (name.to_owned(), value)));
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        put("reason", text(&self.reason));
        put("source", text(&self.source));
        put("note_contains", text(&self.note_contains));
        put("group", text(&self.group));
        put("value_contains", text(&self.contains));
        put("sent_from_ms", self.sent_from.map(Value::from));
        put("sent_before_ms", self.sent_before.map(Value::from));
        put("dead_from_ms", self.dead_from.map(Value::from));
        put("dead_before_ms", self.dead_before.map(Value::from));
        let headers: Vec<Value> = self.headers.iter().map(|header| header.0.clone()).collect();
        put("headers", (!headers.is_empty()).then(|| headers.into()));
        put("ids", (!self.ids.is_empty()).then(|| self.ids.clone().into()));
        filter.into()
    }
}

fn parse_header(text: &str) -> Result<HeaderCondition, String> {
    let (name, condition) = match text.find(['=', '~']) {
        None => (text, json!({})),
        Some(at) => {
            let (name, rest) = text.split_at(at);
            let value = &rest[1..];
            match rest.starts_with('=') {
                true => (name, json!({ "equals": value })),
                false => (name, json!({ "contains": value })),
            }
        }
    };
    if name.is_empty() {
        return Err(format!("{text:?} names no header: write NAME, NAME=VALUE or NAME~PART"));
    }
    let mut condition = condition;
    condition["name"] = name.into();
    Ok(HeaderCondition(condition))
}

fn parse_time(text: &str) -> Result<i64, String> {
    match parse_when(text)? {
        When::At(millis) => Ok(millis),
        When::Ago(ago) => {
            let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
            Ok(now_millis().saturating_sub(ago))
        }
        _ => Err(format!("{text:?} is no time: write -2h, 2026-11-29T17:00:00Z or @1700000000000")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        filter: FilterArgs,
    }

    fn filter(words: &[&str]) -> Value {
        Words::parse_from([&["x"], words].concat()).filter.as_json()
    }

    #[test]
    fn conditions_are_what_the_api_calls_them() {
        assert_eq!(filter(&[]), json!({}));
        assert_eq!(
            filter(&[
                "--reason",
                "rejected",
                "--contains",
                "card",
                "--header",
                "trace=a=b",
                "--header",
                "span~x",
                "--header",
                "x",
                "--id",
                "0-1",
                "--dead-before",
                "@1000",
            ]),
            json!({
                "reason": "rejected",
                "value_contains": "card",
                "headers": [
                    {"name": "trace", "equals": "a=b"},
                    {"name": "span", "contains": "x"},
                    {"name": "x"},
                ],
                "ids": ["0-1"],
                "dead_before_ms": 1000,
            })
        );
    }

    #[test]
    fn times_are_times_and_headers_have_names() {
        let ago = parse_time("-1h").unwrap();
        assert!((now_millis() - ago - 3_600_000).abs() < 10_000);
        assert!(parse_time("earliest").unwrap_err().contains("is no time"));
        assert!(parse_header("=x").is_err());
    }
}
