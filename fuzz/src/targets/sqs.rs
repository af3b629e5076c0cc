//! What SQS clients send, in both encodings and signed or not; and records' headers, which anybody
//! may have written.

use towpath_sqs::record_headers::{from_record_headers, to_record_headers};
use towpath_sqs::sigv4::{AccessKey, SignedRequest, SigningKeys, Verifier};
use towpath_sqs::{Encoding, Error, Incoming, Request, decode, encode_error};

use crate::shape::Shape;
use crate::target::Target;

/// `which u8 │ bytes`: JSON to an action, a form, a path with a query, an Authorization header, or
/// headers of a record.
pub(super) const SQS: Target =
    Target { name: "sqs", seeds, run: parse, memory_max: 8 << 20, waits_for_others: false };

/// 30 August 2015, 12:36: the time in the seeds.
const NOW_SECONDS: u64 = 1_440_938_160;

fn parse(input: &[u8]) -> Shape {
    let Some((which, bytes)) = input.split_first() else { return Shape::default() };
    let shape = Shape::default().exact(i16::from(which % 5));
    match which % 5 {
        0 => {
            let (target, body) = halves(bytes);
            let target = String::from_utf8_lossy(target);
            requested(shape, &incoming("POST", "/", "", Some(&target), body))
        }
        1 => requested(shape, &incoming("POST", "/1/jobs", "", None, bytes)),
        2 => {
            let text = String::from_utf8_lossy(bytes);
            let (path, query) = text.split_once('?').unwrap_or((&text, ""));
            requested(shape, &incoming("GET", path, query, None, b""))
        }
        3 => signed(shape, bytes),
        _ => headers(shape, bytes),
    }
}

fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
    (&bytes[..end], &bytes[(end + 1).min(bytes.len())..])
}

fn incoming<'a>(
    method: &'a str,
    path: &'a str,
    query: &'a str,
    target: Option<&'a str>,
    body: &'a [u8],
) -> Incoming<'a> {
    Incoming { method, path, query, target, body }
}

fn requested(shape: Shape, incoming: &Incoming<'_>) -> Shape {
    match decode(incoming) {
        Err(error) => refused(shape, &error),
        Ok(request) => {
            let shape = shape.word(request.action().name());
            match &request {
                Request::SendMessage(send) => shape.size(send.message.attributes.len()),
                Request::SendMessageBatch(batch) => {
                    batch.entries.iter().fold(shape, |shape, entry| match &entry.asked {
                        Ok(message) => shape.size(message.attributes.len()),
                        Err(error) => refused(shape, error),
                    })
                }
                Request::CreateQueue(create) => {
                    let asked = create.asked.attributes();
                    asked.fold(shape, |shape, attribute| shape.word(attribute.name()))
                }
                _ => shape,
            }
        }
    }
}

/// A refusal can be written in both encodings, whatever of the request it repeats.
fn refused(shape: Shape, error: &Error) -> Shape {
    for encoding in [Encoding::Json, Encoding::Query] {
        let answer = encode_error(error, encoding, "id");
        let text = std::str::from_utf8(&answer.body).expect("answers are texts");
        assert!(!text.contains(|char: char| char < ' ' && !"\t\n".contains(char)));
    }
    shape.word(error.kind().shape()).word(&own_words(error.message()))
}

/// What of a refusal's text is ours, and not repeated from the request.
fn own_words(message: &str) -> String {
    if let Some((_, reason)) = message.split_once(" for parameter ") {
        return reason.split(' ').next().unwrap_or_default().to_owned();
    }
    let repeats_early = ["The action ", "The address ", "Unknown Attribute ", "Id "];
    if repeats_early.iter().any(|beginning| message.starts_with(beginning)) {
        return String::new();
    }
    let before_quote = message.split(['\'', '"', ':']).next().unwrap_or_default();
    let is_plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase());
    before_quote.split(' ').filter(is_plain).take(6).collect()
}

fn signed(shape: Shape, bytes: &[u8]) -> Shape {
    let (query, authorization) = halves(bytes);
    let query = String::from_utf8_lossy(query);
    let mut headers: Vec<(&str, &[u8])> =
        vec![("Host", b"h"), ("X-Amz-Date", b"20150830T123600Z"), ("x-amz-security-token", b"t")];
    if !authorization.is_empty() {
        headers.push(("Authorization", authorization));
    }
    let request =
        SignedRequest { method: "GET", path: &query, query: &query, headers: &headers, body: b"" };
    let key =
        |_: &str| Some(AccessKey { secret: "s".to_owned(), session_token: Some("t".to_owned()) });
    let hosts = ["other".to_owned()];
    let signing_keys = SigningKeys::default();
    let error = Verifier { now_seconds: NOW_SECONDS, hosts: &hosts, signing_keys: &signing_keys }
        .signer(&request, key)
        .expect_err("nobody guesses a signature");
    refused(shape, &error)
}

