//! The client at queues in memory: which broker is asked, and what is asked again.

use std::time::Duration;

use tokio::net::TcpListener;

use super::fake::{Fake, queue_at};
use super::*;
use crate::error::Error;

#[tokio::test]
async fn another_broker_is_asked_where_one_is_gone_or_cannot() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = nobody.local_addr().unwrap();
    drop(nobody);
    let (busy, there) = (Fake::start().await, Fake::start().await);
    busy.state().refusals = [(503, "STOPPING")].into();
    let queue = queue_at(&[gone, busy.address, there.address]);
    let sent = queue.send(&OutgoingMessage::new("a")).await.unwrap();
    assert_eq!((sent.id.as_str(), busy.calls("messages").len()), ("a", 1));
    // It stays there.
    queue.send(&OutgoingMessage::new("b")).await.unwrap();
    assert_eq!(there.calls("messages").len(), 2);
}

#[tokio::test]
async fn a_send_is_repeated_only_if_that_makes_no_second_message() {
    // Takes what is sent, and hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rude = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.readable().await.unwrap();
        }
    });
    let there = Fake::start().await;
    let refused = queue_at(&[rude, there.address]).send(&OutgoingMessage::new("a")).await;
    assert!(matches!(refused, Err(Error::Disconnected { .. })), "{refused:?}");
    assert_eq!(there.calls("messages").len(), 0);
    let known = OutgoingMessage { dedup_id: Some("1".to_owned()), ..OutgoingMessage::new("a") };
    queue_at(&[rude, there.address]).send(&known).await.unwrap();
    assert_eq!(there.calls("messages").len(), 1);
}

#[tokio::test]
async fn receipts_are_answered_one_by_one_in_requests_of_five_hundred() {
    let fake = Fake::start().await.with_messages(600);
    let queue = fake.queue();
    let options = ReceiveOptions { max: 600, ..ReceiveOptions::default() };
    let messages = queue.receive(&options).await.unwrap();
    let mut receipts: Vec<String> = messages.into_iter().map(|message| message.receipt).collect();
    assert!(queue.delete(&receipts).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(fake.calls("delete").len(), 2);
    receipts.truncate(1);
    let extended = queue.extend(&receipts, Duration::from_secs(1)).await.unwrap();
    let code = extended[0].as_ref().unwrap_err().http_code();
    assert_eq!(code, Some("RECEIPT_STALE"));
    assert!(queue.delete(&[]).await.unwrap().is_empty());
}
