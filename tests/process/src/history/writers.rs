//! Every record that was sent, what its writer was told, and what readers saw.

use std::collections::{BTreeMap, BTreeSet};

use super::{Place, Report, Stamp};

/// What a writer knows about one of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing: it was never answered. It may be there, once.
    Unknown,
    /// It is there.
    Acked {
        /// In which partition.
        partition: i32,
        /// At which offset.
        offset: i64,
    },
    /// It is not there, and never will be.
    Refused,
}

/// A record as the final reading found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its offset.
    pub offset: i64,
    /// Its value.
    pub value: Vec<u8>,
}

/// A record on its way to one topic.
#[derive(Debug, Clone, Copy)]
struct Sent {
    /// Where the writer wanted it; `None` when the broker chooses.
    partition: Option<i32>,
    fate: Fate,
}

/// All writers' histories.
#[derive(Debug, Default)]
pub struct WriterHistory {
    /// By topic and writer; the index in the list is the sequence.
    sent: BTreeMap<(String, u32), Vec<Sent>>,
    /// What readers saw while the load ran, by offset.
    observed: BTreeMap<Place, BTreeMap<i64, Stamp>>,
    writers: u32,
    broken: Report,
}

impl WriterHistory {
    /// The number of a new writer.
    pub fn new_writer(&mut self) -> u32 {
        self.writers += 1;
        self.writers
    }

    /// Notes that a writer is about to send its next record to `topic`. Writers send one after the
    /// other; the stamp says which one this is.
    pub fn sending(&mut self, topic: &str, writer: u32, partition: Option<i32>) -> Stamp {
        let list = self.sent.entry((topic.to_owned(), writer)).or_default();
        let sequence = list.len() as u64;
        list.push(Sent { partition, fate: Fate::Unknown });
        Stamp { writer, sequence }
    }

    /// Notes what a writer was told about a record. The first word stands: a second answer that
    /// differs breaks a promise.
    pub fn told(&mut self, topic: &str, stamp: Stamp, fate: Fate) {
        let key = (topic.to_owned(), stamp.writer);
        let sent = self.sent.get_mut(&key).and_then(|list| list.get_mut(stamp.sequence as usize));
        let Some(sent) = sent else {
            let what = format!("an answer for {topic} {stamp}, which was never sent");
            self.broken.broken("INV-P1", what);
            return;
        };
        match sent.fate {
            Fate::Unknown => sent.fate = fate,
            before if before == fate => {}
            before => {
                let what = format!("{topic} {stamp} was answered {before:?} and then {fate:?}");
                self.broken.broken("INV-P1", what);
            }
        }
    }

    /// Notes that a reader was given a record.
    pub fn observed(&mut self, place: &Place, offset: i64, value: &[u8]) {
        let Some(stamp) = Stamp::of_value(value) else {
            let value = String::from_utf8_lossy(value).into_owned();
            let what = format!("{place} offset {offset} was read as {value:?}, which nobody sent");
            self.broken.broken("INV-T4", what);
            return;
        };
        let before = match self.observed.get_mut(place) {
            Some(seen) => seen.insert(offset, stamp),
            None => self.observed.entry(place.clone()).or_default().insert(offset, stamp),
        };
        if let Some(before) = before.filter(|before| *before != stamp) {
            let what = format!("{place} offset {offset} was read as {before} and then as {stamp}");
            self.broken.broken("INV-R13", what);
        }
    }

    /// Records that were acknowledged so far.
    pub fn acked(&self) -> u64 {
        let is_acked = |sent: &&Sent| matches!(sent.fate, Fate::Acked { .. });
        self.sent.values().map(|list| list.iter().filter(is_acked).count() as u64).sum()
    }

    /// Compares with everything that is there now: every partition that exists, from its first
    /// offset to its end.
    pub fn check(&self, found: &BTreeMap<Place, Vec<FoundRecord>>) -> Report {
        let mut report = self.broken.clone();
        report.acked = self.acked();
        let mut places: BTreeMap<(&str, Stamp), (i32, i64)> = BTreeMap::new();
        for (place, records) in found {
            self.check_partition(place, records, &mut places, &mut report);
        }
        self.check_acked(&places, &mut report);
        self.check_observed(found, &mut report);
        report
    }

    fn check_partition<'h>(
        &'h self,
        place: &'h Place,
        records: &[FoundRecord],
        places: &mut BTreeMap<(&'h str, Stamp), (i32, i64)>,
        report: &mut Report,
    ) {
        let mut last_of: BTreeMap<u32, u64> = BTreeMap::new();
        for (expected, record) in (0..).zip(records) {
            report.checked += 1;
            if record.offset != expected {
                let what = format!("{place} has offset {} where {expected} is due", record.offset);
                report.broken("INV-T4", what);
                return;
            }
            let at = (place.partition, record.offset);
            let Some(stamp) = Stamp::of_value(&record.value) else {
                let value = String::from_utf8_lossy(&record.value);
                report.broken("INV-T4", format!("{place} {at:?} is {value:?}: nobody sent it"));
                continue;
            };
            match self.sent(&place.topic, stamp) {
                None => report.broken("INV-T4", format!("{place} {at:?} is {stamp}, never sent")),
                Some(Sent { fate: Fate::Refused, .. }) => {
                    report
                        .broken("INV-P6", format!("{place} {at:?} is {stamp}, which was refused"));
                }
                Some(Sent { partition: Some(wanted), .. }) if wanted != place.partition => {
                    let what = format!("{stamp} for partition {wanted} is in {place}");
                    report.broken("INV-P3", what);
                }
                Some(_) => {}
            }
            if let Some(first) = places.insert((&place.topic, stamp), at) {
                report.duplicated += 1;
                let what = format!("{stamp} of {} is at {first:?} and at {at:?}", place.topic);
                report.broken("INV-P1", what);
            }
            if let Some(last) = last_of.insert(stamp.writer, stamp.sequence)
                && stamp.sequence < last
            {
                report.reordered += 1;
                let what = format!("{place} {at:?}: {stamp} comes after s{last} of its writer");
                report.broken("INV-P2", what);
            }
        }
    }

