//! The reference page `docs/configuration.md`, made from the registry of properties.

use std::fmt::Write;

use towpath_model::properties::{self, Change, Check, Property, Unit};

const INTRODUCTION: &str = "\
# Configuration

<!-- Made from the registry of properties; change crates/model/src/properties and run
     UPDATE_EXPECT=1 cargo test -p towpath config -->

A setting comes from a flag, else from the environment, else from the file (`towpath serve --config FILE`), else it has its default.
`towpath serve --check` checks all of it and exits. Errors name the flag, the variable, or the line of the file.

| flag | environment | file | meaning |
| --- | --- | --- | --- |
| `--data DIR` (repeatable) | `TOWPATH_DATA` | `data` | where the data is; `dev`: `./towpath-data`, `serve`: no default. Several directories, one per disk: `DIR:DIR` in the environment, a list in the file; metadata and offsets live in the first |
| `--forget-directory ID` | | | give up a data directory that is gone for good, and what it held |
| `--ephemeral` | | | data in a directory that is removed at the end |
| `--kafka ADDR` | `TOWPATH_KAFKA` | `kafka` | where Kafka clients connect; `127.0.0.1:9092` |
| `--http ADDR` | `TOWPATH_HTTP` | `http` | where HTTP clients connect; `127.0.0.1:8080` |
| `--sqs ADDR` | `TOWPATH_SQS` | `sqs` | where clients of Amazon SQS connect; `dev`: `127.0.0.1:9324`, and without if that port is taken; `serve`: only where HTTP clients do. Beyond loopback it needs access keys |
| `--advertise-sqs URL` | `TOWPATH_ADVERTISE_SQS` | `advertise_sqs` | `http://host:port` under which clients know SQS here, where a proxy stands between: URLs of queues begin with it, and what was signed for it is taken; without it, the address that each client used |
| `--sqs-keys-file FILE` | `TOWPATH_SQS_KEYS_FILE`, or `TOWPATH_SQS_KEYS` with the lines themselves | `sqs_keys_file` | access keys of clients of SQS: a line for each, its id and its secret of 16 bytes at least. Without one, `serve` refuses every request of SQS, and `dev` takes any credentials on loopback |
| `--advertise-kafka HOST:PORT` | `TOWPATH_ADVERTISE_KAFKA` | `advertise_kafka` | what Kafka clients are told to connect to; without it, the address they used, or among other brokers the host that those know |
| `--insecure` | `TOWPATH_INSECURE` | `insecure` | listen beyond loopback although nobody has to prove who they are |
| `--node-id N` | `TOWPATH_BROKER__NODE_ID` | `node.id` in `[broker]` | the number of this broker in its cluster; `1`. A data directory belongs to one broker, and another one does not start on it |
| `--set NAME=VALUE` | `TOWPATH_BROKER__NAME` | `[broker]` | a broker property, below; `num.partitions` is `TOWPATH_BROKER__NUM_PARTITIONS` |
| `--rack NAME` | `TOWPATH_BROKER__BROKER_RACK` | `broker.rack` in `[broker]` | where this broker stands; replicas of a partition are spread over racks (`serve` only) |
| `--cluster N@HOST:PORT,…` | `TOWPATH_CLUSTER` | `cluster`, a text or a list | begin a cluster with these brokers, this one among them; each is started with the same list (`serve` only, as all below) |
| `--join HOST:PORT,…` | `TOWPATH_JOIN` | `join`, a text or a list | join the cluster that brokers at these addresses belong to |
| `--peer ADDR` | `TOWPATH_PEER` | `peer` | where other brokers connect; this broker's address in `--cluster`, else `127.0.0.1:9094` |
| `--advertise-peer HOST:PORT` | `TOWPATH_ADVERTISE_PEER` | `advertise_peer` | where other brokers are told to connect; this broker's address in `--cluster`, else where it listens |
| `--advertise-http HOST:PORT` | `TOWPATH_ADVERTISE_HTTP` | `advertise_http` | where other brokers reach HTTP here; where it listens, or the host that peers know |
| `--peer-secret-file FILE` | `TOWPATH_PEER_SECRET_FILE`, or `TOWPATH_PEER_SECRET` with the secret itself | `peer_secret_file` | what all brokers of a cluster share, 16 bytes at least. Without one, brokers listen to each other on loopback only |
| `--role ROLE` | `TOWPATH_ROLE` | `role` | `broker`, or `frontend`: serves clients, holds nothing, and joins a cluster of brokers |
| `--config FILE` | `TOWPATH_CONFIG` | | the file (`serve` only) |
| `-v`, `-vv` | `TOWPATH_LOG` | | how much is logged, to standard error: `warn`, `info` with `-v`, `debug` with `-vv` |

