------------------------------ MODULE Snapshots ------------------------------
(* Lazy snapshots of one structure of slots while packets go on updating it (RedPlane 5.4, Algorithm 1, with numbers for tags as
   systems/redplane/docs/snapshots.md has them), sent part by part over a network that delays, loses and repeats, put together by the store, and
   taken up by the switch that has the structure next. One slot is one part here.

   Updates, flips and the reading of a slot hold the instance's lock, so each is one step. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Slots,      \* slots of the structure
    Updates,    \* packets that update, in all
    Grants,     \* owners one after another
    OwnCopy,    \* MARK, CONTINUE: who was owner before goes on with its own copy until it is refused
    InFlight,   \* bound: parts under way at the same time
    Bugs        \* mistakes made on purpose

VARIABLES
    copy,       \* by slot: its two copies
    tag,        \* by slot: the interval in which it was last updated
    number,     \* the interval, that is the snapshot that is taken next
    taking,     \* a snapshot (number - 1) is on its way
    acked,      \* its slots that the store has confirmed
    epoch,      \* the grant
    updates,    \* packets so far
    net,        \* parts and acknowledgements: they stay, so they may be late and taken twice
    coming,     \* at the store: the snapshot that is coming in
    whole,      \* at the store: the newest whole one
    former,     \* the owner before, without a lease: its grant, the snapshot that it takes next, its copy, and whether it goes on
    instant     \* history: by epoch and number, what the slots held at the flip

vars == <<copy, tag, number, taking, acked, epoch, updates, net, coming, whole, former, instant>>

Active(slot) == copy[slot][tag[slot] % 2]
Now == [slot \in Slots |-> Active(slot)]
Zeros == [slot \in Slots |-> 0]
Nothing == [epoch |-> 0, number |-> 0, slots |-> <<>>]

Init ==
    /\ copy = [slot \in Slots |-> [side \in 0..1 |-> 0]]
    /\ tag = [slot \in Slots |-> 1]
    /\ number = 1
    /\ taking = FALSE
    /\ acked = {}
    /\ epoch = 1
    /\ updates = 0
    /\ net = {}
    /\ coming = Nothing
    /\ whole = Nothing
    /\ former = [epoch |-> 0, number |-> 0, slots |-> Zeros, on |-> FALSE]
    /\ instant = <<>>

(* sp_snapshot_add: the first update of a slot since the flip leaves the newest value in the copy that the snapshot is read from. *)
\* Code: bpf/redplane/stateplane_snapshot.h sp_snapshot_access sp_slot_access
Update(touched) ==
    /\ updates < Updates
    /\ updates' = updates + 1
    /\ copy' = [slot \in Slots |->
         IF slot \notin touched THEN copy[slot]
         ELSE IF tag[slot] = number THEN [copy[slot] EXCEPT ![number % 2] = @ + 1]
         ELSE IF "in_place" \in Bugs THEN [side \in 0..1 |-> Active(slot) + 1]
         ELSE [side \in 0..1 |-> IF side = number % 2 THEN Active(slot) + 1 ELSE Active(slot)]]
    /\ tag' = [slot \in Slots |-> IF slot \in touched THEN number ELSE tag[slot]]
    /\ UNCHANGED <<number, taking, acked, epoch, net, coming, whole, instant, former>>

(* Snapshot `number` is taken, interval number + 1 begins. The next waits until this one is acknowledged whole. *)
\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_decide
Flip ==
    /\ ~taking
    /\ instant' = (<<epoch, number>> :> Now) @@ instant
    /\ number' = number + 1
    /\ taking' = TRUE
    /\ acked' = {}
    /\ number <= Updates \* (bound: no more flips than there can be changes)
    /\ UNCHANGED <<copy, tag, epoch, updates, net, coming, whole, former>>

(* The generator reads a slot and sends it, and again until it is acknowledged. Reading brings the tag up to date. *)
\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_generate sp_snapshot_read_part
Send(slot) ==
    LET newer == tag[slot] = number
        value == IF newer THEN copy[slot][(number - 1) % 2] ELSE Active(slot)
    IN /\ taking /\ slot \notin acked
       /\ net' = net \cup {[type |-> "PART", epoch |-> epoch, number |-> number - 1, slot |-> slot, value |-> value]}
       /\ net' # net
       /\ copy' = IF newer THEN copy ELSE [copy EXCEPT ![slot] = [side \in 0..1 |-> value]]
       /\ tag' = [tag EXCEPT ![slot] = number]
       /\ UNCHANGED <<number, taking, acked, epoch, updates, coming, whole, instant, former>>

