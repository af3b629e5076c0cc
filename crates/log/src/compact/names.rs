//! Names of the files that exist only while a group of segments is replaced.
//!
//! The range of a finished group is in its name, so that a start knows what it replaces without
//! reading it.

use std::path::{Path, PathBuf};

use towpath_model::Offset;

use crate::place::FileKind;

/// Ending of what is being written.
pub(super) const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";
const DIGITS: usize = 20;

/// An unfinished file of the new segment at `base`.
pub(super) fn cleaned(kind: FileKind, directory: &Path, base: Offset) -> PathBuf {
    let mut path = kind.path(directory, base).into_os_string();
    path.push(CLEANED);
    path.into()
}

/// The finished segment that takes the place of the segments `[base, end)`.
pub(super) fn swap(directory: &Path, base: Offset, end: Offset) -> PathBuf {
    directory.join(format!("{:020}-{:020}{SWAP}", base.0, end.0))
}

/// The range in a name that [`swap`] has made.
pub(super) fn swap_range(name: &str) -> Option<(Offset, Offset)> {
    let (base, end) = name.strip_suffix(SWAP)?.split_once('-')?;
    let number = |digits: &str| {
        let is_ours = digits.len() == DIGITS && digits.bytes().all(|c| c.is_ascii_digit());
        if is_ours { digits.parse().ok().map(Offset) } else { None }
    };
    let (base, end) = (number(base)?, number(end)?);
    (base < end).then_some((base, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_comes_back_from_its_name() {
        let path = swap(Path::new("d"), Offset(7), Offset(4711));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, "00000000000000000007-00000000000000004711.swap");
        assert_eq!(swap_range(name), Some((Offset(7), Offset(4711))));
        assert_eq!(swap_range("00000000000000000007-00000000000000000007.swap"), None);
        assert_eq!(swap_range("7-4711.swap"), None);
        assert_eq!(FileKind::Segment.offset_in(name), None);
        let cleaned = cleaned(FileKind::Segment, Path::new("d"), Offset(7));
        assert_eq!(cleaned, Path::new("d/00000000000000000007.log.cleaned"));
        assert_eq!(FileKind::Segment.offset_in("00000000000000000007.log.cleaned"), None);
    }
}
