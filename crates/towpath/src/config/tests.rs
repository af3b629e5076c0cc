use std::path::Path;

use super::*;

fn flags(kafka: Option<&str>, http: Option<&str>) -> Written {
    let given = |flag, value: &str| Given { value: value.to_owned(), origin: Origin::Flag(flag) };
    Written {
        kafka: kafka.map(|value| given("--kafka", value)),
        http: http.map(|value| given("--http", value)),
        ..Written::default()
    }
}

fn environment(pairs: &[(&str, &str)]) -> Written {
    let variables = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Written::from_environment(variables).unwrap()
}

fn file(text: &str) -> Written {
    file::parse(Path::new("t.toml"), text).unwrap()
}

fn errors(written: &Written, defaults: Defaults) -> Vec<String> {
    let errors = Settings::check(written, false, defaults).unwrap_err();
    errors.iter().map(ConfigError::to_string).collect()
}

fn file_errors(text: &str) -> Vec<String> {
    let written = match file::parse(Path::new("t.toml"), text) {
        Ok(written) => written,
        Err(errors) => return errors.iter().map(ConfigError::to_string).collect(),
    };
    errors(&written, DEV)
}

#[test]
fn flags_beat_the_environment_beats_the_file_beats_the_default() {
    let file = file(
        "kafka = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\ndata = \"f\"\n[broker]\nnum.partitions = 2\n\"topics.max\" = 7\n",
    );
    let environment = environment(&[
        ("TOWPATH_HTTP", "127.0.0.1:3"),
        ("TOWPATH_BROKER__NUM_PARTITIONS", "4"),
        ("PATH", "/bin"),
    ]);
    let written = flags(Some("127.0.0.1:5"), None).over(environment.over(file));
    let settings = Settings::check(&written, false, DEV).unwrap();
    assert_eq!(settings.kafka.port(), 5);
    assert_eq!(settings.http.port(), 3);
    assert_eq!(settings.data, [PathBuf::from("f")]);
    assert_eq!(settings.broker.num_partitions, 4);
    assert_eq!(settings.broker.topics_max, 7);
    assert_eq!(settings.statics["num.partitions"], "4");
}

#[test]
fn defaults_are_those_of_the_command() {
    let dev = Settings::check(&Written::default(), false, DEV).unwrap();
    assert_eq!(dev.data, [PathBuf::from("towpath-data")]);
    assert_eq!((dev.kafka.port(), dev.http.port()), (9092, 8080));
    assert!(dev.broker.auto_create_topics);
    assert!(dev.broker.group_initial_rebalance_delay.is_zero());

    let no_data = errors(&Written::default(), SERVE);
    assert!(no_data[0].contains("--data"), "{no_data:?}");
    let serve = Settings::check(&file("data = \"d\""), false, SERVE).unwrap();
    assert!(!serve.broker.auto_create_topics);
    let on = "data = \"d\"\n[broker]\nauto.create.topics.enable = true\n";
    assert!(Settings::check(&file(on), false, SERVE).unwrap().broker.auto_create_topics);
    assert!(Settings::check(&file(on), true, SERVE).unwrap().data.is_empty());
}

#[test]
fn a_broker_has_one_number_under_two_names() {
    let settings = |broker: &str| {
        let text = format!("data = \"d\"\n[broker]\n{broker}");
        Settings::check(&file(&text), false, SERVE).map(|settings| {
            let text = |name: &str| settings.statics.get(name).cloned();
            (settings.broker.node_id.0, text("node.id"), text("broker.id"))
        })
    };
    let both = |id: &str| (Some(id.to_owned()), Some(id.to_owned()));
    let check = |broker: &str, id: i32| {
        let (node, older) = both(&id.to_string());
        assert_eq!(settings(broker), Ok((id, node, older)), "{broker}");
    };
    assert_eq!(settings(""), Ok((1, None, None)));
    check("node.id = 7\n", 7);
    check("broker.id = 8\n", 8);
    check("node.id = 0\nbroker.id = -1\n", 0);
    check("node.id = 3\nbroker.id = 3\n", 3);
    let found = settings("broker.id = 3\nnode.id = 4\n").unwrap_err();
    let said = found[0].to_string();
    assert!(said.starts_with("t.toml line 4: ") && said.contains("broker.id"), "{said}");
    let found = settings("node.id = -1\n").unwrap_err();
    assert!(found[0].to_string().contains("at least 0"), "{}", found[0]);
}

#[test]
fn port_zero_makes_every_unnamed_port_zero() {
    let ports = |kafka, http| {
        let settings = Settings::check(&flags(kafka, http), false, DEV).unwrap();
        (settings.kafka.port(), settings.http.port())
    };
    assert_eq!(ports(Some("127.0.0.1:0"), None), (0, 0));
    assert_eq!(ports(None, Some("127.0.0.1:0")), (0, 0));
    assert_eq!(ports(Some("127.0.0.1:0"), Some("127.0.0.1:81")), (0, 81));
    assert_eq!(ports(Some("127.0.0.1:80"), None), (80, 8080));
}

