------------------------------ MODULE Batches ------------------------------
(* Output commit in batches: packets wait in the switch until the records that they depend on are
   on all of the chain. Rules are those of docs/output-commit.md and of
   systems/redplane/docs/state-protocol.md ("Batches", "Rules of the store" 11, "Rules of the
   switch" 2). Flow.tla has owners and leases, Chain.tla has views; both are kept short here.

   A flow's value is its history: the epochs of its updates, oldest first. So seq is its length, an
   update is named by the history that it ends, and a switch whose update was lost and one that
   was granted the flow since have different histories. All that left is right if all of it lies on
   one history, in order. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Switches,   \* the first one owns all flows at the start
    First,
    Cpus,       \* of a switch: each has a stream
    Flows,
    Nobody,     \* no switch, no CPU
    Packets,    \* packets that write or wait, in all
    Grants,     \* the highest epoch
    Recalls,    \* whether flows are released, or change hands only when sessions end
    Deaths,     \* of the two members of the chain
    Fast,       \* whether members also take updates without a number, by (epoch, seq) alone
    Again,      \* effects without an update that bring a record as the head has it (grant_again)
    Kept,       \* whether messages stay in the network: late, repeated, lost by never being taken
    Losses,     \* messages that are lost if they do not stay
    Bugs        \* mistakes made on purpose

VARIABLES
    entry,      \* by switch and flow: the flow's entry
    stream,     \* by switch and CPU: numbers, batches, packets that wait
    run,        \* by switch and CPU: the packet that the CPU is processing, between two locks
    record,     \* by member and flow; `gone`: the update with which its head saw it released last
    over,       \* by flow: epochs up to here ended with their session, not by a release
    chain,      \* the living members, head first
    link,       \* numbered effects from the head to the tail, with their answers
    net,        \* messages under way
    seen,       \* by flow: the newest value that left a switch
    wrong,      \* what a packet did wrong as it left
    budget

vars == <<entry, stream, run, record, over, chain, link, net, seen, wrong, budget>>
switches == <<entry, stream, run>>
outside == <<seen, wrong>>

Members == {1, 2}
Leader == chain[1]
Final == chain[Len(chain)]
Rest(list) == SubSeq(list, 2, Len(list))
Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a

(* The name of an update: the CPU, its batch, its record there. Record 0: not yet in a batch. *)
NoName == [cpu |-> Nobody, number |-> 0, at |-> 0]
Name(c, number, at) == [cpu |-> c, number |-> number, at |-> at]
Unplaced(c, val) == Name(c, Len(val), 0)
Placed(name) == name.at > 0

NoUpdate == [epoch |-> 0, val |-> <<>>]
NoEntry == [epoch |-> 0, val |-> <<>>, released |-> TRUE, name |-> NoName]
Granted(epoch, val) == [epoch |-> epoch, val |-> val, released |-> FALSE, name |-> NoName]
Idle == [step |-> "idle"]
NoStream == [departed |-> 0, acked |-> 0, open |-> <<>>, flying |-> <<>>,
             waiting |-> <<>>, ready |-> <<>>, clear |-> 0, refused |-> 0, bits |-> {}, denied |-> {}]

Init ==
    /\ entry = [s \in Switches |-> [f \in Flows |->
         IF s = First THEN Granted(1, <<>>) ELSE NoEntry]]
    /\ stream = [s \in Switches |-> [c \in Cpus |-> NoStream]]
    /\ run = [s \in Switches |-> [c \in Cpus |-> Idle]]
    /\ record = [m \in Members |-> [f \in Flows |-> [
         epoch |-> 1, owner |-> First, val |-> <<>>, gone |-> NoUpdate]]]
    /\ over = [f \in Flows |-> 0]
    /\ chain = <<1, 2>>
    /\ link = <<>>
    /\ net = {}
    /\ seen = [f \in Flows |-> <<>>]
    /\ wrong = {}
    /\ budget = [packets |-> Packets, deaths |-> Deaths, again |-> Again, losses |-> Losses]

-----------------------------------------------------------------------------
(* What is seen outside *)

(* A packet leaves. `denied`: its record is one that an acknowledgement refused. *)
Out(p, denied) ==
    /\ seen' = [seen EXCEPT ![p.flow] = IF Len(p.val) > Len(@) THEN p.val ELSE @]
    /\ wrong' = wrong
        \cup (IF \A i \in 1..Len(chain) : Prefix(p.val, record[chain[i]][p.flow].val) THEN {}
              ELSE {"early"})
        \cup (IF Prefix(p.val, seen[p.flow]) \/ Prefix(seen[p.flow], p.val) THEN {} ELSE {"forked"})
        \cup (IF Len(p.val) >= p.begun + (IF p.write THEN 1 ELSE 0) THEN {} ELSE {"stale"})
        \cup (IF denied THEN {"refused"} ELSE {})

-----------------------------------------------------------------------------
(* The switch: packets *)

Busy(s, c) == run[s][c].step # "idle"

(* The lease lives, and the flow was not released. *)
\* Code: bpf/redplane/stateplane_flow_session.h sp_flow_owned
Owned(s, f) == entry[s][f].epoch > over[f] /\ ~entry[s][f].released

(* Of the last batch with refused records, as the stream knows it. *)
\* Code: bpf/core/stateplane_commit_record.h sp_commit_is_refused
IsRefused(st, name) == st.refused = name.number /\ name.at \in st.bits

Done(st) == IF "durable_when_sent" \in Bugs THEN st.departed ELSE st.acked

\* Code: bpf/core/stateplane_commit_record.h sp_commit_is_durable
IsDurable(s, name) ==
    /\ Placed(name)
    /\ Done(stream[s][name.cpu]) >= name.number
    /\ ~IsRefused(stream[s][name.cpu], name)

(* Packets of this CPU that waited for the batch are still here: none of those up to `clear` is. *)
\* Code: bpf/core/stateplane_commit_record.h sp_commit_lines_up
LinesUp(s, c, name) ==
    /\ name.cpu = c /\ name.number > stream[s][c].clear
    /\ stream[s][c].ready # <<>> /\ "no_line" \notin Bugs

\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_waits
Waits(s, c, e) == e.name # NoName /\ (~IsDurable(s, e.name) \/ LinesUp(s, c, e.name))

Begun(s, c, f, write) ==
    /\ budget.packets > 0 /\ ~Busy(s, c) /\ Owned(s, f)
    /\ budget' = [budget EXCEPT !.packets = @ - 1]

Packet(f, e, write) == [flow |-> f, val |-> e.val, write |-> write, begun |-> Len(seen[f])]

(* A packet writes: the entry changes under its lock; the record comes next. *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_get sp_flow_set
Write(s, c, f) ==
    LET old == entry[s][f]
        val == Append(old.val, old.epoch)
        e == [old EXCEPT !.val = val, !.name = Unplaced(c, val)]
    IN /\ Begun(s, c, f, TRUE)
       /\ entry' = [entry EXCEPT ![s][f] = e]
       /\ run' = [run EXCEPT ![s][c] = Packet(f, e, TRUE) @@
            [step |-> "record", epoch |-> e.epoch, name |-> e.name, before |-> old.name]]
       /\ UNCHANGED <<stream, record, over, chain, link, net, seen, wrong>>

(* A packet reads what is not durable, or lines up. *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_get sp_flow_depend
Read(s, c, f) ==
    LET e == entry[s][f]
        own == e.name.cpu = c /\ Placed(e.name)
    IN /\ Begun(s, c, f, FALSE) /\ Waits(s, c, e)
       /\ run' = [run EXCEPT ![s][c] = Packet(f, e, FALSE) @@
            [step |-> IF own \/ "waits_for_others_number" \in Bugs THEN "park" ELSE "again",
             epoch |-> e.epoch, name |-> e.name, before |-> NoName]]
       /\ UNCHANGED <<entry, stream, record, over, chain, link, net, seen, wrong>>

(* A packet reads what is durable and leaves at once. Written down only when somebody learns
   something; Fresh says that the others do not learn less than what was seen. *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_get
Show(s, c, f) ==
    LET e == entry[s][f]
        old == stream[s][c].waiting \o stream[s][c].ready
        overtakes == e.name.cpu = c /\ \E i \in 1..Len(old) :
            old[i].flow = f /\ Prefix(old[i].val, e.val)
        ahead == Len(e.val) > Len(seen[f])
        denied == IF e.name = NoName THEN {} ELSE stream[s][e.name.cpu].denied
    IN /\ ~Busy(s, c) /\ Owned(s, f) /\ ~Waits(s, c, e)
       /\ ahead \/ overtakes
       /\ seen' = [seen EXCEPT ![f] = IF ahead THEN e.val ELSE @]
       /\ wrong' = wrong
            \cup (IF \A i \in 1..Len(chain) : Prefix(e.val, record[chain[i]][f].val) THEN {}
                  ELSE {"early"})
            \cup (IF Prefix(e.val, seen[f]) \/ Prefix(seen[f], e.val) THEN {} ELSE {"forked"})
            \cup (IF overtakes THEN {"overtook"} ELSE {})
            \cup (IF <<e.name.number, e.name.at>> \in denied THEN {"refused"}
                  ELSE {})
       /\ UNCHANGED <<switches, record, over, chain, link, net, budget>>

(* The record is appended under the stream's lock, or written over the flow's one in the open batch;
   the entry learns the name, unless another CPU has written since. *)
\* Code: bpf/redplane/stateplane_flow_record.h sp_flow_record
\* Code: bpf/core/stateplane_commit_record.h sp_commit_put sp_commit_end
Record(s, c) ==
    LET p == run[s][c]
        st == stream[s][c]
        r == [flow |-> p.flow, epoch |-> p.epoch, val |-> p.val]
        before == p.before
        mine == before.cpu = c /\ Placed(before)
        inOpen == mine /\ before.number = st.departed + 1
        inFlight == mine /\ before.number = st.departed /\ st.acked < st.departed
                    /\ "changed_in_flight" \in Bugs
        name == IF inOpen \/ inFlight THEN before
                ELSE Name(c, st.departed + 1, Len(st.open) + 1)
    IN /\ p.step = "record"
       /\ stream' = [stream EXCEPT
            ![s][c].open = IF inOpen THEN [@ EXCEPT ![before.at] = r]
                           ELSE IF inFlight THEN @ ELSE Append(@, r),
            ![s][c].flying = IF inFlight THEN [@ EXCEPT ![before.at] = r] ELSE @]
       /\ entry' = [entry EXCEPT ![s][p.flow].name = IF @ = Unplaced(c, p.val) THEN name ELSE @]
       /\ run' = [run EXCEPT ![s][c] = [p EXCEPT !.step = "park", !.name = name, !.before = NoName]]
       /\ UNCHANGED <<record, over, chain, link, net, seen, wrong, budget>>

(* The update is another CPU's: the record is copied as it stands by now. If the flow is no longer
   this switch's, the packet is dropped. *)
\* Code: bpf/redplane/stateplane_flow_commit.h sp_flow_record_again
CopyAgain(s, c) ==
    LET p == run[s][c]
        e == entry[s][p.flow]
        same == e.epoch = p.epoch /\ ~e.released /\ Len(e.val) >= Len(p.val)
    IN /\ p.step = "again"
       /\ run' = [run EXCEPT ![s][c] = IF same THEN [p EXCEPT !.step = "place"] @@ [copy |-> e.val]
                                      ELSE Idle]
       /\ UNCHANGED <<entry, stream, record, over, chain, link, net, seen, wrong, budget>>

(* This CPU's batch gets the copy, and the entry names it, if nobody has written since: its next
   packets wait for this record. *)
\* Code: bpf/redplane/stateplane_flow_commit.h sp_flow_record_again
RecordAgain(s, c) ==
    LET p == run[s][c]
        e == entry[s][p.flow]
        st == stream[s][c]
        r == [flow |-> p.flow, epoch |-> p.epoch, val |-> p.copy]
        name == Name(c, st.departed + 1, Len(st.open) + 1)
        still == e.name = p.name
            /\ ((e.val = p.copy /\ e.epoch = p.epoch) \/ "blind_takeover" \in Bugs)
        parks == [step |-> "park", flow |-> p.flow, val |-> p.val, write |-> FALSE,
                  begun |-> p.begun, epoch |-> p.epoch, name |-> name, before |-> NoName]
    IN /\ p.step = "place"
       /\ stream' = [stream EXCEPT ![s][c].open = Append(@, r)]
       /\ entry' = [entry EXCEPT ![s][p.flow].name = IF still THEN name ELSE @]
       /\ run' = [run EXCEPT ![s][c] = parks]
       /\ UNCHANGED <<record, over, chain, link, net, seen, wrong, budget>>

(* The finished packet goes into a slot: it waits for its batch, or is ready if that is durable. *)
\* Code: bpf/core/stateplane_commit_record.h sp_commit_park
Park(s, c) ==
    LET p == run[s][c]
        st == stream[s][c]
        slot == [flow |-> p.flow, val |-> p.val, write |-> p.write, begun |-> p.begun,
                 number |-> p.name.number, at |-> p.name.at,
                 refused |-> IsRefused(st, p.name) /\ "refused_ignored" \notin Bugs]
        clear == IF st.clear < p.name.number \/ "late_is_clear" \in Bugs THEN st.clear
                 ELSE p.name.number - 1
    IN /\ p.step = "park"
       /\ stream' = IF p.name.number <= Done(st)
                      THEN [stream EXCEPT ![s][c].ready = Append(@, slot), ![s][c].clear = clear]
                      ELSE [stream EXCEPT ![s][c].waiting = Append(@, slot)]
       /\ run' = [run EXCEPT ![s][c] = Idle]
       /\ UNCHANGED <<entry, record, over, chain, link, net, seen, wrong, budget>>

(* A free frame of any CPU carries out the oldest ready packet of this one. *)
\* Code: bpf/core/stateplane_commit_release.h sp_commit_carry
Carry(s, c) ==
    LET slot == stream[s][c].ready[1] IN
    /\ stream[s][c].ready # <<>>
    /\ stream' = [stream EXCEPT ![s][c].ready = Rest(@)]
    /\ IF slot.refused THEN UNCHANGED outside
       ELSE Out(slot, <<slot.number, slot.at>> \in stream[s][c].denied)
    /\ UNCHANGED <<entry, run, record, over, chain, link, net, budget>>

-----------------------------------------------------------------------------
(* The switch: batches *)

Batch(s, c, number, records) ==
    [type |-> "BATCH", switch |-> s, cpu |-> c, number |-> number, records |-> records]

Matters(messages) == ~(messages \subseteq net)

(* The open batch leaves, if none is in flight. *)
\* Code: bpf/core/stateplane_commit_release.h sp_commit_depart_locked sp_commit_choose
\* Code: bpf/redplane/stateplane_flow_commit.h sp_batch
Depart(s, c) ==
    LET st == stream[s][c]
        most == IF "two_in_flight" \in Bugs THEN 1 ELSE 0
        number == st.departed + 1
        sent == "durable_when_sent" \in Bugs
        Leaves(slot) == slot.number <= number
    IN /\ st.open # <<>> /\ st.departed - st.acked <= most
       /\ stream' = [stream EXCEPT ![s][c] = [@ EXCEPT
            !.departed = number, !.flying = st.open, !.open = <<>>,
            !.ready = IF sent THEN @ \o SelectSeq(st.waiting, Leaves) ELSE @,
            !.waiting = IF sent THEN <<>> ELSE @]]
       /\ net' = net \cup {Batch(s, c, number, st.open)}
       /\ UNCHANGED <<entry, run, record, over, chain, link, seen, wrong, budget>>

