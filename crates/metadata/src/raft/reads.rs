//! Reads that wait for a majority to say that this leader still leads: all that come while one round
//! of heartbeats is under way share the next. So a crowd of reads costs two rounds, not one each.

use super::consensus::{ReadConfirmed, Refusal};
use super::ids::{LogIndex, Term};

/// The most reads that wait.
pub const READS_WAITING_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct Reads {
    term: Term,
    rounds: u64,
    waiting: Vec<u64>,
    asked: Option<(u64, Vec<u64>)>,
}

impl Reads {
    /// This member leads `term`; reads of an earlier leadership are gone.
    pub(super) fn lead(&mut self, term: Term) {
        if self.term != term {
            self.forget();
            self.term = term;
        }
    }

    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.asked = None;
    }

    pub(super) fn add(&mut self, context: u64) -> Result<(), Refusal> {
        let asked = self.asked.as_ref().map_or(0, |(_, contexts)| contexts.len());
        if READS_WAITING_MAX <= self.waiting.len() + asked {
            return Err(Refusal::Backlogged);
        }
        self.waiting.push(context);
        Ok(())
    }

    /// What the heartbeats of the next round carry, if one is to begin.
    pub(super) fn begin_round(&mut self) -> Option<Vec<u8>> {
        if self.waiting.is_empty() || self.asked.is_some() {
            return None;
        }
        self.rounds += 1;
        self.asked = Some((self.rounds, std::mem::take(&mut self.waiting)));
        Some(self.rounds.to_be_bytes().to_vec())
    }

    /// A majority answered the round that carried `carried`.
    pub(super) fn confirmed(
        &mut self,
        carried: &[u8],
        index: LogIndex,
    ) -> impl Iterator<Item = ReadConfirmed> {
        let contexts = match self.asked.take() {
            Some((round, contexts)) if round.to_be_bytes() == carried => contexts,
            other => {
                self.asked = other;
                Vec::new()
            }
        };
        contexts.into_iter().map(move |context| ReadConfirmed { context, index })
    }
}
