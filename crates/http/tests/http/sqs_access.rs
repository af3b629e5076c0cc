//! Who may use SQS: signatures in headers and in URLs, as clients make them, and what is refused.

use serde_json::{Value, json};
use towpath_http::{AccessKeys, SqsSettings};

use crate::sigv4::{Signing, hash};
use crate::sqs_support::{call, encoded, form};
use crate::support::{Answer, Broker};

const KEYS: &str = "KEY 0123456789abcdef\nOTHER 0123456789abcdeg\n";

async fn guarded() -> Broker {
    let keys = AccessKeys::parse(KEYS).unwrap();
    let advertised = Some("https://sqs.example.org".to_owned());
    Broker::start_with_sqs(SqsSettings { keys, lets_anybody_in_on_loopback: true, advertised })
        .await
}

const SIGNING: Signing<'static> =
    Signing { id: "KEY", secret: "0123456789abcdef", host: "localhost", ahead: 0 };

impl Signing<'_> {
    /// Posts JSON.
    async fn call(self, broker: &Broker, action: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.post(broker, action, &body, &body).await
    }

    /// Posts a body, and signs perhaps another one.
    async fn post(self, broker: &Broker, action: &str, signed: &str, body: &str) -> Answer {
        let (headers, length) = (self.headers(action, signed), body.len());
        let request = format!(
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        );
        broker.raw(request.as_bytes()).await
    }

    /// Gets a URL that was signed before.
    async fn presigned(self, broker: &Broker, expires: u64) -> Answer {
        let time = self.time();
        let credential = format!("{}/{}/eu-west-1/sqs/aws4_request", self.id, &time[..8]);
        let expires = expires.to_string();
        let query = [
            ("Action", "ListQueues"),
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", credential.as_str()),
            ("X-Amz-Date", time.as_str()),
            ("X-Amz-Expires", expires.as_str()),
            ("X-Amz-SignedHeaders", "host"),
        ];
        let query = encoded(&query);
        let canonical = format!("GET\n/\n{query}\nhost:{}\n\nhost\n{}", self.host, hash(b""));
        let signature = self.signature(&time, &canonical);
        broker.get(&format!("/?{query}&X-Amz-Signature={signature}")).await
    }
}

