//! The end of a run: nothing goes wrong any more, and clients receive and delete until there is nothing left. In
//! some runs the queues are measured then, which works only where nobody disturbs: a receiver that waits is
//! woken by a message, and by the end of a lease.

use std::time::Duration;

use towpath_model::Time;
use towpath_queue::Receipt;

use super::account::{Act, Handed, Message, Place};
use crate::profile::{Violation, ensure};
use crate::profiles::cluster::world::World;

const STEP: Duration = Duration::from_millis(50);
/// Beyond the longest lease, delay and backoff: what the clock of a queue may have stood still at failovers,
/// what comes late by a second, a carrier's rounds, and some more.
const SPARE: Duration = Duration::from_secs(25);
/// The same, where it is not about what was promised.
const QUIET: Duration = Duration::from_secs(8);
/// How long a message is held meanwhile.
const HELD: Duration = Duration::from_secs(2);
/// How late a receiver may be woken (INV-Q3).
const LATE_MAX: Duration = Duration::from_secs(1);
/// Delays are kept by the second.
const GRAIN: Duration = Duration::from_secs(1);
/// How long the message of a measurement is held.
const PROBED: Duration = Duration::from_millis(700);
/// Runs in a hundred that measure.
const PROBES_PERCENT: u64 = 12;
/// No other message has this group.
const PROBE_GROUP: u8 = 200;

/// A measurement at one subscription.
#[derive(Debug)]
pub(super) struct Probe {
    place: Place,
    number: u64,
    /// The message's last delivery, and when the answer was read.
    handed: Option<(Receipt, Time)>,
}

impl World {
    /// What is received at the end is deleted, but for what is measured with.
    pub(super) fn drained(&mut self, place: Place, handed: &[Handed]) -> Result<(), Violation> {
        let now = self.now;
        self.work.drained += handed.len() as u64;
        let mut receipts = Vec::new();
        for one in handed {
            match &mut self.work.probe {
                Some(probe) if probe.place == place && probe.number == one.written.number => {
                    probe.handed = Some((one.receipt, now));
                }
                _ => receipts.push(one.receipt),
            }
        }
        if receipts.is_empty() {
            return Ok(());
        }
        self.settle(place, Act::Delete, receipts)
    }

    fn receive_everywhere(&mut self) -> Result<(), Violation> {
        for place in self.work.account.places() {
            self.receive(place, 20, HELD, None)?;
        }
        self.run_until(self.now + 2 * STEP)
    }
}

/// Empties the queues.
pub(super) fn drain(world: &mut World) -> Result<(), Violation> {
    let began = world.now;
    world.trace.event("drain", &[]);
    world.tidy_names()?;
    empty(world)?;
    world.trace.event("drained", &[(world.now - began).as_millis() as u64]);
    world.events.add("work: promise kept", world.work.account.acknowledged_count());
    if world.chance.percent(PROBES_PERCENT) {
        // Where messages are late, a follower falls behind now and then, and a send is refused for want of it.
        world.network.weather.calm();
        // Whatever is still held or delayed, and promised to nobody, comes up meanwhile.
        let quiet = began + longest(world) + QUIET;
        while world.now < quiet {
            world.receive_everywhere()?;
            world.run_until(world.now + 20 * STEP)?;
        }
        for place in world.work.account.places() {
            measure(world, place)?;
        }
        empty(world)?;
        if world.mix().is_only {
            world.becomes_clean()?;
        }
    }
    Ok(())
}

fn longest(world: &World) -> Duration {
    let mix = world.mix();
    mix.delay_max + mix.visibility_max
}

fn empty(world: &mut World) -> Result<(), Violation> {
    let began = world.now;
    let bound = longest(world) + SPARE;
    loop {
        world.receive_everywhere()?;
        let Some(open) = world.work.account.open(world.now) else { break };
        ensure!(
            world.now - began < bound,
            "INV-Q1",
            "{} s after everything is well: {open}",
            bound.as_secs()
        );
    }
    // What nobody was promised, because it was too old or may have been dropped, goes as well.
    let mut before = None;
    while before != Some(world.work.drained) {
        before = Some(world.work.drained);
        world.receive_everywhere()?;
        ensure!(world.now - began < 2 * bound, "INV-Q4", "messages come again and again");
    }
    Ok(())
}

/// A receiver that waits gets what is sent, and again when its lease is over.
fn measure(world: &mut World, place: Place) -> Result<(), Violation> {
    empty(world)?;
    let (group, sent_at) = (Some(PROBE_GROUP), world.now);
    let message = Message { group, delay: None, ttl: None, has_id: false, sent_at };
    let (number, stored) = world.new_message(message, None);
    world.work.probe = Some(Probe { place, number, handed: None });
    let wait = Duration::from_secs(20);
    world.receive(place, 1, PROBED, Some(wait))?;
    world.run_until(world.now + 2 * STEP)?;
    world.send_to(place.0, vec![(number, stored)])?;
    let delay = world.work.account.rules(place.0).delay;
    let late = if delay.is_zero() { LATE_MAX } else { delay + GRAIN + LATE_MAX };
    let first = handed_within(world, place, late, None)?;
    world.receive(place, 1, PROBED, Some(wait))?;
    let backoff = world.mix().retry_first;
    let grain = if backoff.is_zero() { Duration::ZERO } else { GRAIN };
    let late = PROBED + LATE_MAX + 2 * backoff + grain;
    let second = handed_within(world, place, late, Some(first))?;
    world.events.note("work: receivers woken");
    world.work.probe = None;
    world.settle(place, Act::Delete, vec![second])
}

fn handed_within(
    world: &mut World,
    place: Place,
    late: Duration,
    before: Option<Receipt>,
) -> Result<Receipt, Violation> {
    let end = world.now + late;
    while world.now < end {
        world.run_until(world.now + STEP)?;
        let handed = world.work.probe.as_ref().and_then(|probe| probe.handed);
        if let Some((receipt, _)) = handed.filter(|(receipt, _)| Some(*receipt) != before) {
            return Ok(receipt);
        }
    }
    let (partition, number) = place;
    Err(Violation::new(
        "INV-Q3",
        format!("{partition}/{number}: a receiver that waits gets nothing for {late:?}"),
    ))
}