(* What is in flight is sent again as it is. *)
\* Code: bpf/redplane/stateplane_flow_commit.h sp_flow_look_after
Resend(s, c) ==
    LET st == stream[s][c]
        m == Batch(s, c, st.departed, st.flying)
    IN /\ st.departed > st.acked /\ Matters({m}) /\ "never_sent_again" \notin Bugs
       /\ net' = net \cup {m}
       /\ UNCHANGED <<switches, record, over, chain, link, seen, wrong, budget>>

(* A frame chose batch n and stood still until n was durable and n + 1 had left: what it copies now
   are the words of n + 2 over those of n. *)
\* Code: none: a CPU that stands still for a round trip, between sp_commit_choose and sp_batch
SlowSend(s, c) ==
    LET st == stream[s][c] IN
    /\ "slow_sender" \in Bugs
    /\ \E m \in net :
        /\ m.type = "BATCH" /\ m.switch = s /\ m.cpu = c /\ m.number = st.departed - 1
        /\ net' = net \cup {[m EXCEPT !.records = [i \in 1..Len(m.records) |->
             IF i <= Len(st.open) THEN st.open[i] ELSE m.records[i]]]}
    /\ UNCHANGED <<switches, record, over, chain, link, seen, wrong, budget>>

After(m) == IF Kept THEN net ELSE net \ {m}

