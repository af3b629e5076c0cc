//! All profiles, by name.

pub mod broker;
pub mod cluster;
pub mod compaction;
pub mod controller;
pub mod groups;
pub mod journal;
pub mod log;
pub mod replicas;
pub mod retention;
pub mod rot;
pub mod volumes;

use crate::profile::Profile;

/// Every profile, in the order in which a campaign runs them.
#[must_use]
pub fn all() -> &'static [&'static dyn Profile] {
    &[
        &journal::Journal,
        &log::Log,
        &log::LogCalls,
        &rot::Rot,
        &compaction::Compaction,
        &replicas::Replicas,
        &broker::Broker,
        &groups::Groups,
        &retention::Retention,
        &volumes::Volumes,
        &controller::Controller,
        &cluster::Cluster,
        &cluster::Queue,
    ]
}

/// The profile with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Profile> {
    all().iter().copied().find(|profile| profile.name() == name)
}