#[test]
fn listening_beyond_loopback_must_be_typed() {
    let open = flags(Some("0.0.0.0:9092"), None);
    let refused = errors(&open, DEV);
    assert!(refused[0].starts_with("--kafka: 0.0.0.0:9092"), "{refused:?}");
    assert!(refused[0].contains("--insecure"), "{refused:?}");
    let typed = environment(&[("TOWPATH_INSECURE", "true")]).over(open);
    let settings = Settings::check(&typed, false, DEV).unwrap();
    assert!(settings.kafka.ip().is_unspecified());
}

#[test]
fn errors_name_the_line() {
    let check = |text: &str, expected: &str| {
        let found = file_errors(text);
        assert_eq!(found.first().map(String::as_str), Some(expected), "{found:?}");
    };
    check(
        "kafka = \"127.0.0.1:1\"\n\n[broker]\n\"num.partitions\" = \"many\"\n",
        "t.toml line 4: Invalid value many for configuration num.partitions: Not a number of type INT",
    );
    check(
        "\n[broker]\nnum.partition = 1\n",
        "t.toml line 3: there is no broker property \"num.partition\"",
    );
    check("data = 3\n", "t.toml line 1: data is a text in quotes, or a list of them");
    check("data = [\"d\", 3]\n", "t.toml line 1: data is a text in quotes, or a list of them");
    check("data = []\n", "t.toml line 1: a data directory has no name");
    check("data = [\"d\", \"d\"]\n", "t.toml line 1: data directory d is named twice");
    check(
        "# a\nhttp = \"localhost\"\n",
        "t.toml line 2: \"localhost\" is no address; write host:port, such as 127.0.0.1:9092",
    );
    let unknown = file_errors("\ndtaa = \"x\"\n");
    assert!(unknown[0].starts_with("t.toml line 2: there is no setting \"dtaa\""), "{unknown:?}");
    let broken = file_errors("data = \"x\"\nkafka = \n");
    assert!(broken[0].starts_with("t.toml line 2: "), "{broken:?}");
    check(
        "[broker]\nnum.partitions = [1]\n",
        "t.toml line 2: num.partitions is a text, a decimal number, true or false",
    );
}

#[test]
fn all_errors_are_told_at_once_with_their_origins() {
    let written = flags(Some("x"), None)
        .over(environment(&[("TOWPATH_HTTP", "y"), ("TOWPATH_BROKER__NUM_PARTITIONS", "0")]));
    let found = errors(&written, SERVE);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[0].starts_with("--kafka: "));
    assert!(found[1].starts_with("environment variable TOWPATH_HTTP: "));
    assert!(found[3].starts_with("environment variable TOWPATH_BROKER__NUM_PARTITIONS: "));
}

#[test]
fn values_that_are_possible_each_may_be_impossible_together() {
    let text =
        "[broker]\ngroup.min.session.timeout.ms = 60000\n\ngroup.max.session.timeout.ms = 50000\n";
    let found = file_errors(text);
    assert!(found[0].starts_with("t.toml line 2: "), "{found:?}");
}

/// Files that nobody would write end in errors that name a line, and never in a panic.
#[test]
fn mutants_of_a_file_are_read_or_refused() {
    const FILE: &str = "data = \"/var/lib/towpath\"\nkafka = \"127.0.0.1:9092\"\nhttp = \"[::1]:8080\"\n\
        advertise_kafka = \"host:1\"\ninsecure = true\n[broker]\n\"num.partitions\" = 3\n\
        log.retention.ms = -1\nlog.segment.bytes = 1_000_000\n";
    const WORDS: [&str; 12] = [
        "=",
        "\"",
        "[",
        "]]",
        "\n",
        "\"\"\"",
        "9999999999999999999999",
        "-1",
        "\\u0000",
        "{a=",
        ".",
        "\u{fffd}",
    ];
    // Numbers as Knuth makes them: the same ones each time.
    let mut state: u64 = 1;
    let mut next = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let (mut read, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let mut text: Vec<char> = FILE.chars().collect();
        for _ in 0..=next(3) {
            let at = next(text.len() + 1);
            let end = text.len().min(at + next(12));
            match next(3) {
                0 => drop(text.drain(at..end)),
                1 => drop(text.splice(at..at, WORDS[next(WORDS.len())].chars())),
                _ => text.truncate(at),
            }
        }
        let text: String = text.into_iter().collect();
        match file::parse(Path::new("t.toml"), &text) {
            Ok(written) => {
                read += 1;
                let _ = Settings::check(&written, false, SERVE);
            }
            Err(errors) => {
                refused += 1;
                assert!(!errors.is_empty(), "{text}");
            }
        }
    }
    assert!(100 < read && 100 < refused, "{read} were read, {refused} refused");
    let deep = format!("data = {}", "[".repeat(100_000));
    assert!(file::parse(Path::new("t.toml"), &deep).is_err());
}
