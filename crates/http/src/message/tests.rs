use super::*;

fn one(json: &str) -> NewMessage {
    match Publish::parse(json.as_bytes()) {
        Ok(Publish::One(message)) => message,
        other => panic!("{json}: {other:?}"),
    }
}

fn refusal(json: &str) -> (Code, String) {
    let error = Publish::parse(json.as_bytes()).unwrap_err();
    (error.code, error.message)
}

#[test]
fn a_value_is_enough() {
    let message = one(r#"{"value":"it works"}"#);
    assert_eq!(message.value.as_deref(), Some(&b"it works"[..]));
    assert_eq!(message.key, None);
    assert_eq!(message.headers, []);
    assert_eq!((message.timestamp, message.partition, message.producer), (None, None, None));
}

#[test]
fn every_field_is_read() {
    let message =
        one(r#"{"key":"/wA=","key_encoding":"base64","value":null,"headers":{"a":"1","b":null},
            "timestamp":"1970-01-01T00:00:01Z","partition":2,"producer_id":7,"sequence":9}"#);
    assert_eq!(message.key, Some(vec![0xff, 0x00]));
    assert_eq!(message.value, None);
    let headers = vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None)];
    assert_eq!(message.headers, headers);
    assert_eq!(message.timestamp, Some(Timestamp(1000)));
    assert_eq!(message.partition, Some(2));
    assert_eq!(message.producer, Some(("7".to_owned(), 9)));
}

#[test]
fn headers_may_repeat_and_hold_any_bytes_in_a_list() {
    let message = one(r#"{"value":"","headers":[{"name":"a","value":"x"},
            {"name":"a","value":"/w","value_encoding":"base64"}]}"#);
    let headers = vec![(b"a".to_vec(), Some(b"x".to_vec())), (b"a".to_vec(), Some(vec![0xff]))];
    assert_eq!(message.headers, headers);
}

#[test]
fn a_number_and_its_text_are_one_producer() {
    let number = one(r#"{"value":"","producer_id":7,"sequence":0}"#);
    let text = one(r#"{"value":"","producer_id":"7","sequence":0}"#);
    assert_eq!(number.producer, text.producer);
}

#[test]
fn several_messages_come_in_a_list() {
    let body = br#"{"messages":[{"value":"a"},{"value":"b"}]}"#;
    let Ok(Publish::Many(messages)) = Publish::parse(body) else { panic!("not a list") };
    assert_eq!(messages.len(), 2);
}

#[test]
fn mistakes_are_named() {
    let check = |json: &str, code: Code, part: &str| {
        let (found, message) = refusal(json);
        assert_eq!(found, code, "{json}");
        assert!(message.contains(part), "{json}: {message}");
    };
    check("", Code::InvalidJson, "empty");
    check("[1]", Code::InvalidJson, "cannot be read");
    check("{}", Code::InvalidJson, "missing field `value`");
    check(r#"{"vlaue":"a"}"#, Code::InvalidJson, "vlaue");
    check(r#"{"value":{"a":1}}"#, Code::InvalidJson, "expected a string");
    check(r#"{"value":"a","producer_id":1}"#, Code::InvalidRequest, "sequence is missing");
    check(r#"{"value":"a","sequence":1}"#, Code::InvalidRequest, "producer_id is missing");
    check(r#"{"value":"a","producer_id":"","sequence":1}"#, Code::InvalidProducer, "1 to 249");
    check(r#"{"value":"a","producer_id":1,"sequence":-1}"#, Code::InvalidRequest, "negative");
    check(r#"{"value":"a","timestamp":-5}"#, Code::InvalidRequest, "timestamp");
    check(r#"{"value":"a","timestamp":"noon"}"#, Code::InvalidRequest, "timestamp");
    check(r#"{"value":"!","value_encoding":"base64"}"#, Code::InvalidEncoding, "value");
    check(r#"{"messages":[]}"#, Code::InvalidRequest, "empty");
    check(
        r#"{"messages":[{"value":"a"},{"value":"!","value_encoding":"base64"}]}"#,
        Code::InvalidEncoding,
        "messages[1]",
    );
    check(r#"{"messages":[{"value":"a"}],"partition":1}"#, Code::InvalidJson, "partition");
}

#[test]
fn encodings_are_said_only_where_they_are_needed() {
    let message = ReadMessage {
        offset: 3,
        timestamp: 4,
        key: Some(Encoded::of(b"k")),
        value: Some(Encoded::of(&[0xff])),
        headers: vec![ReadHeader { name: Encoded::of(b"h"), value: None }],
    };
    assert_eq!(
        serde_json::to_string(&message).unwrap(),
        r#"{"offset":3,"timestamp":4,"key":"k","value":"/w==","value_encoding":"base64","headers":[{"name":"h","value":null}]}"#
    );
}
