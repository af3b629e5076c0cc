//! Runs the client against a live broker and prints `STEP name ok|fail detail` per step, as the
//! programs of other clients under `tests/clients` do. Usage: `exercise HOST:PORT`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_client::{
    Acks, Admin, Assignor, Bound, ClientConfig, Cluster, Compression, ConfigChange, Delivered,
    ErrorCode, FetchConfig, GroupConfig, GroupConsumer, NewTopic, Offset, OffsetReset, OffsetSpec,
    OnFull, OutgoingRecord, Producer, ProducerConfig, Reader, RebalanceEvent, Record, Resource,
    Timestamp, TopicPartition,
};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Longer than any step should take.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(bootstrap) = std::env::args().nth(1) else {
        eprintln!("usage: exercise HOST:PORT");
        return ExitCode::from(2);
    };
    match run(&bootstrap).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("STEP connect fail {error}");
            ExitCode::FAILURE
        }
    }
}

struct World {
    cluster: Cluster,
    admin: Admin,
    run: String,
}

async fn run(bootstrap: &str) -> Outcome<bool> {
    let cluster = Cluster::connect(ClientConfig::new(bootstrap)?).await?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let run = format!("{}-{}", since.as_millis(), std::process::id());
    let world = World { admin: Admin::new(cluster.clone()), cluster, run };
    println!("STEP connect ok");

    let mut all_ok = true;
    let mut report = |name: &str, started: Instant, outcome: Outcome| {
        let took = started.elapsed().as_millis();
        match outcome {
            Ok(()) => println!("STEP {name} ok {took} ms"),
            Err(error) => {
                all_ok = false;
                println!("STEP {name} fail {error}");
            }
        }
    };
    macro_rules! steps {
        ($($name:literal => $step:expr),* $(,)?) => {
            $(
                let started = Instant::now();
                let outcome = tokio::time::timeout(PATIENCE, $step).await;
                report($name, started, outcome.unwrap_or_else(|_| Err("took too long".into())));
            )*
        };
    }
    steps! {
        "create-topic" => create_topic(&world),
        "auto-create" => auto_create(&world),
        "codec-none" => codec(&world, Compression::None),
        "codec-gzip" => codec(&world, Compression::Gzip),
        "codec-snappy" => codec(&world, Compression::Snappy),
        "codec-lz4" => codec(&world, Compression::Lz4),
        "codec-zstd" => codec(&world, Compression::Zstd),
        "many-in-order" => many_in_order(&world),
        "acks-0-and-1" => weaker_acks(&world),
        "split-too-large" => split_too_large(&world),
        "buffer-bounds" => buffer_bounds(&world),
        "read-range" => read_range(&world),
        "group-cooperative" => group(&world, Assignor::CooperativeSticky),
        "group-range" => group(&world, Assignor::Range),
        "group-roundrobin" => group(&world, Assignor::RoundRobin),
        "group-static-member" => static_member(&world),
        "poll-interval" => poll_interval(&world),
        "seek-by-time" => seek_by_time(&world),
        "pause-and-seek" => pause_and_seek(&world),
        "group-offsets" => group_offsets(&world),
        "configs" => configs(&world),
        "partitions-and-trim" => partitions_and_trim(&world),
        "log-dirs" => log_dirs(&world),
        "clean-up" => clean_up(&world),
    }
    Ok(all_ok)
}

// ------------------------------------------------------------------------------------- helpers

impl World {
    fn topic(&self, name: &str) -> String {
        format!("rust-{name}-{}", self.run)
    }