(* No CPU stands still in the middle of a packet while its stream goes on by two batches: the stream
   remembers refusals of one. *)
Prompt(s, c) ==
    IF run[s][c].step = "park" /\ "stands_still" \notin Bugs
      THEN run[s][c].name.number > stream[s][c].acked
      ELSE TRUE

(* The batch in flight is durable: what it refused is marked, its packets are ready. Any CPU may
   take the answer. *)
\* Code: bpf/redplane/stateplane_flow_commit.h sp_batch_ack sp_flow_refuse_one
\* Code: bpf/core/stateplane_commit_release.h sp_commit_refuse sp_commit_acked sp_commit_release
\* Code: bpf/redplane/stateplane_flow_apply.h sp_flow_forget
TakeAck(m) ==
    LET s == m.switch
        c == m.cpu
        st == stream[s][c]
        two == "two_in_flight" \in Bugs
        any == "any_ack" \in Bugs
        number == IF any THEN st.departed ELSE m.number
        bits == IF "refused_ignored" \in Bugs THEN {} ELSE m.refused
        Now(slot) == slot.number <= number
        Later(slot) == slot.number > number
        ready == SelectSeq(st.waiting, Now)
        marked == [i \in 1..Len(ready) |-> [ready[i] EXCEPT !.refused = @ \/ ready[i].at \in bits]]
        Hit(f) == \E i \in bits \cap 1..Len(st.flying) :
            st.flying[i].flow = f /\ st.flying[i].epoch = entry[s][f].epoch
    IN /\ m.type = "ACK" /\ Prompt(s, c)
       /\ st.acked < st.departed
       /\ number = st.departed \/ (two /\ number > st.acked)
       /\ stream' = [stream EXCEPT ![s][c] = [@ EXCEPT
            !.clear = IF st.ready # <<>> THEN @ ELSE IF ready = <<>> THEN number ELSE number - 1,
            !.acked = number, !.ready = @ \o marked, !.waiting = SelectSeq(@, Later),
            !.flying = IF number = st.departed THEN <<>> ELSE @,
            !.refused = IF bits = {} THEN @ ELSE number, !.bits = IF bits = {} THEN @ ELSE bits,
            !.denied = @ \cup {<<m.number, i>> : i \in m.refused}]]
       /\ entry' = [entry EXCEPT ![s] = [f \in Flows |->
            IF Hit(f) THEN [entry[s][f] EXCEPT !.released = TRUE] ELSE entry[s][f]]]
       /\ net' = After(m)
       /\ UNCHANGED <<run, record, over, chain, link, seen, wrong, budget>>

