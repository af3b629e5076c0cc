use towpath_model::Uuid;

use super::super::hello::{Class, LEVELS};
use super::*;

fn hello(node_id: i32, nonce: u8) -> Hello {
    Hello {
        levels: LEVELS,
        class: Class::Control,
        has_secret: false,
        node_id: BrokerId(node_id),
        directory_id: Uuid([node_id as u8; 16]),
        incarnation: Uuid([nonce; 16]),
        nonce: [nonce; 32],
        expects: None,
        cluster_id: None,
        address: None,
    }
}

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text.as_bytes()).unwrap())
}

const SECRET: &str = "0123456789abcdef";

/// What each side ends with, when everything arrives.
type Verdicts = (Result<Option<Hello>, Refusal>, Result<Option<Hello>, Refusal>);

/// Lets two sides talk, `is_local` or not.
fn talk(
    dialler: (Hello, Option<Secret>),
    accepter: (Hello, Option<Secret>),
    is_local: bool,
) -> Verdicts {
    let (mut to_accepter, mut to_dialler) = (Vec::new(), Vec::new());
    let mut accepting = Handshake::accept(accepter.0, accepter.1, is_local);
    let mut dialling = Handshake::dial(dialler.0, dialler.1, is_local, &mut to_accepter);
    let (mut at_accepter, mut at_dialler) = (BytesMut::new(), BytesMut::new());
    let (mut one, mut two) = (Ok(None), Ok(None));
    for _ in 0..4 {
        at_accepter.extend(to_accepter.drain(..));
        if matches!(two, Ok(None)) {
            two = accepting.receive(&mut at_accepter, &mut to_dialler);
            if matches!(two, Ok(Some(_))) {
                accepting.welcome(&mut to_dialler);
            }
        }
        at_dialler.extend(to_dialler.drain(..));
        if matches!(one, Ok(None)) {
            one = dialling.receive(&mut at_dialler, &mut to_accepter);
        }
    }
    (one, two)
}

#[test]
fn two_that_share_a_secret_learn_who_the_other_is() {
    let (one, two) = talk((hello(1, 1), secret(SECRET)), (hello(2, 2), secret(SECRET)), false);
    assert_eq!(one.unwrap().unwrap().node_id, BrokerId(2));
    let of_one = two.unwrap().unwrap();
    assert_eq!((of_one.node_id, of_one.directory_id), (BrokerId(1), Uuid([1; 16])));
}

#[test]
fn on_one_machine_no_secret_is_needed() {
    let (one, two) = talk((hello(1, 1), None), (hello(2, 2), None), true);
    assert!(matches!((one, two), (Ok(Some(_)), Ok(Some(_)))));
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let mut calls = Vec::new();
    let mut dialling = Handshake::dial(hello(1, 1), secret(SECRET), false, &mut calls);
    let mut accepting = Handshake::accept(hello(2, 2), secret(SECRET), false);
    let (mut input, mut answers) = (BytesMut::new(), Vec::new());
    for byte in calls {
        input.extend([byte]);
        assert_eq!(accepting.receive(&mut input, &mut answers), Ok(None));
    }
    let mut calls = Vec::new();
    assert_eq!(dialling.receive(&mut BytesMut::from(&answers[..]), &mut calls), Ok(None));
    let known = accepting.receive(&mut BytesMut::from(&calls[..]), &mut Vec::new());
    assert!(known.unwrap().is_some());
}

/// Both sides say what is wrong, or are told.
fn refused(
    one: (Hello, Option<Secret>),
    two: (Hello, Option<Secret>),
    expected: (Refusal, Refusal),
) {
    let (one, two) = talk(one, two, false);
    assert_eq!((one.unwrap_err(), two.unwrap_err()), expected);
}

