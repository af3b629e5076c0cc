use super::super::{DEV, Settings, Written as All};
use super::*;

/// `FLAG value` pairs.
fn written(pairs: &[(&'static str, &str)]) -> All {
    let mut all = All::default();
    for (flag, value) in pairs {
        let node_id = Given { value: (*value).to_owned(), origin: Origin::Flag(flag) };
        let given = Some(node_id.clone());
        match *flag {
            "--peer" => all.cluster.peer = given,
            "--advertise-peer" => all.cluster.advertise_peer = given,
            "--cluster" => all.cluster.members = given,
            "--join" => all.cluster.join = given,
            "--role" => all.cluster.role = given,
            "--kafka" => all.kafka = given,
            "--secret" => all.cluster.secret = given,
            "--insecure" => {
                all.insecure = Some(Given { value: true, origin: Origin::Flag(flag) });
            }
            "--node-id" => {
                all.broker.insert("node.id".to_owned(), node_id);
            }
            _ => panic!("{flag}"),
        }
    }
    all
}

fn cluster(pairs: &[(&'static str, &str)]) -> Cluster {
    Settings::check(&written(pairs), true, DEV).unwrap().cluster.unwrap()
}

fn refused(pairs: &[(&'static str, &str)], expected: &str) {
    let errors = Settings::check(&written(pairs), true, DEV).unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().any(|error| error.contains(expected)), "{errors:?}");
}

const SECRET: (&str, &str) = ("--secret", "0123456789abcdef");

#[test]
fn a_broker_is_by_itself_unless_something_else_is_said() {
    assert_eq!(Settings::check(&written(&[]), true, DEV).unwrap().cluster, None);
    assert_eq!(Settings::check(&written(&[SECRET]), true, DEV).unwrap().cluster, None);
    let open = cluster(&[("--peer", "127.0.0.1:7")]);
    assert_eq!((open.membership, open.peer.port()), (Membership::Alone, 7));
    refused(&[("--role", "frontend")], "--join");
    refused(&[("--advertise-peer", "a:1")], "--advertise-peer: ");
}

#[test]
fn those_who_begin_together_are_named_with_their_numbers() {
    let members = "1@127.0.0.1:5001, 2@localhost:5002,3@c:5003";
    let two = cluster(&[("--cluster", members), ("--node-id", "2")]);
    let Membership::With(members) = &two.membership else { panic!("{two:?}") };
    assert_eq!(members[&BrokerId(3)].to_string(), "c:5003");
    assert_eq!(members.len(), 3);
    assert_eq!((two.peer.port(), two.peer.ip().is_loopback()), (5002, true));
    assert_eq!(two.advertised.unwrap().to_string(), "localhost:5002");
    let elsewhere = ("--peer", "127.0.0.1:6000");
    let one = cluster(&[("--cluster", "1@127.0.0.1:5001"), elsewhere]);
    assert_eq!((one.peer.port(), one.advertised.unwrap().port), (6000, 5001));

    refused(&[("--cluster", "1@a:1,2@b:1"), ("--node-id", "3")], "--join");
    refused(&[("--cluster", "1@127.0.0.1:1,1@b:1")], "broker 1 is named twice");
    refused(&[("--cluster", "1@127.0.0.1:1,b:1")], "\"b:1\" is no member");
    refused(&[("--cluster", "1@127.0.0.1:1,-2@b:1")], "\"-2@b:1\" is no member");
    refused(&[("--cluster", "1@127.0.0.1:1,2@b")], "\"b\" is not the address of a peer");
    refused(&[("--cluster", "1@127.0.0.1:1"), ("--join", "a:1")], "not both");
}

#[test]
fn one_address_is_enough_to_join() {
    let joining = cluster(&[("--join", "a:9094, b:9094"), ("--role", "frontend")]);
    let Membership::Join(seeds) = &joining.membership else { panic!("{joining:?}") };
    assert_eq!(seeds.len(), 2);
    assert_eq!((joining.role, joining.peer.port()), (Role::Frontend, PEER_PORT));
    let any = cluster(&[("--join", "a:9094"), ("--kafka", "127.0.0.1:0")]);
    assert_eq!(any.peer.port(), 0);
    refused(&[("--join", "a:9094"), ("--role", "voter")], "\"voter\" is no role");
    refused(&[("--cluster", "1@127.0.0.1:1"), ("--role", "frontend")], "--join");
    refused(&[("--join", "a")], "\"a\" is not the address of a peer");
}

#[test]
fn other_machines_need_a_secret_and_an_address() {
    let everywhere = ("--peer", "0.0.0.0:9094");
    refused(&[everywhere, ("--advertise-peer", "a:9094")], "--cluster-secret-file");
    refused(&[everywhere, SECRET], "--advertise-peer");
    let told = cluster(&[everywhere, SECRET, ("--advertise-peer", "a:9094")]);
    assert_eq!(told.advertised.unwrap().host, "a");
    refused(&[("--peer", "127.0.0.1:1"), ("--secret", "short")], "a secret of 5 bytes");
    let kafka = [("--peer", "127.0.0.1:1"), ("--kafka", "0.0.0.0:9092"), ("--insecure", "")];
    refused(&kafka, "--advertise-kafka");
}

#[test]
fn a_secret_is_read_from_a_file_and_given_once() {
    let directory = tempfile::tempdir().unwrap();
    let with_file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mut all = written(&[("--peer", "127.0.0.1:1")]);
        let origin = Origin::Flag("--cluster-secret-file");
        all.cluster.secret_file = Some(Given { value: path, origin });
        all
    };
    let secret = |all: &All| Settings::check(all, true, DEV).map(|it| it.cluster.unwrap().secret);
    let read = secret(&with_file("secret", "0123456789abcdef\n")).unwrap();
    assert_eq!(read, Some(Secret::new(b"0123456789abcdef").unwrap()));
    let short = secret(&with_file("short", "0123\n")).unwrap_err()[0].to_string();
    assert!(short.contains("short: a secret of 4 bytes"), "{short}");
    assert!(!short.contains("0123"), "{short}");
    let mut missing = with_file("there", "0123456789abcdef");
    std::fs::remove_file(directory.path().join("there")).unwrap();
    assert!(secret(&missing).unwrap_err()[0].to_string().contains("there: "));
    // Given twice on one layer it is a question; on two layers the upper one counts.
    missing.cluster.secret = written(&[SECRET]).cluster.secret;
    assert!(secret(&missing).unwrap_err()[0].to_string().contains("one of the two"));
    let upper = with_file("upper", "fedcba9876543210").over(written(&[SECRET]));
    assert_eq!(secret(&upper).unwrap(), Some(Secret::new(b"fedcba9876543210").unwrap()));
}
