use super::super::{Defaults, Settings, Written, file};
use super::*;

const SERVE: Defaults = super::super::SERVE;
const SECRET: &str = "0123456789abcdef0123";

fn check(text: &str) -> Result<Settings, Vec<String>> {
    let written = file::parse(Path::new("t.toml"), &format!("data = \"d\"\n{text}"));
    let said = |errors: Vec<ConfigError>| errors.iter().map(ConfigError::to_string).collect();
    written.and_then(|written| Settings::check(&written, false, SERVE)).map_err(said)
}

fn cluster(text: &str) -> ClusterSettings {
    check(text).unwrap().cluster.unwrap()
}

fn refused(text: &str, expected: &str) {
    let errors = check(text).expect_err(text);
    assert!(errors.iter().any(|error| error.contains(expected)), "{text}: {errors:?}");
}

fn at(text: &str) -> PeerAddress {
    text.parse().unwrap()
}

#[test]
fn a_broker_is_alone_and_others_may_come_unless_something_is_said() {
    let settings = cluster("");
    assert_eq!(settings.company, Company::Alone);
    assert_eq!(settings.peer, "127.0.0.1:9094".parse().unwrap());
    assert_eq!((settings.role, settings.kafka, settings.http), (Role::Broker, None, None));
    assert_eq!(cluster("kafka = \"127.0.0.1:0\"").peer.port(), 0);
    let dev = Settings::check(&Written::default(), false, super::super::DEV).unwrap();
    assert!(dev.cluster.is_none());
}

#[test]
fn members_are_a_text_or_a_list_and_name_this_broker() {
    let as_text = "cluster = \"1@127.0.0.1:19091, 2@[::1]:19092\"";
    let as_list = "cluster = [\"1@127.0.0.1:19091\", \"2@[::1]:19092\"]";
    for text in [as_text, as_list] {
        let settings = cluster(text);
        let members = [(1, "127.0.0.1:19091"), (2, "[::1]:19092")];
        let members = members.map(|(id, address)| (BrokerId(id), at(address))).into();
        assert_eq!(settings.company, Company::With(members));
        assert_eq!(settings.peer, "127.0.0.1:19091".parse().unwrap());
        assert_eq!(settings.advertised, Some(at("127.0.0.1:19091")));
    }
    let check = |value: &str, expected: &str| {
        refused(&format!("cluster = \"{value}\""), &format!("t.toml line 2: {expected}"));
    };
    check("2@a:1,3@b:1", "this is broker 1, and the cluster has 2, 3");
    check("1@a:1,1@b:1", "broker 1 is named twice");
    check("1@a:1,2@a:1", "two brokers cannot both be at a:1");
    for item in ["a:1", "x@a:1", "-1@a:1", "1@a", "1@", ""] {
        check(item, &format!("{item:?} is no broker; write N@host:port"));
    }
    let check = |text: &str, expected: &str| refused(text, expected);
    check("cluster = [1]", "cluster is a text in quotes, or a list of them");
    check("cluster = \"1@127.0.0.1:1\"\njoin = \"127.0.0.1:2\"", "t.toml line 3: a broker either");
}

#[test]
fn who_joins_names_addresses_only() {
    let settings = cluster("join = \"127.0.0.1:1,[::1]:2\"\nrole = \"frontend\"");
    assert_eq!(settings.company, Company::Join(vec![at("127.0.0.1:1"), at("[::1]:2")]));
    assert_eq!(settings.role, Role::Frontend);
    refused("join = \"somewhere\"", "\"somewhere\" is not the address of a peer");
    refused("role = \"frontend\"", "name one with --join");
    refused("role = \"leader\"", "\"leader\" is neither broker nor frontend");
}

#[test]
fn beyond_loopback_there_is_a_secret() {
    refused("peer = \"0.0.0.0:9094\"\nadvertise_peer = \"a:1\"", "--peer-secret-file FILE");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    let with = |text: &str| format!("peer_secret_file = {path:?}\n{text}");
    refused(&with(""), "cannot be read");
    std::fs::write(&path, "short").unwrap();
    refused(&with(""), "a secret of 5 bytes");
    std::fs::write(&path, SECRET).unwrap();
    assert!(cluster(&with("")).secret.is_some());
    refused(&with("peer = \":9094\""), "--advertise-peer HOST:PORT");
    refused(&with("advertise_peer = \"a:0\""), "port 0 cannot be advertised");

    // One host is enough for all listeners.
    let open = "peer = \":9094\"\nkafka = \":9092\"\nhttp = \":8080\"\ninsecure = true\n";
    let joins = "join = \"b:9094\"\nadvertise_peer = \"a:9000\"";
    let settings = check(&with(&format!("{open}{joins}"))).unwrap();
    assert_eq!(settings.advertised.unwrap().to_string(), "a:9092");
    let cluster = settings.cluster.unwrap();
    assert_eq!(cluster.advertised, Some(at("a:9000")));
    assert_eq!(cluster.http.unwrap().to_string(), "a:8080");
    let text = format!("{open}{joins}\nadvertise_kafka = \"c:1\"\nadvertise_http = \"d:2\"");
    let settings = check(&with(&text)).unwrap();
    assert_eq!(settings.advertised.unwrap().to_string(), "c:1");
    assert_eq!(settings.cluster.unwrap().http.unwrap().to_string(), "d:2");
}

#[test]
fn nobody_is_told_an_address_that_leads_nowhere() {
    let all = "kafka = \":9092\"\nhttp = \":8080\"\ninsecure = true\n";
    // Peers on loopback: the brokers are on one machine, and clients may be on others.
    let local = format!("{all}join = \"127.0.0.1:9095\"\n");
    refused(&local, "clients of the other brokers cannot connect to 0.0.0.0:9092");
    refused(&local, "--advertise-kafka HOST:PORT");
    let settings = check(&format!("{local}advertise_kafka = \"c:1\"")).unwrap();
    assert_eq!(settings.advertised.unwrap().to_string(), "c:1");
    assert_eq!(settings.cluster.unwrap().http.unwrap().to_string(), "127.0.0.1:8080");
    // Others may come to a broker that is alone: its own clients use the address that they have.
    let settings = check(all).unwrap();
    assert_eq!(settings.advertised, None);
    assert_eq!(settings.cluster.unwrap().kafka.unwrap().to_string(), "127.0.0.1:9092");
}

#[test]
fn the_secret_of_the_environment_is_never_printed_and_counts_more_than_a_files() {
    let variables = [
        ("TOWPATH_PEER_SECRET_FILE", "/nowhere"),
        ("TOWPATH_PEER_SECRET", SECRET),
        ("TOWPATH_JOIN", "127.0.0.1:1"),
        ("TOWPATH_ROLE", "frontend"),
    ];
    for turned in [false, true] {
        let mut variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        if turned {
            variables.reverse();
        }
        let written = Written::from_environment(variables).unwrap();
        assert!(!format!("{written:?}").contains(SECRET));
        let below = file::parse(
            Path::new("t.toml"),
            "data = \"d\"\ncluster = \"1@127.0.0.1:1\"\nrole = \"broker\"",
        );
        let written = written.over(below.unwrap());
        let settings = Settings::check(&written, false, SERVE).unwrap().cluster.unwrap();
        assert!(settings.secret.is_some());
        assert!(!format!("{settings:?}").contains(SECRET));
        assert_eq!(settings.company, Company::Join(vec![at("127.0.0.1:1")]));
        assert_eq!(settings.role, Role::Frontend);
    }
}