(* A late or repeated one is dropped. *)
\* Code: bpf/core/stateplane_commit_release.h sp_commit_acked
DropAck(m) ==
    LET st == stream[m.switch][m.cpu] IN
    /\ m.type = "ACK" /\ ~Kept /\ (m.number # st.departed \/ st.acked = st.departed)
    /\ net' = After(m)
    /\ UNCHANGED <<switches, record, over, chain, link, seen, wrong, budget>>

-----------------------------------------------------------------------------
(* The switch: flows come and go *)

(* Recalled, or given back: the entry is marked, its newest value goes to the store. *)
\* Code: bpf/redplane/stateplane_flow_apply.h sp_flow_recall
\* Code: bpf/redplane/stateplane_flow_sweep.h sp_flow_claim
Release(s, f) ==
    LET e == entry[s][f] IN
    /\ Recalls /\ Grants > 1 /\ e.epoch > 0 /\ ~e.released
    /\ entry' = [entry EXCEPT ![s][f].released = TRUE]
    /\ net' = net \cup {[type |-> "RELEASE", switch |-> s, flow |-> f, epoch |-> e.epoch,
                         val |-> e.val]}
    /\ UNCHANGED <<stream, run, record, over, chain, link, seen, wrong, budget>>

\* Code: bpf/redplane/stateplane_flow_apply.h sp_flow_install
TakeGrant(m) ==
    /\ m.type = "GRANT"
    /\ m.epoch > entry[m.switch][m.flow].epoch \/ ~Kept
    /\ entry' = IF m.epoch > entry[m.switch][m.flow].epoch
                  THEN [entry EXCEPT ![m.switch][m.flow] = Granted(m.epoch, m.val)] ELSE entry
    /\ net' = After(m)
    /\ UNCHANGED <<stream, run, record, over, chain, link, seen, wrong, budget>>

