//! Which level of formats this program says that it reads.

use towpath_metadata::FORMAT_LEVEL;

/// The newest level of formats that this program reads and writes. A build for tests may say that it is
/// of a later program (`TOWPATH_TEST_FORMAT_LEVEL`), so that an upgrade can be tried before there is one.
#[must_use]
pub fn format_level() -> u16 {
    #[cfg(debug_assertions)]
    if let Some(level) = raised() {
        return level;
    }
    FORMAT_LEVEL
}

#[cfg(debug_assertions)]
fn raised() -> Option<u16> {
    std::env::var("TOWPATH_TEST_FORMAT_LEVEL").ok()?.parse().ok()
}
