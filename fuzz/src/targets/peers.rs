//! What a peer sends: the handshake from both sides, and the frames that follow.

use bytes::BytesMut;
use towpath_model::{BrokerId, Uuid};
use towpath_server::Ledger;
use towpath_server::peer::{
    Class, FRAME_BYTES_MAX, HELLO_BYTES_MAX, Handshake, Hello, Inbox, LEVELS, MAGIC, Received,
    Refusal, Secret, next_frame,
};

use crate::shape::Shape;
use crate::target::Target;

/// `side u8 │ what arrives`; with bit 1 of the side there is no secret, with bit 2 what arrives are
/// frames after the handshake.
pub(super) const PEERS: Target =
    Target { name: "peers", seeds, run, memory_max: 1 << 20, waits_for_others: false };

/// Of what arrives, so much at once.
const READ_BYTES: usize = 61;
/// Smaller than what a message in pieces may take, so that both ways are gone.
const LEDGER_BYTES: usize = 12 << 20;
const MESSAGE_BYTES_MAX: usize = 16 << 20;

fn hello(node_id: i32) -> Hello {
    Hello {
        levels: LEVELS,
        class: Class::Control,
        has_secret: false,
        node_id: BrokerId(node_id),
        directory_id: Uuid([node_id as u8; 16]),
        incarnation: Uuid([3; 16]),
        nonce: [node_id as u8; 32],
        expects: None,
        cluster_id: Some("cluster".to_owned()),
        address: Some("host:9094".parse().expect("it is one")),
    }
}

fn secret() -> Secret {
    Secret::new(b"0123456789abcdef").expect("it is long enough")
}

fn run(input: &[u8]) -> Shape {
    let Some((side, arriving)) = input.split_first() else { return Shape::default() };
    if side & 4 != 0 {
        return frames(arriving);
    }
    let secret = (side & 2 == 0).then(secret);
    let mut out = Vec::new();
    let mut handshake = match side & 1 {
        0 => Handshake::accept(hello(1), secret, true),
        _ => Handshake::dial(hello(1), secret, true, &mut out),
    };
    let shape = Shape::default().exact(i16::from(side & 3));
    let mut unread = BytesMut::new();
    for piece in arriving.chunks(READ_BYTES) {
        unread.extend_from_slice(piece);
        let heard = handshake.receive(&mut unread, &mut out);
        assert!(unread.len() <= HELLO_BYTES_MAX + 5 + READ_BYTES, "what is not taken is kept");
        assert!(out.len() <= 4 * HELLO_BYTES_MAX, "more is said than a handshake has");
        match heard {
            Ok(None) => {}
            Ok(Some(theirs)) => {
                assert_eq!(
                    Hello::decode(&theirs.encode()),
                    Ok(theirs),
                    "a second round changes it"
                );
                return shape.word("known");
            }
            // The input has chosen the name.
            Err(Refusal::OtherCluster { .. }) => return shape.word("cluster"),
            Err(refusal) => return shape.error(&refusal).size(out.len()),
        }
    }
    shape.word("more").size(out.len())
}

fn frames(arriving: &[u8]) -> Shape {
    let (ledger, mut inbox) = (Ledger::new(LEDGER_BYTES), Inbox::new(MESSAGE_BYTES_MAX));
    let mut unread = BytesMut::new();
    // Which outcomes there were; their order would make everything new.
    let mut seen = 0;
    let shape = |seen: i16| Shape::default().word("frames").exact(seen);
    for piece in arriving.chunks(READ_BYTES) {
        unread.extend_from_slice(piece);
        loop {
            let (kind, payload) = match next_frame(&mut unread, FRAME_BYTES_MAX) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(malformed) => return shape(seen).error(&malformed),
            };
            let bytes = payload.len();
            seen |= match inbox.accept(kind, payload, &ledger) {
                Ok(Received::Message(message, _)) => {
                    assert!(message.len() == bytes || FRAME_BYTES_MAX < message.len());
                    1
                }
                Ok(Received::Ping) => 2,
                Ok(Received::Nothing) => 4,
                Ok(Received::Dropped) => 8,
                Err(malformed) => return shape(seen).error(&malformed),
            };
        }
    }
    shape(seen).word("end")
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (side, secret) in [(0, Some(secret())), (1, Some(secret())), (2, None), (3, None)] {
        // What the other side says until it is known.
        let (mut of_dialler, mut of_accepter) = (vec![side], vec![side]);
        let (mut said, mut answered) = (Vec::new(), Vec::new());
        let is_dialling = side & 1 == 0;
        let (one, two) = if is_dialling { (2, 1) } else { (1, 2) };
        let mut dialling = Handshake::dial(hello(one), secret.clone(), true, &mut said);
        let mut accepting = Handshake::accept(hello(two), secret, true);
        let mut known = accepting.receive(&mut BytesMut::from(&said[..]), &mut answered);
        of_dialler.append(&mut said);
        known = known.and_then(|_| dialling.receive(&mut BytesMut::from(&answered[..]), &mut said));
        of_accepter.append(&mut answered);
        known =
            known.and_then(|_| accepting.receive(&mut BytesMut::from(&said[..]), &mut answered));
        of_dialler.append(&mut said);
        assert!(matches!(known, Ok(Some(_))), "a handshake of ours succeeds");
        accepting.welcome(&mut answered);
        of_accepter.append(&mut answered);
        seeds.push(if is_dialling { of_dialler } else { of_accepter });
    }
    let mut frames = vec![4];
    let large = u32::try_from(FRAME_BYTES_MAX + 1).expect("it is small").to_be_bytes();
    let kinds: [(u8, &[u8]); 5] =
        [(4, b"message"), (7, b""), (5, &large), (6, b"piece"), (4, b"between")];
    for (kind, payload) in kinds {
        frames.extend(u32::try_from(1 + payload.len()).expect("it is small").to_be_bytes());
        frames.push(kind);
        frames.extend(payload);
    }
    seeds.push(frames);
    seeds.push([&[0], &MAGIC[..], &[0, 0, 0, 3, 3, 0, 8]].concat());
    seeds
}
