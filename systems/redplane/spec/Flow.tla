-------------------------------- MODULE Flow --------------------------------
(* One flow of a linearizable object: switches that take turns, the shard's head, and a network that delays, loses, repeats and
   reorders. The chain of servers is one atomic store here (Chain.tla says why it may be).

   What the flow holds is a counter: every packet adds one and carries the value out, so that a history is linearizable exactly if
   no value leaves twice and none leaves that is not above all those that had left before its packet came in.

   Names of rules are those of systems/redplane/docs/state-protocol.md. Time is relative: Tick ages every message and shortens every lease, so that the
   states are finite without an end of time. A switch's clock and the head's run alike here: the drift margin makes that so. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Switches,   \* the switches that packets of the flow may reach
    Nobody,     \* no switch
    Lease,      \* ticks that a lease lasts
    Window,     \* ticks after which a switch takes no reply any more ("Replays"); the head takes requests of any age, which is more than the code does
    Packets,    \* packets that come in, in all
    Crashes,    \* times that a switch starts anew with nothing
    Takeovers,  \* times that another server becomes the head
    Copies,     \* messages that the network repeats
    Heartbeats, \* whether switches prolong their sessions also when no packet makes them
    InFlight,   \* bound: messages at the same time under way
    Published,  \* TRUE: RedPlane as published: no epochs; sequence numbers alone order what the store records (RedPlane 5.2, 5.3)
    Bugs        \* mistakes made on purpose, to see that the invariants find them

VARIABLES
    store,      \* the flow's record: value, seq, epoch, owner (and its life), session
    sessions,   \* at the head, by switch: number (0: none), life, left (of its lease), newest (age of the newest request)
    numbers,    \* the highest number of a session so far
    switch,     \* by switch: what it knows
    net,        \* messages under way
    begun,      \* by packet: the highest value that had left when it came in
    left,       \* what left: pairs of a packet and its value
    floor,      \* the highest value that anybody outside has seen
    budget      \* faults that may still come

vars == <<store, sessions, numbers, switch, net, begun, left, floor, budget>>

Requests == {"REQUEST", "UPDATE", "RELEASE", "HEARTBEAT"}
Max(a, b) == IF a > b THEN a ELSE b
Older(age) == IF age > Window THEN age ELSE age + 1
Less(time) == IF time = 0 THEN 0 ELSE time - 1

NoEntry == [epoch |-> 0, seq |-> 0, acked |-> 0, value |-> 0, session |-> 0, released |-> FALSE, unknown |-> FALSE, gone |-> 0]

Init ==
    /\ store = [value |-> 0, seq |-> 0, epoch |-> 0, owner |-> Nobody, life |-> 0, session |-> 0]
    /\ sessions = [s \in Switches |-> [number |-> 0, life |-> 0, left |-> 0, newest |-> Window + 1]]
    /\ numbers = 0
    /\ switch = [s \in Switches |-> [life |-> 1, session |-> 0, left |-> 0, entry |-> NoEntry]]
    /\ net = {}
    /\ begun = <<>>
    /\ left = {}
    /\ floor = 0
    /\ budget = [crashes |-> Crashes, takeovers |-> Takeovers, copies |-> Copies]

-----------------------------------------------------------------------------
(* The switch (bpf/redplane/stateplane_flow_*.h) *)

Entry(s) == switch[s].entry

(* "A flow is the switch's while the flow's session is the current one and the session's lease lives." sp_flow_owned *)
\* Code: bpf/redplane/stateplane_flow_session.h sp_flow_owned sp_session_lives
Owns(s) ==
    /\ Entry(s).epoch > 0 /\ ~Entry(s).released
    /\ Entry(s).session > 0 /\ Entry(s).session = switch[s].session
    /\ switch[s].left > 0

Message(s, type) == [type |-> type, switch |-> s, life |-> switch[s].life, age |-> 0]

(* Something of the kind is on its way and not late: it is not sent again yet. (What the network repeats is `Copies`.) *)
Under(s, type) == \E m \in net : m.type = type /\ m.switch = s /\ m.life = switch[s].life /\ m.age <= Window

Update(s, state, packet) ==
    Message(s, "UPDATE") @@ [epoch |-> state.epoch, seq |-> state.seq, value |-> state.value, packet |-> packet]

Release(s, state) ==
    Message(s, "RELEASE") @@ [epoch |-> state.epoch, seq |-> state.seq, value |-> state.value, unknown |-> state.unknown]

(* sp_flow_set: the packet leaves inside the update. *)
Counted(state) == [state EXCEPT !.seq = @ + 1, !.value = @ + 1]

(* A packet comes in (rules of the switch, 1 and 2). *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_get sp_flow_set sp_flow_request
\* Code: bpf/redplane/stateplane_flow_send.h sp_flow_finish sp_flow_park
Arrive(s) ==
    LET packet == Len(begun) + 1 IN
    /\ Len(begun) < Packets
    /\ begun' = Append(begun, floor)
    /\ IF Owns(s)
         THEN LET state == Counted(Entry(s)) IN
              /\ switch' = [switch EXCEPT ![s].entry = state]
              /\ net' = net \cup {Update(s, state, packet)}
              /\ IF "output_before_ack" \in Bugs
                   THEN left' = left \cup {<<packet, state.value>>} /\ floor' = Max(floor, state.value)
                   ELSE UNCHANGED <<left, floor>>
         ELSE /\ net' = net \cup {Message(s, "REQUEST") @@ [packet |-> packet]}
              /\ UNCHANGED <<switch, left, floor>>
    /\ UNCHANGED <<store, sessions, numbers, budget>>

(* A packet that only reads, with nothing in flight: the answer leaves at once. Written down only when somebody learns something. *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_get sp_flow_depend
Read(s) ==
    /\ Owns(s) /\ Entry(s).seq = Entry(s).acked /\ Entry(s).value > floor
    /\ floor' = Entry(s).value
    /\ UNCHANGED <<store, sessions, numbers, switch, net, begun, left, budget>>

(* Rule 5: the generator sends again what is not acknowledged, without a packet; rule 7: a release too. *)
\* Code: bpf/redplane/stateplane_flow_generator.h sp_flow_generate
Resend(s) ==
    LET state == Entry(s) IN
    /\ state.epoch > 0
    /\ \/ /\ ~state.released /\ state.seq > state.acked
          /\ ~Under(s, "UPDATE") /\ "never_sent_again" \notin Bugs
          /\ net' = net \cup {Update(s, state, 0)}
       \/ /\ state.released /\ state.gone = 0
          /\ ~Under(s, "RELEASE") /\ "released_once" \notin Bugs
          /\ net' = net \cup {Release(s, state)}
    /\ UNCHANGED <<store, sessions, numbers, switch, begun, left, floor, budget>>

\* Code: bpf/redplane/stateplane_flow_generator.h sp_flow_heartbeat
Heartbeat(s) ==
    /\ Heartbeats
    /\ switch[s].session > 0
    /\ ~Under(s, "HEARTBEAT")
    /\ net' = net \cup {Message(s, "HEARTBEAT")}
    /\ UNCHANGED <<store, sessions, numbers, switch, begun, left, floor, budget>>

(* Rule 7: unasked, with no update pending. *)
\* Code: bpf/redplane/stateplane_flow_sweep.h sp_flow_is_done sp_flow_claim
GiveBack(s) ==
    LET state == [Entry(s) EXCEPT !.released = TRUE] IN
    /\ ~Published
    /\ Entry(s).epoch > 0 /\ ~Entry(s).released
    /\ Entry(s).seq = Entry(s).acked
    /\ switch' = [switch EXCEPT ![s].entry = state]
    /\ net' = net \cup {Release(s, state)}
    /\ UNCHANGED <<store, sessions, numbers, begun, left, floor, budget>>

(* Rule 7: removed no sooner than two seconds (the window) after the answer to the release. *)
\* Code: bpf/redplane/stateplane_flow_sweep.h sp_flow_claim
Forget(s) ==
    /\ Entry(s).released
    /\ Entry(s).gone > Window + 1 \/ ("forget_early" \in Bugs /\ Entry(s).gone > 0)
    /\ switch' = [switch EXCEPT ![s].entry = NoEntry]
    /\ UNCHANGED <<store, sessions, numbers, net, begun, left, floor, budget>>

\* Code: switch/agent/src/incarnation.rs rest_of_first_tick
Crash(s) ==
    /\ budget.crashes > 0
    /\ budget' = [budget EXCEPT !.crashes = @ - 1]
    /\ switch' = [switch EXCEPT ![s] = [life |-> @.life + 1, session |-> 0, left |-> 0, entry |-> NoEntry]]
    /\ UNCHANGED <<store, sessions, numbers, net, begun, left, floor>>

(* Rule 4 and "Sessions" 1: a lease counts from when the request was sent. *)
\* Code: bpf/redplane/stateplane_flow_session.h sp_session_take
Prolonged(s, m) ==
    LET lease == IF "lease_from_reply" \in Bugs THEN Lease ELSE IF m.age >= Lease THEN 0 ELSE Lease - m.age IN
    IF m.session > switch[s].session THEN [switch[s] EXCEPT !.session = m.session, !.left = lease]
    ELSE IF m.session = switch[s].session THEN [switch[s] EXCEPT !.left = Max(@, lease)]
    ELSE switch[s]

(* Rule 3. *)
\* Code: bpf/redplane/stateplane_flow_apply.h sp_flow_install
Granted(state, m) ==
    IF m.epoch > state.epoch \/ (Published /\ (state.epoch = 0 \/ m.seq > state.seq))
      THEN [NoEntry EXCEPT !.epoch = m.epoch, !.seq = m.seq, !.acked = m.seq, !.value = m.value, !.session = m.session]
    ELSE IF m.epoch = state.epoch /\ ~state.released THEN [state EXCEPT !.session = Max(@, m.session)]
    ELSE state

(* Rules 3, 6 and 7: what a switch does with a reply. The packet of a grant runs through the program again. *)
\* Code: bpf/redplane/stateplane_flow_apply.h sp_flow_apply sp_flow_acknowledge sp_flow_recall sp_flow_forget
\* Code: bpf/redplane/stateplane_flow_receive.h sp_flow_is_replayed sp_flow_let_go
SwitchTakes(s, m) ==
    LET mine == m.life = switch[s].life /\ m.age <= Window
        base == Prolonged(s, m)
        old == base.entry
        state ==
            CASE m.type = "GRANT" -> Granted(old, m)
              [] m.type = "ACK" /\ m.epoch = old.epoch ->
                   [old EXCEPT !.acked = Max(@, IF m.seq > old.seq THEN old.seq ELSE m.seq),
                               !.session = IF old.released THEN @ ELSE Max(@, m.session)]
              [] m.type = "REFUSED" /\ m.epoch = old.epoch ->
                   [old EXCEPT !.released = TRUE, !.acked = old.seq, !.gone = Max(@, 1)]
              [] m.type = "RECALL" /\ m.epoch = old.epoch -> [old EXCEPT !.released = TRUE]
              [] m.type = "RECALL" /\ m.epoch > old.epoch /\ "recall_forgotten" \notin Bugs ->
                   [NoEntry EXCEPT !.epoch = m.epoch, !.released = TRUE, !.unknown = TRUE]
              [] m.type = "RELEASE_ACK" /\ m.epoch = old.epoch /\ old.released -> [old EXCEPT !.gone = Max(@, 1)]
              [] OTHER -> old
        told == [base EXCEPT !.entry = state]
        owns == state.epoch > 0 /\ ~state.released /\ state.session > 0 /\ state.session = told.session /\ told.left > 0
        runs == m.type = "GRANT" /\ m.packet > 0 /\ owns
        again == m.type = "RECALL" /\ m.epoch >= old.epoch
        answer == IF m.epoch > old.epoch THEN [NoEntry EXCEPT !.epoch = m.epoch, !.unknown = TRUE] ELSE state
        after == IF runs THEN [told EXCEPT !.entry = Counted(state)] ELSE told
        sent == IF runs THEN {Update(s, Counted(state), m.packet)}
                ELSE IF again THEN {Release(s, answer)}
                ELSE {}
    IN /\ m.switch = s
       /\ IF mine
            THEN /\ switch' = [switch EXCEPT ![s] = after]
                 /\ IF m.type = "ACK" /\ m.packet > 0
                      THEN /\ left' = left \cup {<<m.packet, m.value>>}
                           /\ floor' = Max(floor, m.value)
                      ELSE UNCHANGED <<left, floor>>
            ELSE UNCHANGED <<switch, left, floor>>
       /\ \E rest \in {net \ {m}, net} :
            /\ rest = net => budget.copies > 0
            /\ budget' = IF rest = net THEN [budget EXCEPT !.copies = @ - 1] ELSE budget
            /\ net' = rest \cup (IF mine THEN sent ELSE {})
       /\ UNCHANGED <<store, sessions, numbers, begun>>

-----------------------------------------------------------------------------
(* The head (systems/redplane/store/src/core) *)

(* A life that began later is heard, an earlier one no more (old_incarnation). *)
\* Code: systems/redplane/store/src/core/request.rs acceptable
Heard(m) == m.life >= sessions[m.switch].life

(* "Sessions" 1 and 3: what the head knows of the sender's session once it has taken the request. A new session's number is `fresh`. *)
\* Code: systems/redplane/store/src/core/request.rs hear begin_session
Session(m) ==
    LET known == sessions[m.switch] IN
    IF known.number = 0 \/ known.life # m.life
      THEN [number |-> numbers + 1, life |-> m.life, left |-> Lease, newest |-> m.age]
    ELSE IF m.age < known.newest THEN [known EXCEPT !.left = Lease, !.newest = m.age]
    ELSE known

Reply(m, type, session) ==
    [type |-> type, switch |-> m.switch, life |-> m.life, age |-> m.age, session |-> session.number]

Owner(m) == store.owner = m.switch /\ store.life = m.life

(* Rule 2 and "Sessions" 4. *)
Alive == /\ store.owner # Nobody
         /\ sessions[store.owner].number = store.session
         /\ sessions[store.owner].life = store.life
         /\ sessions[store.owner].left > 0

(* Rules 2, 3 and 6: a grant, or a recall while the request waits (it stays in the network). *)
\* Code: systems/redplane/store/src/core/request.rs lease_request grant grant_again end_session
\* Code: systems/redplane/store/src/core/recall.rs hold send_recall
TakesRequest(m) ==
    LET session == Session(m)
        epoch == IF Published \/ Owner(m) THEN Max(store.epoch, 1) ELSE store.epoch + 1
        recall == [type |-> "RECALL", switch |-> store.owner, life |-> store.life, session |-> 0, epoch |-> store.epoch,
                   age |-> sessions[store.owner].newest]
        over == [number |-> 0, life |-> store.life, left |-> 0, newest |-> Window + 1]
    IN IF Alive /\ ~Owner(m)
         THEN /\ ~Published
              /\ ~\E r \in net : r.type = "RECALL" /\ r.epoch = store.epoch /\ r.age <= Window
              /\ net' = net \cup (IF "never_recalled" \in Bugs THEN {} ELSE {recall})
              /\ UNCHANGED <<store, sessions, numbers>>
         ELSE /\ store' = [store EXCEPT !.epoch = epoch, !.owner = m.switch, !.life = m.life, !.session = session.number]
              /\ sessions' = [s \in Switches |-> IF s = m.switch THEN session
                                                ELSE IF s = store.owner /\ sessions[s].number = store.session THEN over
                                                ELSE sessions[s]]
              /\ numbers' = Max(numbers, session.number)
              /\ net' = (net \ {m}) \cup {Reply(m, "GRANT", session) @@
                    [epoch |-> epoch, seq |-> store.seq, value |-> store.value, packet |-> m.packet]}

(* Rule 4. *)
\* Code: systems/redplane/store/src/core/request.rs update owned acknowledge
TakesUpdate(m) ==
    LET session == Session(m)
        current == Published \/ "no_epoch" \in Bugs \/ (Owner(m) /\ m.epoch = store.epoch)
        newer == m.seq > store.seq \/ "no_seq" \in Bugs
        \* (As published, read kindly: only the owner's update renews its lease.)
        acked == Reply(m, "ACK", IF Published /\ ~Owner(m) THEN [session EXCEPT !.number = 0] ELSE session) @@
                    [epoch |-> m.epoch, seq |-> Max(m.seq, store.seq), value |-> m.value, packet |-> m.packet]
        refused == Reply(m, "REFUSED", session) @@ [epoch |-> m.epoch]
        written == [store EXCEPT !.value = IF newer THEN m.value ELSE @, !.seq = IF newer THEN m.seq ELSE @,
                                 !.session = IF Owner(m) THEN session.number ELSE @]
    IN /\ store' = IF current THEN written ELSE store
       /\ sessions' = [sessions EXCEPT ![m.switch] = session]
       /\ numbers' = Max(numbers, session.number)
       /\ net' = (net \ {m}) \cup {IF current THEN acked ELSE refused}

(* Rule 7. *)
\* Code: systems/redplane/store/src/core/request.rs release
\* Code: systems/redplane/store/src/core/recall.rs end_recall
TakesRelease(m) ==
    LET session == Session(m)
        current == Owner(m) /\ m.epoch = store.epoch
        records == ~m.unknown /\ m.seq > store.seq
        never == m.epoch > store.epoch
    IN /\ store' = IF current
                     THEN [store EXCEPT !.owner = Nobody, !.value = IF records THEN m.value ELSE @,
                                        !.seq = IF records THEN m.seq ELSE @]
                     ELSE store
       /\ sessions' = [sessions EXCEPT ![m.switch] = session]
       /\ numbers' = Max(numbers, session.number)
       /\ net' = (net \ {m}) \cup (IF never THEN {} ELSE {Reply(m, "RELEASE_ACK", session) @@ [epoch |-> m.epoch]})

\* Code: systems/redplane/store/src/core/request.rs heartbeat
TakesHeartbeat(m) ==
    LET known == sessions[m.switch]
        session == Session(m)
    IN /\ sessions' = [sessions EXCEPT ![m.switch] = session]
       /\ numbers' = Max(numbers, session.number)
       /\ net' = (net \ {m}) \cup (IF m.age < known.newest \/ session # known
                                     THEN {Reply(m, "HEARTBEAT_ACK", session) @@ [epoch |-> 0]} ELSE {})
       /\ UNCHANGED store

\* Code: systems/redplane/store/src/core/request.rs request acceptable
StoreTakes(m) ==
    /\ \/ ~Heard(m) /\ net' = net \ {m} /\ UNCHANGED <<store, sessions, numbers>>
       \/ Heard(m) /\ m.type = "REQUEST" /\ TakesRequest(m)
       \/ Heard(m) /\ m.type = "UPDATE" /\ TakesUpdate(m)
       \/ Heard(m) /\ m.type = "RELEASE" /\ TakesRelease(m)
       \/ Heard(m) /\ m.type = "HEARTBEAT" /\ TakesHeartbeat(m)
    /\ UNCHANGED <<switch, begun, left, floor, budget>>

(* A new head has every answered entry; what leases the old one prolonged it does not know ("Sessions" 2). *)
\* Code: systems/redplane/store/src/core/mod.rs adopt take_over
\* Code: core/chain/src/view.rs adopt_as_member
Takeover ==
    /\ budget.takeovers > 0
    /\ budget' = [budget EXCEPT !.takeovers = @ - 1]
    /\ sessions' = [s \in Switches |->
         [sessions[s] EXCEPT !.left = IF sessions[s].number > 0 /\ "forget_leases" \notin Bugs THEN Lease ELSE 0,
                             !.newest = Window + 1]]
    \* The mistake: what was answered was not on all of the chain (Chain.tla, Answered), and the new head has not got the newest update.
    /\ store' = IF "answered_early" \in Bugs THEN [store EXCEPT !.seq = Less(@), !.value = Less(@)] ELSE store
    /\ UNCHANGED <<numbers, switch, net, begun, left, floor>>

