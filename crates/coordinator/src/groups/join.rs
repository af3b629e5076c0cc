//! JoinGroup: how a member gets in, and what makes the others join again.

use std::sync::Arc;
use std::time::Duration;

use towpath_model::{Decision, Now, Token, Uuid};

use super::config::{NAME_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT};
use super::draft::Draft;
use super::group::{Group, Phase};
use super::member::Member;
use super::record::Record;
use super::reply::{JoinRefusal, Refusal, Reply};
use super::request::Join;
use super::{GroupDecision, Groups, is_group_id};

impl Groups {
    pub(super) fn join(&self, now: Now, token: Token, request: Join) -> GroupDecision {
        if let Err(refusal) = self.check_join(&request) {
            let member_id = request.member_id;
            return Decision::reply(token, Reply::Join(Err(JoinRefusal { refusal, member_id })));
        }
        let group = self.live.get(&request.group).cloned();
        let group = group.unwrap_or_else(|| Arc::new(Group::empty()));
        let mut draft = Draft::new(&self.config, now, request.group.clone(), group);
        if !draft.has_room_for(&request) {
            draft.turn_away(token, &request.member_id);
        } else if request.member_id.is_empty() {
            draft.join_unknown(token, request);
        } else {
            draft.join_known(token, request);
        }
        self.finish(draft)
    }

    fn check_join(&self, request: &Join) -> Result<(), Refusal> {
        if !is_group_id(&request.group) {
            return Err(Refusal::InvalidGroupId);
        }
        let session = request.session_timeout;
        if session < self.config.session_timeout_min || self.config.session_timeout_max < session {
            return Err(Refusal::InvalidSessionTimeout);
        }
        if !has_short_names(request) {
            return Err(Refusal::InvalidRequest);
        }
        if has_doubled_protocol(request) {
            return Err(Refusal::InconsistentGroupProtocol);
        }
        if !self.exists(&request.group) {
            if !request.member_id.is_empty() {
                return Err(Refusal::UnknownMemberId);
            }
            if self.is_full() {
                return Err(Refusal::TooManyGroups);
            }
        }
        Ok(())
    }
}

/// A generated id adds a hyphen and 36 characters to the client's name, and must be a name too.
fn has_short_names(request: &Join) -> bool {
    let instance = request.group_instance_id.as_deref().unwrap_or("");
    let fixed = [&*request.member_id, &*request.client_host, &*request.protocol_type];
    let prefixes = [instance, &*request.client_id];
    let protocols = request.protocols.iter().map(|(name, _)| name.len());
    fixed.iter().map(|name| name.len()).chain(protocols).all(|bytes| bytes <= NAME_BYTES_MAX)
        && prefixes.iter().all(|name| name.len() + 37 <= NAME_BYTES_MAX)
}