    async fn create(
        &self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Outcome<String> {
        let name = self.topic(name);
        let configs = configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let new = NewTopic {
            name: name.clone(),
            partitions: Some(partitions),
            replicas: Some(1),
            configs,
        };
        self.admin.create_topic(&new, false).await?;
        Ok(name)
    }

    fn producer(&self, config: ProducerConfig) -> Outcome<Producer> {
        Ok(Producer::new(self.cluster.clone(), config)?)
    }

    async fn send_all(
        &self,
        config: ProducerConfig,
        records: impl IntoIterator<Item = OutgoingRecord>,
    ) -> Outcome<Vec<Delivered>> {
        let producer = self.producer(config)?;
        let mut deliveries = Vec::new();
        for record in records {
            deliveries.push(producer.send(record).await?);
        }
        producer.flush().await?;
        let mut delivered = Vec::new();
        for delivery in deliveries {
            delivered.push(delivery.await?);
        }
        producer.close(PATIENCE).await?;
        Ok(delivered)
    }

    async fn read_all(&self, topic: &str, start: Bound, end: Bound) -> Outcome<Vec<Record>> {
        let count = self.admin.topic(topic).await?.partitions.len();
        let partitions: Vec<_> =
            (0..i32::try_from(count)?).map(|p| TopicPartition::new(topic, p)).collect();
        let fetch = FetchConfig::default();
        let mut reader = Reader::open(&self.cluster, &partitions, start, end, fetch).await?;
        let mut records = Vec::new();
        while let Some(more) = reader.next(Duration::from_secs(5)).await? {
            records.extend(more);
        }
        Ok(records)
    }
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

fn text(bytes: Option<&bytes::Bytes>) -> String {
    bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

const WHOLE: (Bound, Bound) = (Bound::Spec(OffsetSpec::Earliest), Bound::Spec(OffsetSpec::Latest));

// --------------------------------------------------------------------------------------- steps

async fn create_topic(world: &World) -> Outcome {
    let name = world.create("main", 3, &[]).await?;
    let topic = world.admin.topic(&name).await?;
    ensure(topic.partitions.len() == 3, "it has not three partitions")?;
    let again = NewTopic { name: name.clone(), ..NewTopic::default() };
    let refused = world.admin.create_topic(&again, false).await.err().and_then(|e| e.code());
    ensure(refused == Some(ErrorCode::TopicAlreadyExists), format!("created twice: {refused:?}"))?;
    ensure(world.admin.topics().await?.contains_key(name.as_str()), "it is not listed")
}

async fn auto_create(world: &World) -> Outcome {
    let topic = world.topic("auto");
    let record = OutgoingRecord::new(topic.as_str(), "it works");
    let delivered = world.send_all(ProducerConfig::default(), [record]).await?;
    ensure(delivered[0].offset == Some(Offset(0)), format!("delivered {:?}", delivered[0]))?;
    let unknown: Arc<str> = world.topic("never-created").into();
    let missing = world.cluster.topic(&unknown, false, PATIENCE).await;
    ensure(missing.is_err(), "looking up a topic created it")
}

async fn codec(world: &World, compression: Compression) -> Outcome {
    let topic = world.create(&format!("codec-{compression}"), 2, &[]).await?;
    let records = (0..100).map(|i| {
        let record = OutgoingRecord::new(topic.as_str(), format!("value {i} {}", "x".repeat(i)))
            .partition(i as i32 % 2)
            .timestamp(Timestamp(1_700_000_000_000 + i as i64))
            .header("n", i.to_string())
            .header("n", "twice");
        if i % 3 == 0 { record } else { record.key(format!("key {i}")) }
    });
    let config = ProducerConfig { compression, ..ProducerConfig::default() };
    world.send_all(config, records).await?;
    let got = world.read_all(&topic, WHOLE.0, WHOLE.1).await?;
    ensure(got.len() == 100, format!("{} of 100 records came back", got.len()))?;
    for partition in 0..2 {
        let mine = got.iter().filter(|record| record.partition.0 == partition);
        for (at, record) in mine.enumerate() {
            let i = at * 2 + usize::try_from(partition)?;
            let value = format!("value {i} {}", "x".repeat(i));
            let is_right = record.offset == Offset(i64::try_from(at)?)
                && text(record.value.as_ref()) == value
                && record.key.is_none() == (i % 3 == 0)
                && record.timestamp.0 == 1_700_000_000_000 + i64::try_from(i)?
                && record.headers.len() == 2
                && text(record.headers[0].value.as_ref()) == i.to_string();
            ensure(is_right, format!("record {i} came back as {record:?}"))?;
        }
    }
    Ok(())
}

async fn many_in_order(world: &World) -> Outcome {
    let topic = world.create("many", 4, &[]).await?;
    let count = 20_000;
    let config = ProducerConfig {
        batch_bytes: 4096,
        linger: Duration::from_millis(1),
        ..ProducerConfig::default()
    };
    let keyed = (0..count)
        .map(|i: i32| OutgoingRecord::new(topic.as_str(), i.to_string()).key((i % 50).to_string()));
    world.send_all(config, keyed).await?;
    let got = world.read_all(&topic, WHOLE.0, WHOLE.1).await?;
    ensure(got.len() == 20_000, format!("{} of {count} records came back", got.len()))?;
    let mut last: BTreeMap<String, (i32, i32)> = BTreeMap::new();
    for record in &got {
        let value: i32 = text(record.value.as_ref()).parse()?;
        let key = text(record.key.as_ref());
        let (partition, before) = last.entry(key).or_insert((record.partition.0, -1));
        ensure(*before < value, format!("{value} came after {before}"))?;
        ensure(*partition == record.partition.0, "a key changed its partition")?;
        *before = value;
    }
    Ok(())
}

async fn weaker_acks(world: &World) -> Outcome {
    let topic = world.create("acks", 1, &[]).await?;
    for acks in [Acks::None, Acks::Leader] {
        let config = ProducerConfig { acks, is_idempotent: false, ..ProducerConfig::default() };
        let record = OutgoingRecord::new(topic.as_str(), "x");
        let delivered = world.send_all(config, [record]).await?;
        ensure(
            (delivered[0].offset.is_none()) == (acks == Acks::None),
            format!("{acks:?} brought {:?}", delivered[0]),
        )?;
    }
    // Nobody says when an unanswered record has arrived.
    for _ in 0..100 {
        if world.read_all(&topic, WHOLE.0, WHOLE.1).await?.len() == 2 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err("not both records arrived".into())
}

async fn split_too_large(world: &World) -> Outcome {
    let topic = world.create("large", 1, &[("max.message.bytes", "4000")]).await?;
    let records = (0..40).map(|i| OutgoingRecord::new(topic.as_str(), format!("{i:0500}")));
    let config = ProducerConfig { linger: Duration::from_millis(50), ..ProducerConfig::default() };
    let delivered = world.send_all(config.clone(), records).await?;
    let offsets: Vec<i64> = delivered.iter().filter_map(|d| Some(d.offset?.0)).collect();
    ensure(offsets == (0..40).collect::<Vec<_>>(), format!("offsets {offsets:?}"))?;

    let producer = world.producer(config)?;
    let before = producer.send(OutgoingRecord::new(topic.as_str(), "small")).await?;
    let large = producer.send(OutgoingRecord::new(topic.as_str(), "x".repeat(5000))).await?;
    let after = producer.send(OutgoingRecord::new(topic.as_str(), "small")).await?;
    producer.flush().await?;
    before.await?;
    let refused = large.await;
    ensure(
        matches!(refused, Err(towpath_client::Error::RecordTooLarge { .. })),
        format!("a record above the limit: {refused:?}"),
    )?;
    after.await?;
    Ok(producer.close(PATIENCE).await?)
}

async fn buffer_bounds(world: &World) -> Outcome {
    let topic = world.create("bounds", 1, &[]).await?;
    let config = ProducerConfig {
        batch_bytes: 1000,
        buffer_bytes: 2000,
        linger: Duration::from_secs(60),
        on_full: OnFull::Shed,
        delivery_timeout: Duration::from_secs(120),
        ..ProducerConfig::default()
    };
    let producer = world.producer(config.clone())?;
    let mut shed = 0;
    for _ in 0..20 {
        match producer.send(OutgoingRecord::new(topic.as_str(), "x".repeat(400))).await {
            Ok(_) => {}
            Err(towpath_client::Error::BufferFull { .. }) => shed += 1,
            Err(error) => return Err(error.into()),
        }
    }
    ensure(shed > 0, "nothing was shed")?;
    producer.close(PATIENCE).await?;

    let blocking = ProducerConfig { on_full: OnFull::Block(PATIENCE), ..config };
    let records = (0..20).map(|_| OutgoingRecord::new(topic.as_str(), "x".repeat(400)));
    let delivered = world.send_all(blocking, records).await?;
    ensure(delivered.len() == 20, "a blocked record was lost")
}

async fn read_range(world: &World) -> Outcome {
    let topic = world.create("range", 1, &[]).await?;
    let records = (0..50).map(|i| {
        OutgoingRecord::new(topic.as_str(), i.to_string())
            .timestamp(Timestamp(1_000_000 + i * 1000))
    });
    world.send_all(ProducerConfig::default(), records).await?;
    let at = |i: i64| Bound::Spec(OffsetSpec::At(Timestamp(1_000_000 + i * 1000)));
    for (start, end, expected) in [
        (Bound::Offset(Offset(10)), Bound::Offset(Offset(20)), (10, 20)),
        (at(30), at(40), (30, 40)),
        (Bound::BeforeEnd(5), WHOLE.1, (45, 50)),
        (WHOLE.1, WHOLE.1, (50, 50)),
        (at(1000), WHOLE.1, (50, 50)),
    ] {
        let got = world.read_all(&topic, start, end).await?;
        let offsets: Vec<i64> = got.iter().map(|record| record.offset.0).collect();
        let wanted: Vec<i64> = (expected.0..expected.1).collect();
        ensure(offsets == wanted, format!("{start:?} to {end:?} gave {offsets:?}"))?;
    }
    Ok(())
}

fn group_config(group: &str, topic: &str, assignor: Assignor) -> GroupConfig {
    GroupConfig {
        assignors: vec![assignor],
        session_timeout: Duration::from_secs(6),
        heartbeat_interval: Duration::from_millis(200),
        poll_interval_max: Duration::from_secs(20),
        reset: OffsetReset::Earliest,
        ..GroupConfig::new(group, [topic])
    }
}

/// Polls both until everybody owns what `wanted` says.
async fn settle(
    members: &mut [&mut GroupConsumer],
    wanted: &[usize],
    seen: &mut Vec<Record>,
) -> Outcome {
    let started = Instant::now();
    loop {
        for member in members.iter_mut() {
            seen.extend(member.poll(Duration::from_millis(100)).await?);
            member.commit_sync().await.or_else(|error| match error {
                // A round was under way; the positions are committed in the next one.
                towpath_client::Error::LostMembership { .. } => Ok(()),
                error if error.is_retriable() => Ok(()),
                error if error.code() == Some(ErrorCode::RebalanceInProgress) => Ok(()),
                error => Err(error),
            })?;
        }
        let owned: Vec<usize> = members.iter().map(|member| member.assignment().len()).collect();
        if owned == wanted {
            return Ok(());
        }
        if started.elapsed() > PATIENCE / 2 {
            return Err(format!("members own {owned:?} instead of {wanted:?}").into());
        }
    }
}

async fn group(world: &World, assignor: Assignor) -> Outcome {
    let topic = world.create(&format!("group-{}", assignor.name()), 4, &[]).await?;
    let group = world.topic(&format!("members-{}", assignor.name()));
    let numbered = |range: std::ops::Range<i32>| {
        let topic = topic.clone();
        range.map(move |i| OutgoingRecord::new(topic.as_str(), i.to_string()).partition(i % 4))
    };
    world.send_all(ProducerConfig::default(), numbered(0..40)).await?;

    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = events.clone();
    let mut config = group_config(&group, &topic, assignor);
    config.listener = Some(Arc::new(move |event: &RebalanceEvent| {
        noted.lock().expect("nobody panics with it").push(event.clone());
    }));
    let mut first = GroupConsumer::new(world.cluster.clone(), config.clone())?;
    // Members live in processes of their own, with connections of their own.
    let other = Cluster::connect(world.cluster.config().clone()).await?;
    let mut second = GroupConsumer::new(other, group_config(&group, &topic, assignor))?;
    let mut seen = Vec::new();
    settle(&mut [&mut first], &[4], &mut seen).await?;
    settle(&mut [&mut first, &mut second], &[2, 2], &mut seen).await?;
    let described = world.admin.group(&group).await?.ok_or("the group is not known")?;
    ensure(described.members.len() == 2, format!("{} members", described.members.len()))?;
    ensure(described.protocol == assignor.name(), format!("protocol {}", described.protocol))?;
    ensure(
        described.members.iter().all(|m| m.assignment.len() == 2),
        "the description shows other assignments",
    )?;
    second.close().await?;
    settle(&mut [&mut first], &[4], &mut seen).await?;
    let deadline = Instant::now() + PATIENCE / 3;
    while seen.len() < 40 && Instant::now() < deadline {
        seen.extend(first.poll(Duration::from_millis(200)).await?);
    }
    first.commit_sync().await?;
    let mut values: Vec<String> = seen.iter().map(|r| text(r.value.as_ref())).collect();
    values.sort();
    values.dedup();
    ensure(values.len() == 40, format!("{} of 40 records were seen", values.len()))?;
    first.close().await?;
    ensure(!events.lock().expect("nobody panics with it").is_empty(), "no event was told")?;

    world.send_all(ProducerConfig::default(), numbered(40..60)).await?;
    let mut resumed =
        GroupConsumer::new(world.cluster.clone(), group_config(&group, &topic, assignor))?;
    let mut rest = Vec::new();
    while rest.len() < 20 {
        rest.extend(resumed.poll(Duration::from_secs(1)).await?);
    }
    let mut numbers = Vec::new();
    for record in &rest {
        numbers.push(text(record.value.as_ref()).parse::<i32>()?);
    }
    numbers.sort_unstable();
    ensure(numbers == (40..60).collect::<Vec<_>>(), format!("resumed with {numbers:?}"))?;
    resumed.commit_async();
    Ok(resumed.close().await?)
}

async fn static_member(world: &World) -> Outcome {
    let topic = world.create("static", 2, &[]).await?;
    let group = world.topic("static-members");
    let mut config = group_config(&group, &topic, Assignor::CooperativeSticky);
    config.instance_id = Some("one".to_owned());
    let mut seen = Vec::new();
    let mut before = GroupConsumer::new(world.cluster.clone(), config.clone())?;
    settle(&mut [&mut before], &[2], &mut seen).await?;
    let member_id = before.member_id().to_owned();
    before.close().await?;
    let described = world.admin.group(&group).await?.ok_or("the group is not known")?;
    ensure(described.members.len() == 1, "a static member left when it closed")?;
    let mut after = GroupConsumer::new(world.cluster.clone(), config)?;
    settle(&mut [&mut after], &[2], &mut seen).await?;
    ensure(after.member_id() != member_id, "the successor has the old member id")?;
    Ok(after.close().await?)
}

async fn poll_interval(world: &World) -> Outcome {
    let topic = world.create("lazy", 2, &[]).await?;
    let group = world.topic("lazy-members");
    let mut config = group_config(&group, &topic, Assignor::Range);
    config.poll_interval_max = Duration::from_millis(600);
    let mut lazy = GroupConsumer::new(world.cluster.clone(), config)?;
    settle(&mut [&mut lazy], &[2], &mut Vec::new()).await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let described = world.admin.group(&group).await?;
    let members = described.map_or(0, |group| group.members.len());
    ensure(members == 0, "a member that did not poll kept its place")?;
    settle(&mut [&mut lazy], &[2], &mut Vec::new()).await?;
    Ok(lazy.close().await?)
}

async fn seek_by_time(world: &World) -> Outcome {
    let topic = world.topic("range");
    let group = world.topic("time-members");
    let mut config = group_config(&group, &topic, Assignor::Range);
    config.reset = OffsetReset::Latest;
    let mut member = GroupConsumer::new(world.cluster.clone(), config)?;
    settle(&mut [&mut member], &[1], &mut Vec::new()).await?;
    let place = TopicPartition::new(topic.as_str(), 0);
    let times = BTreeMap::from([(place.clone(), Timestamp(1_000_000 + 42 * 1000 - 1))]);
    let found = member.offsets_for_times(&times).await?;
    let found = found.get(&place).ok_or("no offset for that time")?;
    ensure(found.offset == Offset(42), format!("found {found:?}"))?;
    member.seek(&place, found.offset)?;
    let mut got = Vec::new();
    while got.len() < 8 {
        got.extend(member.poll(Duration::from_secs(1)).await?);
    }
    ensure(got[0].offset == Offset(42), format!("read on at {}", got[0].offset))?;
    Ok(member.close().await?)
}

async fn pause_and_seek(world: &World) -> Outcome {
    let topic = world.topic("range");
    let group = world.topic("pausing-members");
    let mut member = GroupConsumer::new(
        world.cluster.clone(),
        group_config(&group, &topic, Assignor::CooperativeSticky),
    )?;
    let mut seen = Vec::new();
    settle(&mut [&mut member], &[1], &mut seen).await?;
    let place = TopicPartition::new(topic.as_str(), 0);
    member.pause(std::slice::from_ref(&place));
    member.seek(&place, Offset(7))?;
    let paused = member.poll(Duration::from_millis(300)).await?;
    ensure(paused.is_empty(), "a paused partition was read")?;
    member.resume(std::slice::from_ref(&place));
    let got = member.poll(Duration::from_secs(5)).await?;
    ensure(got.first().is_some_and(|r| r.offset == Offset(7)), "did not read on at the seek")?;
    Ok(member.close().await?)
}

async fn group_offsets(world: &World) -> Outcome {
    let topic = world.topic("range");
    let group = world.topic("outside");
    let place = TopicPartition::new(topic.as_str(), 0);
    let at = towpath_client::Committed::at(Offset(17));
    world.admin.alter_group_offsets(&group, &BTreeMap::from([(place.clone(), at)])).await?;
    let found = world.admin.group_offsets(&group).await?;
    ensure(found.get(&place).is_some_and(|c| c.offset == Offset(17)), format!("{found:?}"))?;
    ensure(world.admin.groups().await?.iter().any(|g| g.group == group), "it is not listed")?;
    world.admin.delete_group_offsets(&group, std::slice::from_ref(&place)).await?;
    ensure(world.admin.group_offsets(&group).await?.is_empty(), "offsets were not forgotten")?;
    let again = towpath_client::Committed::at(Offset(3));
    world.admin.alter_group_offsets(&group, &BTreeMap::from([(place, again)])).await?;
    world.admin.delete_group(&group).await?;
    ensure(world.admin.group(&group).await?.is_none(), "the group was not deleted")
}

async fn configs(world: &World) -> Outcome {
    let topic = Resource::Topic(world.topic("main"));
    let set = ConfigChange::Set("retention.ms".to_owned(), "12345".to_owned());
    world.admin.alter_configs(&topic, &[set], false).await?;
    let value = async || -> Outcome<(Option<String>, bool)> {
        let entries = world.admin.configs(&topic, false).await?;
        let entry = entries.iter().find(|e| e.name == "retention.ms").ok_or("not described")?;
        Ok((entry.value.clone(), entry.is_override()))
    };
    let changed = value().await?;
    ensure(changed == (Some("12345".to_owned()), true), format!("{changed:?}"))?;
    let reset = ConfigChange::Reset("retention.ms".to_owned());
    world.admin.alter_configs(&topic, &[reset], false).await?;
    ensure(!value().await?.1, "the value was not reset")?;
    let nonsense = ConfigChange::Set("no.such.config".to_owned(), "1".to_owned());
    let refused = world.admin.alter_configs(&topic, &[nonsense], true).await;
    ensure(refused.is_err(), "an unknown name was accepted")
}

async fn partitions_and_trim(world: &World) -> Outcome {
    let topic = world.topic("range");
    world.admin.create_partitions(&topic, 3, false).await?;
    ensure(world.admin.topic(&topic).await?.partitions.len() == 3, "it did not grow")?;
    let place = TopicPartition::new(topic.as_str(), 0);
    let before = BTreeMap::from([(place.clone(), Some(Offset(5)))]);
    let starts = world.admin.delete_records(&before).await?;
    ensure(starts.get(&place) == Some(&Offset(5)), format!("{starts:?}"))?;
    let got = world.read_all(&topic, WHOLE.0, WHOLE.1).await?;
    ensure(got[0].offset == Offset(5) && got.len() == 45, "trimmed records are still there")
}

async fn log_dirs(world: &World) -> Outcome {
    let dirs = world.admin.log_dirs(Some(&world.topic("many"))).await?;
    let bytes: u64 = dirs.iter().flat_map(|dir| &dir.partitions).map(|p| p.bytes).sum();
    ensure(bytes > 0, format!("{dirs:?}"))
}

async fn clean_up(world: &World) -> Outcome {
    let mine = |name: &str| name.starts_with("rust-") && name.ends_with(&world.run);
    for name in world.admin.topics().await?.keys().filter(|name| mine(name)) {
        world.admin.delete_topic(name).await?;
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while world.admin.topics().await?.keys().any(|name| mine(name)) {
        ensure(Instant::now() < deadline, "deleted topics are still listed")?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
