//! Consensus from outside: whole clusters from a seed, on disks and networks that fail, and messages
//! that no correct member sends.

mod checker;
mod cluster;
mod disk;
mod hostile;
mod rng;
mod scenarios;
mod seeds;
mod starts;
mod toy;