#[test]
fn what_does_not_belong_together_is_refused_by_both() {
    let with = || secret(SECRET);
    refused(
        (hello(1, 1), with()),
        (hello(2, 2), secret("another secret of theirs")),
        (Refusal::Told(8), Refusal::WrongSecret),
    );
    refused(
        (hello(1, 1), with()),
        (hello(2, 2), None),
        (Refusal::SecretOnlyHere, Refusal::SecretOnlyThere),
    );
    refused((hello(1, 1), None), (hello(2, 2), None), (Refusal::NotLoopback, Refusal::NotLoopback));
    refused((hello(1, 1), with()), (hello(1, 2), with()), (Refusal::Itself, Refusal::Itself));
    let namesake = Hello { directory_id: Uuid([9; 16]), ..hello(1, 2) };
    refused(
        (hello(1, 1), with()),
        (namesake, with()),
        (Refusal::OwnNodeId(BrokerId(1)), Refusal::OwnNodeId(BrokerId(1))),
    );
    let newer = Hello { levels: (2, 3), ..hello(1, 1) };
    refused(
        (newer, with()),
        (hello(2, 2), with()),
        (
            Refusal::NoCommonLevel { mine: (2, 3), theirs: LEVELS },
            Refusal::NoCommonLevel { mine: LEVELS, theirs: (2, 3) },
        ),
    );
    let of =
        |id, cluster: &str| Hello { cluster_id: Some(cluster.to_owned()), ..hello(id, id as u8) };
    let other = |mine: &str, theirs: &str| Refusal::OtherCluster {
        mine: mine.to_owned(),
        theirs: theirs.to_owned(),
    };
    refused((of(1, "a"), with()), (of(2, "b"), with()), (other("a", "b"), other("b", "a")));
    let seeker = Hello { expects: Some(BrokerId(3)), ..hello(1, 1) };
    let is_other = Refusal::OtherBroker { wanted: BrokerId(3), is: BrokerId(2) };
    refused((seeker, with()), (hello(2, 2), with()), (is_other.clone(), is_other));
}

#[test]
fn a_broker_without_a_cluster_is_known_to_one_that_has_one() {
    let member = Hello { cluster_id: Some("a".to_owned()), ..hello(1, 1) };
    let (one, two) = talk((member, None), (hello(2, 2), None), true);
    assert!(matches!((one, two), (Ok(Some(_)), Ok(Some(_)))));
}

/// Everything that a dialler sends in a handshake that succeeds.
fn recorded() -> Vec<u8> {
    let (mut sent, mut answers) = (Vec::new(), Vec::new());
    let mut dialling = Handshake::dial(hello(1, 1), secret(SECRET), false, &mut sent);
    let mut accepting = Handshake::accept(hello(2, 2), secret(SECRET), false);
    accepting.receive(&mut BytesMut::from(&sent[..]), &mut answers).unwrap();
    dialling.receive(&mut BytesMut::from(&answers[..]), &mut sent).unwrap();
    let known = Handshake::accept(hello(2, 2), secret(SECRET), false)
        .receive(&mut BytesMut::from(&sent[..]), &mut Vec::new());
    assert!(known.unwrap().is_some(), "with the same nonce it would pass");
    sent
}

#[test]
fn a_recorded_handshake_proves_nothing() {
    let mut again = Handshake::accept(hello(2, 3), secret(SECRET), false);
    let refused = again.receive(&mut BytesMut::from(&recorded()[..]), &mut Vec::new());
    assert_eq!(refused, Err(Refusal::WrongSecret));
}

