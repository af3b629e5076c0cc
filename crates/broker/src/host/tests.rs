use towpath_model::{FoldError, Timestamp};

use super::*;

/// Counts; knows a logged step, a soft one, and what time does.
#[derive(Debug, Default)]
struct Counter {
    logged: i64,
    soft: i64,
    due: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Logged,
    Soft,
}

impl FoldRecord for Step {
    fn encode(&self) -> Option<KeyValue> {
        (*self == Step::Logged).then(|| KeyValue { key: b"k".to_vec(), value: None })
    }

    fn decode(_: &[u8], _: Option<&[u8]>) -> Result<Option<Self>, FoldError> {
        Ok(Some(Step::Logged))
    }
}

impl StateMachine for Counter {
    type Request = Vec<Step>;
    type Record = Step;
    type Reply = (i64, i64);

    fn decide(&self, _: Now, token: Token, request: Vec<Step>) -> Decision<Step, (i64, i64)> {
        let seen = (self.logged, self.soft);
        Decision { records: request, replies: vec![(token, seen)] }
    }

    fn expire(&self, _: Now) -> Decision<Step, (i64, i64)> {
        Decision { records: vec![Step::Soft], replies: Vec::new() }
    }

    fn resume(&self, _: Now) -> Decision<Step, (i64, i64)> {
        Decision::default()
    }

    fn apply(&mut self, record: &Step) {
        match record {
            Step::Logged => self.logged += 1,
            Step::Soft => self.soft += 1,
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.due
    }
}

fn now() -> Now {
    Now { time: Time(0), wall: Timestamp(0) }
}

#[test]
fn a_reply_waits_until_the_records_it_rests_on_are_committed() {
    let mut host = Host::new(Counter::default());
    let ordered = host.request(now(), Token(1), vec![Step::Logged, Step::Logged], Offset(10));
    assert_eq!(ordered.len(), 2);
    host.appended(Offset(10), Offset(12));
    assert_eq!(host.advance(Offset(11)).replies, vec![]);
    let freed = host.advance(Offset(12));
    assert_eq!(freed.replies, vec![(Token(1), (0, 0))]);
    assert_eq!(freed.committed, vec![Step::Logged]);
}

#[test]
fn a_read_waits_for_what_others_have_written_before_it() {
    let mut host = Host::new(Counter::default());
    host.request(now(), Token(1), vec![Step::Logged], Offset(0));
    host.appended(Offset(0), Offset(1));
    // The second request sees the first one's record, so its answer rests on it.
    assert!(host.request(now(), Token(2), vec![], Offset(1)).is_empty());
    assert!(host.advance(Offset(0)).replies.is_empty());
    let freed = host.advance(Offset(1)).replies;
    assert_eq!(freed, vec![(Token(1), (0, 0)), (Token(2), (1, 0))]);
}

#[test]
fn soft_records_are_applied_at_once_and_ordered_nowhere() {
    let mut host = Host::new(Counter::default());
    assert!(host.request(now(), Token(1), vec![Step::Soft], Offset(0)).is_empty());
    assert_eq!(host.machine().soft, 1);
    assert_eq!(host.advance(Offset(0)).replies, vec![(Token(1), (0, 0))]);
    assert!(host.expire(now(), Offset(0)).is_empty());
    assert_eq!(host.machine().soft, 2);
}

#[test]
fn a_failed_append_changes_nothing_and_names_who_waits() {
    let mut host = Host::new(Counter::default());
    host.request(now(), Token(1), vec![Step::Soft, Step::Logged], Offset(0));
    assert_eq!(host.append_failed(), vec![Token(1)]);
    assert_eq!((host.machine().logged, host.machine().soft), (0, 0));
    assert!(host.advance(Offset(0)).replies.is_empty());
}

#[test]
fn who_is_parked_is_known_when_leadership_ends() {
    let mut host = Host::new(Counter::default());
    host.request(now(), Token(7), vec![Step::Logged], Offset(0));
    host.appended(Offset(0), Offset(1));
    assert_eq!(host.drop_parked(), vec![Token(7)]);
    assert!(host.advance(Offset(1)).replies.is_empty());
}

#[test]
#[should_panic(expected = "while another one is under way")]
fn a_second_decision_before_the_append_is_a_bug() {
    let mut host = Host::new(Counter::default());
    host.request(now(), Token(1), vec![Step::Logged], Offset(0));
    host.request(now(), Token(2), vec![Step::Logged], Offset(0));
}