/// Kafka 4.4 falls over a name that comes twice and answers nothing.
fn has_doubled_protocol(request: &Join) -> bool {
    let mut names: Vec<&Arc<str>> = request.protocols.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

impl Draft<'_> {
    /// Whether the group may hold this member: the bounds are on members that wait in a join while
    /// a rebalance gathers them, and on members otherwise.
    fn has_room_for(&self, request: &Join) -> bool {
        let (group, max) = (self.group(), self.config.group_members_max);
        let member = group.members.get(&request.member_id);
        let has_place = match group.phase {
            Phase::Empty => true,
            Phase::Preparing { .. } => {
                member.is_some_and(|m| m.waiting_join.is_some()) || group.joins_waiting() < max
            }
            Phase::Completing | Phase::Stable => member.is_some() || group.members.len() < max,
        };
        let sizes = request.protocols.iter().map(|(name, metadata)| name.len() + metadata.len());
        let others = group.metadata_bytes() - member.map_or(0, |m| m.metadata_bytes());
        has_place && others + sizes.sum::<usize>() <= self.config.group_metadata_bytes_max
    }

    fn turn_away(&mut self, token: Token, member_id: &Arc<str>) {
        if self.group().members.contains_key(member_id) {
            self.remove_member(member_id);
            self.members_left("a member was turned away because the group is full");
        } else if self.group().pending.contains_key(member_id) {
            self.edit().remove(member_id);
            self.complete_if_all_joined();
        }
        self.refuse_join(token, Refusal::GroupMaxSizeReached, &"".into());
    }

    fn join_unknown(&mut self, token: Token, request: Join) {
        if !self.group().fits(&request.protocol_type, &request.protocols) {
            return self.refuse_join(token, Refusal::InconsistentGroupProtocol, &"".into());
        }
        let member_id = new_member_id(&request);
        let Some(instance) = &request.group_instance_id else {
            return match request.requires_known_member_id {
                true => self.hand_out_id(token, member_id, request.session_timeout),
                false => self.add_member(token, member_id, request),
            };
        };
        match self.group().instances.get(instance).cloned() {
            Some(old_id) => self.replace_static_member(token, &old_id, member_id, request),
            None => self.add_member(token, member_id, request),
        }
    }

    /// The first half of a dynamic member's first join (KIP-394): it must show that it received
    /// its id before it counts, so that a client which retries its first join is not two members.
    fn hand_out_id(&mut self, token: Token, member_id: Arc<str>, session_timeout: Duration) {
        if self.config.group_members_max <= self.group().pending.len() {
            return self.refuse_join(token, Refusal::GroupMaxSizeReached, &"".into());
        }
        let until = self.now.time + session_timeout;
        self.edit().pending.insert(member_id.clone(), until);
        self.refuse_join(token, Refusal::MemberIdRequired, &member_id);
    }

    fn join_known(&mut self, token: Token, request: Join) {
        let member_id = request.member_id.clone();
        let group = self.group();
        if !group.fits(&request.protocol_type, &request.protocols) {
            return self.refuse_join(token, Refusal::InconsistentGroupProtocol, &member_id);
        }
        if group.pending.contains_key(&member_id) {
            return match request.group_instance_id {
                None => self.add_member(token, member_id, request),
                // Ids are handed out to dynamic members only.
                Some(_) => self.refuse_join(token, Refusal::UnknownMemberId, &member_id),
            };
        }
        let checked = group.check_member(&member_id, request.group_instance_id.as_deref());
        if let Err(refusal) = checked {
            return self.refuse_join(token, refusal, &member_id);
        }

        let is_unchanged = group.members[&member_id].protocols == request.protocols;
        let repeats = match group.phase {
            Phase::Completing => is_unchanged,
            Phase::Stable => is_unchanged && !group.is_leader(&member_id),
            Phase::Empty | Phase::Preparing { .. } => false,
        };
        if repeats {
            // It did not get the answer to its join, or lost its assignment: the generation is
            // still what it was.
            let joined = self.joined(&member_id);
            self.replies.push((token, Reply::Join(Ok(joined))));
            return;
        }
        let reason = match is_unchanged {
            true => in_words("the leader joined again", &member_id, &request.reason),
            false => in_words("a member changed its metadata", &member_id, &request.reason),
        };
        if group.lets_wait(&member_id) {
            let mut member = Member::clone(&group.members[&member_id]);
            if let Some(older) = member.waiting_join {
                let refusal = Refusal::RebalanceInProgress;
                self.refuse_join(older, refusal, &member_id);
            }
            take_over(&mut member, token, &request);
            return self.put(member_id, member);
        }
        self.update_member(token, &member_id, &request);
        self.rebalance_or_complete(&reason);
    }

    fn add_member(&mut self, token: Token, member_id: Arc<str>, request: Join) {
        let reason = in_words("a member joined", &member_id, &request.reason);
        let session_ends = self.now.time + NEW_MEMBER_JOIN_TIMEOUT;
        let member = Member {
            number: 0,
            group_instance_id: request.group_instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            rebalance_timeout: whole_millis(request.rebalance_timeout),
            session_timeout: whole_millis(request.session_timeout),
            protocols: request.protocols,
            assignment: [].into(),
            session_ends,
            is_new: true,
            waiting_join: Some(token),
            waiting_sync: None,
        };
        if self.group().lets_wait(&member_id) {
            return self.put(member_id, member);
        }
        let group = self.edit();
        if group.members.is_empty() {
            group.protocol_type = Some(request.protocol_type);
        }
        group.insert(member_id, member);
        self.rebalance_or_complete(&reason);
    }

    /// Takes over what the member says now, and lets it wait. If an earlier join of it waits, that
    /// one's connection is most likely gone; it is told to join again.
    fn update_member(&mut self, token: Token, member_id: &Arc<str>, request: &Join) {
        let refusal = Refusal::RebalanceInProgress;
        self.answer_join(member_id, Err(JoinRefusal { refusal, member_id: member_id.clone() }));
        self.edit().change(member_id, |member| take_over(member, token, request));
    }

    /// A static member came back without knowing its id (KIP-345): it gets a new id and takes over
    /// the place, and whoever still uses the old id is fenced. A stable group goes on as it is, if
    /// the member can still do the group's protocol.
    fn replace_static_member(
        &mut self,
        token: Token,
        old_id: &Arc<str>,
        member_id: Arc<str>,
        request: Join,
    ) {
        let refusal = Refusal::FencedInstanceId;
        self.answer_join(old_id, Err(JoinRefusal { refusal, member_id: old_id.clone() }));
        self.answer_sync(old_id, Err(refusal));
        let now = self.now.time;
        let old_leader = self.group().leader.clone();
        let was_leader = self.group().is_leader(old_id);
        let group = self.edit();
        let was_unsynced = group.unsynced.contains(old_id);
        let member = group.remove(old_id).expect("instances map to members");
        group.insert(member_id.clone(), Arc::unwrap_or_clone(member));
        if was_leader {
            group.leader = Some(member_id.clone());
        }
        if was_unsynced {
            group.unsynced.insert(member_id.clone());
        }
        self.update_member(token, &member_id, &request);
        self.edit().change(&member_id, |member| member.renew(now));

        let reason = in_words("a static member came back", &member_id, &request.reason);
        match self.group().phase {
            Phase::Completing => self.prepare_rebalance(&reason),
            Phase::Stable if self.goes_on_as_it_is() => {
                self.edit().subscribed = self.group().find_subscribed();
                self.store();
                let mut joined = self.joined(&member_id);
                if request.supports_skipping_assignment {
                    joined.skip_assignment = was_leader;
                } else {
                    // It must not assign again, and an old client only knows one way to be told:
                    // somebody else leads.
                    joined.leader = old_leader.unwrap_or_else(|| "".into());
                    joined.members = Vec::new();
                }
                self.answer_join(&member_id, Ok(joined));
            }
            Phase::Stable => self.prepare_rebalance(&reason),
            Phase::Empty | Phase::Preparing { .. } => self.complete_if_all_joined(),
        }
    }

    /// Whether a stable group keeps its generation although a member said something new.
    fn goes_on_as_it_is(&self) -> bool {
        let group = self.group();
        group.elect_protocol() == group.protocol && self.fits_record(&group.store())
    }

    /// Logs the group as it is now.
    fn store(&mut self) {
        let value = Some(self.group().store());
        self.records.push(Record::Stored { group: self.id.clone(), value });
    }
}

