//! Every answer in both encodings, in `answers/`; `answers/check.py` shows that botocore reads out of
//! them what was put in.

use std::collections::BTreeMap;
use std::path::Path;

use towpath_sqs::actions::{MoveTaskStatus, Page};
use towpath_sqs::{
    Action, Answer, AttributeValue, BatchRefusal, Encoding, Error, ErrorKind, MessageAttributes,
    MoveTask, NewMessage, QueueArn, ReceivedMessage, Sent, SystemAttribute, encode_answer,
    encode_error, refusals,
};

use crate::support::body;

const REQUEST_ID: &str = "7a62c49f-347e-4fc4-9331-6e8e7a96aa73";
const URL: &str = "http://localhost:9324/000000000000/jobs";

fn attributes() -> MessageAttributes {
    let mut attributes = MessageAttributes::default();
    assert!(attributes.insert("bytes", "Binary", AttributeValue::Binary(vec![0, 255])));
    let text = AttributeValue::Text("a<b>&\"c\"\r\nä".to_owned());
    assert!(attributes.insert("text", "String.label", text));
    attributes
}

fn sent(is_fifo: bool) -> Sent {
    let message = NewMessage {
        body: "hello".to_owned(),
        delay: None,
        attributes: if is_fifo { attributes() } else { MessageAttributes::default() },
        trace_header: is_fifo.then(|| "Root=1".to_owned()),
        deduplication_id: None,
        group_id: None,
    };
    let sequence_number = is_fifo.then(|| "18849496460467696128".to_owned());
    Sent::new(&message, "5fea7756-0ea4-451a-a703-a558b933e274".to_owned(), sequence_number)
}

fn received(number: usize) -> ReceivedMessage {
    let system = [
        (SystemAttribute::ApproximateReceiveCount, "2".to_owned()),
        (SystemAttribute::SentTimestamp, "1700000000000".to_owned()),
    ];
    ReceivedMessage {
        message_id: format!("id-{number}"),
        receipt_handle: format!("handle+/{number}="),
        body: "tab\tline\nreturn\r\n&<>\"' ä 😀".to_owned(),
        attributes: if number == 0 { attributes() } else { MessageAttributes::default() },
        system_attributes: if number == 0 { system.into() } else { BTreeMap::new() },
    }
}

fn task(status: MoveTaskStatus) -> MoveTask {
    let is_failed = status == MoveTaskStatus::Failed;
    let arn = |name: &str| QueueArn::parse(&format!("arn:aws:sqs:r:1:{name}")).unwrap();
    MoveTask {
        status,
        task_handle: "task".to_owned(),
        source: arn("dead"),
        destination: is_failed.then(|| arn("jobs")),
        messages_per_second_max: is_failed.then_some(7),
        moved: 3,
        to_move: is_failed.then_some(9),
        failure_reason: is_failed.then(|| "AWS.SimpleQueueService.NonExistentQueue".to_owned()),
        started_at_ms: 1_700_000_000_000,
    }
}

fn failed() -> Vec<BatchRefusal> {
    let error = refusals::receipt_handle_is_invalid("h");
    vec![BatchRefusal { id: "c".to_owned(), error }]
}

