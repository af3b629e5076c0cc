//! Feeds every parser of ours with bytes that nobody would send, on a stable compiler.
//!
//! ```text
//!   corpus ──▶ mutate ──▶ target ──▶ shape: new? keep it  ·  panic, too slow, too much memory? stop
//! ```
//!
//! There is no instrumented coverage: each target tells the *shape* of what happened (which error in
//! which field, which message with how many parts), and an input with a shape not seen before is
//! kept and mutated further. What surprises: a shape must not contain numbers from the input, or
//! everything is new.

mod allocations;
mod campaign;
mod corpus;
mod mutate;
mod shape;
mod target;
pub mod targets;

pub use campaign::{Campaign, Failure, Outcome};
pub use corpus::Corpus;
pub use mutate::Mutator;
pub use shape::Shape;
pub use target::Target;
