//! A row of the table: what is measured, how samples alternate, what must hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use towpath_process::Cost;

use crate::broker::{Broker, Kind, Lab, Pair, Patience, Trio};
use crate::machine::{self, Look, Noise};
use crate::peer::{Peer, PeerKind};
use crate::rows;

/// Memory that is touched before the first measurement, in bytes.
const WARM_MEMORY_BYTES: u64 = 8 << 30;
const WARM_MEMORY_BYTES_QUICK: u64 = 256 << 20;

/// How much is measured.
pub(crate) struct Plan {
    pub(crate) is_quick: bool,
    /// Samples of each broker.
    pub(crate) pairs: usize,
    /// How long one load runs.
    pub(crate) span: Duration,
    pub(crate) kinds: Vec<Kind>,
}

/// One row.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Only measured when it is named, or with `--all`.
    pub(crate) is_optional: bool,
    pub(crate) work: Work,
    pub(crate) goals: &'static [Goal],
}

impl Row {
    /// Whom Towpath stands beside.
    pub(crate) fn beside(&self) -> &'static str {
        match self.work {
            Work::Versus { peer, .. } => peer.name(),
            _ => Kind::Kafka.name(),
        }
    }
}

/// How a row's samples come about.
pub(crate) enum Work {
    /// On brokers that all such rows share, in turn: A B B A …
    Shared {
        /// Prepares one broker for all samples of the row.
        setup: fn(&Broker, &Plan) -> Result<()>,
        sample: fn(&Lab, &Broker, &Plan) -> Result<Sample>,
        teardown: fn(&Broker) -> Result<()>,
    },
    /// On one broker of each, started for the row, in turn as well.
    Single(fn(&Lab, &Broker, &Plan) -> Result<Sample>),
    /// On one broker of ours and one other work queue, started for the row, in turn as well.
    Versus {
        peer: PeerKind,
        ours: fn(&Broker, &Plan) -> Result<Sample>,
        theirs: fn(&Peer, &Plan) -> Result<Sample>,
    },
    /// On three brokers of each that are a cluster, started for the row, in turn as well.
    Trios(fn(&Lab, &Trio, &Plan) -> Result<Sample>),
    /// On brokers of its own, because it ends them.
    Own(fn(&Lab, Kind, &Plan) -> Result<Vec<Sample>>),
}

/// What a row must reach.
pub(crate) struct Goal {
    pub(crate) metric: &'static str,
    pub(crate) of: Of,
    pub(crate) bound: Bound,
    /// Otherwise the row has failed.
    pub(crate) floor: f64,
    pub(crate) target: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Towpath's own figure.
    Ours,
    /// Towpath's figure divided by the other's, pair by pair.
    Ratio,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    AtMost,
    AtLeast,
}

impl Goal {
    pub(crate) const fn at_most(metric: &'static str, of: Of, floor: f64, target: f64) -> Goal {
        Goal { metric, of, bound: Bound::AtMost, floor, target }
    }

    pub(crate) const fn at_least(metric: &'static str, of: Of, floor: f64, target: f64) -> Goal {
        Goal { metric, of, bound: Bound::AtLeast, floor, target }
    }
}

/// Figures of one measurement of one broker, in the order in which they are shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) figures: Vec<(String, f64)>,
    pub(crate) noise: Noise,
}

impl Sample {
    pub(crate) fn set(&mut self, metric: &str, value: f64) {
        self.figures.push((metric.to_owned(), value));
    }

    pub(crate) fn get(&self, metric: &str) -> Option<f64> {
        self.figures.iter().find(|(name, _)| name == metric).map(|(_, value)| *value)
    }

    /// Adds another measurement's figures under their own names, and its noise.
    pub(crate) fn absorb(&mut self, other: &Sample, suffix: &str) {
        for (name, value) in &other.figures {
            self.figures.push((format!("{name}{suffix}"), *value));
        }
        self.noise.foreign_cpus = self.noise.foreign_cpus.max(other.noise.foreign_cpus);
        self.noise.steal = self.noise.steal.max(other.noise.steal);
        self.noise.load = other.noise.load;
    }
}