-----------------------------------------------------------------------------
(* The store: effects with numbers *)

(* A record as an effect has it. Two updates under one grant may come in any order. *)
\* Code: systems/redplane/store/src/core/batch.rs write_batch
Applied(known, w) ==
    LET back == w.epoch = known.epoch /\ Len(w.val) < Len(known.val) IN
    [epoch |-> w.epoch, owner |-> w.owner, gone |-> known.gone,
     val |-> IF (back /\ "effect_goes_back" \notin Bugs) \/ w.bare THEN known.val ELSE w.val]

Wrote(records, writes) == [f \in Flows |->
    IF \E w \in writes : w.flow = f THEN Applied(records[f], CHOOSE w \in writes : w.flow = f)
    ELSE records[f]]

Whole(f, k) == [flow |-> f, epoch |-> k.epoch, owner |-> k.owner, val |-> k.val, bare |-> FALSE]

(* The head decides, the tail answers. What the head alone notes is in `noted`. *)
\* Code: core/chain/src/replica.rs order
OrderAndNote(m, writes, answer, noted) ==
    /\ Len(link) < 2
    /\ record' = [record EXCEPT ![Leader] = [f \in Flows |->
         [Wrote(@, {[w EXCEPT !.bare = FALSE] : w \in writes})[f] EXCEPT
            !.gone = IF f \in DOMAIN noted THEN noted[f] ELSE @]]]
    /\ IF Len(chain) = 1 THEN net' = After(m) \cup answer /\ UNCHANGED link
       ELSE /\ link' = Append(link, [writes |-> writes, answer |-> answer])
            /\ net' = After(m) \cup (IF "head_answers" \in Bugs THEN answer ELSE {})

