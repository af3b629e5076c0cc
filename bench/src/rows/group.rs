//! Rebalances of a classic group: a third member joins two, and leaves them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_client::{ClientConfig, Cluster, GroupConfig, GroupConsumer};

use crate::broker::{Broker, Durability, Lab};
use crate::load::histogram;
use crate::row::{Plan, Row, Sample, Work, measured};

const TOPIC: &str = "group";
const PARTITIONS: usize = 100;
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Members learn of a rebalance with a heartbeat: often, or the interval is all that is measured.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(50);

pub(super) fn rows() -> Vec<Row> {
    let work = Work::Shared {
        setup: |broker, _| broker.create_topic(TOPIC, 100, Durability::PageCache),
        sample: rebalances,
        teardown: |broker| broker.delete_topic(TOPIC),
    };
    vec![Row {
        id: "G1",
        title: "classic group, cooperative, 100 partitions: a third member joins, and leaves",
        is_optional: false,
        work,
        goals: &[],
    }]
}

/// A member in a task of its own, which tells how many partitions it has.
struct Member {
    held: watch::Receiver<usize>,
    leave: watch::Sender<bool>,
    task: JoinHandle<Result<()>>,
}

impl Member {
    /// On connections of its own: Kafka takes one request of a connection at a time, and a join
    /// waits for the other members.
    async fn join(broker: &Broker, group: &str) -> Result<Member> {
        let cluster = Cluster::connect(ClientConfig::new(&broker.address().to_string())?).await?;
        let mut config = GroupConfig::new(group, [TOPIC]);
        config.heartbeat_interval = HEARTBEAT_EVERY;
        config.session_timeout = Duration::from_secs(10);
        let (held_by, held) = watch::channel(0);
        let (leave, mut leaving) = watch::channel(false);
        let mut consumer = GroupConsumer::new(cluster, config)?;
        let task = tokio::spawn(async move {
            while !*leaving.borrow() {
                tokio::select! {
                    polled = consumer.poll(Duration::from_millis(20)) => { polled?; }
                    _ = leaving.changed() => {}
                }
                held_by.send_replace(consumer.assignment().len());
            }
            Ok(consumer.close().await?)
        });
        Ok(Member { held, leave, task })
    }

    async fn leave(self) -> Result<()> {
        self.leave.send_replace(true);
        self.task.await.context("a member panicked")?
    }
}

/// Waits until the members share all partitions evenly; gives back how long it took.
async fn settled(members: &[Member], began: Instant) -> Result<Duration> {
    let fair = PARTITIONS / members.len();
    let mut held: Vec<usize> = Vec::new();
    while SETTLE_MAX > began.elapsed() {
        held = members.iter().map(|member| *member.held.borrow()).collect();
        if held.iter().sum::<usize>() == PARTITIONS && held.iter().all(|held| fair <= *held) {
            return Ok(began.elapsed());
        }
        ensure!(members.iter().all(|member| !member.task.is_finished()), "a member gave up");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    bail!("the group did not settle within {SETTLE_MAX:?}: members hold {held:?}")
}

fn rebalances(_: &Lab, broker: &Broker, plan: &Plan) -> Result<Sample> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rounds = if plan.is_quick { 1 } else { 4 };
    let load = measured(broker, || {
        let (mut joins, mut leaves) = (histogram(), histogram());
        runtime.block_on(async {
            let group: Arc<str> = format!("g{:?}", Instant::now()).into();
            let mut members =
                vec![Member::join(broker, &group).await?, Member::join(broker, &group).await?];
            settled(&members, Instant::now()).await?;
            for _ in 0..rounds {
                let began = Instant::now();
                members.push(Member::join(broker, &group).await?);
                joins.saturating_record(crate::load::micros(settled(&members, began).await?));
                let began = Instant::now();
                members.pop().context("three members")?.leave().await?;
                leaves.saturating_record(crate::load::micros(settled(&members, began).await?));
            }
            for member in members {
                member.leave().await?;
            }
            Ok((joins, leaves))
        })
    })?;
    let mut sample = load.sample();
    sample.set("join ms", crate::load::millis(&load.value.0, 50.0));
    sample.set("leave ms", crate::load::millis(&load.value.1, 50.0));
    sample.set("CPU ms/rebalance", load.broker_cpu.as_secs_f64() * 1e3 / f64::from(2 * rounds));
    Ok(sample)
}