/// What something cost, and what disturbed it.
pub(crate) struct Measured<T> {
    pub(crate) value: T,
    pub(crate) broker_cpu: Duration,
    pub(crate) client_cpu: Duration,
    pub(crate) noise: Noise,
}

impl<T> Measured<T> {
    pub(crate) fn sample(&self) -> Sample {
        Sample { figures: Vec::new(), noise: self.noise }
    }
}

/// Looks at the clocks before and after.
pub(crate) fn measured<T>(broker: &Broker, act: impl FnOnce() -> Result<T>) -> Result<Measured<T>> {
    measured_by(|| broker.cost(), act)
}

/// The same, of whatever tells what it costs.
pub(crate) fn measured_by<T>(
    cost: impl Fn() -> Result<Cost>,
    act: impl FnOnce() -> Result<T>,
) -> Result<Measured<T>> {
    let look = Look::now();
    let (broker_before, client_before) = (cost()?.cpu, machine::own_cpu());
    let value = act()?;
    let broker_cpu = cost()?.cpu.saturating_sub(broker_before);
    let client_cpu = machine::own_cpu().saturating_sub(client_before);
    let noise = look.noise_since(broker_cpu + client_cpu);
    Ok(Measured { value, broker_cpu, client_cpu, noise })
}

/// A row that was measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub(crate) id: String,
    commit: String,
    pub(crate) towpath: Vec<Sample>,
    /// Empty when Towpath was measured alone. Otherwise sample `i` is the neighbour of sample `i`.
    #[serde(alias = "kafka")]
    pub(crate) theirs: Vec<Sample>,
}

impl Finished {
    fn path(keep: &Path, id: &str) -> PathBuf {
        keep.join(format!("{id}.json"))
    }

    /// What an earlier run of the same commit has left.
    pub(crate) fn load(keep: &Path, row: &Row, commit: &str) -> Option<Finished> {
        let text = fs::read_to_string(Finished::path(keep, row.id)).ok()?;
        let finished: Finished = serde_json::from_str(&text).ok()?;
        (finished.commit == commit).then_some(finished)
    }

    /// An interrupted run leaves nothing half written.
    pub(crate) fn save(&self, keep: &Path) -> Result<()> {
        let path = Finished::path(keep, &self.id);
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(self)?)?;
        fs::rename(&new, &path).with_context(|| format!("write {}", path.display()))
    }
}