/// The member is what it says now, and waits.
fn take_over(member: &mut Member, token: Token, request: &Join) {
    member.protocols = request.protocols.clone();
    member.rebalance_timeout = whole_millis(request.rebalance_timeout);
    member.session_timeout = whole_millis(request.session_timeout);
    member.waiting_join = Some(token);
}

/// Client (or instance) and 128 random bits, in the form that Kafka's users know.
fn new_member_id(request: &Join) -> Arc<str> {
    let prefix = request.group_instance_id.as_ref().unwrap_or(&request.client_id);
    let Uuid(bytes) = request.new_member_suffix;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{prefix}-{a}-{b}-{c}-{d}-{e}").into()
}

/// The longest text of a client that is kept as a reason.
const REASON_CHARS_MAX: usize = 255;

/// What happened to whom, and why the client says so.
pub(super) fn in_words(what: &str, member_id: &str, reason: &Option<Arc<str>>) -> String {
    match reason.as_deref().filter(|reason| !reason.is_empty()) {
        None => format!("{what}: {member_id}"),
        Some(reason) => {
            let reason: String = reason.chars().take(REASON_CHARS_MAX).collect();
            format!("{what}: {member_id} ({reason})")
        }
    }
}

/// A time limit as the log can hold it, so that a replay finds the same.
fn whole_millis(limit: Duration) -> Duration {
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    Duration::from_millis(millis.unsigned_abs().into())
}