(* "The store", 2 and 3. *)
\* Code: systems/redplane/store/src/core/snapshots.rs snapshot take effects
Take(m) ==
    LET same == coming.epoch = m.epoch /\ coming.number = m.number
        older == m.epoch < coming.epoch \/ (m.epoch = coming.epoch /\ m.number < coming.number)
        known == whole.epoch = m.epoch /\ whole.number = m.number
        begun == IF same \/ "mixed" \in Bugs THEN coming.slots ELSE <<>>
        slots == (m.slot :> m.value) @@ begun
        ready == DOMAIN slots = Slots
        put == [epoch |-> m.epoch, number |-> m.number, slots |-> slots]
        ack == [type |-> "ACK", epoch |-> m.epoch, number |-> m.number, slot |-> m.slot]
    IN /\ m.type = "PART"
       /\ m.epoch = epoch \/ "no_epoch" \in Bugs \* else REFUSED: another has it
       /\ IF known \/ older \/ (whole.epoch = m.epoch /\ whole.number >= m.number)
            THEN /\ net' = IF known /\ "whole_unanswered" \notin Bugs THEN net \cup {ack} ELSE net
                 /\ UNCHANGED <<coming, whole>>
            ELSE /\ net' = IF ready /\ "whole_unanswered" \in Bugs THEN net ELSE net \cup {ack}
                 /\ coming' = IF ready THEN Nothing ELSE put
                 /\ whole' = IF ready \/ "part_is_whole" \in Bugs
                               THEN [put EXCEPT !.slots = slots @@ (IF whole.epoch = 0 THEN Zeros ELSE whole.slots)] ELSE whole
       /\ UNCHANGED <<copy, tag, number, taking, acked, epoch, updates, instant, former>>

\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_acknowledge
Acknowledged(m) ==
    LET all == acked \cup {m.slot} IN
    /\ m.type = "ACK" /\ m.epoch = epoch /\ taking /\ m.number = number - 1
    /\ acked' = all
    /\ taking' = (all # Slots)
    /\ UNCHANGED <<copy, tag, number, epoch, updates, net, coming, whole, instant, former>>

(* Another switch: the newest whole snapshot in both copies, its number goes on ("The store", 4 and 5). *)
\* Code: systems/redplane/store/src/core/snapshots.rs send_snapshot
\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_install sp_snapshot_take_part
Grant ==
    LET slots == IF whole.epoch = 0 THEN Zeros ELSE whole.slots IN
    /\ epoch < Grants
    /\ epoch' = epoch + 1
    /\ copy' = [slot \in Slots |-> [side \in 0..1 |-> slots[slot]]]
    /\ number' = whole.number + 1
    /\ tag' = [slot \in Slots |-> whole.number + 1]
    /\ taking' = FALSE
    /\ acked' = {}
    /\ coming' = IF "mixed" \in Bugs THEN coming ELSE Nothing
    /\ former' = IF OwnCopy THEN [epoch |-> epoch, number |-> number, slots |-> Now, on |-> TRUE] ELSE former
    /\ UNCHANGED <<updates, net, whole, instant>>

(* "Without a lease": the owner before counts on in its copy, and sends snapshots of it (taken and read in one step here: that they are of one instant is checked above). *)
\* Code: bpf/redplane/stateplane_snapshot.h sp_snapshot_access sp_snapshot_goes_on
FormerUpdate(touched) ==
    /\ former.on /\ updates < Updates
    /\ updates' = updates + 1
    /\ former' = [former EXCEPT !.slots = [slot \in Slots |-> IF slot \in touched THEN @[slot] + 1 ELSE @[slot]]]
    /\ UNCHANGED <<copy, tag, number, taking, acked, epoch, net, coming, whole, instant>>

\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_decide sp_snapshot_generate
FormerSnapshot ==
    /\ former.on /\ former.number <= Updates + 1 \* (bound)
    /\ instant' = (<<former.epoch, former.number>> :> former.slots) @@ instant
    /\ net' = net \cup {[type |-> "PART", epoch |-> former.epoch, number |-> former.number, slot |-> slot, value |-> former.slots[slot]] : slot \in Slots}
    /\ former' = [former EXCEPT !.number = @ + 1]
    /\ UNCHANGED <<copy, tag, number, taking, acked, epoch, updates, coming, whole>>

(* REFUSED: a part of an epoch that is over came to the store. The copy goes, with all that is in no snapshot of the store. *)
\* Code: bpf/redplane/stateplane_snapshot_message.h sp_snapshot_forget
FormerRefused(m) ==
    /\ former.on /\ m.type = "PART" /\ m.epoch = former.epoch
    /\ former' = [former EXCEPT !.on = FALSE, !.slots = Zeros]
    /\ UNCHANGED <<copy, tag, number, taking, acked, epoch, updates, net, coming, whole, instant>>

Next ==
    \/ \E touched \in SUBSET Slots \ {{}} : Update(touched)
    \/ Flip \/ Grant
    \/ \E slot \in Slots : Send(slot)
    \/ \E touched \in SUBSET Slots \ {{}} : FormerUpdate(touched)
    \/ FormerSnapshot
    \/ \E m \in net : Take(m) \/ Acknowledged(m) \/ FormerRefused(m)

Spec == Init /\ [][Next]_vars

Bound == Cardinality(net) <= InFlight

-----------------------------------------------------------------------------
(* What must hold *)

(* A whole snapshot is what all slots held at one instant. *)
OneInstant == whole.epoch > 0 => /\ <<whole.epoch, whole.number>> \in DOMAIN instant
                                 /\ whole.slots = instant[<<whole.epoch, whole.number>>]

(* So is every part under way. *)
PartsOfOneInstant == \A m \in net : m.type = "PART" => instant[<<m.epoch, m.number>>][m.slot] = m.value

(* Once the switch believes a snapshot saved, a failure falls back to that one or a newer one, never further. *)
Saved == ~taking => number = whole.number + 1
=============================================================================
