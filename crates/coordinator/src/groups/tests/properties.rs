//! Clients that behave, clients that do not, time and crashes, in random order; and what must hold
//! whatever the order:
//!
//! - INV-C1: a partition has at most one owner per generation, and a generation one leader;
//! - INV-C2: an offset changes by a commit and by nothing else;
//! - INV-C4: once everything is well, every partition gets an owner in bounded time;
//! - the logged state is the fold of the log, compacted or not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use towpath_model::{Generation, Offset, PartitionIndex, Token, TopicId, Uuid};

use super::super::*;
use crate::machine::Machine;

const CLIENTS: usize = 4;
const PARTITIONS: i32 = 5;
const GROUP: &str = "g";

#[derive(Debug, Clone)]
enum Step {
    /// A client does what a good client does next.
    Proceed(usize),
    /// A client is restarted and has forgotten everything.
    Restart(usize),
    /// A client goes and says so.
    Leave(usize),
    /// A client commits, in the generation it believes in.
    Commit(usize, i32, i64),
    /// A client says something else about itself than before.
    Change(usize),
    Wait(u64),
    Crash(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..CLIENTS;
    prop_oneof![
        20 => client.clone().prop_map(Step::Proceed),
        1 => client.clone().prop_map(Step::Restart),
        1 => client.clone().prop_map(Step::Leave),
        3 => (client.clone(), 0..PARTITIONS, 0_i64..1000)
            .prop_map(|(client, partition, offset)| Step::Commit(client, partition, offset)),
        1 => client.prop_map(Step::Change),
        4 => (1_u64..8).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn groups_keep_their_promises(
        delay in 0_u64..3,
        statics in 0..=CLIENTS,
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut world = World::new(Duration::from_secs(delay), statics);
        for step in steps {
            world.take(step);
            world.check();
        }
        world.heal();
        world.check();
    }
}

/// A client's view of its group.
#[derive(Debug, Clone, Default)]
struct Client {
    member_id: Arc<str>,
    instance: Option<Arc<str>>,
    metadata: u8,
    waits_for: Option<Token>,
    stage: Stage,
}

#[derive(Debug, Clone, Default, PartialEq)]
enum Stage {
    #[default]
    Outside,
    /// Joined, not synced: the assignment it must hand in, if it leads.
    Joined(Generation, Vec<(Arc<str>, Arc<[u8]>)>),
    Owner(Generation, Vec<u8>),
}

impl Client {
    fn generation(&self) -> Option<Generation> {
        match self.stage {
            Stage::Outside => None,
            Stage::Joined(generation, _) | Stage::Owner(generation, _) => Some(generation),
        }
    }

    /// Who a member is over time: a static member stays itself under a new id.
    fn identity(&self) -> Arc<str> {
        self.instance.clone().unwrap_or_else(|| self.member_id.clone())
    }
}

struct World {
    machine: Machine<Groups>,
    clients: Vec<Client>,
    suffixes: u8,
    /// Every owner there ever was.
    owners: BTreeMap<(Generation, u8), Arc<str>>,
    /// The leader of every generation that a member was told.
    leaders: BTreeMap<Generation, Arc<str>>,
    offsets: BTreeMap<PartitionIndex, Offset>,
}

impl World {
    fn new(initial_rebalance_delay: Duration, statics: usize) -> World {
        let config = GroupsConfig {
            initial_rebalance_delay,
            offsets_retention: None,
            group_members_max: 2 * CLIENTS,
            ..super::config()
        };
        let machine = Machine::new(move || Groups::new(config.clone()));
        let client = |at| Client {
            instance: (at < statics).then(|| format!("i{at}").into()),
            ..Client::default()
        };
        World {
            machine,
            clients: (0..CLIENTS).map(client).collect(),
            suffixes: 0,
            owners: BTreeMap::new(),
            leaders: BTreeMap::new(),
            offsets: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Proceed(client) => self.proceed(client),
            Step::Restart(client) => {
                let Client { instance, metadata, .. } = self.clients[client].clone();
                self.clients[client] = Client { instance, metadata, ..Client::default() };
            }
            Step::Leave(client) => {
                let Client { member_id, instance, .. } = self.clients[client].clone();
                let leaving = Leaving { member_id, group_instance_id: instance, reason: None };
                let members = vec![leaving];
                self.ask(client, Request::Leave(Leave { group: GROUP.into(), members }));
                self.take(Step::Restart(client));
            }
            Step::Commit(client, partition, offset) => self.commit(client, partition, offset),
            Step::Change(client) => self.clients[client].metadata ^= 1,
            Step::Wait(seconds) => {
                for decision in self.machine.wait(Duration::from_secs(seconds)) {
                    self.hear(decision.replies);
                }
            }
            Step::Crash(compaction) => {
                self.machine.crash(compaction);
                self.clients.iter_mut().for_each(|client| client.waits_for = None);
            }
        }
    }

    fn proceed(&mut self, at: usize) {
        let client = self.clients[at].clone();
        if client.waits_for.is_some() {
            return;
        }
        let group: Arc<str> = GROUP.into();
        let request = match client.stage {
            Stage::Outside => {
                self.suffixes = self.suffixes.wrapping_add(1);
                Request::Join(Join {
                    group,
                    member_id: client.member_id,
                    group_instance_id: client.instance,
                    client_id: format!("c{at}").into(),
                    client_host: "/127.0.0.1".into(),
                    session_timeout: Duration::from_secs(10),
                    rebalance_timeout: Duration::from_secs(20),
                    protocol_type: "consumer".into(),
                    protocols: vec![("range".into(), [client.metadata].into())],
                    requires_known_member_id: at.is_multiple_of(2),
                    supports_skipping_assignment: at.is_multiple_of(2),
                    reason: None,
                    new_member_suffix: Uuid([self.suffixes; 16]),
                })
            }
            Stage::Joined(generation, assignments) => Request::Sync(Sync {
                group,
                generation,
                member_id: client.member_id,
                group_instance_id: client.instance,
                protocol_type: None,
                protocol: None,
                assignments,
            }),
            Stage::Owner(generation, _) => Request::Heartbeat(Heartbeat {
                group,
                generation,
                member_id: client.member_id,
                group_instance_id: client.instance,
            }),
        };
        self.ask(at, request);
    }

    fn commit(&mut self, at: usize, partition: i32, offset: i64) {
        let client = self.clients[at].clone();
        let Some(generation) = client.generation() else { return };
        let request = CommitOffsets {
            group: GROUP.into(),
            member_id: client.member_id.clone(),
            group_instance_id: client.instance.clone(),
            generation: Some(generation),
            retention: None,
            knows_group_id_not_found: true,
            topics: vec![CommitTopic {
                name: "t".into(),
                id: TopicId::ZERO,
                partitions: vec![CommitPartition {
                    partition: PartitionIndex(partition),
                    offset: Offset(offset),
                    leader_epoch: None,
                    metadata: "".into(),
                }],
            }],
        };
        let (_, decision) = self.machine.ask(Request::CommitOffsets(request));
        if let Reply::CommitOffsets(Ok(_)) = decision.replies[0].1 {
            let current = self.machine.state.describe(&GROUP.into()).expect("it has members");
            assert_eq!(generation, current.generation, "a commit of a generation that is over");
            assert!(current.members.iter().any(|member| member.member_id == client.member_id));
            self.offsets.insert(PartitionIndex(partition), Offset(offset));
        }
    }

    fn ask(&mut self, at: usize, request: Request) {
        let (token, decision) = self.machine.ask(request);
        self.clients[at].waits_for = Some(token);
        self.hear(decision.replies);
    }

    fn hear(&mut self, replies: Vec<(Token, Reply)>) {
        for (token, reply) in replies {
            let waiting = self.clients.iter().position(|client| client.waits_for == Some(token));
            // Nobody: the client was restarted in the meantime.
            let Some(at) = waiting else { continue };
            self.clients[at].waits_for = None;
            self.answered(at, reply);
        }
    }

    fn answered(&mut self, at: usize, reply: Reply) {
        let client = &mut self.clients[at];
        match reply {
            Reply::Join(Ok(joined)) => {
                client.member_id = joined.member_id.clone();
                let assignments = if joined.skip_assignment { Vec::new() } else { share(&joined) };
                client.stage = Stage::Joined(joined.generation, assignments);
                self.has_leader(&joined);
            }
            Reply::Join(Err(JoinRefusal { refusal: Refusal::MemberIdRequired, member_id })) => {
                client.member_id = member_id;
            }
            Reply::Sync(Ok(synced)) => {
                let generation = client.generation().expect("it has joined");
                client.stage = Stage::Owner(generation, synced.assignment.to_vec());
                let owner = client.identity();
                for partition in synced.assignment.iter() {
                    let known = self.owners.entry((generation, *partition));
                    assert_eq!(known.or_insert_with(|| owner.clone()), &owner, "INV-C1");
                }
            }
            Reply::Join(Err(JoinRefusal { refusal, .. }))
            | Reply::Sync(Err(refusal))
            | Reply::Heartbeat(Err(refusal)) => {
                client.stage = Stage::Outside;
                let lost = [Refusal::UnknownMemberId, Refusal::FencedInstanceId];
                if lost.contains(&refusal) {
                    client.member_id = "".into();
                }
            }
            _ => {}
        }
    }

    fn has_leader(&mut self, joined: &Joined) {
        // A leader that was told another name than its own (an old client, restarted) is the same.
        let identity = |id: &Arc<str>| {
            let prefix = id.split('-').next().unwrap_or("");
            if prefix.starts_with('i') { prefix.into() } else { id.clone() }
        };
        let leader = identity(&joined.leader);
        let known = self.leaders.entry(joined.generation).or_insert_with(|| leader.clone());
        assert_eq!(known, &leader, "generation {} was begun twice", joined.generation);
    }

    fn check(&self) {
        let request = FetchOffsets { group: GROUP.into(), topics: None, require_stable: false };
        let topics = self.machine.state.fetch_offsets(&request);
        let offsets = topics.iter().flat_map(|topic| &topic.partitions);
        let offsets =
            offsets.map(|p| (p.partition, p.committed.as_ref().expect("it is there").offset));
        assert_eq!(offsets.collect::<BTreeMap<_, _>>(), self.offsets, "INV-C2");
        let logged = |groups: &Groups| groups.logged_state().collect::<Vec<_>>();
        let state = logged(&self.machine.state);
        assert_eq!(logged(&self.machine.replay(false)), state);
        assert_eq!(logged(&self.machine.replay(true)), state);
    }

    /// INV-C4: everyone behaves, and after a while everything is owned.
    fn heal(&mut self) {
        for _ in 0..120 {
            (0..CLIENTS).for_each(|client| self.proceed(client));
            self.take(Step::Wait(1));
        }
        let generations: Vec<_> = self.clients.iter().map(Client::generation).collect();
        let first = generations[0].expect("INV-C4: a client has no generation");
        assert!(generations.iter().all(|generation| *generation == Some(first)), "INV-C4");
        let mut owned: Vec<u8> = Vec::new();
        for client in &self.clients {
            let Stage::Owner(_, partitions) = &client.stage else { panic!("INV-C4: {client:?}") };
            owned.extend(partitions);
        }
        owned.sort_unstable();
        let all: Vec<u8> = (0..PARTITIONS).map(|partition| partition as u8).collect();
        assert_eq!(owned, all, "INV-C4");
    }
}

/// What a leader hands in: every partition to one member.
fn share(joined: &Joined) -> Vec<(Arc<str>, Arc<[u8]>)> {
    let members = &joined.members;
    let partitions = |at: usize| {
        let mine =
            (0..PARTITIONS).filter(move |partition| *partition as usize % members.len() == at);
        mine.map(|partition| partition as u8).collect::<Arc<[u8]>>()
    };
    members.iter().enumerate().map(|(at, m)| (m.member_id.clone(), partitions(at))).collect()
}
