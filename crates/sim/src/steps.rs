//! Which parts of a run happen: what makes a failing run small enough to read.
//!
//! ```text
//! run ─┬─ life 1 ─ step 1, step 2, …        a life that is left out never starts
//!      └─ life 2 ─ step 1, …                a step that is left out does nothing
//! ```
//!
//! Lives and steps draw from numbers of their own ([`Parted`]), so whoever is left out takes no
//! number from the others: those do what they did. That is all that shrinking needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::rng::Rng;
use crate::trace::Trace;

/// A world that is run life by life and step by step.
pub trait Parted {
    /// Where its chance comes from.
    fn rng(&mut self) -> &mut Rng;

    /// Where the run is noted, and what says which parts are left out.
    fn trace(&self) -> &Trace;

    /// One life, unless it is left out.
    ///
    /// # Errors
    /// Those of `live`.
    fn life<E>(&mut self, live: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let keeps = self.trace().begin_life();
        self.apart(keeps, live)
    }

    /// One step of a life, unless it is left out.
    ///
    /// # Errors
    /// Those of `act`.
    fn part<E>(&mut self, act: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let keeps = self.trace().begin_step();
        self.apart(keeps, act)
    }

    /// Acts with numbers of its own, which are drawn whether or not it acts.
    ///
    /// # Errors
    /// Those of `act`.
    fn apart<E>(
        &mut self,
        acts: bool,
        act: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let own = self.rng().fork();
        if !acts {
            return Ok(());
        }
        let others = std::mem::replace(self.rng(), own);
        let result = act(self);
        *self.rng() = others;
        result
    }
}

/// Lives and steps by number, both from 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    lives: BTreeMap<u32, BTreeSet<u32>>,
}

impl Parts {
    /// Whether this life is among them.
    #[must_use]
    pub fn has_life(&self, life: u32) -> bool {
        self.lives.contains_key(&life)
    }

    /// Whether this step is among them.
    #[must_use]
    pub fn has_step(&self, life: u32, step: u32) -> bool {
        self.lives.get(&life).is_some_and(|steps| steps.contains(&step))
    }

    /// Adds a life without steps.
    pub fn add_life(&mut self, life: u32) {
        self.lives.entry(life).or_default();
    }

    /// Adds a step, and its life.
    pub fn add_step(&mut self, life: u32, step: u32) {
        self.lives.entry(life).or_default().insert(step);
    }

    /// Without one life and its steps.
    #[must_use]
    pub fn without_life(&self, life: u32) -> Parts {
        let mut left = self.clone();
        left.lives.remove(&life);
        left
    }

    /// Without some steps; their lives stay.
    #[must_use]
    pub fn without_steps(&self, steps: &[(u32, u32)]) -> Parts {
        let mut left = self.clone();
        for (life, step) in steps {
            if let Some(of_life) = left.lives.get_mut(life) {
                of_life.remove(step);
            }
        }
        left
    }

    /// Those that are in both.
    #[must_use]
    pub fn within(&self, other: &Parts) -> Parts {
        let both = |(life, steps): (&u32, &BTreeSet<u32>)| {
            let others = other.lives.get(life)?;
            Some((*life, steps.intersection(others).copied().collect()))
        };
        Parts { lives: self.lives.iter().filter_map(both).collect() }
    }

    /// The lives.
    #[must_use]
    pub fn lives(&self) -> Vec<u32> {
        self.lives.keys().copied().collect()
    }

    /// All steps, in order.
    #[must_use]
    pub fn steps(&self) -> Vec<(u32, u32)> {
        let lives = self.lives.iter();
        lives.flat_map(|(life, steps)| steps.iter().map(|step| (*life, *step))).collect()
    }

    /// Reads what [`fmt::Display`] writes: `1:2-4,9;3:` is steps 2 to 4 and 9 of the first life,
    /// and the third life without a step.
    ///
    /// # Errors
    /// What is not understood.
    pub fn parse(text: &str) -> Result<Parts, String> {
        let mut parts = Parts::default();
        let number = |text: &str| {
            text.trim().parse::<u32>().map_err(|_| format!("{text:?} is not the number of a step"))
        };
        for life in text.split(';').filter(|life| !life.trim().is_empty()) {
            let (life, steps) = life.split_once(':').unwrap_or((life, ""));
            let life = number(life)?;
            parts.add_life(life);
            for range in steps.split(',').filter(|range| !range.trim().is_empty()) {
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                let (from, to) = (number(from)?, number(to)?);
                if to < from || STEPS_MAX < to {
                    return Err(format!("{range:?} is not a range of steps"));
                }
                (from..=to).for_each(|step| parts.add_step(life, step));
            }
        }
        Ok(parts)
    }
}

/// No life has as many: what says more is a slip of the pen.
const STEPS_MAX: u32 = 100_000;

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (life, steps)) in self.lives.iter().enumerate() {
            write!(f, "{}{life}:", if nth == 0 { "" } else { ";" })?;
            let mut rest = steps.iter().copied().peekable();
            let mut comma = "";
            while let Some(from) = rest.next() {
                let mut to = from;
                while let Some(next) = rest.next_if_eq(&(to + 1)) {
                    to = next;
                }
                write!(f, "{comma}{from}")?;
                if from < to {
                    write!(f, "-{to}")?;
                }
                comma = ",";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        rng: Rng,
        trace: Trace,
        drawn: Vec<u64>,
    }

    impl Parted for World {
        fn rng(&mut self) -> &mut Rng {
            &mut self.rng
        }

        fn trace(&self) -> &Trace {
            &self.trace
        }
    }

    fn draws(parts: Option<Parts>) -> Vec<u64> {
        let trace = Trace::hashing().keeping(parts);
        let mut world = World { rng: Rng::new(1), trace, drawn: Vec::new() };
        for _ in 0..2 {
            let live = |world: &mut World| {
                for draws in 1..4 {
                    world.part(|world| {
                        let numbers: Vec<u64> = (0..draws).map(|_| world.rng.draw()).collect();
                        world.drawn.extend(numbers.last());
                        Ok::<(), ()>(())
                    })?;
                }
                Ok::<(), ()>(())
            };
            world.life(live).unwrap();
        }
        world.drawn
    }

    #[test]
    fn what_is_left_out_changes_nothing_else() {
        let all = draws(None);
        assert_eq!(all.len(), 6);
        let some = draws(Some(Parts::parse("1:1,3;2:2").unwrap()));
        assert_eq!(some, [all[0], all[2], all[4]]);
        assert_eq!(draws(Some(Parts::parse("2:1-3").unwrap())), all[3..]);
    }

    #[test]
    fn parts_are_written_as_they_are_read() {
        for text in ["1:2-4,9;3:", "7:1", ""] {
            assert_eq!(Parts::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Parts::parse("1:1,2,3").unwrap().to_string(), "1:1-3");
        assert!(Parts::parse("1:4-2").is_err());
        assert!(Parts::parse("one").is_err());
        assert!(Parts::parse("1:0-4000000000").is_err());
    }
}
