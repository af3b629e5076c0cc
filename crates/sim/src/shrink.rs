//! Makes a failing run small: leaves out lives and steps as long as it still breaks the same promise.
//!
//! First whole lives, then halves of the steps, quarters, … down to single ones, over and over until
//! nothing more can go (delta debugging). Deterministic, like everything here: the same failure
//! shrinks to the same run. What cannot be left out are the draws of the world itself, its sizes
//! above all.

use crate::campaign::{Failure, run_traced};
use crate::profile::Profile;
use crate::steps::Parts;
use crate::trace::Trace;

/// Runs that a shrink may take.
pub const RUNS_MAX: u64 = 3_000;

/// A failing run of which hardly anything can be left out.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// How it fails.
    pub failure: Failure,
    /// What happens in it.
    pub kept: Parts,
    /// Steps that the whole run had until it failed.
    pub steps_before: usize,
    /// Runs that it took to find out.
    pub runs: u64,
}

/// Shrinks the run of `seed`. `None` when it does not fail.
#[must_use]
pub fn shrink(profile: &dyn Profile, seed: u64, runs_max: u64) -> Option<Shrunk> {
    let (failure, reached) = fails(profile, seed, None)?;
    let steps_before = reached.steps().len();
    let mut search = Search { profile, seed, kept: reached, failure, runs: 1, runs_max };
    loop {
        let before = search.kept.clone();
        search.leave_out_lives();
        search.leave_out_steps();
        if search.kept == before || search.runs_max <= search.runs {
            break;
        }
    }
    let Search { kept, failure, runs, .. } = search;
    Some(Shrunk { failure, kept, steps_before, runs })
}

/// Runs a seed of which only some parts happen; how it fails, and what it reached.
fn fails(profile: &dyn Profile, seed: u64, kept: Option<Parts>) -> Option<(Failure, Parts)> {
    let trace = Trace::hashing().keeping(kept);
    let failure = run_traced(profile, seed, &trace).err()?;
    Some((failure, trace.reached()))
}

struct Search<'p> {
    profile: &'p dyn Profile,
    seed: u64,
    /// The smallest run that fails, so far.
    kept: Parts,
    failure: Failure,
    runs: u64,
    runs_max: u64,
}

impl Search<'_> {
    /// Takes a smaller run if it breaks the same promise; says whether it does.
    fn takes(&mut self, smaller: Parts) -> bool {
        if self.runs_max <= self.runs {
            return false;
        }
        self.runs += 1;
        let Some((failure, reached)) = fails(self.profile, self.seed, Some(smaller.clone())) else {
            return false;
        };
        if failure.violation.invariant != self.failure.violation.invariant {
            return false;
        }
        // What lies behind the failure is left out for nothing.
        self.kept = smaller.within(&reached);
        self.failure = failure;
        true
    }

    fn leave_out_lives(&mut self) {
        for life in self.kept.lives() {
            self.takes(self.kept.without_life(life));
        }
    }

    fn leave_out_steps(&mut self) {
        let mut size = self.kept.steps().len().div_ceil(2);
        while 0 < size {
            let steps = self.kept.steps();
            // From the end: what comes last rests on what came before.
            for chunk in steps.rchunks(size) {
                self.takes(self.kept.without_steps(chunk));
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Events;
    use crate::profile::Violation;
    use crate::rng::Rng;
    use crate::steps::Parted;

    /// Fails when a 3 is followed, in some later life, by a 7.
    struct ThreeThenSeven;

    struct World {
        rng: Rng,
        trace: Trace,
        has_three: bool,
    }

    impl Parted for World {
        fn rng(&mut self) -> &mut Rng {
            &mut self.rng
        }
        fn trace(&self) -> &Trace {
            &self.trace
        }
    }

    fn live(world: &mut World) -> Result<(), Violation> {
        let mut has_three = world.has_three;
        for _ in 0..40 {
            world.part(|world| {
                let drawn = world.rng.below(10);
                has_three |= drawn == 3;
                match (world.has_three, drawn) {
                    (true, 7) => Err(Violation::new("INV-X", "a seven after a three")),
                    _ => Ok(()),
                }
            })?;
        }
        world.has_three = has_three;
        Ok(())
    }

    impl Profile for ThreeThenSeven {
        fn name(&self) -> &'static str {
            "three"
        }
        fn about(&self) -> &'static str {
            "a test"
        }
        fn must_happen(&self) -> &'static [&'static str] {
            &[]
        }
        fn run(&self, seed: u64, trace: &Trace) -> Result<Events, Violation> {
            let (rng, trace) = (Rng::new(seed), trace.clone());
            let mut world = World { rng, trace, has_three: false };
            (0..3).try_for_each(|_| world.life(live))?;
            Ok(Events::new())
        }
    }

    #[test]
    fn a_failure_shrinks_to_the_steps_that_it_needs() {
        let shrunk = shrink(&ThreeThenSeven, 1, RUNS_MAX).expect("it fails");
        assert_eq!(shrunk.kept.steps().len(), 2, "{}", shrunk.kept);
        assert!(40 < shrunk.steps_before);
        let again = shrink(&ThreeThenSeven, 1, RUNS_MAX).expect("it fails");
        assert_eq!((shrunk.kept, shrunk.runs), (again.kept, again.runs));
    }
}
