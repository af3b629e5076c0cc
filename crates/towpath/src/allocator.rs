//! The allocator, and how soon it gives memory back to the system.
//!
//! Its default is a second. Requests of a few megabytes come and go far more often, on other threads
//! each time, and what each of them has left behind would add up to half of what the broker takes under
//! attack. A few milliseconds cost nothing that can be measured; one that is always given back does.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 3, in milliseconds. The crate leaves the numbers of options out,
/// because a new release may change them: the test below would show it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
const PURGE_DELAY_MS: std::ffi::c_long = 5;

/// Has freed memory given back soon, unless `MIMALLOC_PURGE_DELAY` says otherwise. To be called first,
/// while there is one thread.
#[allow(unsafe_code)]
pub(crate) fn give_back_soon() {
    // SAFETY: writes a number into a table of the allocator; no other thread reads it yet.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: reads a number that nothing in this test process writes.
        let default = unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000, "the default of mimalloc 3, in milliseconds");
    }
}
