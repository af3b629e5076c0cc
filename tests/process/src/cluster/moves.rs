//! Has others lead, as operators do, and takes how long clients with default settings wait meanwhile.
//!
//! A steady writer has a record of every partition on its way every few milliseconds. What a client waits
//! is the longest time between two acknowledgements of a partition that was moved: from before the order
//! until the next leader has acknowledged for a while.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::foreign::{self, Foreign};
use super::ledger::Ledger;
use super::node::{NODES, WHOLE_PATIENCE};
use super::replicas;
use super::round::Round;
use crate::history::Place;
use crate::http;

/// How long acknowledgements are watched after everything has been moved, or nothing.
const LOOK: Duration = Duration::from_millis(500);

/// The HTTP status of what may be asked again.
const UNAVAILABLE: u16 = 503;

/// How a broker comes to lead nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `towpath node drain`.
    Drain,
    /// SIGTERM.
    Stop,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Drain => "a drain",
            Way::Stop => "a stop",
        })
    }
}

/// So many times, one broker gives up what it leads and gets it back.
pub(super) fn run(times: u64, round: &mut Round, ledger: &mut Ledger) -> Result<()> {
    let foreign = Foreign::begin(round)?;
    round.nodes.wait_until_whole()?;
    // Clients have just come.
    thread::sleep(2 * LOOK);
    let mut watched: Vec<Place> = replicas::places().collect();
    watched.extend(foreign.iter().flat_map(|_| foreign::places()));
    let mut moving = Moving { round, ledger, watched };
    for number in 0..times {
        let id = NODES[usize::try_from(number)? % NODES.len()];
        let way =
            if (number / NODES.len() as u64).is_multiple_of(2) { Way::Drain } else { Way::Stop };
        moving.give_up(id, way)?;
        moving.get_back(id, way)?;
        moving.ledger.cycles += 1;
    }
    foreign.map_or(Ok(()), Foreign::end)?;
    moving.round.settle()?;
    moving.round.nobody_gave_up()
}

struct Moving<'r> {
    round: &'r mut Round,
    ledger: &'r mut Ledger,
    watched: Vec<Place>,
}

impl Moving<'_> {
    /// What is checked and led by a broker.
    fn led_by(&self, id: u8) -> usize {
        let leaders = self.round.nodes.leaders().into_iter();
        leaders.filter(|(place, by)| *by == i32::from(id) && is_checked(place)).count()
    }

    fn give_up(&mut self, id: u8, way: Way) -> Result<()> {
        self.measure(&format!("longest silence of a partition: {way}"), |moving| {
            match way {
                Way::Drain => moving.order(id, "drain")?,
                Way::Stop => drop(moving.round.nodes.terminate(id)?),
            }
            let began = Instant::now();
            while 0 < moving.led_by(id) {
                ensure!(
                    began.elapsed() < WHOLE_PATIENCE,
                    "broker {id} goes on leading after {way}"
                );
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })
    }

    /// Everything leads again that is meant to lead.
    fn get_back(&mut self, id: u8, way: Way) -> Result<()> {
        match way {
            Way::Drain => self.order(id, "undrain")?,
            Way::Stop => self.round.nodes.start_all()?,
        }
        self.round.nodes.wait_until_whole()?;
        self.measure("longest silence of a partition: nothing moved", |_| Ok(()))?;
        self.measure("longest silence of a partition: an election of preferred leaders", |moving| {
            moving.round.nodes.connect(NODES[0])?.elect_preferred_leaders()
        })
    }

    fn order(&self, id: u8, what: &str) -> Result<()> {
        let at = self.round.nodes.http(NODES[0]);
        let path = format!("/nodes/{id}/{what}");
        let began = Instant::now();
        loop {
            // Whoever was asked may have given up the controller's office meanwhile.
            let answer = http::post(at, &path, &json!({}))?;
            if answer.status != UNAVAILABLE || WHOLE_PATIENCE <= began.elapsed() {
                return answer.success().map(drop);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets something happen, and takes how long each partition that has another leader then did not
    /// acknowledge; if none has, each.
    fn measure(&mut self, what: &str, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let before = self.round.nodes.leaders();
        self.round.load.watch_gaps_of(self.watched.iter().cloned());
        act(self)?;
        thread::sleep(LOOK);
        let gaps = self.round.load.take_longest_gaps();
        let after = self.round.nodes.leaders();
        let has_moved = |place: &Place| before.get(place) != after.get(place);
        let is_still = !gaps.keys().any(has_moved);
        for (place, gap) in gaps.into_iter().filter(|(place, _)| is_still || has_moved(place)) {
            let of = if foreign::is_its(&place) { ", franz-go" } else { "" };
            self.ledger.time(&format!("{what}{of}"), gap);
        }
        Ok(())
    }
}

fn is_checked(place: &Place) -> bool {
    replicas::CHECKED.iter().any(|(topic, _)| place.topic == *topic)
}