-----------------------------------------------------------------------------
(* Time and the network *)

\* Code: none: time
Tick ==
    \* (A late reply does nothing any more, so it is gone; a late request may do something.)
    /\ net' = {[m EXCEPT !.age = Older(@)] : m \in {m \in net : m.age < Window \/ m.type \in Requests}}
    /\ sessions' = [s \in Switches |-> [sessions[s] EXCEPT !.left = IF "lease_never_ends" \in Bugs THEN @ ELSE Less(@),
                                                         !.newest = Older(@)]]
    /\ switch' = [s \in Switches |-> [switch[s] EXCEPT !.left = Less(@),
                    !.entry.gone = IF @ = 0 \/ @ > Window + 1 THEN @ ELSE @ + 1]]
    /\ <<net', sessions', switch'>> # <<net, sessions, switch>>
    /\ UNCHANGED <<store, numbers, begun, left, floor, budget>>

(* That a message is lost is that it is never taken; a late one is gone some time. *)
\* Code: none: the network
Lose(m) == m.age > Window /\ net' = net \ {m} /\ UNCHANGED <<store, sessions, numbers, switch, begun, left, floor, budget>>

Next ==
    \/ Tick
    \/ Takeover
    \/ \E s \in Switches : Arrive(s) \/ Read(s) \/ Resend(s) \/ Heartbeat(s) \/ GiveBack(s) \/ Forget(s) \/ Crash(s)
    \/ \E m \in net : Lose(m) \/ (m.type \in Requests /\ StoreTakes(m))
    \/ \E m \in net : \E s \in Switches : m.type \notin Requests /\ SwitchTakes(s, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold *)

OneOwner == \A a, b \in Switches : Owns(a) /\ Owns(b) => a = b

(* Definition 4 for the counter: no value leaves twice, and none that is not above what was seen when its packet came in. *)
Distinct == \A a, b \in left : a[2] = b[2] => a[1] = b[1]
Ordered == \A a \in left : a[2] > begun[a[1]]

(* Who would answer a read at once must not answer less than what was seen. *)
Fresh == \A s \in Switches : Owns(s) /\ Entry(s).seq = Entry(s).acked => Entry(s).value >= floor

(* What left is recorded. *)
Durable == floor <= store.value

Bound == Cardinality(net) <= InFlight
Symmetry == Permutations(Switches)
=============================================================================