fn headers(shape: Shape, bytes: &[u8]) -> Shape {
    let lines = bytes.split(|byte| *byte == b'\n');
    let headers = lines.map(|line| {
        let (key, value) = halves(line);
        (key, Some(value))
    });
    let attributes = from_record_headers(headers);
    let written = to_record_headers(&attributes);
    let again = written.iter().map(|(key, value)| (key.as_bytes(), Some(value.as_slice())));
    assert_eq!(from_record_headers(again), attributes);
    let types = attributes.iter().map(|(_, attribute)| attribute.data_type().is_binary());
    shape.size(attributes.len()).size(types.filter(|is_binary| *is_binary).count())
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds: [(u8, &str); 17] = [
        (
            0,
            r#"AmazonSQS.SendMessage {"QueueUrl":"http://q/1/jobs","MessageBody":"b","DelaySeconds":5,"MessageAttributes":{"a":{"DataType":"Number.i","StringValue":"1e5"},"b":{"DataType":"Binary","BinaryValue":"AP8="}},"MessageGroupId":"g"}"#,
        ),
        (
            0,
            r#"AmazonSQS.SendMessageBatch {"QueueUrl":"jobs","Entries":[{"Id":"a","MessageBody":"b"},{"Id":"b","MessageBody":"","MessageSystemAttributes":{"AWSTraceHeader":{"DataType":"String","StringValue":"x"}}}]}"#,
        ),
        (
            0,
            r#"AmazonSQS.ReceiveMessage {"QueueUrl":"/1/j.fifo","AttributeNames":["All"],"MessageAttributeNames":["a.*"],"MaxNumberOfMessages":10,"WaitTimeSeconds":20}"#,
        ),
        (
            0,
            r#"AmazonSQS.CreateQueue {"QueueName":"j.fifo","Attributes":{"FifoQueue":"true","RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:r:1:d\",\"maxReceiveCount\":\"5\"}"},"tags":{"a":"b"}}"#,
        ),
        (
            0,
            r#"AmazonSQS.SetQueueAttributes {"QueueUrl":"j","Attributes":{"RedriveAllowPolicy":"{\"redrivePermission\":\"byQueue\",\"sourceQueueArns\":[\"a\"]}","Policy":"{}"}}"#,
        ),
        (
            0,
            r#"AmazonSQS.AddPermission {"QueueUrl":"j","Label":"l","AWSAccountIds":["1"],"Actions":["*"]}"#,
        ),
        (
            1,
            "Action=SendMessage&MessageBody=b%20c&MessageAttribute.7.Name=a&MessageAttribute.7.Value.DataType=String&MessageAttribute.7.Value.StringValue=x",
        ),
        (
            1,
            "Action=DeleteMessageBatch&DeleteMessageBatchRequestEntry.1.Id=a&DeleteMessageBatchRequestEntry.1.ReceiptHandle=h",
        ),
        (
            1,
            "Action=ChangeMessageVisibilityBatch&ChangeMessageVisibilityBatchRequestEntry.1.Id=a&ChangeMessageVisibilityBatchRequestEntry.1.ReceiptHandle=h&ChangeMessageVisibilityBatchRequestEntry.1.VisibilityTimeout=0",
        ),
        (1, "Action=TagQueue&Tag.1.Key=a&Tag.1.Value=b"),
        (2, "/queue/jobs?Action=GetQueueAttributes&AttributeName=All"),
        (2, "/?Action=ListQueues&MaxResults=5&QueueNamePrefix=j&NextToken=t"),
        (
            2,
            "/?Action=StartMessageMoveTask&SourceArn=arn:aws:sqs:r:1:d&MaxNumberOfMessagesPerSecond=5",
        ),
        (
            3,
            "a=b AWS4-HMAC-SHA256 Credential=k/20150830/r/sqs/aws4_request, SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=00ff",
        ),
        (
            3,
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k/20150830/r/sqs/aws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Security-Token=t&X-Amz-Signature=00",
        ),
        (
            4,
            "trace abc\ncount 5\ntowpath-sqs-attribute-towpath-sqs-x a\ntowpath-sqs-types {\"count\":\"Number\"}",
        ),
        (4, "raw \u{1}"),
    ];
    seeds.map(|(which, text)| [&[which], text.as_bytes()].concat()).into()
}