A data directory that has taken part in a cluster remembers it: `--cluster` and `--join` then only say where the others are.

An address is `host:port`, `:port` (every address of this machine) or `port` (loopback). Port 0 picks a free one, and then every listener that was not
named picks one too.

```toml
data = \"/var/lib/towpath\"
kafka = \"127.0.0.1:9092\"
http = \"127.0.0.1:8080\"

[broker]
num.partitions = 3
log.retention.hours = 72
```

`towpath dev` differs from `towpath serve` in these defaults: topics are created when they are used (`auto.create.topics.enable` is `true`, in `serve` it is
`false`), a new group does not wait for more members (`group.initial.rebalance.delay.ms` is 0), and no space is set aside (`disk.reserve.bytes` is 0).

The names are Kafka's, and so are types and defaults. A property that says *not served yet* takes its default and nothing else.
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut section = |title: &str, text: &str, table: &[Property]| {
        let _ = write!(page, "\n## {title}\n\n{text}\n\n");
        page.push_str("| property | default | values | meaning |\n| --- | --- | --- | --- |\n");
        table.iter().for_each(|property| page.push_str(&row(property)));
    };
    let text = "Of the broker: in the file, by `--set`, and (those without *needs a restart*) at run \
        time with Kafka's tools.";
    section("Broker properties", text, properties::brokers());
    let text = "Of a topic: when it is created, or with `towpath topic set` and Kafka's tools.";
    section("Topic properties", text, properties::topics());
    let text = "Of a consumer group.";
    section("Group properties", text, properties::groups());
    page
}

fn row(property: &Property) -> String {
    let default = match property.default {
        None => "derived".to_owned(),
        Some("") => "empty".to_owned(),
        Some(default) => format!("`{default}`"),
    };
    let mut meaning = property.described().replace('|', "\\|").replace('\n', " ");
    if property.change == Change::Restart {
        meaning.push_str(" *Needs a restart.*");
    }
    if let [first, ..] = property.synonyms {
        let _ = write!(meaning, " Default from the broker's `{first}`.");
    }
    format!("| `{}` | {default} | {} | {meaning} |\n", property.name, values(property))
}

fn values(property: &Property) -> String {
    let kind = property.kind.name().to_lowercase();
    let unit = match property.unit {
        Unit::None | Unit::Count => "",
        Unit::Milliseconds => " ms",
        Unit::Seconds => " s",
        Unit::Minutes => " min",
        Unit::Hours => " h",
        Unit::Bytes => " bytes",
    };
    match property.check {
        Check::Any => format!("{kind}{unit}"),
        Check::AtLeast(least) => format!("{kind}, at least {least}{unit}"),
        Check::Between(least, most) => format!("{kind}, {least} to {most}{unit}"),
        Check::BetweenOr(least, most, other) => {
            format!("{kind}, {least} to {most}{unit}, or {other}")
        }
        Check::Fraction => format!("{kind}, 0 to 1"),
        Check::OneOf(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            values.join(", ")
        }
        Check::Replicas => "`*`, or partition:broker pairs".to_owned(),
        Check::LongText => format!("{kind}, up to 60000 bytes"),
    }
}

#[test]
fn the_reference_page_is_made_from_the_registry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let expected = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == expected, "docs/configuration.md is old; UPDATE_EXPECT=1 makes it anew");
}
