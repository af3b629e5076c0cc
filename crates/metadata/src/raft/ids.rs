//! Who takes part, in which term, at which position.

use std::fmt;

use serde::{Deserialize, Serialize};
use towpath_model::{BrokerId, FoldError, Uuid};

use super::bytes::{Reader, Writer};

/// The largest term: the log keeps terms as leader epochs, which have 31 bits.
pub const TERM_MAX: Term = Term(i32::MAX as u64);

/// The largest index: the log keeps an entry at offset `index - 1`. Far below `i64::MAX`, so that
/// sums of an index and a length stay numbers.
pub const INDEX_MAX: LogIndex = LogIndex(1 << 60);

/// A member of the quorum: a broker *and* the data directory that holds its vote and its log. A
/// broker that comes back with an empty or a foreign disk is another member, and never votes under
/// the identity of the one that is gone. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(u64);

/// Number of a leadership; at most one member leads in it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Term(pub u64);

/// Position of an entry; the first is 1, and 0 is before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct LogIndex(pub u64);

impl MemberId {
    /// The member that `broker` is with the directory `directory`: the broker's id in the upper half,
    /// 32 random bits of the directory's id in the lower.
    #[must_use]
    pub fn new(broker: BrokerId, directory: Uuid) -> MemberId {
        let [a, b, c, d, ..] = directory.0;
        let directory = u32::from_be_bytes([a, b, c, d]).max(1);
        MemberId((u64::from(broker.0 as u32) << 32) | u64::from(directory))
    }

    /// The member with this number; none has the number 0.
    #[must_use]
    pub fn from_number(number: u64) -> Option<MemberId> {
        (number != 0).then_some(MemberId(number))
    }

    /// Its number, as it is kept and sent; not 0.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The broker that this member is.
    #[must_use]
    pub fn broker(self) -> BrokerId {
        BrokerId((self.0 >> 32) as i32)
    }
}

impl LogIndex {
    /// The index before this one; 0 stays 0.
    #[must_use]
    pub fn before(self) -> LogIndex {
        LogIndex(self.0.saturating_sub(1))
    }

    /// The index after this one.
    #[must_use]
    pub fn next(self) -> LogIndex {
        LogIndex(self.0 + 1)
    }
}

/// What a member must remember before it answers: the term it is in, whom it gave its vote, and which
/// membership change it knows to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Vote {
    /// The newest term it has seen.
    pub term: Term,
    /// Who got its vote in that term.
    pub voted_for: Option<MemberId>,
    /// The last membership change that it knows to be committed; 0 before the first. Without it, a
    /// member that comes back could wait for ever for the votes of members that are long removed.
    pub change: LogIndex,
}

const VOTE_VERSION: u8 = 1;

impl Vote {
    /// The bytes of its file; `docs/file-formats.md` draws them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(VOTE_VERSION).u64(self.term.0).u64(self.voted_for.map_or(0, MemberId::number));
        out.u64(self.change.0);
        out.finish()
    }

    /// # Errors
    ///
    /// When the bytes are not those of a vote.
    pub fn decode(bytes: &[u8]) -> Result<Vote, FoldError> {
        let mut reader = Reader::new(bytes);
        reader.version(VOTE_VERSION, "vote")?;
        let term = Term(reader.u64()?);
        if TERM_MAX < term {
            return Err(FoldError(format!("term {term} is beyond the largest")));
        }
        let voted_for = MemberId::from_number(reader.u64()?);
        let change = LogIndex(reader.u64()?);
        if INDEX_MAX < change {
            return Err(FoldError(format!("entry {change} is beyond the largest")));
        }
        reader.end()?;
        Ok(Vote { term, voted_for, change })
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.broker(), self.0 as u32)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_disk_is_another_member_and_none_is_zero() {
        let first = MemberId::new(BrokerId(3), Uuid([1; 16]));
        let second = MemberId::new(BrokerId(3), Uuid([2; 16]));
        assert_ne!(first, second);
        assert_eq!(first.broker(), BrokerId(3));
        assert_ne!(MemberId::new(BrokerId(0), Uuid::ZERO).number(), 0);
        assert_eq!(MemberId::from_number(0), None);
    }

    #[test]
    fn votes_come_back_from_their_bytes() {
        for voted_for in [None, MemberId::from_number(7)] {
            let vote = Vote { term: Term(12), voted_for, change: LogIndex(5) };
            assert_eq!(Vote::decode(&vote.encode()), Ok(vote));
        }
        let mut bytes = Vote::default().encode();
        bytes.push(0);
        assert!(Vote::decode(&bytes).is_err());
        assert!(Vote::decode(&bytes[..5]).is_err());
        assert!(Vote::decode(&Vote { term: Term(1 << 40), ..Vote::default() }.encode()).is_err());
    }
}
