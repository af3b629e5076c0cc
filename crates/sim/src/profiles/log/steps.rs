//! The single steps of a life, each compared with the ghost at once.

use towpath_log::{CommitError, Committed, Log, LogPlace, Retention};
use towpath_model::{LeaderEpoch, Offset};
use towpath_records::{BatchHeader, set_base_offset, set_leader_epoch};

use super::ghost::{Ghost, Handed};
use super::life::{Life, Over};
use super::reads::{self, Unread};
use super::swarm::{Op, draw_pause, draw_segment_bytes};
use super::world::{Slot, World};
use crate::disk::SimDisk;
use crate::profile::{Violation, ensure};
use crate::rng::Rng;
use crate::workload::draw_batch;

impl Life<'_> {
    pub(super) fn step(&mut self, op: Op, slot: usize) -> Result<(), Over> {
        match op {
            Op::Append => self.append(slot),
            Op::TakeRound => {
                self.take_round();
                Ok(())
            }
            Op::Commit => self.commit(),
            Op::Read => self.check(slot, reads::check_read),
            Op::FindTimestamp => self.check(slot, reads::check_timestamp),
            Op::MoveStart => {
                let ghost = &self.world.slots[slot].ghost;
                let (low, high) = (ghost.start().0 as u64, ghost.durable().0 as u64);
                let to = Offset(self.world.rng.between(low, high) as i64);
                self.move_start(slot, to)
            }
            Op::Expire => self.expire(slot),
            Op::Truncate => self.truncate(slot),
            Op::RollIfDue => {
                let now = self.world.clock.now();
                let rolled = self.logs[slot].roll_if_due(now);
                if self.forgive(rolled)?.unwrap_or(false) {
                    self.world.events.note("log: rolled by age");
                }
                self.observe(slot)
            }
            Op::Checkpoint => {
                let saved = self.logs[slot].save_checkpoint();
                self.forgive(saved)?;
                self.observe(slot)
            }
            Op::SaveProducers => self.save_producers(slot),
            Op::LoadProducers => self.load_producers(slot),
            Op::Delete => self.delete_and_reopen(slot),
            Op::CutPowerOfACopy => self.cut_power_of_a_copy(),
            Op::FillDisk => self.fill_disk(),
            Op::FreeDisk => {
                self.world.disk.set_capacity(None);
                self.is_full = false;
                Ok(())
            }
            Op::LetTimePass => {
                let pause = draw_pause(&mut self.world.rng);
                self.world.clock.advance(pause);
                Ok(())
            }
            Op::JumpClock => {
                self.world.clock.jump_wall(&mut self.world.rng);
                Ok(())
            }
            Op::Reconfigure => {
                self.world.swarm.segment_bytes = draw_segment_bytes(&mut self.world.rng);
                self.logs[slot].set_config(self.world.log_config());
                Ok(())
            }
            Op::Tidy => {
                self.directory.tidy();
                if self.directory.is_failed() {
                    Err(self.excuse(&"tidying failed"))
                } else {
                    Ok(())
                }
            }
        }
    }

    pub(super) fn append(&mut self, slot: usize) -> Result<(), Over> {
        let now = self.world.clock.now();
        let World { rng, slots, swarm, events, leader_epoch, trace, clock, .. } = &mut *self.world;
        let Slot { ghost, producer, .. } = &mut slots[slot];
        let before = *producer;
        let mut drawn = draw_batch(rng, producer, swarm.shape, now.wall);
        let log = &mut self.logs[slot];
        let base = log.log_end_offset();
        ensure!(base == ghost.end(), "INV-R1", "log ends at {base}, not at {}", ghost.end());
        set_base_offset(&mut drawn.bytes, base);
        set_leader_epoch(&mut drawn.bytes, *leader_epoch);
        let header = BatchHeader::parse(&drawn.bytes)
            .map_err(|e| Violation::new("workload", format!("not a batch: {e}")))?;
        ghost.append(Handed::new(drawn.bytes.clone(), drawn.timestamps, &header, clock));
        trace.event(
            "append at",
            &[slot as u64, header.base_offset().0 as u64, header.next_offset().0 as u64],
        );
        let segments = log.segment_count();
        match log.append(&drawn.bytes, &header, now) {
            Ok(_) => events.note("log: appended"),
            Err(error) if error.is_disk_full() && self.is_full => {
                events.note("log: append refused by a full disk");
                ghost.take_back();
                *producer = before;
            }
            Err(error) => return Err(self.excuse(&error)),
        }
        if segments < self.logs[slot].segment_count() {
            self.world.events.note("log: rolled");
        }
        self.observe(slot)
    }

    /// Whatever a log says about itself after a step is a promise.
    pub(super) fn observe(&mut self, slot: usize) -> Result<(), Over> {
        let log = &self.logs[slot];
        let ghost = &mut self.world.slots[slot].ghost;
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        ensure!(end == ghost.end(), "INV-R1", "log ends at {end}, not at {}", ghost.end());
        ensure!(start == ghost.start(), "INV-T7", "starts at {start}, not at {}", ghost.start());
        ghost.acknowledge(log.durable_offset())?;
        Ok(())
    }

    pub(super) fn take_round(&mut self) {
        if self.round.is_empty() {
            self.round = self.logs.iter_mut().filter_map(Log::take_dirty).collect();
            if 1 < self.round.len() {
                self.world.events.note("log: several logs in one round");
            }
        }
    }

    pub(super) fn commit(&mut self) -> Result<(), Over> {
        let round = std::mem::take(&mut self.round);
        if round.is_empty() {
            return Ok(());
        }
        let answers = self.directory.commit(round);
        for answer in &answers {
            if let Err(error) = answer.result() {
                return self.told_of_failure(&error);
            }
            self.publish(answer)?;
        }
        self.check_acknowledged_is_durable()
    }

    /// A round has failed. Whoever hears of it may well go on: nothing may be acknowledged any more.
    fn told_of_failure(&mut self, error: &CommitError) -> Result<(), Over> {
        match self.excuse(error) {
            Over::Failed if self.world.rng.percent(70) => {
                self.world.events.note("log: went on after a failed round");
                Ok(())
            }
            over => Err(over),
        }
    }

    fn publish(&mut self, answer: &Committed) -> Result<(), Over> {
        let slots = &self.world.slots;
        let slot = slots.iter().position(|slot| slot.place.partition() == answer.partition());
        // The log may have been deleted since the round was taken.
        let Some(slot) = slot else { return Ok(()) };
        if answer.generation() != self.logs[slot].generation() {
            self.world.events.note("log: commit of a truncated log passed over");
        }
        self.logs[slot].committed(answer);
        let durable = self.logs[slot].durable_offset().0 as u64;
        self.world.trace.event("durable", &[slot as u64, durable]);
        self.observe(slot)
    }

    /// Now and then at once, and not only when this life ends: would a power loss keep it?
    fn check_acknowledged_is_durable(&mut self) -> Result<(), Over> {
        if self.world.rng.percent(10) { self.cut_power_of_a_copy() } else { Ok(()) }
    }

    pub(super) fn check(
        &mut self,
        slot: usize,
        check: fn(&Log<SimDisk>, &Ghost, &mut Rng) -> Result<(), Unread>,
    ) -> Result<(), Over> {
        let World { rng, slots, .. } = &mut *self.world;
        check(&self.logs[slot], &slots[slot].ghost, rng).map_err(|unread| self.unread(unread))
    }

    fn move_start(&mut self, slot: usize, to: Offset) -> Result<(), Over> {
        self.world.trace.event("start to", &[slot as u64, to.0 as u64]);
        self.world.slots[slot].ghost.ask_start(to);
        let moved = self.logs[slot].start_moves_to(to);
        if self.forgive(moved)?.is_none() {
            // Refused by a full disk: it may have moved or not.
            return Err(Over::Failed);
        }
        self.world.slots[slot].ghost.confirm_start(to);
        self.world.events.note("log: start moved");
        self.observe(slot)
    }

    fn expire(&mut self, slot: usize) -> Result<(), Over> {
        let World { rng, clock, slots, events, .. } = &mut *self.world;
        let ghost = &slots[slot].ghost;
        let retention = Retention {
            time: rng.percent(60).then(|| draw_pause(rng)),
            bytes: rng.percent(40).then(|| rng.between(0, 20_000)),
        };
        let now = clock.now().wall;
        let limit = ghost.durable();
        let Some(to) = self.logs[slot].expired(now, &retention, limit) else { return Ok(()) };
        reads::check_expired(ghost, to, limit, clock, &retention)?;
        events.note("log: expired");
        self.move_start(slot, to)
    }

    fn truncate(&mut self, slot: usize) -> Result<(), Over> {
        let World { rng, slots, events, leader_epoch, trace, .. } = &mut *self.world;
        let ghost = &mut slots[slot].ghost;
        // Mostly what no high watermark can have passed, sometimes what was only synced here.
        let low = if rng.percent(70) { ghost.durable() } else { ghost.start() };
        let to = ghost.boundary(rng, low.max(ghost.start()));
        events.note("log: truncated");
        if to < ghost.durable() {
            events.note("log: truncated below its durable offset");
        }
        trace.event("truncate to", &[slot as u64, to.0 as u64, ghost.durable().0 as u64]);
        ghost.truncate_to(to);
        *leader_epoch = LeaderEpoch(leader_epoch.0 + 1);
        let truncated = self.logs[slot].truncate_to(to);
        if self.forgive(truncated)?.is_none() {
            return Err(Over::Failed);
        }
        let end = self.world.slots[slot].ghost.end();
        self.world.slots[slot].snapshots.retain(|at, _| *at <= end);
        self.observe(slot)
    }

    fn save_producers(&mut self, slot: usize) -> Result<(), Over> {
        let World { rng, slots, .. } = &mut *self.world;
        let Slot { ghost, snapshots, .. } = &mut slots[slot];
        let mut payload = vec![0; rng.between(0, 900) as usize];
        rng.fill(&mut payload);
        let at = ghost.boundary(rng, ghost.start());
        snapshots.entry(at).or_default().push(payload.clone());
        let saved = self.logs[slot].save_producers(at, &payload);
        self.forgive(saved)?;
        self.observe(slot)
    }

    /// A snapshot is whole and one that was handed over, or none.
    fn load_producers(&mut self, slot: usize) -> Result<(), Over> {
        let World { rng, slots, events, .. } = &mut *self.world;
        let Slot { ghost, snapshots, .. } = &slots[slot];
        let at_most = ghost.boundary(rng, ghost.start());
        let Some((at, payload)) = self.logs[slot].load_producers(at_most) else { return Ok(()) };
        ensure!(at <= at_most, "INV-P5", "snapshot of {at}, asked for {at_most} at most");
        let is_known = snapshots.get(&at).is_some_and(|known| known.contains(&payload));
        ensure!(is_known, "INV-P5", "a snapshot of {at} that nobody saved");
        events.note("log: producer snapshot loaded");
        Ok(())
    }

    fn delete_and_reopen(&mut self, slot: usize) -> Result<(), Over> {
        if self.world.slots[slot].place == LogPlace::Metadata {
            return Ok(());
        }
        // Its owner lets go of a log before it is deleted; a round may still be under way.
        drop(self.logs.remove(slot));
        self.delete(slot)?;
        let (log, _) =
            self.world.open_log(&self.directory, slot).map_err(|error| self.excuse(&error))?;
        ensure!(log.log_end_offset() == Offset::ZERO, "INV-T4", "a new topic has records");
        self.logs.insert(slot, log);
        Ok(())
    }

    pub(super) fn delete(&mut self, slot: usize) -> Result<(), Over> {
        self.world.slots[slot].is_being_deleted = true;
        let place = self.world.slots[slot].place.clone();
        let deleted = self.directory.delete_log(place);
        if self.forgive(deleted)?.is_none() {
            return Err(Over::Failed);
        }
        self.world.events.note("log: deleted");
        self.world.replace_slot(slot);
        Ok(())
    }

    fn fill_disk(&mut self) -> Result<(), Over> {
        let space = self.directory.space().map_err(|error| self.excuse(&error))?;
        let used = space.total_bytes - space.free_bytes;
        self.world.disk.set_capacity(Some(used + self.world.rng.between(0, 20_000)));
        self.is_full = true;
        Ok(())
    }
}