Order(m, writes, answer) == OrderAndNote(m, writes, answer, <<>>)

(* The update came with the release of its epoch, whoever has the flow by now. *)
Came(r, gone) ==
    (r.epoch = gone.epoch \/ "any_release" \in Bugs) /\ Len(r.val) <= Len(gone.val)

Verdict(r, s, k) ==
    IF "no_epoch" \in Bugs /\ Len(r.val) > Len(k.val) THEN "new"
    ELSE IF r.epoch # k.epoch /\ Came(r, k.gone) THEN "released"
    ELSE IF r.epoch # k.epoch \/ k.owner \notin {s, Nobody} THEN "refused"
    ELSE IF Len(r.val) <= Len(k.val) THEN IF k.owner = s THEN "known" ELSE "released"
    ELSE IF k.owner = s THEN "new" ELSE "refused"

(* Rule 11. Of two records of a flow the one with the greater seq stays. Beside fast updates the
   effect also has what the head alone may know. *)
\* Code: systems/redplane/store/src/core/batch.rs batch judge verdict gather
TakeBatch(m) ==
    LET s == m.switch
        known == record[Leader]
        of == [i \in 1..Len(m.records) |-> Verdict(m.records[i], s, known[m.records[i].flow])]
        refused == {i \in 1..Len(of) : of[i] = "refused"}
        new == {i \in 1..Len(of) : of[i] = "new"}
        Newest(f) == CHOOSE i \in new : m.records[i].flow = f /\ \A j \in new :
            m.records[j].flow = f => Len(m.records[j].val) <= Len(m.records[i].val)
        written == {m.records[i].flow : i \in new}
        bare == {m.records[i].flow : i \in {i \in 1..Len(of) : of[i] = "known"}} \ written
        writes == {Whole(f, [epoch |-> m.records[Newest(f)].epoch, owner |-> s,
                             val |-> m.records[Newest(f)].val]) : f \in written}
                  \cup (IF Fast /\ "known_left_out" \notin Bugs
                          THEN {Whole(f, known[f]) : f \in bare} ELSE {})
        answer == [type |-> "ACK", switch |-> s, cpu |-> m.cpu, number |-> m.number,
                   refused |-> refused]
        underWay == answer \in net \/ \E i \in 1..Len(link) : answer \in link[i].answer
    IN /\ m.type = "BATCH"
       /\ IF underWay /\ new = {}
            THEN ~Kept /\ net' = After(m) /\ UNCHANGED <<record, link>>
            ELSE Order(m, writes, {answer})
       /\ UNCHANGED <<switches, over, chain, seen, wrong, budget>>

