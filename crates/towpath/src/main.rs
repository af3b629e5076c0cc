//! The `towpath` program: a server and every tool for it, in one binary.
//!
//! This crate parses words and prints answers. What the tools know of a cluster comes through the
//! `client` crate over the public Kafka protocol, so they work against any Kafka as well; only
//! what that protocol cannot say, such as everything about queues, comes from the broker's HTTP API
//! (`broker_api.rs`).

mod allocator;
mod broker_api;
mod cli;
mod cluster_api;
mod commands;
mod complete;
mod config;
mod confirm;
mod failure;
mod output;
mod queue_api;
mod record_format;
mod record_json;
mod session;
mod suggest;
mod task_api;
mod units;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::Cli;

fn main() -> ExitCode {
    allocator::give_back_soon();
    // When a shell asks for completions, this answers and does not return.
    clap_complete::CompleteEnv::with_factory(Cli::command).complete();
    commands::run(Cli::parse())
}
