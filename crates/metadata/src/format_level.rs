//! The level of formats: what may be written so that every broker can read it.
//!
//! ```text
//! a new program reads levels 1 to 2, writes 1 ─▶ every broker runs it ─▶ an operator finalises 2 ─▶ 2 is written
//!                    ◀── going back is possible ──┘                     └── and not any more
//! ```
//!
//! It is raised by hand, for it cannot be lowered: until then a broker may go back to the program that it
//! ran before. A broker whose program is older than the level in force is not let in.

use towpath_model::BrokerId;

use crate::image::Image;
use crate::metadata::Decided;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::request::Reply;

/// The newest level of formats that this program reads and writes.
pub const FORMAT_LEVEL: u16 = 1;

/// The first one; in force until another one is.
pub(crate) const FIRST_FORMAT_LEVEL: u16 = 1;

impl Image {
    /// The newest level that every broker reads, and the first broker that reads no newer one.
    #[must_use]
    pub fn format_level_max(&self) -> (u16, Option<BrokerId>) {
        let oldest = self.brokers().min_by_key(|broker| (broker.format_level, broker.id));
        oldest.map_or((FORMAT_LEVEL, None), |broker| (broker.format_level, Some(broker.id)))
    }

    pub(crate) fn set_format_level(&self, asked: u16) -> Decided {
        let current = self.format_level();
        let (most, oldest) = self.format_level_max();
        if asked < current || most < asked {
            let refusal = match oldest {
                Some(broker) if most < asked => Refusal::FormatLevelNotRead { asked, broker, most },
                _ => Refusal::FormatLevel { asked, current, most },
            };
            return (Vec::new(), Reply::FormatLevelSet(Err(refusal)));
        }
        let changes = asked != current;
        let records = changes.then_some(Record::FormatLevel(asked)).into_iter().collect();
        (records, Reply::FormatLevelSet(Ok(asked)))
    }

    /// Whether a broker's program reads what is written.
    pub(crate) fn check_level(&self, broker: BrokerId, level: u16) -> Result<(), Refusal> {
        let current = self.format_level();
        if level < current {
            return Err(Refusal::ProgramTooOld { broker, level, current });
        }
        Ok(())
    }
}
