//! A run that once failed, kept as a file: `crates/sim/scenarios/*.txt`.
//!
//! ```text
//! # why it is kept
//! profile log
//! seed 42
//! mutant page-cache-trusted      with this bug planted it fails; without it, it never may
//! breaks INV-R1
//! keep 1:2-4,9;3:
//! ```
//!
//! A scenario is as good as the generator it was found with: a change of the profile's draws makes
//! another run of it. `cargo xtask sim --mutants` notices, and says how to renew it.

use crate::mutants::Mutant;
use crate::profile::Profile;
use crate::profiles;
use crate::shrink::Shrunk;
use crate::steps::Parts;

/// One run.
#[derive(Clone)]
pub struct Scenario {
    /// Which profile.
    pub profile: &'static dyn Profile,
    /// From which seed.
    pub seed: u64,
    /// The bug with which it fails; `None`: one that was not planted, and is fixed.
    pub mutant: Option<Mutant>,
    /// The promise that it broke.
    pub breaks: String,
    /// What of it happens.
    pub kept: Parts,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The line that is not understood, or what is missing.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let field = |name: &str| {
            let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
            lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(' ')?.trim()))
        };
        let needed = |name: &str| field(name).ok_or_else(|| format!("it does not say {name}"));
        let profile = needed("profile")?;
        let seed = needed("seed")?;
        let mutant = field("mutant")
            .map(|name| Mutant::find(name).ok_or_else(|| format!("there is no mutant {name}")));
        Ok(Scenario {
            profile: profiles::find(profile).ok_or_else(|| format!("no profile {profile}"))?,
            seed: seed.parse().map_err(|_| format!("{seed} is not a seed"))?,
            mutant: mutant.transpose()?,
            breaks: needed("breaks")?.to_owned(),
            kept: Parts::parse(needed("keep")?)?,
        })
    }

    /// The file that keeps a failure.
    #[must_use]
    pub fn render(shrunk: &Shrunk, mutant: Option<Mutant>) -> String {
        let failure = &shrunk.failure;
        let planted = mutant.map(|mutant| format!("mutant {}\n", mutant.name()));
        format!(
            "# {}\nprofile {}\nseed {}\n{}breaks {}\nkeep {}\n",
            failure.violation,
            failure.profile,
            failure.seed,
            planted.unwrap_or_default(),
            failure.violation.invariant,
            shrunk.kept
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_says_all_that_a_run_needs() {
        let text = "# why\nprofile journal\nseed 7\nbreaks INV-R1\nkeep 1:2-4\n";
        let scenario = Scenario::parse(text).unwrap();
        assert_eq!((scenario.profile.name(), scenario.seed), ("journal", 7));
        assert_eq!((scenario.breaks.as_str(), scenario.mutant), ("INV-R1", None));
        assert_eq!(scenario.kept.to_string(), "1:2-4");
        let problem = |text: &str| Scenario::parse(text).err().unwrap();
        assert_eq!(problem("profile journal\nbreaks X\nkeep 1:"), "it does not say seed");
        assert_eq!(problem("profile none\nseed 1\nbreaks X\nkeep 1:"), "no profile none");
        let unknown = "profile journal\nseed 1\nmutant nobody\nbreaks X\nkeep 1:";
        assert_eq!(problem(unknown), "there is no mutant nobody");
    }
}
