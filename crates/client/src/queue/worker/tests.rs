//! A worker at a queue in memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::*;
use crate::config::Backoff;
use crate::queue::fake::Fake;

const PATIENCE: Duration = Duration::from_secs(20);

/// Ends when there is nothing left.
fn config(parallel: usize) -> WorkerConfig {
    WorkerConfig {
        parallel,
        visibility: Some(Duration::from_secs(30)),
        wait: Duration::from_millis(50),
        stops_when_empty: true,
        backoff: Backoff::new(Duration::from_millis(5), Duration::from_millis(50)),
        ..WorkerConfig::default()
    }
}

async fn work<F>(
    fake: &Fake,
    config: WorkerConfig,
    handler: impl Fn(Work) -> F,
) -> Result<WorkerStats>
where
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let worker = QueueWorker::new(fake.queue(), config).unwrap();
    timeout(PATIENCE, worker.run(handler)).await.expect("the worker comes to an end")
}

#[tokio::test]
async fn messages_are_worked_so_many_at_once_and_deleted_together() {
    let fake = Fake::start().await.with_messages(200);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stats = work(&fake, config(8), |_| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(5)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let stats = stats.await.unwrap();
    assert_eq!((stats.begun, stats.done, stats.running), (200, 200, 0));
    assert_eq!(most.load(Ordering::SeqCst), 8);
    let deleted: BTreeSet<String> = fake.state().deleted.iter().cloned().collect();
    assert_eq!(deleted.len(), 200);
    assert!(fake.calls("delete").len() < 150, "{}", fake.calls("delete").len());
}

#[tokio::test]
async fn what_fails_is_given_back_and_what_cannot_work_is_rejected_with_the_words() {
    let fake = Fake::start().await.with_messages(4);
    let config = WorkerConfig { messages_max: Some(4), ..config(1) };
    let stats = work(&fake, config, |work| async move {
        match work.message.id.as_str() {
            "m0" => Err(HandlerError::retry("busy")),
            "m1" => Err(HandlerError::Retry { delay: Some(Duration::from_secs(7)), note: None }),
            "m2" => Err(HandlerError::reject("no such customer")),
            _ => panic!("a handler's fault"),
        }
    });
    let stats = stats.await.unwrap();
    assert_eq!((stats.begun, stats.retried, stats.rejected, stats.done), (4, 3, 1, 0));
    let released = fake.calls("release");
    assert_eq!((released.len(), &released[0]["note"]), (3, &"busy".into()));
    assert_eq!((&released[1]["delay_ms"], released[1].get("note")), (&7_000.into(), None));
    assert_eq!(released[2]["note"], "the handler panicked");
    assert_eq!(fake.calls("reject")[0]["note"], "no such customer");
}

#[tokio::test]
async fn a_lease_is_extended_while_its_message_is_worked() {
    let fake = Fake::start().await.with_messages(1);
    let config = WorkerConfig { visibility: Some(Duration::from_millis(600)), ..config(1) };
    let stats = work(&fake, config, |work| async move {
        sleep(Duration::from_millis(1_500)).await;
        assert!(!work.lease_is_lost());
        Ok(())
    });
    let stats = stats.await.unwrap();
    assert_eq!((stats.done, stats.leases_lost), (1, 0));
    let extended = fake.calls("extend");
    assert!(4 <= extended.len() && extended.len() <= 9, "{}", extended.len());
    assert_eq!(extended[0]["visibility_ms"], 600);
}

#[tokio::test]
async fn a_handler_is_told_that_its_lease_is_lost() {
    let fake = Fake::start().await.with_messages(1);
    fake.state().is_taken_away = true;
    let config = WorkerConfig { visibility: Some(Duration::from_millis(600)), ..config(1) };
    let stats = work(&fake, config, |mut work| async move {
        timeout(Duration::from_secs(5), work.lease_lost()).await.expect("it is told");
        assert!(work.lease_is_lost());
        Err(HandlerError::retry("too late"))
    });
    assert_eq!(stats.await.unwrap().leases_lost, 1);
    // It is somebody else's now.
    assert_eq!(fake.calls("release").len(), 0);
}

#[tokio::test]
async fn failures_in_a_row_stop_it_for_a_while_and_then_one_is_tried() {
    let fake = Fake::start().await.with_messages(20);
    let breaker = BreakerConfig {
        failures: 5,
        pause: Duration::from_millis(300),
        ..BreakerConfig::default()
    };
    let config = WorkerConfig { breaker, stops_when_empty: false, ..config(4) };
    let worker = QueueWorker::new(fake.queue(), config).unwrap();
    let handle = worker.handle();
    let watched = handle.clone();
    let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let repaired = Arc::clone(&is_broken);
    let begun = std::time::Instant::now();
    let working = tokio::spawn(worker.run(move |_| {
        let is_broken = is_broken.load(Ordering::SeqCst);
        async move { if is_broken { Err(HandlerError::retry("down")) } else { Ok(()) } }
    }));
    let open = async |times| {
        while watched.stats().breaker_opened < times {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, open(1)).await.unwrap();
    let stats = watched.stats();
    assert_eq!(stats.breaker, BreakerState::Open);
    assert!(stats.begun <= 8, "{}", stats.begun);
    // The one that is tried fails too.
    timeout(PATIENCE, open(2)).await.unwrap();
    assert!(Duration::from_millis(300) <= begun.elapsed());
    assert!(watched.stats().begun <= stats.begun + 1);
    repaired.store(false, Ordering::SeqCst);
    let all = async {
        while fake.state().deleted.len() < 20 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, all).await.unwrap();
    assert_eq!(handle.stats().breaker, BreakerState::Closed);
    handle.stop();
    timeout(PATIENCE, working).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_time_that_has_passed_wakes_nobody_again() {
    let fake = Fake::start().await;
    let pause = Duration::from_secs(30);
    let breaker = BreakerConfig { failures: 1, pause, ..BreakerConfig::default() };
    let worker = QueueWorker::new(fake.queue(), WorkerConfig { breaker, ..config(1) }).unwrap();
    let mut desk = Desk::new(&worker, Duration::from_secs(30));
    let now = Instant::now();
    // A receive has failed, and then what ran did.
    desk.receives_at = Some(now);
    desk.breaker.record(now, true);
    desk.receive(now);
    assert_eq!(desk.next_deadline(), Some(now + pause));
    // A receive from before is still under way when the pause ends.
    desk.receiving.spawn(std::future::pending());
    desk.receive(now + pause);
    assert_eq!(desk.next_deadline(), None);
}

#[tokio::test]
async fn one_that_is_stopped_finishes_what_runs_and_begins_nothing() {
    let fake = Fake::start().await.with_messages(10);
    let config = WorkerConfig { stops_when_empty: false, wait: PATIENCE, ..config(2) };
    let worker = QueueWorker::new(fake.queue(), config).unwrap();
    let handle = worker.handle();
    let working = tokio::spawn(worker.run(|_| async {
        sleep(Duration::from_millis(300)).await;
        Ok(())
    }));
    sleep(Duration::from_millis(100)).await;
    handle.stop();
    let stats = timeout(PATIENCE, working).await.unwrap().unwrap().unwrap();
    assert_eq!((stats.begun, stats.done), (2, 2));
    let state = fake.state();
    assert_eq!((state.deleted.len(), state.held.len(), state.ready.len()), (2, 0, 8));
}

#[tokio::test]
async fn errors_of_the_broker_pass_and_refusals_end_it() {
    let fake = Fake::start().await.with_messages(3);
    fake.state().refusals = [(503, "UNAVAILABLE"), (500, "INTERNAL"), (503, "STOPPING")].into();
    let stats = work(&fake, config(1), |_| async { Ok(()) }).await.unwrap();
    // What passes is asked again by the client itself.
    assert_eq!((stats.done, stats.receive_errors), (3, 1));

    fake.state().refusals = [(404, "QUEUE_NOT_FOUND")].into();
    let refused = work(&fake, config(1), |_| async { Ok(()) }).await.unwrap_err();
    assert_eq!(refused.http_code(), Some("QUEUE_NOT_FOUND"));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let fake = Fake::start().await;
    let refused = |config| QueueWorker::new(fake.queue(), config).is_err();
    assert!(refused(config(0)));
    assert!(refused(WorkerConfig { visibility: Some(Duration::ZERO), ..config(1) }));
}