fn answers() -> Vec<(String, Answer)> {
    let ids = || vec!["a".to_owned(), "b".to_owned()];
    let page = || Page { queue_urls: vec![URL.to_owned()], next_token: Some("t".to_owned()) };
    let tags = [("team".to_owned(), "a&b".to_owned()), ("empty".to_owned(), String::new())];
    let shown = [("DelaySeconds", "0".to_owned()), ("Policy", "{\"a\":1}".to_owned())];
    let full = [
        Answer::AddPermission,
        Answer::CancelMessageMoveTask { moved: 12 },
        Answer::ChangeMessageVisibility,
        Answer::ChangeMessageVisibilityBatch { successful: ids(), failed: failed() },
        Answer::CreateQueue { queue_url: URL.to_owned() },
        Answer::DeleteMessage,
        Answer::DeleteMessageBatch { successful: ids(), failed: failed() },
        Answer::DeleteQueue,
        Answer::GetQueueAttributes(shown.into()),
        Answer::GetQueueUrl { queue_url: URL.to_owned() },
        Answer::ListDeadLetterSourceQueues(page()),
        Answer::ListMessageMoveTasks(vec![
            task(MoveTaskStatus::Running),
            task(MoveTaskStatus::Failed),
        ]),
        Answer::ListQueueTags(tags.into()),
        Answer::ListQueues(page()),
        Answer::PurgeQueue,
        Answer::ReceiveMessage(vec![received(0), received(1)]),
        Answer::RemovePermission,
        Answer::SendMessage(sent(true)),
        Answer::SendMessageBatch {
            successful: vec![("a".to_owned(), sent(true)), ("b".to_owned(), sent(false))],
            failed: failed(),
        },
        Answer::SetQueueAttributes,
        Answer::StartMessageMoveTask { task_handle: "task".to_owned() },
        Answer::TagQueue,
        Answer::UntagQueue,
    ];
    let empty = [
        Answer::GetQueueAttributes(BTreeMap::new()),
        Answer::ListDeadLetterSourceQueues(Page::default()),
        Answer::ListMessageMoveTasks(Vec::new()),
        Answer::ListQueueTags(BTreeMap::new()),
        Answer::ListQueues(Page::default()),
        Answer::ReceiveMessage(Vec::new()),
        Answer::SendMessageBatch { successful: Vec::new(), failed: failed() },
        Answer::DeleteMessageBatch { successful: ids(), failed: Vec::new() },
    ];
    let name = |answer: &Answer| answer.action().name().to_owned();
    let full = full.into_iter().map(|answer| (name(&answer), answer));
    let empty = empty.into_iter().map(|answer| (name(&answer) + ".empty", answer));
    full.chain(empty).collect()
}

/// With `UPDATE_EXPECT=1` the files are written instead.
#[allow(clippy::disallowed_methods, reason = "a test reads its files")]
fn compare(file: &str, written: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/answers").join(file);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, written).unwrap();
    }
    let expected = std::fs::read(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(String::from_utf8_lossy(written), String::from_utf8_lossy(&expected), "{file}");
}

#[test]
fn answers_are_the_bytes_that_botocore_has_read() {
    let mut seen = Vec::new();
    for (name, answer) in answers() {
        let json = encode_answer(&answer, Encoding::Json, REQUEST_ID);
        let xml = encode_answer(&answer, Encoding::Query, REQUEST_ID);
        assert_eq!((json.status, xml.status), (200, 200));
        assert_eq!(
            json.headers,
            [
                ("content-type", "application/x-amz-json-1.0".to_owned()),
                ("x-amzn-requestid", REQUEST_ID.to_owned())
            ]
        );
        assert_eq!(xml.headers[0], ("content-type", "text/xml".to_owned()));
        compare(&format!("{name}.json"), &json.body);
        compare(&format!("{name}.xml"), &xml.body);
        seen.push(answer.action());
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, Action::ALL);
}

#[test]
fn errors_carry_both_names() {
    let error = refusals::queue_does_not_exist();
    let json = encode_error(&error, Encoding::Json, REQUEST_ID);
    assert_eq!(json.status, 400);
    assert_eq!(
        body(&json),
        r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}"#
    );
    let header = json.headers.iter().find(|(name, _)| *name == "x-amzn-query-error");
    assert_eq!(header.unwrap().1, "AWS.SimpleQueueService.NonExistentQueue;Sender");
    let xml = encode_error(&error, Encoding::Query, REQUEST_ID);
    assert_eq!(
        body(&xml),
        "<?xml version=\"1.0\"?><ErrorResponse \
         xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error><Type>Sender</Type>\
         <Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does not \
         exist for this wsdl version.</Message><Detail></Detail></Error><RequestId>\
         7a62c49f-347e-4fc4-9331-6e8e7a96aa73</RequestId></ErrorResponse>"
    );
    compare("error.json", &json.body);
    compare("error.xml", &xml.body);
    let ours = Error::new(ErrorKind::InternalError, "Something went wrong.");
    let ours = encode_error(&ours, Encoding::Json, REQUEST_ID);
    assert_eq!(ours.status, 500);
    assert_eq!(ours.headers[2].1, "InternalError;Receiver");
}

#[test]
fn what_xml_cannot_carry_is_replaced() {
    let error = Error::new(ErrorKind::InvalidAction, "a\u{1}<\r>");
    let xml = encode_error(&error, Encoding::Query, REQUEST_ID);
    assert!(body(&xml).contains("<Message>a\u{fffd}&lt;&#xD;&gt;</Message>"));
}