/// Measures one row. `pair`: the shared brokers, started and warmed up by the first row that needs
/// them.
pub(crate) fn measure(
    row: &Row,
    lab: &Lab,
    pair: &mut Option<Pair>,
    plan: &Plan,
    commit: &str,
) -> Result<Finished> {
    let mut finished = Finished {
        id: row.id.to_owned(),
        commit: commit.to_owned(),
        towpath: Vec::new(),
        theirs: Vec::new(),
    };
    match &row.work {
        Work::Own(work) => {
            // Nobody else runs meanwhile.
            *pair = None;
            for kind in &plan.kinds {
                let samples =
                    work(lab, *kind, plan).with_context(|| format!("on {}", kind.name()))?;
                finished.of(*kind).extend(samples);
            }
        }
        Work::Single(sample) => {
            *pair = None;
            let start = |kind: &Kind| Ok((*kind, lab.start(*kind)?));
            let brokers = plan.kinds.iter().map(start).collect::<Result<_>>()?;
            in_turn(brokers, plan, &mut finished, |broker| sample(lab, broker, plan))?;
        }
        Work::Versus { peer, ours, theirs } => {
            *pair = None;
            let (broker, other) = (lab.start(Kind::Towpath)?, lab.peer(*peer)?);
            for _ in 0..if plan.is_quick { 1 } else { peer.warm_ups() } {
                ours(&broker, plan).context("warm up Towpath")?;
                other.as_ref().map(|other| theirs(other, plan)).transpose()?;
            }
            for round in 0..plan.pairs {
                let sample = || ours(&broker, plan).context("on Towpath");
                let first = (round % 2 == 0).then(sample).transpose()?;
                if let Some(other) = &other {
                    let one = theirs(other, plan).with_context(|| format!("on {}", peer.name()))?;
                    finished.theirs.push(one);
                }
                finished.towpath.push(first.map_or_else(sample, Ok)?);
            }
        }
        Work::Trios(sample) => {
            *pair = None;
            let start = |kind: &Kind| Ok((*kind, lab.start_trio(*kind, Patience::Long)?));
            let trios = plan.kinds.iter().map(start).collect::<Result<_>>()?;
            in_turn(trios, plan, &mut finished, |trio| sample(lab, trio, plan))?;
        }
        Work::Shared { setup, sample, teardown } => {
            let pair = shared(lab, pair, plan)?;
            for kind in &plan.kinds {
                setup(pair.get(*kind)?, plan)?;
            }
            for round in 0..plan.pairs {
                let mut kinds = plan.kinds.clone();
                if round % 2 == 1 {
                    kinds.reverse();
                }
                for kind in kinds {
                    let one = sample(lab, pair.get(kind)?, plan);
                    finished.of(kind).push(one.with_context(|| format!("on {}", kind.name()))?);
                }
            }
            for kind in &plan.kinds {
                teardown(pair.get(*kind)?)?;
            }
        }
    }
    Ok(finished)
}

/// Samples of brokers that were just started, A B B A …
fn in_turn<B>(
    brokers: Vec<(Kind, B)>,
    plan: &Plan,
    finished: &mut Finished,
    sample: impl Fn(&B) -> Result<Sample>,
) -> Result<()> {
    for (kind, broker) in &brokers {
        // Unmeasured: a JVM compiles what it will be asked to do.
        let times = if plan.is_quick { 1 } else { kind.warm_ups() };
        for _ in 0..times {
            sample(broker).with_context(|| format!("warm up {}", kind.name()))?;
        }
    }
    for round in 0..plan.pairs {
        let mut order: Vec<&(Kind, B)> = brokers.iter().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (kind, broker) in order {
            let one = sample(broker).with_context(|| format!("on {}", kind.name()))?;
            finished.of(*kind).push(one);
        }
    }
    Ok(())
}

impl Finished {
    fn of(&mut self, kind: Kind) -> &mut Vec<Sample> {
        match kind {
            Kind::Towpath => &mut self.towpath,
            Kind::Kafka => &mut self.theirs,
        }
    }
}

fn shared<'p>(lab: &Lab, pair: &'p mut Option<Pair>, plan: &Plan) -> Result<&'p mut Pair> {
    if pair.is_none() {
        let bytes = if plan.is_quick { WARM_MEMORY_BYTES_QUICK } else { WARM_MEMORY_BYTES };
        machine::warm_memory(lab.data(), bytes)?;
        let mut started = Pair::start(lab, &plan.kinds)?;
        for kind in &plan.kinds {
            rows::warm_up(started.get(*kind)?, plan)
                .with_context(|| format!("warm up {}", kind.name()))?;
        }
        *pair = Some(started);
    }
    pair.as_mut().context("just started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_row_counts_only_for_its_own_commit() {
        let keep = tempfile::tempdir().unwrap();
        let row = &rows::all()[0];
        let mut sample = Sample::default();
        sample.set("x", 1.5);
        let (towpath, theirs) = (vec![sample], Vec::new());
        let finished = Finished { id: row.id.to_owned(), commit: "one".into(), towpath, theirs };
        finished.save(keep.path()).unwrap();
        let again = Finished::load(keep.path(), row, "one").unwrap();
        assert_eq!(again.towpath[0].get("x"), Some(1.5));
        assert!(Finished::load(keep.path(), row, "two").is_none());
    }
}
