//! After how many silent ticks a follower stands for election: drawn anew for every attempt, from
//! the seed. The raft crate draws it from the system's entropy, in the middle of steps; so it is set
//! again after every step, and the same seed gives the same elections.

use super::ids::{MemberId, Term};

/// In `election_ticks .. 2 * election_ticks`, by seed, member, term and attempt.
pub(super) fn election_timeout(
    seed: u64,
    me: MemberId,
    term: Term,
    attempt: u64,
    election_ticks: usize,
) -> usize {
    let drawn = [me.number(), term.0, attempt].into_iter().fold(mix(seed), |sum, n| mix(sum ^ n));
    election_ticks + (drawn % election_ticks as u64) as usize
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_spread_over_their_range_and_differ_by_attempt() {
        let me = MemberId::from_number(5).expect("not 0");
        let mut seen = [0u32; 10];
        for attempt in 0..1000 {
            let ticks = election_timeout(1, me, Term(3), attempt, 10);
            assert!((10..20).contains(&ticks));
            seen[ticks - 10] += 1;
        }
        assert!(seen.iter().all(|&count| (50..150).contains(&count)), "{seen:?}");
    }
}
