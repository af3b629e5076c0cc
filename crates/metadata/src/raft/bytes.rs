//! Numbers and lists of what consensus keeps, big-endian. Reading is bounded by the bytes that are
//! there.

use std::collections::BTreeSet;

use towpath_model::FoldError;

use super::ids::MemberId;

pub(super) struct Writer {
    out: Vec<u8>,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { out: Vec::with_capacity(32) }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.out.extend_from_slice(bytes);
        self
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Writer {
        self.raw(&[value])
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Writer {
        self.raw(&value.to_be_bytes())
    }

    /// # Panics
    ///
    /// When there are more than 65,535; memberships are bounded far below.
    pub(super) fn count(&mut self, len: usize) -> &mut Writer {
        let len = u16::try_from(len).expect("memberships are bounded when accepted");
        self.raw(&len.to_be_bytes())
    }

    pub(super) fn members(&mut self, members: &BTreeSet<MemberId>) -> &mut Writer {
        self.count(members.len());
        for member in members {
            self.u64(member.number());
        }
        self
    }
}

pub(super) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader { bytes }
    }

    pub(super) fn rest(self) -> &'b [u8] {
        self.bytes
    }

    pub(super) fn end(&self) -> Result<(), FoldError> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(FoldError(format!("{} bytes too many", self.bytes.len())))
    }

    pub(super) fn version(&mut self, known: u8, what: &str) -> Result<(), FoldError> {
        let found = self.u8()?;
        if found == known {
            return Ok(());
        }
        Err(FoldError(format!("a {what} of version {found}, and only version {known} is known")))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FoldError> {
        let short = || FoldError("the bytes end too early".into());
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FoldError> {
        Ok(self.take::<1>()?[0])
    }

    pub(super) fn bool(&mut self) -> Result<bool, FoldError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FoldError(format!("{other} is neither yes nor no"))),
        }
    }

    pub(super) fn count(&mut self) -> Result<usize, FoldError> {
        Ok(usize::from(u16::from_be_bytes(self.take()?)))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FoldError> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    pub(super) fn member(&mut self) -> Result<MemberId, FoldError> {
        let none = || FoldError("no member has the number 0".into());
        MemberId::from_number(self.u64()?).ok_or_else(none)
    }

    pub(super) fn members(&mut self) -> Result<BTreeSet<MemberId>, FoldError> {
        let count = self.count()?;
        let mut members = BTreeSet::new();
        for _ in 0..count {
            let member = self.member()?;
            if members.last().is_some_and(|last| member <= *last) {
                return Err(FoldError("members out of order".into()));
            }
            members.insert(member);
        }
        Ok(members)
    }
}