fn shape(answer: &Answer) -> String {
    answer.json()["__type"].as_str().unwrap().split('#').next_back().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_has_signed_is_carried_out() {
    let broker = guarded().await;
    let name = json!({"QueueName": "jobs"});
    let created = SIGNING.call(&broker, "CreateQueue", &name).await.ok();
    assert_eq!(created["QueueUrl"], "https://sqs.example.org/000000000000/jobs");
    let other = Signing { id: "OTHER", secret: "0123456789abcdeg", ..SIGNING };
    other.call(&broker, "GetQueueUrl", &name).await.ok();
    // What a client signed before a proxy changed the name of the host.
    let behind = Signing { host: "sqs.example.org", ..SIGNING };
    behind.call(&broker, "GetQueueUrl", &name).await.ok();
    let listed = SIGNING.presigned(&broker, 60).await;
    assert!(listed.status == 200 && listed.body.contains("/jobs</QueueUrl>"), "{}", listed.body);
    for ahead in [-800, 800] {
        Signing { ahead, ..SIGNING }.call(&broker, "GetQueueUrl", &name).await.ok();
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_key_has_signed_is_refused() {
    let broker = guarded().await;
    let name = json!({"QueueName": "jobs"});
    let asked = |signing: Signing<'static>| {
        let (broker, name) = (&broker, &name);
        async move {
            let answer = signing.call(broker, "CreateQueue", name).await;
            (answer.status, shape(&answer))
        }
    };
    let refused = |status: u16, shape: &str| (status, shape.to_owned());
    let unknown = Signing { id: "NOBODY", ..SIGNING };
    assert_eq!(asked(unknown).await, refused(403, "InvalidClientTokenId"));
    let wrong = Signing { secret: "0123456789abcdeF", ..SIGNING };
    assert_eq!(asked(wrong).await, refused(403, "SignatureDoesNotMatch"));
    let elsewhere = Signing { host: "other.example.org", ..SIGNING };
    assert_eq!(asked(elsewhere).await, refused(403, "SignatureDoesNotMatch"));
    for ahead in [-1000, 1000] {
        let off = Signing { ahead, ..SIGNING };
        assert_eq!(asked(off).await, refused(403, "SignatureDoesNotMatch"), "{ahead}");
    }
    let changed =
        SIGNING.post(&broker, "CreateQueue", &name.to_string(), r#"{"QueueName":"jobz"}"#).await;
    assert_eq!(shape(&changed), "SignatureDoesNotMatch");
    // Any credentials are taken only where there are no keys.
    let anybody = call(&broker, "ListQueues", &json!({})).await;
    assert_eq!(anybody.status, 400, "{}", anybody.body);
    let presigned = Signing { ahead: -70, ..SIGNING }.presigned(&broker, 60).await;
    assert!(presigned.body.contains("<Code>SignatureDoesNotMatch</Code>"), "{}", presigned.body);
    let nothing = broker.get("/?Action=ListQueues").await;
    assert!(
        nothing.status == 403 && nothing.body.contains("<Code>MissingAuthenticationToken</Code>"),
        "{}",
        nothing.body
    );
    assert!(broker.get("/queues").await.ok()["queues"].as_array().unwrap().is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_nobody_is_let_in_but_on_somebodys_own_machine() {
    let broker = Broker::start_with_sqs(SqsSettings::default()).await;
    let refused = SIGNING.call(&broker, "ListQueues", &json!({})).await;
    assert_eq!((refused.status, shape(&refused).as_str()), (403, "InvalidClientTokenId"));
    broker.stop().await;

    let broker = Broker::start().await;
    let nobody = Signing { id: "any", secret: "any", ..SIGNING };
    nobody.call(&broker, "ListQueues", &json!({})).await.ok();
    nobody.presigned(&broker, 60).await;
    // Who does not even try to sign is told so, as AWS does.
    let nothing = broker.get("/?Action=ListQueues").await;
    assert!(nothing.body.contains("MissingAuthenticationToken"), "{}", nothing.body);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_addresses_are_refused_even_where_anybody_is_let_in() {
    let broker = Broker::start().await;
    let image = "GET /?Action=ListQueues&AWSAccessKeyId=x HTTP/1.1\r\nhost: localhost\r\n\
                 connection: close\r\nsec-fetch-site: cross-site\r\n\r\n";
    let refused = broker.raw(image.as_bytes()).await;
    assert!(refused.status == 403 && refused.body.contains("AccessDenied"), "{}", refused.body);
    let posted = "POST / HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\
                  connection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
                  content-length: 17\r\n\r\nAction=ListQueues";
    let refused = broker.raw(posted.as_bytes()).await;
    assert!(refused.status == 403 && refused.body.contains("AccessDenied"), "{}", refused.body);
    let own = form(&broker, "/", &[("Action", "ListQueues")]).await;
    assert_eq!(own.status, 200, "{}", own.body);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_its_own_serves_sqs_and_nothing_else() {
    let sqs = SqsSettings { lets_anybody_in_on_loopback: true, ..SqsSettings::default() };
    let (mut broker, address) = Broker::start_with_sqs_port(sqs).await;
    broker.address = address;
    SIGNING.call(&broker, "CreateQueue", &json!({"QueueName": "jobs"})).await.ok();
    // Our own API is not there, whatever is asked of it.
    for (method, path) in
        [("GET", "/topics"), ("POST", "/queues"), ("GET", "/metrics"), ("GET", "/")]
    {
        let answer = broker.request(method, path, r#"{"name":"other"}"#).await;
        assert!(answer.body.contains("MissingAuthenticationToken"), "{path}: {}", answer.body);
    }
    let path = "/topics?Action=ListQueues&AWSAccessKeyId=me";
    let listed = broker.get(path).await;
    assert!(listed.body.contains("/jobs</QueueUrl>"), "{}", listed.body);
    // Bytes that are no request, a head without end and a body that is too large cost their connection.
    for bytes in [&b"\x00\x00\x00\x10kafka?"[..], b"\x16\x03\x01tls", b"NONSENSE\r\n\r\n"] {
        broker.exchange(bytes).await;
    }
    let large = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                 x-amz-target: AmazonSQS.SendMessage\r\ncontent-length: 17000000\r\n\r\n{";
    let refused = broker.raw(large.as_bytes()).await;
    assert_eq!((refused.status, shape(&refused).as_str()), (400, "SerializationException"));
    let deep = "[".repeat(100_000);
    let refused = SIGNING.post(&broker, "ListQueues", &deep, &deep).await;
    assert_eq!(shape(&refused), "SerializationException");
    let form = form(&broker, "/", &[("Action", "ListQueues"), ("MaxResults", "x")]).await;
    assert!(form.status == 400 && form.body.contains("MalformedInput"), "{}", form.body);
    SIGNING.call(&broker, "GetQueueUrl", &json!({"QueueName": "jobs"})).await.ok();
    broker.stop().await;
}

/// A web page can give its own name the address of this machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_loopback_only_local_names_are_answered_wherever_http_is() {
    for (http, status) in [("127.0.0.1:0", 403), ("0.0.0.0:0", 200)] {
        let (mut broker, sqs) = Broker::start_on_own_machine(http).await;
        let of_page = |path: &str| {
            format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
        };
        assert_eq!(broker.raw(of_page("/topics").as_bytes()).await.status, status);
        broker.address = sqs;
        let path = "/?Action=ListQueues&AWSAccessKeyId=me";
        assert_eq!(broker.raw(of_page(path).as_bytes()).await.status, 403);
        assert_eq!(broker.get(path).await.status, 200);
    }
}