    fn sent(&self, topic: &str, stamp: Stamp) -> Option<Sent> {
        let list = self.sent.get(&(topic.to_owned(), stamp.writer))?;
        list.get(usize::try_from(stamp.sequence).ok()?).copied()
    }

    fn check_acked(&self, places: &BTreeMap<(&str, Stamp), (i32, i64)>, report: &mut Report) {
        for ((topic, writer), list) in &self.sent {
            for (sequence, sent) in (0..).zip(list) {
                let Fate::Acked { partition, offset } = sent.fate else { continue };
                let stamp = Stamp { writer: *writer, sequence };
                let found = places.get(&(topic.as_str(), stamp)).copied();
                if found != Some((partition, offset)) {
                    report.lost += 1;
                    let what = format!(
                        "{stamp} was acknowledged at {topic}-{partition} offset {offset}, found: \
                         {found:?}"
                    );
                    report.broken("INV-R1", what);
                }
            }
        }
    }

    fn check_observed(&self, found: &BTreeMap<Place, Vec<FoundRecord>>, report: &mut Report) {
        let mut missing = BTreeSet::new();
        for (place, seen) in &self.observed {
            let records = found.get(place).map_or(&[][..], Vec::as_slice);
            for (offset, stamp) in seen {
                let at = usize::try_from(*offset).ok().and_then(|index| records.get(index));
                let now = at.and_then(|record| Stamp::of_value(&record.value));
                if now != Some(*stamp) && missing.insert(place) {
                    let what = format!("{place} offset {offset} was read as {stamp}, is {now:?}");
                    report.broken("INV-R13", what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "t";

    /// Sends `count` records, acknowledges them in order, and gives back what is then there.
    fn healthy(history: &mut WriterHistory, count: usize) -> BTreeMap<Place, Vec<FoundRecord>> {
        let writer = history.new_writer();
        let records = (0..count as i64).map(|offset| {
            let stamp = history.sending(TOPIC, writer, Some(0));
            history.told(TOPIC, stamp, Fate::Acked { partition: 0, offset });
            FoundRecord { offset, value: stamp.to_value(5) }
        });
        BTreeMap::from([(Place::new(TOPIC, 0), records.collect())])
    }

    fn check(change: impl FnOnce(&mut WriterHistory, &mut Vec<FoundRecord>)) -> Report {
        let mut history = WriterHistory::default();
        let mut found = healthy(&mut history, 5);
        change(&mut history, found.values_mut().next().unwrap());
        history.check(&found)
    }

    fn invariants(report: &Report) -> Vec<&'static str> {
        report.violations.iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn a_healthy_history_breaks_nothing() {
        let report = check(|_, _| {});
        assert_eq!((report.acked, report.checked, report.violations), (5, 5, Vec::new()));
    }

    #[test]
    fn a_lost_tail_is_found() {
        let report = check(|_, records| drop(records.pop()));
        assert_eq!((report.lost, invariants(&report)), (1, vec!["INV-R1"]));
    }

    #[test]
    fn a_lost_tail_that_was_never_acknowledged_is_none() {
        let report = check(|history, _| {
            history.sending(TOPIC, 1, Some(0));
        });
        assert_eq!(report.violations, Vec::new());
    }

    #[test]
    fn a_repeat_is_found() {
        let report = check(|_, records| {
            let again = FoundRecord { offset: 5, value: records[4].value.clone() };
            records.push(again);
        });
        assert_eq!(report.duplicated, 1);
        assert!(invariants(&report).contains(&"INV-P1"));
    }

    #[test]
    fn a_swap_is_found() {
        let report = check(|history, records| {
            for offset in 5..7 {
                let stamp = history.sending(TOPIC, 1, Some(0));
                records.push(FoundRecord { offset, value: stamp.to_value(0) });
            }
            let value = records[5].value.clone();
            records[5].value = records[6].value.clone();
            records[6].value = value;
        });
        assert_eq!((report.reordered, invariants(&report)), (1, vec!["INV-P2"]));
    }

    #[test]
    fn a_gap_an_invention_and_a_refused_record_are_found() {
        let report = check(|_, records| records[4].offset = 6);
        assert!(invariants(&report).contains(&"INV-T4"));
        let report = check(|_, records| {
            records.push(FoundRecord { offset: 5, value: b"w1 s99 ".to_vec() });
        });
        assert_eq!(invariants(&report), ["INV-T4"]);
        let report = check(|history, records| {
            let stamp = history.sending(TOPIC, 1, Some(0));
            history.told(TOPIC, stamp, Fate::Refused);
            records.push(FoundRecord { offset: 5, value: stamp.to_value(0) });
        });
        assert_eq!(invariants(&report), ["INV-P6"]);
    }

    #[test]
    fn a_read_that_cannot_be_repeated_is_found() {
        let report = check(|history, _| {
            history.observed(&Place::new(TOPIC, 0), 5, b"w1 s5 ");
        });
        assert_eq!(invariants(&report), ["INV-R13"]);
    }

    #[test]
    fn a_second_answer_that_differs_is_found() {
        let report = check(|history, _| {
            let stamp = Stamp { writer: 1, sequence: 4 };
            history.told(TOPIC, stamp, Fate::Acked { partition: 0, offset: 5 });
        });
        assert_eq!(invariants(&report), ["INV-P1"]);
    }
}
