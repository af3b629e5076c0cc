//! What can happen to a cluster, how it is done, and how it is mended.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use super::disk::Disk;
use super::node::{NODES, Nodes};

/// How much a full disk leaves free, at most: anything from the next byte to the next segment.
const LEFT_BYTES_MAX: u64 = 1 << 20;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// Signal 9 for one broker.
    KillOne,
    /// Signal 9 for two, at once.
    KillTwo,
    /// Signal 9 for all three, at once.
    KillAll,
    /// Signal 9 for one, and again while it starts.
    KillStarting,
    /// SIGTERM for one.
    Stop,
    /// One stands still.
    Pause,
    /// Two stand still.
    PauseTwo,
    /// Nothing goes between one broker and the two others.
    CutOff,
    /// Nothing goes between one and one other; the third has both.
    CutBetween,
    /// What one sends does not arrive at one other.
    CutOneWay,
    /// One's disk is full.
    FillDisk,
    /// One's disk is slow.
    SlowDisk,
}

impl Fault {
    pub(super) const ALL: [Fault; 12] = [
        Fault::KillOne,
        Fault::KillTwo,
        Fault::KillAll,
        Fault::Pause,
        Fault::CutOff,
        Fault::CutOneWay,
        Fault::FillDisk,
        Fault::CutBetween,
        Fault::Stop,
        Fault::KillStarting,
        Fault::PauseTwo,
        Fault::SlowDisk,
    ];

    /// Why it cannot be done here, if it cannot.
    pub(super) fn missing(self) -> Option<&'static str> {
        let why = "the system has no limits on block devices (control groups, version 1)";
        (self == Fault::SlowDisk && !Disk::can_be_slow()).then_some(why)
    }

    /// Does it, with victims by chance.
    pub(super) fn happen(self, nodes: &mut Nodes, rng: &mut Rng) -> Result<Happening> {
        let mut ids = NODES.to_vec();
        rng.shuffle(&mut ids);
        ids.truncate(self.victims());
        match self {
            Fault::KillOne | Fault::KillTwo | Fault::KillAll => {
                ids.iter().try_for_each(|id| nodes.kill(*id))?;
            }
            Fault::KillStarting => {
                nodes.kill(ids[0])?;
                nodes.begin(ids[0])?;
                std::thread::sleep(Duration::from_millis(rng.u64(..200)));
                nodes.kill(ids[0])?;
            }
            Fault::Stop => drop(nodes.terminate(ids[0])?),
            Fault::Pause | Fault::PauseTwo => ids.iter().try_for_each(|id| nodes.pause(*id))?,
            Fault::CutOff | Fault::CutBetween | Fault::CutOneWay => {
                cuts(self, &ids).try_for_each(|(from, to)| nodes.rig.cut(from, to))?;
            }
            Fault::FillDisk => nodes.disk(ids[0]).fill(rng.u64(..LEFT_BYTES_MAX))?,
            Fault::SlowDisk => nodes.slow(ids[0])?,
        }
        Ok(Happening { fault: self, ids })
    }

    fn victims(self) -> usize {
        match self {
            Fault::KillAll => 3,
            Fault::KillTwo | Fault::PauseTwo | Fault::CutBetween | Fault::CutOneWay => 2,
            _ => 1,
        }
    }
}

/// Who does not reach whom.
fn cuts(fault: Fault, ids: &[u8]) -> impl Iterator<Item = (u8, u8)> {
    let one = ids[0];
    let others: Vec<u8> = match fault {
        Fault::CutOff => NODES.into_iter().filter(|id| *id != one).collect(),
        _ => ids[1..].to_vec(),
    };
    let back = fault != Fault::CutOneWay;
    others
        .into_iter()
        .flat_map(move |other| [(one, other)].into_iter().chain(back.then_some((other, one))))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::KillOne => "kill one",
            Fault::KillTwo => "kill two",
            Fault::KillAll => "kill all",
            Fault::KillStarting => "kill while starting",
            Fault::Stop => "stop one",
            Fault::Pause => "pause one",
            Fault::PauseTwo => "pause two",
            Fault::CutOff => "cut one off",
            Fault::CutBetween => "cut between two",
            Fault::CutOneWay => "cut one way",
            Fault::FillDisk => "fill a disk",
            Fault::SlowDisk => "slow a disk",
        })
    }
}

/// A fault that has happened and is not mended yet.
#[derive(Debug)]
pub(super) struct Happening {
    fault: Fault,
    ids: Vec<u8>,
}

impl Happening {
    /// Who was killed or stopped.
    pub(super) fn ended(&self) -> &[u8] {
        match self.fault {
            Fault::KillOne | Fault::KillTwo | Fault::KillAll => &self.ids,
            Fault::KillStarting | Fault::Stop => &self.ids,
            _ => &[],
        }
    }

    /// Takes it back, but for brokers that are down: those are started together.
    pub(super) fn mend(self, nodes: &Nodes) -> Result<()> {
        match self.fault {
            Fault::Pause | Fault::PauseTwo => self.ids.iter().try_for_each(|id| nodes.resume(*id)),
            Fault::CutOff | Fault::CutBetween | Fault::CutOneWay => {
                cuts(self.fault, &self.ids).try_for_each(|(from, to)| nodes.rig.mend(from, to))
            }
            Fault::FillDisk => nodes.disk(self.ids[0]).free(),
            Fault::SlowDisk => nodes.disk(self.ids[0]).quicken(),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.fault, self.ids)
    }
}
