//! AWS's texts: clients match on them.

use serde_json::{Value, json};
use towpath_sqs::{ErrorKind, NewMessage, QueueAttributes, Request};

use crate::support::{form, get, json, refusal};

const JOBS: &str = "http://q/1/jobs";

fn with(extra: Value) -> Value {
    let mut body = json!({"QueueUrl": JOBS, "MessageBody": "x", "ReceiptHandle": "h"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

fn invalid(value: &str, parameter: &str, reason: &str) -> String {
    format!(
        "InvalidParameterValue: Value {value} for parameter {parameter} is invalid. Reason: {reason}"
    )
}

fn missing(parameter: &str) -> String {
    format!("MissingRequiredParameter: The request must contain the parameter {parameter}.")
}

#[test]
fn numbers_have_their_ranges() {
    let receive = |name: &str, value: i64| refusal("ReceiveMessage", &with(json!({name: value})));
    for value in [0, 11, -1] {
        let reason = "Must be between 1 and 10, if provided.";
        let text = invalid(&value.to_string(), "MaxNumberOfMessages", reason);
        assert_eq!(receive("MaxNumberOfMessages", value), text);
    }
    for value in [-1, 21] {
        let reason = "Must be >= 0 and <= 20, if provided.";
        let text = invalid(&value.to_string(), "WaitTimeSeconds", reason);
        assert_eq!(receive("WaitTimeSeconds", value), text);
    }
    for value in [-1, 43201] {
        let reason = "Must be >= 0 and <= 43200, if provided.";
        let text = invalid(&value.to_string(), "VisibilityTimeout", reason);
        assert_eq!(receive("VisibilityTimeout", value), text);
        let change = with(json!({"VisibilityTimeout": value}));
        assert_eq!(refusal("ChangeMessageVisibility", &change), text);
    }
    for value in [-1, 901] {
        let text =
            invalid(&value.to_string(), "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.");
        assert_eq!(refusal("SendMessage", &with(json!({"DelaySeconds": value}))), text);
    }
    for value in [0, 1001] {
        let text = "InvalidParameterValue: Value for parameter MaxResults is invalid. Reason: \
                    MaxResults must be an integer between 1 and 1000.";
        assert_eq!(refusal("ListQueues", &json!({"MaxResults": value})), text);
        let sources = with(json!({"MaxResults": value}));
        assert_eq!(refusal("ListDeadLetterSourceQueues", &sources), text);
    }
    let source = "arn:aws:sqs:r:1:dead";
    let tasks = json!({"SourceArn": source, "MaxResults": 11});
    let reason = "Must be between 1 and 10, if provided.";
    assert_eq!(refusal("ListMessageMoveTasks", &tasks), invalid("11", "MaxResults", reason));
    let start = json!({"SourceArn": source, "MaxNumberOfMessagesPerSecond": 501});
    let reason = "Must be between 1 and 500, if provided.";
    let text = invalid("501", "MaxNumberOfMessagesPerSecond", reason);
    assert_eq!(refusal("StartMessageMoveTask", &start), text);
}

#[test]
fn what_is_missing_is_named() {
    assert_eq!(refusal("SendMessage", &json!({"QueueUrl": JOBS})), missing("MessageBody"));
    assert_eq!(refusal("SendMessage", &with(json!({"MessageBody": ""}))), missing("MessageBody"));
    assert_eq!(refusal("SendMessage", &json!({"MessageBody": "x"})), missing("QueueUrl"));
    assert_eq!(refusal("DeleteMessage", &json!({"QueueUrl": JOBS})), missing("ReceiptHandle"));
    assert_eq!(refusal("ChangeMessageVisibility", &with(json!({}))), missing("VisibilityTimeout"));
    assert_eq!(refusal("TagQueue", &with(json!({}))), missing("Tags"));
    assert_eq!(refusal("UntagQueue", &with(json!({}))), missing("TagKeys"));
    assert_eq!(refusal("SetQueueAttributes", &with(json!({}))), missing("Attributes"));
    assert_eq!(refusal("CancelMessageMoveTask", &json!({})), missing("TaskHandle"));
    assert_eq!(refusal("StartMessageMoveTask", &json!({})), missing("SourceArn"));
    assert_eq!(refusal("RemovePermission", &with(json!({}))), missing("Label"));
    assert_eq!(
        refusal("CreateQueue", &json!({})),
        "InvalidParameterValue: Value for parameter QueueName is invalid. Reason: Must specify a \
         queue name."
    );
    assert_eq!(
        refusal("CreateQueue", &json!({"QueueName": ""})),
        "InvalidParameterValue: Queue name cannot be empty"
    );
}

#[test]
fn queues_that_cannot_be_are_not_there() {
    let none = "QueueDoesNotExist: The specified queue does not exist.";
    assert_eq!(refusal("GetQueueUrl", &json!({"QueueName": "a b"})), none);
    assert_eq!(refusal("DeleteQueue", &json!({"QueueUrl": "http://q/1/a.b"})), none);
    assert_eq!(
        refusal("DeleteQueue", &json!({"QueueUrl": "http://q/1/2/3"})),
        "InvalidAddress: The address http://q/1/2/3 is not valid for this endpoint."
    );
}

#[test]
fn bodies_are_of_characters_that_xml_can_carry() {
    let text = "InvalidMessageContents: Invalid characters found. Valid unicode characters are #x9 \
                | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF";
    for char in ['\0', '\u{1}', '\u{b}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
        let body = format!("a{char}");
        assert_eq!(refusal("SendMessage", &with(json!({"MessageBody": body}))), text);
    }
    for char in ['\t', '\n', '\r', ' ', '\u{7f}', '\u{d7ff}', '\u{e000}', '\u{fffd}', '\u{10ffff}']
    {
        let body = with(json!({"MessageBody": char.to_string()}));
        assert!(json("SendMessage", &body).is_ok(), "{char:?}");
    }
}

#[test]
fn message_attributes_are_checked_in_words_that_clients_know() {
    let attribute = |name: &str, attribute: Value| {
        refusal("SendMessage", &with(json!({"MessageAttributes": {name: attribute}})))
    };
    assert_eq!(
        attribute("Hello", json!({})),
        "InvalidParameterValue: The message (user) attribute 'Hello' must contain a non-empty \
         message attribute value."
    );
    assert_eq!(
        attribute("Hello", json!({"DataType": "InvalidType", "StringValue": "x"})),
        "InvalidParameterValue: The type of message (user) attribute 'Hello' is invalid. You must \
         use only the following supported type prefixes: Binary, Number, String."
    );
    assert_eq!(
        attribute("Hello", json!({"DataType": "String", "StringValue": ""})),
        "InvalidParameterValue: Message (user) attribute 'Hello' must contain a non-empty value of \
         type 'String'."
    );
    assert_eq!(
        attribute("Hello", json!({"DataType": "Number", "StringValue": "world"})),
        "InvalidParameterValue: Can't cast the value of message (user) attribute 'Hello' to a \
         number."
    );
    assert_eq!(
        attribute("Hello", json!({"DataType": "StringList", "StringListValues": ["World"]})),
        "UnsupportedOperation: Message attribute list values in SendMessage operation are not \
         supported."
    );
    let label = "a".repeat(250);
    assert_eq!(
        attribute("Hello", json!({"DataType": format!("String.{label}"), "StringValue": "x"})),
        "InvalidParameterValue: Message (user) attribute type must be shorter than 256 bytes."
    );
    let value = json!({"DataType": "String", "StringValue": "x"});
    let eleven = (0..11).map(|number| (format!("a{number}"), value.clone()));
    let eleven: serde_json::Map<String, Value> = eleven.collect();
    assert_eq!(
        refusal("SendMessage", &with(json!({"MessageAttributes": eleven}))),
        "InvalidParameterValue: Number of message attributes [11] exceeds the allowed maximum [10]."
    );
    let system = json!({"MessageSystemAttributes": {"Hello": value}});
    assert_eq!(
        refusal("SendMessage", &with(system)),
        "InvalidParameterValue: Message system attribute name 'Hello' is invalid."
    );
}

#[test]
fn ids_of_fifo_queues_are_of_printable_ascii() {
    for parameter in ["MessageGroupId", "MessageDeduplicationId"] {
        for id in ["", "a b", "ä", "\n", &"a".repeat(129)] {
            let reason = format!(
                "{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in \
                 length."
            );
            let body = with(json!({parameter: id}));
            assert_eq!(refusal("SendMessage", &body), invalid(id, parameter, &reason));
        }
    }
}

#[test]
fn batches_are_refused_as_a_whole_for_their_ids_and_their_size() {
    let batch = |entries: Value| {
        refusal("SendMessageBatch", &json!({"QueueUrl": JOBS, "Entries": entries}))
    };
    assert_eq!(
        batch(json!([])),
        "EmptyBatchRequest: There should be at least one SendMessageBatchRequestEntry in the \
         request."
    );
    let entries = |count: usize| {
        let entry = |number| json!({"Id": format!("e{number}"), "MessageBody": "x"});
        Value::Array((0..count).map(entry).collect())
    };
    assert_eq!(
        batch(entries(20)),
        "TooManyEntriesInBatchRequest: Maximum number of entries per request are 10. You have sent \
         20."
    );
    for id in ["", "invalid:id", &"a".repeat(81)] {
        assert_eq!(
            batch(json!([{"Id": id, "MessageBody": "x"}])),
            "InvalidBatchEntryId: A batch entry id can only contain alphanumeric characters, \
             hyphens and underscores. It can be at most 80 letters long."
        );
    }
    let twice = json!([{"Id": "a", "MessageBody": "x"}, {"Id": "a", "MessageBody": "y"}]);
    assert_eq!(batch(twice), "BatchEntryIdsNotDistinct: Id a repeated.");
    let half = "x".repeat(524_288);
    let large = json!([{"Id": "a", "MessageBody": half}, {"Id": "b", "MessageBody": half + "y"}]);
    assert_eq!(
        batch(large),
        "BatchRequestTooLong: Batch requests cannot be longer than 1048576 bytes. You have sent \
         1048577 bytes."
    );
}

#[test]
fn an_entry_that_is_wrong_fails_alone() {
    let entries = json!([
        {"Id": "a", "MessageBody": "x"},
        {"Id": "b", "MessageBody": "\u{1}"},
        {"Id": "c", "MessageBody": "x", "DelaySeconds": 901},
    ]);
    let request = json("SendMessageBatch", &json!({"QueueUrl": JOBS, "Entries": entries}));
    let Ok(Request::SendMessageBatch(batch)) = request else { panic!("{request:?}") };
    let kinds = batch.entries.iter().map(|entry| entry.asked.as_ref().err().map(|e| e.kind()));
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [None, Some(ErrorKind::InvalidMessageContents), Some(ErrorKind::InvalidParameterValue)]
    );
}

#[test]
fn permissions_are_checked() {
    let add = |extra: Value| {
        let mut body = json!({"Label": "a", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        refusal("AddPermission", &with(body))
    };
    let eight = vec!["SendMessage"; 8];
    assert_eq!(
        add(json!({"Actions": eight})),
        "OverLimit: 8 Actions were found, maximum allowed is 7."
    );
    assert_eq!(
        add(json!({"Actions": ["CreateQueue"]})),
        invalid(
            "SQS:CreateQueue",
            "ActionName",
            "Please refer to the appropriate WSDL for a list of valid actions. "
        )
    );
    assert_eq!(
        add(json!({"AWSAccountIds": ["x", "2"]})),
        invalid("[x, 2]", "PrincipalId", "Unable to verify.")
    );
    assert!(add(json!({"Label": "a b"})).contains("for parameter Label is invalid"));
    assert_eq!(add(json!({"Actions": []})), missing("Actions"));
}

#[test]
fn tags_are_checked() {
    let tag = |tags: Value| refusal("TagQueue", &with(json!({"Tags": tags})));
    let keys = "InvalidParameterValue: Tag keys must be between 1 and 128 characters in length.";
    assert_eq!(tag(json!({"": "x"})), keys);
    assert_eq!(tag(json!({"a".repeat(129): "x"})), keys);
    assert!(tag(json!({"a": "x".repeat(257)})).contains("Tag values must be between 0 and 256"));
    assert!(tag(json!({"AWS:a": "x"})).contains("cannot start with 'aws:'"));
    let many = (0..51).map(|number| (number.to_string(), json!("x")));
    let many = Value::Object(many.collect());
    assert_eq!(tag(many), "InvalidParameterValue: Too many tags added for queue jobs.");
    assert_eq!(refusal("UntagQueue", &with(json!({"TagKeys": [""]}))), keys);
}

#[test]
fn arns_have_their_format() {
    assert_eq!(
        refusal("StartMessageMoveTask", &json!({"SourceArn": "jobs"})),
        "InvalidParameterValue: You must use this format to specify the SourceArn: \
         arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    );
}

#[test]
fn values_of_other_types_are_malformed() {
    let send = |name: &str, value: Value| refusal("SendMessage", &with(json!({name: value})));
    assert_eq!(
        send("MessageBody", json!({})),
        "MalformedInput: Start of structure or map found where not expected."
    );
    assert_eq!(
        send("DelaySeconds", json!("5")),
        "MalformedInput: STRING_VALUE can not be converted to an Integer"
    );
    assert!(send("DelaySeconds", json!(1e10)).starts_with("MalformedInput: "));
    assert!(send("DelaySeconds", json!(1.5)).starts_with("MalformedInput: "));
    assert!(send("MessageAttributes", json!([])).starts_with("MalformedInput: "));
    let entries = json!({"QueueUrl": JOBS, "Entries": ["x"]});
    assert!(refusal("SendMessageBatch", &entries).starts_with("MalformedInput: "));
    let bytes = json!({"a": {"DataType": "Binary", "BinaryValue": "?"}});
    assert!(send("MessageAttributes", bytes).starts_with("MalformedInput: "));
    // Texts from numbers, absent from null, and numbers without a fraction are taken.
    let lenient = with(json!({"MessageBody": 5, "DelaySeconds": 5.0, "MessageGroupId": null}));
    let Ok(Request::SendMessage(request)) = json("SendMessage", &lenient) else { panic!() };
    assert_eq!(request.message.body, "5");
    assert_eq!(request.message.group_id, None);
}

#[test]
fn actions_that_are_none() {
    assert_eq!(
        refusal("SendMassage", &json!({})),
        "InvalidAction: The action SendMassage is not valid for this endpoint."
    );
    let form = |body| form("/", body).unwrap_err().to_string();
    assert_eq!(form("Action=Foo"), "InvalidAction: The action Foo is not valid for this endpoint.");
    assert_eq!(form(""), "MissingAction: The request must contain the parameter Action.");
    assert_eq!(get("/", "").unwrap_err().kind(), ErrorKind::MissingAction);
}

fn new_message(extra: Value) -> NewMessage {
    match json("SendMessage", &with(extra)) {
        Ok(Request::SendMessage(request)) => request.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_queue_takes_depends_on_its_type_and_its_size() {
    let check = |extra: Value, queue: &QueueAttributes| {
        let request = json("SendMessage", &with(extra));
        let Ok(Request::SendMessage(request)) = request else { panic!("{request:?}") };
        request.check(queue).map_err(|error| error.to_string())
    };
    let standard = QueueAttributes::defaults(false);
    let fifo = QueueAttributes::defaults(true);
    let mut content_based = fifo.clone();
    content_based.fifo.as_mut().unwrap().content_based_deduplication = true;
    let other_type = "The request include parameter that is not valid for this queue type.";

    assert_eq!(check(json!({"MessageGroupId": "g", "DelaySeconds": 1}), &standard), Ok(()));
    assert_eq!(
        check(json!({"MessageDeduplicationId": "d"}), &standard),
        Err(invalid("d", "MessageDeduplicationId", other_type))
    );
    assert_eq!(check(json!({}), &fifo), Err(missing("MessageGroupId")));
    assert_eq!(
        check(json!({"MessageGroupId": "g"}), &fifo),
        Err("InvalidParameterValue: The queue should either have ContentBasedDeduplication enabled \
             or MessageDeduplicationId provided explicitly"
            .to_owned())
    );
    assert_eq!(check(json!({"MessageGroupId": "g"}), &content_based), Ok(()));
    let ids = json!({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 0});
    assert_eq!(check(ids, &fifo), Ok(()));
    let delayed = json!({"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 2});
    assert_eq!(check(delayed, &fifo), Err(invalid("2", "DelaySeconds", other_type)));

    let mut small = standard;
    small.maximum_message_bytes = 1024;
    let too_large = "InvalidParameterValue: One or more parameters are invalid. Reason: Message \
                     must be shorter than 1024 bytes.";
    assert_eq!(check(json!({"MessageBody": "x".repeat(1024)}), &small), Ok(()));
    assert_eq!(check(json!({"MessageBody": "x".repeat(1025)}), &small), Err(too_large.to_owned()));
    let attributes = json!({"k": {"DataType": "String", "StringValue": "x"}});
    let body = "x".repeat(1024 - "kStringx".len());
    let fits = json!({"MessageBody": body, "MessageAttributes": attributes});
    assert_eq!(check(fits, &small), Ok(()));
    let over = json!({"MessageBody": body + "x", "MessageAttributes": attributes});
    assert_eq!(check(over, &small), Err(too_large.to_owned()));
}

#[test]
fn the_content_is_the_deduplication_id_of_last_resort() {
    let mut queue = QueueAttributes::defaults(true);
    let message = new_message(json!({"MessageBody": "abc"}));
    assert_eq!(message.deduplication_id(&queue), None);
    queue.fifo.as_mut().unwrap().content_based_deduplication = true;
    assert_eq!(
        message.deduplication_id(&queue).as_deref(),
        Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
    );
    let explicit = new_message(json!({"MessageBody": "abc", "MessageDeduplicationId": "d"}));
    assert_eq!(explicit.deduplication_id(&queue).as_deref(), Some("d"));
}

#[test]
fn attempt_ids_are_for_fifo_queues() {
    let request = json("ReceiveMessage", &with(json!({"ReceiveRequestAttemptId": "t"})));
    let Ok(Request::ReceiveMessage(request)) = request else { panic!("{request:?}") };
    assert_eq!(request.check(&QueueAttributes::defaults(true)), Ok(()));
    assert!(request.check(&QueueAttributes::defaults(false)).is_err());
}
