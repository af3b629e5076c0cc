//! A busy thread checks batches without allocating: the scratch keeps what the codecs need.
//! Zstandard's C code has its own allocator, which is not seen here.
//!
//! Needs an allocator that counts, which is `unsafe` by its nature; it only passes on.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use towpath_model::Timestamp;
use towpath_records::{
    BatchBuilder, Compression, ProduceRules, Scratch, TimestampType, validate_produced,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn checking_batches_allocates_nothing_once_warm() {
    let now = Timestamp(1_700_000_000_000);
    let rules = ProduceRules {
        batch_bytes_max: 1 << 20,
        plain_bytes_max: 4 << 20,
        record_bytes_max: usize::MAX,
        requires_keys: true,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_ms_max: i64::MAX,
        timestamp_after_ms_max: 3_600_000,
        now,
    };
    let mut scratch = Scratch::new();
    for compression in Compression::ALL {
        let mut builder = BatchBuilder::new(compression, now);
        for i in 0..600_i32 {
            let value = format!("{{\"id\":{i},\"text\":\"{:0>80}\"}}", i.wrapping_mul(7_919));
            let headers = [(&b"h"[..], Some(&b"1"[..]))];
            builder.append(now, Some(b"key"), Some(value.as_bytes()), headers).expect("it fits");
        }
        let batch = builder.build();
        validate_produced(&batch, &rules, &mut scratch).expect("it is good");
        let before = ALLOCATIONS.get();
        for _ in 0..10 {
            validate_produced(&batch, &rules, &mut scratch).expect("it is good");
        }
        // flate2 makes its state anew where others reset it (flate2 1.1, `zlib_rs.rs`).
        let allowed = if compression == Compression::Gzip { 10 } else { 0 };
        assert_eq!(ALLOCATIONS.get() - before, allowed, "{compression}");
    }
}
