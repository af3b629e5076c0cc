//! Work queues over HTTP: send, receive, and what becomes of what was received.
//!
//! ```text
//! client ─▶ any broker ─▶ its own partitions of the queue
//!                     └── hop: the same request ──▶ other brokers, each for the partitions that it leads
//! ```
//!
//! A file per action reads a request and writes its answer; what they and other front ends share is in
//! `send.rs`, `receive.rs`, `settle.rs`, `look.rs` and `settings.rs`. There is no second API between
//! brokers: who is asked by a hop (`forward.rs`) answers for what it leads, and asks nobody else.

mod advice;
mod carry_away;
mod create_queue;
mod delete_messages;
mod delete_queue;
mod extend_messages;
mod growth;
mod list_queues;
mod look;
mod message;
mod observed;
mod peek_messages;
mod place;
mod purge_queue;
mod read_each;
mod receipt;
mod receive;
mod receive_messages;
mod reject_messages;
mod release_messages;
mod send;
mod send_messages;
mod set_queue;
mod settings;
mod settle;
mod show_queue;
mod show_stats;
mod subscriptions;
mod take_over;
mod verbs;

pub(crate) use carry_away::{carry_away, header, redrives_of};
pub(crate) use create_queue::create;
pub(crate) use growth::grow_queues;
pub(crate) use look::{QueueStats, stats};
pub(crate) use message::{Content, NewQueueMessage, first_identity, id_of};
pub(crate) use observed::worked;
pub(crate) use place::not_asked;
pub(crate) use purge_queue::purge;
pub(crate) use read_each::read_each;
pub(crate) use receive::{Handed, WrittenReceive, receive, short_name};
pub(crate) use send::send;
pub(crate) use set_queue::set_if_unchanged;
pub(crate) use settle::{Named, Settled, Verb, settle};
pub(crate) use subscriptions::names_of;
pub(crate) use take_over::take_over_subscriptions;

use axum::routing::{MethodRouter, delete, get, patch, post, put};

use crate::app::App;

/// Every operation on queues: its method, its path, and who carries it out.
pub(crate) fn routes() -> Vec<(&'static str, &'static str, MethodRouter<App>)> {
    const QUEUE: &str = "/queues/{queue}";
    const SUBSCRIPTION: &str = "/queues/{queue}/subscriptions/{subscription}";
    const TAKE_OVER: &str = "/queues/{queue}/partitions/{partition}/subscriptions";
    vec![
        ("get", "/queues", get(list_queues::handle)),
        ("post", "/queues", post(create_queue::handle)),
        ("get", QUEUE, get(show_queue::handle)),
        ("patch", QUEUE, patch(set_queue::handle)),
        ("delete", QUEUE, delete(delete_queue::handle)),
        ("get", "/queues/{queue}/subscriptions", get(subscriptions::list)),
        ("get", SUBSCRIPTION, get(subscriptions::show)),
        ("put", SUBSCRIPTION, put(subscriptions::put)),
        ("delete", SUBSCRIPTION, delete(subscriptions::delete)),
        ("post", TAKE_OVER, post(take_over::handle)),
        ("post", "/topics/{topic}/produce", post(verbs::produce)),
        ("post", "/topics/{topic}/poll", post(verbs::poll)),
        ("post", "/topics/{topic}/ack", post(verbs::ack)),
        ("post", "/queues/{queue}/purge", post(purge_queue::handle)),
        ("get", "/queues/{queue}/stats", get(show_stats::handle)),
        ("get", "/queues/{queue}/peek", get(peek_messages::handle)),
        ("post", "/queues/{queue}/messages", post(send_messages::handle)),
        ("post", "/queues/{queue}/receive", post(receive_messages::handle)),
        ("post", "/queues/{queue}/delete", post(delete_messages::handle)),
        ("post", "/queues/{queue}/extend", post(extend_messages::handle)),
        ("post", "/queues/{queue}/release", post(release_messages::handle)),
        ("post", "/queues/{queue}/reject", post(reject_messages::handle)),
    ]
}