(* Rules 2 and 3: to anyone once nobody owns it, or once the owner's session is over. *)
\* Code: systems/redplane/store/src/core/request.rs lease_request grant end_session
Grant(s, f) ==
    LET k == record[Leader][f]
        next == [epoch |-> k.epoch + 1, owner |-> s, val |-> k.val]
        m == [type |-> "GRANT", switch |-> s, flow |-> f, epoch |-> next.epoch, val |-> k.val]
    IN /\ k.epoch < Grants /\ s # k.owner
       /\ over' = IF k.owner = Nobody THEN over ELSE [over EXCEPT ![f] = k.epoch]
       /\ Order(m, {[Whole(f, next) EXCEPT !.bare = "bare_grant" \in Bugs]}, {m})
       /\ UNCHANGED <<switches, chain, seen, wrong, budget>>

(* Rule 7. *)
\* Code: systems/redplane/store/src/core/request.rs release
TakeRelease(m) ==
    LET k == record[Leader][m.flow]
        free == [epoch |-> k.epoch, owner |-> Nobody,
                 val |-> IF Len(m.val) > Len(k.val) THEN m.val ELSE k.val]
        current == k.epoch = m.epoch /\ k.owner = m.switch
    IN /\ m.type = "RELEASE"
       /\ IF current
            THEN OrderAndNote(m, {Whole(m.flow, free)}, {},
                              m.flow :> [epoch |-> m.epoch, val |-> free.val])
          ELSE ~Kept /\ net' = After(m) /\ UNCHANGED <<record, link>>
       /\ UNCHANGED <<switches, over, chain, seen, wrong, budget>>

(* An effect that changes neither epoch nor value: the owner is in another session, say. *)
\* Code: systems/redplane/store/src/core/request.rs grant_again
GrantAgain(f) ==
    /\ budget.again > 0
    /\ budget' = [budget EXCEPT !.again = @ - 1]
    /\ Len(chain) = 2 /\ Len(link) < 2
    /\ link' = Append(link, [writes |-> {Whole(f, record[Leader][f])}, answer |-> {}])
    /\ UNCHANGED <<switches, record, over, chain, net, seen, wrong>>

(* Rule 1. *)
\* Code: core/chain/src/receive.rs take_entry
TakeEffect ==
    /\ Len(chain) = 2 /\ link # <<>>
    /\ record' = [record EXCEPT ![Final] = Wrote(@, link[1].writes)]
    /\ net' = net \cup link[1].answer
    /\ link' = Rest(link)
    /\ UNCHANGED <<switches, over, chain, seen, wrong, budget>>

(* What the tail had not taken is lost with the head; of a dead tail the head answers it. *)
\* Code: core/chain/src/view.rs adopt_as_member answer_what_nobody_follows
Die(m) ==
    /\ budget.deaths > 0 /\ Len(chain) = 2
    /\ budget' = [budget EXCEPT !.deaths = @ - 1]
    /\ chain' = IF m = Leader THEN <<Final>> ELSE <<Leader>>
    /\ net' = IF m = Leader THEN net ELSE net \cup UNION {link[i].answer : i \in 1..Len(link)}
    /\ link' = <<>>
    /\ UNCHANGED <<switches, record, over, seen, wrong>>

-----------------------------------------------------------------------------
(* The store: the fast path (docs/output-commit.md, "Why no number") *)

Newer(k, r) == IF Len(r.val) > Len(k.val) THEN [k EXCEPT !.val = r.val] ELSE k

RECURSIVE Updated(_, _, _)
Updated(records, list, i) ==
    IF i > Len(list) THEN records
    ELSE LET f == list[i].flow
             old == list[i].epoch < records[f].epoch
         IN Updated(IF old THEN records ELSE [records EXCEPT ![f] = Newer(@, list[i])], list, i + 1)

(* The head takes a batch whose records are all their owner's, and passes it on. *)
\* Code: core/fast-chain/src/member.rs take under_lock look_at write
FastHead(m) ==
    LET known == record[Leader]
        fast == [type |-> "FAST", switch |-> m.switch, cpu |-> m.cpu, number |-> m.number,
                 records |-> m.records, view |-> chain]
    IN /\ m.type = "BATCH" /\ Fast /\ Len(chain) = 2
       /\ \A i \in 1..Len(m.records) :
            known[m.records[i].flow].epoch = m.records[i].epoch
            /\ known[m.records[i].flow].owner = m.switch
       /\ record' = [record EXCEPT ![Leader] = Updated(@, m.records, 1)]
       /\ net' = After(m) \cup {fast}
       /\ <<record', net'>> # <<record, net>>
       /\ UNCHANGED <<switches, over, chain, link, seen, wrong, budget>>

(* The tail: under a lower epoch than the record's the content is there. *)
\* Code: core/fast-chain/src/member.rs take under_lock look_at write
FastTail(m) ==
    LET known == record[Final]
        answer == [type |-> "ACK", switch |-> m.switch, cpu |-> m.cpu, number |-> m.number,
                   refused |-> {}]
    IN /\ m.type = "FAST" /\ m.view = chain
       /\ \A i \in 1..Len(m.records) :
            LET r == m.records[i]
                k == known[r.flow]
            IN r.epoch < k.epoch
               \/ (r.epoch = k.epoch /\ (k.owner = m.switch \/ Len(r.val) <= Len(k.val)))
       /\ record' = [record EXCEPT ![Final] = Updated(@, m.records, 1)]
       /\ net' = After(m) \cup {answer}
       /\ <<record', net'>> # <<record, net>>
       /\ UNCHANGED <<switches, over, chain, link, seen, wrong, budget>>

-----------------------------------------------------------------------------

\* Code: none: the network
Lose(m) ==
    /\ ~Kept /\ budget.losses > 0
    /\ budget' = [budget EXCEPT !.losses = @ - 1]
    /\ net' = net \ {m}
    /\ UNCHANGED <<switches, record, over, chain, link, seen, wrong>>

Next ==
    \/ \E s \in Switches, c \in Cpus :
        \/ \E f \in Flows : Write(s, c, f) \/ Read(s, c, f) \/ Show(s, c, f)
        \/ Record(s, c) \/ CopyAgain(s, c) \/ RecordAgain(s, c) \/ Park(s, c) \/ Carry(s, c)
        \/ Depart(s, c) \/ Resend(s, c) \/ SlowSend(s, c)
    \/ \E s \in Switches, f \in Flows : Release(s, f) \/ Grant(s, f)
    \/ \E m \in net : TakeAck(m) \/ DropAck(m) \/ TakeGrant(m) \/ TakeBatch(m) \/ TakeRelease(m)
    \/ \E m \in net : FastHead(m) \/ FastTail(m) \/ Lose(m)
    \/ \E f \in Flows : GrantAgain(f)
    \/ TakeEffect
    \/ \E m \in Members : Die(m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold *)

(* What left is on every member of the chain, and stays there. *)
Committed ==
    /\ "early" \notin wrong
    /\ \A i \in 1..Len(chain), f \in Flows : Prefix(seen[f], record[chain[i]][f].val)

(* All that left lies on one history of the flow: no update is shown and then lost. *)
OneHistory == "forked" \notin wrong

(* A packet shows no less than what had left before it came in; a write shows more. *)
Ordered == "stale" \notin wrong

(* Who would answer a read at once must not answer less than what was seen. *)
Fresh == \A s \in Switches, c \in Cpus, f \in Flows :
    Owned(s, f) /\ ~Waits(s, c, entry[s][f]) => Len(entry[s][f].val) >= Len(seen[f])

(* A packet whose record was refused does not leave. *)
Refused == "refused" \notin wrong

(* A packet that leaves at once does not overtake those that lined up for its CPU's updates. *)
InOrder == "overtook" \notin wrong

(* One batch in flight; who waits does so for it or for the open one. *)
Numbers == \A s \in Switches, c \in Cpus :
    LET st == stream[s][c] IN
    /\ st.departed \in {st.acked, st.acked + 1}
    /\ \A i \in 1..Len(st.waiting) : st.waiting[i].number \in st.acked + 1..st.departed + 1

(* A batch has one content, however often it is sent. *)
Unchanged == \A a, b \in net :
    a.type = "BATCH" /\ b.type = "BATCH" /\ a.switch = b.switch /\ a.cpu = b.cpu
        /\ a.number = b.number => a.records = b.records

Symmetry == Permutations(Cpus) \cup Permutations(Flows)
=============================================================================