/// Somebody without the secret dials, and sends the proof that they got in a handshake which the
/// same broker has begun with them at the same time.
#[test]
fn a_proof_that_is_thrown_back_proves_nothing() {
    // The victim dials the attacker, who claims to be broker 2 with the nonce that the victim, as
    // accepter, has just shown.
    let mut victims_hello = Vec::new();
    let mut accepting = Handshake::accept(hello(1, 7), secret(SECRET), false);
    let mut attackers_call = Vec::new();
    let attacker = Hello { has_secret: true, expects: Some(BrokerId(1)), ..hello(2, 9) };
    attackers_call.extend(MAGIC);
    put(&mut attackers_call, Kind::Hello, &attacker.encode());
    accepting.receive(&mut BytesMut::from(&attackers_call[..]), &mut victims_hello).unwrap();
    let mut proof = Vec::new();
    let mut dialling = Handshake::dial(hello(1, 7), secret(SECRET), false, &mut Vec::new());
    let mut attackers_answer = MAGIC.to_vec();
    put(&mut attackers_answer, Kind::Hello, &attacker.encode());
    dialling.receive(&mut BytesMut::from(&attackers_answer[..]), &mut proof).unwrap();
    let refused = accepting.receive(&mut BytesMut::from(&proof[..]), &mut Vec::new());
    assert_eq!(refused, Err(Refusal::WrongSecret));
    // And back to the dialler itself.
    let refused = dialling.receive(&mut BytesMut::from(&proof[..]), &mut Vec::new());
    assert_eq!(refused, Err(Refusal::WrongSecret));
}

/// Whoever changes a field of a hello on its way has two that differ about what was said.
#[test]
fn a_hello_that_was_changed_on_its_way_is_noticed() {
    let mut sent = Vec::new();
    Handshake::dial(hello(1, 1), secret(SECRET), false, &mut sent);
    let length = hello(1, 1).encode().len();
    // From the class on: levels would make it another hello altogether.
    for at in 5..length {
        let mut calls = sent.clone();
        calls[MAGIC.len() + 5 + at] ^= 1;
        let mut accepting = Handshake::accept(hello(2, 2), secret(SECRET), false);
        let mut answers = Vec::new();
        let heard = accepting.receive(&mut BytesMut::from(&calls[..]), &mut answers);
        if heard.is_err() {
            continue;
        }
        let mut proof = Vec::new();
        let mut dialling = Handshake::dial(hello(1, 1), secret(SECRET), false, &mut Vec::new());
        if dialling.receive(&mut BytesMut::from(&answers[..]), &mut proof).is_err() {
            continue;
        }
        let proved = accepting.receive(&mut BytesMut::from(&proof[..]), &mut Vec::new());
        assert_eq!(proved, Err(Refusal::WrongSecret), "byte {at}");
    }
}

#[test]
fn strangers_are_told_from_their_first_bytes_in_their_own_language() {
    let first = |bytes: &[u8]| {
        let mut out = Vec::new();
        let mut accepting = Handshake::accept(hello(2, 2), None, true);
        let refused = accepting.receive(&mut BytesMut::from(bytes), &mut out).unwrap_err();
        (refused, out)
    };
    let (refused, out) = first(b"GET / HTTP/1.1\r\n");
    assert_eq!(refused, Refusal::Stranger(Stranger::Http));
    assert!(out.starts_with(b"HTTP/1.1 400"));
    assert_eq!(first(&[0x16, 3, 1]).0, Refusal::Stranger(Stranger::Tls));
    assert_eq!(first(&[0]).0, Refusal::Stranger(Stranger::Nonsense));
    let answer = std::str::from_utf8(answer(Stranger::Http)).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert!(answer.contains(&format!("content-length: {}\r\n", body.len())));
}

#[test]
fn a_handshake_takes_small_frames_only_and_in_order() {
    let after_magic = |kind, payload: &[u8]| {
        let mut calls = MAGIC.to_vec();
        put(&mut calls, kind, payload);
        let mut accepting = Handshake::accept(hello(2, 2), secret(SECRET), false);
        accepting.receive(&mut BytesMut::from(&calls[..]), &mut Vec::new()).unwrap_err()
    };
    assert_eq!(after_magic(Kind::Proof, &[0; 32]), Malformed::Order(Kind::Proof).into());
    assert_eq!(after_magic(Kind::Message, b"hi"), Malformed::Order(Kind::Message).into());
    let too_long = after_magic(Kind::Hello, &[0; HELLO_BYTES_MAX + 1]);
    assert!(matches!(too_long, Refusal::Malformed(Malformed::Length { .. })));
    assert_eq!(after_magic(Kind::Refused, &[0, 5]), Refusal::Told(5));
}
