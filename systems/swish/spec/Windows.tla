------------------------------ MODULE Windows ------------------------------
(* SDW of SwiSh (§6.3, §7.2) as systems/swish/README.md has it ("SDW: data", "SDW: a window"): the
   data plane of a switch. SDW.tla has membership, and what must hold.

   A value is a bag: how many updates of each rotation of each member it includes. So a rotation
   that is lost, merged twice or in part shows by name. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Members,
    Blocks,     \* what a message carries; a block is also the message's number
    Last,       \* the last window in which anything is sent
    B,          \* updates of a rotation at the most
    Updates,    \* of all switches
    Writers,    \* switches that have them
    Underway,   \* whether all begin when they have sent the first window, in which each writer
                \* has changed each block
    Silent,     \* switches that do no more than count updates
    Packets,    \* packets that take their time: from the pin to the verdict
    Frames,     \* frames that take their time: from the pin to the end of the merge
    Seals,      \* attempts to remove members
    Ends,       \* seals that end by themselves
    Hands,      \* rotations that are handed in
    Bugs        \* mistakes made on purpose

VARIABLES
    word,       \* window and phase
    delta,      \* by side and block: a rotation, and its updates
    value,      \* by side and block: the newest window that it includes, and the bag
    got,        \* by member: messages of the window that are claimed, are merged, that there are
    ready,      \* by member: the newest window that it was ready for
    packet,     \* the slow packet
    frame,      \* the slow frame
    view,       \* the view that the switch is in
    seal,       \* the newest seal that it heard of, and whether it is under it
    net,        \* messages; each stays: it comes late, again and again, or never
    written,    \* by switch, rotation and block: updates that took effect
    back,       \* switches that were removed and have come back: their old life has ended
    left        \* what may still come

switch == <<word, delta, value, got, ready, packet, frame, view, seal>>

Advanced == 0
Ready == 1
Rotated == 2
Sending == 3

Rotations == 1..Last + 1
Empty == [m \in Members |-> [r \in Rotations |-> 0]]
Plus(a, b) == [m \in Members |-> [r \in Rotations |-> a[m][r] + b[m][r]]]
Less(a, b) == [m \in Members |-> [r \in Rotations |->
    IF a[m][r] > b[m][r] THEN a[m][r] - b[m][r] ELSE 0]]
One(m, r) == [Empty EXCEPT ![m][r] = 1]
None == [step |-> "none"]
Nothing == [claimed |-> {}, merged |-> {}, known |-> FALSE, total |-> {}]
Sides == {0, 1}

ReadyMessage(s, v, w) == [kind |-> "READY", from |-> s, view |-> v, of |-> w]
Cells(s, v, w, b, bag, total) == [kind |-> "CELLS", from |-> s, view |-> v, of |-> w, block |-> b,
                               bag |-> bag, total |-> total]

Changes(s, b) == IF Underway /\ s \in Writers THEN [rotation |-> 1, bag |-> One(s, 1)]
                 ELSE [rotation |-> 0, bag |-> Empty]

WindowsInit ==
    /\ word = [s \in Members |->
         [window |-> 1, phase |-> IF Underway THEN Sending ELSE Advanced]]
    /\ delta = [s \in Members |-> [i \in Sides |-> [b \in Blocks |->
         IF i = 1 THEN Changes(s, b) ELSE [rotation |-> 0, bag |-> Empty]]]]
    /\ value = [s \in Members |-> [i \in Sides |-> [b \in Blocks |->
         [window |-> 0, bag |-> Empty]]]]
    /\ got = [s \in Members |-> [m \in Members |-> Nothing]]
    /\ ready = [s \in Members |-> [m \in Members |-> IF Underway THEN 1 ELSE 0]]
    /\ packet = [s \in Members |-> None]
    /\ frame = [s \in Members |-> None]
    /\ view = [s \in Members |-> [number |-> 0, members |-> Members]]
    /\ seal = [s \in Members |-> [number |-> 0, on |-> FALSE]]
    /\ net = IF ~Underway THEN {}
              ELSE {Cells(s, 0, 1, b, One(s, 1), Blocks) : s \in Writers, b \in Blocks}
                   \cup {Cells(s, 0, 1, 0, Empty, {}) : s \in Members \ Writers}
    /\ written = [s \in Members |-> [r \in Rotations |-> [b \in Blocks |->
         IF r = 1 /\ Changes(s, b).rotation = 1 THEN 1 ELSE 0]]]
    /\ back = {}
    /\ left = [updates |-> Updates, packets |-> Packets, frames |-> Frames, seals |-> Seals,
               ends |-> Ends, hands |-> Hands]

-----------------------------------------------------------------------------
(* Packets *)

(* The side that packets of this window read: the larger window below it. *)
\* Code: bpf/swish/stateplane_shared.h sp_shared_read_side
ReadSide(v, b, w) ==
    IF v[0][b].window >= w THEN 1
    ELSE IF v[1][b].window >= w THEN 0
    ELSE IF v[1][b].window > v[0][b].window THEN 1 ELSE 0

Read(s, b, w) == value[s][ReadSide(value[s], b, w)][b].bag

\* Code: bpf/swish/stateplane_shared.h sp_shared_rotation
Rotation(at) ==
    at.window + IF at.phase >= Rotated \/ "rotate_on_advance" \in Bugs THEN 1 ELSE 0

RECURSIVE Sum(_, _)
Sum(f, set) == IF set = {} THEN 0 ELSE LET x == CHOOSE x \in set : TRUE IN f[x] + Sum(f, set \ {x})

InRotation(s, r) == Sum(written[s][r], Blocks)
        + IF packet[s] # None /\ packet[s].block # 0 /\ Rotation(packet[s].word) = r THEN 1 ELSE 0

MayUpdate(s) ==
    /\ left.updates > 0 /\ Rotation(word[s]) \in Rotations /\ s \in Writers \ back
    /\ InRotation(s, Rotation(word[s])) < B \/ "no_share" \in Bugs

(* The first update of a rotation clears what an older one left. *)
\* Code: bpf/swish/stateplane_shared.h sp_shared_apply sp_shared_claim_line
Apply(s, b, r) ==
    /\ delta' = [delta EXCEPT ![s][r % 2][b] = [rotation |-> r, bag |->
         IF @.rotation = r THEN Plus(@.bag, One(s, r)) ELSE One(s, r)]]
    /\ written' = [written EXCEPT ![s][r][b] = @ + 1]

\* Code: bpf/swish/stateplane_shared.h sp_shared_update sp_shared_commit
Update(s, b) ==
    /\ MayUpdate(s)
    /\ Apply(s, b, Rotation(word[s]))
    /\ left' = [left EXCEPT !.updates = @ - 1]
    /\ UNCHANGED <<word, value, got, ready, packet, frame, view, seal, net, back>>

(* A packet of another CPU has its pin. Block 0: it reads only. `saw`: what it would read now. *)
\* Code: bpf/swish/stateplane_shared.h sp_shared_pin sp_shared_read sp_shared_update
Pin(s, b) ==
    /\ left.packets > 0 /\ packet[s] = None /\ (b # 0 => MayUpdate(s))
    /\ packet' = [packet EXCEPT ![s] = [step |-> "pinned", word |-> word[s], block |-> b,
         saw |-> [c \in Blocks |-> Read(s, c, word[s].window)]]]
    /\ left' = [left EXCEPT !.packets = @ - 1, !.updates = IF b = 0 THEN @ ELSE @ - 1]
    /\ UNCHANGED <<word, delta, value, got, ready, frame, view, seal, net, written, back>>

(* Its verdict. *)
\* Code: bpf/swish/stateplane_shared.h sp_shared_commit
Commit(s) ==
    /\ packet[s] # None
    /\ IF packet[s].block = 0 THEN UNCHANGED <<delta, written>>
       ELSE Apply(s, packet[s].block, Rotation(packet[s].word))
    /\ packet' = [packet EXCEPT ![s] = None]
    /\ UNCHANGED <<word, value, got, ready, frame, view, seal, net, back, left>>

-----------------------------------------------------------------------------
(* A window turns *)

Before(a, b) == a.window < b.window \/ (a.window = b.window /\ a.phase < b.phase)

\* Code: bpf/swish/stateplane_shared_window.h sp_shared_drained
NoPacket(s) == IF packet[s] = None THEN TRUE ELSE ~Before(packet[s].word, word[s])
NoFrame(s) == IF frame[s] = None THEN TRUE ELSE frame[s].window >= word[s].window

Open(s) == ~seal[s].on
At(s, phase) == Open(s) /\ word[s].phase = phase

Changed(s, w) == {b \in Blocks : delta[s][w % 2][b].rotation = w}

(* All messages of a window; block 0: there is nothing to send, which is said. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_put sp_shared_put_cells
Source(s, v, w) ==
    IF Changed(s, w) = {} THEN {Cells(s, v, w, 0, Empty, {})}
    ELSE {Cells(s, v, w, b, delta[s][w % 2][b].bag, Changed(s, w)) : b \in Changed(s, w)}

(* Merging in w writes over what packets of w - 1 read; a frame of w - 1 would be taken for new. *)
\* Code: bpf/swish/stateplane_shared_window.h sp_shared_turn sp_shared_reset_member
SayReady(s) ==
    LET w == word[s].window IN
    /\ At(s, Advanced)
    /\ NoPacket(s) \/ "no_pins_at_ready" \in Bugs
    /\ NoFrame(s) \/ "cleared_early" \in Bugs
    /\ word' = [word EXCEPT ![s].phase = Ready]
    /\ got' = [got EXCEPT ![s] = [m \in Members |-> Nothing]]
    /\ ready' = [ready EXCEPT ![s][s] = w]
    /\ net' = net \cup {ReadyMessage(s, view[s].number, w)}
    /\ UNCHANGED <<delta, value, packet, frame, view, seal, written, back, left>>

\* Code: bpf/swish/stateplane_shared_window.h sp_shared_turn sp_shared_count_ready
Rotate(s) ==
    /\ At(s, Ready) /\ word[s].window <= Last
    /\ (\A m \in view[s].members : ready[s][m] >= word[s].window) \/ "no_ready" \in Bugs
    /\ word' = [word EXCEPT ![s].phase = Rotated]
    /\ UNCHANGED <<delta, value, got, ready, packet, frame, view, seal, net, written, back, left>>

(* A late write would be in a block that has left. *)
\* Code: bpf/swish/stateplane_shared_window.h sp_shared_turn sp_shared_total
Send(s) ==
    /\ At(s, Rotated)
    /\ NoPacket(s) \/ "no_pins_at_send" \in Bugs
    /\ word' = [word EXCEPT ![s].phase = Sending]
    /\ net' = net \cup Source(s, view[s].number, word[s].window)
    /\ UNCHANGED <<delta, value, got, ready, packet, frame, view, seal, written, back, left>>

(* A member that lacks a message asks: in the window that it is of, and until this switch is ready
   for the next one. Written down only when the message is not what it was. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_fill sp_shared_put
Refill(s) ==
    \E w \in {word[s].window, word[s].window - 1} :
        /\ Open(s) /\ IF w = word[s].window THEN word[s].phase = Sending
                      ELSE w > 0 /\ word[s].phase < Rotated
        /\ ~(Source(s, view[s].number, w) \subseteq net)
        /\ net' = net \cup Source(s, view[s].number, w)
        /\ UNCHANGED <<switch, written, back, left>>

\* Code: bpf/swish/stateplane_shared_window.h sp_shared_check_member
Whole(g) == g.known /\ g.total \subseteq (IF "counted_early" \in Bugs THEN g.claimed ELSE g.merged)

\* Code: bpf/swish/stateplane_shared_window.h sp_shared_turn
Advance(s) ==
    /\ At(s, Sending)
    /\ \A m \in view[s].members : Whole(got[s][m])
    /\ word' = [word EXCEPT ![s] = [window |-> @.window + 1, phase |-> Advanced]]
    /\ UNCHANGED <<delta, value, got, ready, packet, frame, view, seal, net, written, back, left>>

-----------------------------------------------------------------------------
(* Messages *)

(* The first merge of a window begins from the value that is read; later ones go on. *)
\* Code: bpf/swish/stateplane_shared_merge.h sp_shared_sides sp_shared_merge_block
Merged(v, b, w, bag) ==
    LET read == ReadSide(v, b, w)
        to == 1 - read
        base == IF v[to][b].window = w THEN v[to][b].bag
                ELSE IF "no_base" \in Bugs THEN Empty ELSE v[read][b].bag
    IN [v EXCEPT ![to][b] = [window |-> w, bag |-> Plus(base, bag)]]

(* A message of this view for this switch; its own messages come to it too. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_receive
Hears(s, m) == Open(s) /\ m.view = view[s].number /\ m.from \in view[s].members

(* A ready of a later window counts when this switch is there. An update is a ready, too, and says
   that all are ready: its sender has rotated. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_handle
Readies(s, m) ==
    LET w == IF "ready_without_window" \in Bugs THEN word[s].window ELSE m.of
        who == IF m.kind = "CELLS" /\ w = word[s].window THEN view[s].members ELSE {m.from}
    IN [ready EXCEPT ![s] = [x \in Members |-> IF x \in who /\ @[x] < w THEN w ELSE @[x]]]

Takes(s, m) ==
    /\ m.kind = "CELLS" /\ word[s].phase >= Ready
    /\ m.of = word[s].window \/ "any_window" \in Bugs

Noted(g, m, claimed, merged) ==
    [g EXCEPT !.claimed = @ \cup claimed, !.merged = @ \cup merged, !.known = TRUE,
              !.total = m.total]

(* A frame that is handled before anything else happens. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_handle sp_shared_take
Receive(s, m) ==
    LET g == got[s][m.from]
        fresh == Takes(s, m) /\ m.block # 0
                 /\ (m.block \notin g.claimed \/ "merged_twice" \in Bugs)
        all == IF fresh THEN {m.block} ELSE {}
    IN /\ Hears(s, m)
       /\ ready' = Readies(s, m)
       /\ got' = IF Takes(s, m) THEN [got EXCEPT ![s][m.from] = Noted(g, m, all, all)] ELSE got
       /\ value' = IF fresh THEN [value EXCEPT ![s] = Merged(@, m.block, word[s].window, m.bag)]
                   ELSE value
       /\ <<ready', got', value'>> # <<ready, got, value>>
       /\ UNCHANGED <<word, delta, packet, frame, view, seal, net, written, back, left>>

(* A frame of another CPU is found to be of this window; then its message is claimed; then it is
   merged, and counted. *)
\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_handle
Begin(s, m) ==
    /\ left.frames > 0 /\ frame[s] = None /\ Hears(s, m) /\ Takes(s, m) /\ m.block # 0
    /\ frame' = [frame EXCEPT ![s] = [step |-> "claim", message |-> m, window |-> word[s].window]]
    /\ left' = [left EXCEPT !.frames = @ - 1]
    /\ UNCHANGED <<word, delta, value, got, ready, packet, view, seal, net, written, back>>

\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_take
\* Code: bpf/swish/stateplane_shared_window.h sp_shared_claim
Claim(s) ==
    LET m == frame[s].message
        g == got[s][m.from]
        fresh == m.block \notin g.claimed
    IN /\ frame[s].step = "claim"
       /\ got' = [got EXCEPT ![s][m.from] = Noted(g, m, {m.block}, {})]
       /\ frame' = [frame EXCEPT ![s] = IF fresh THEN [@ EXCEPT !.step = "merge"] ELSE None]
       /\ UNCHANGED <<word, delta, value, ready, packet, view, seal, net, written, back, left>>

\* Code: bpf/swish/stateplane_shared_frame.h sp_shared_take sp_shared_merge
Finish(s) ==
    LET m == frame[s].message IN
    /\ frame[s].step = "merge"
    /\ value' = [value EXCEPT ![s] = Merged(@, m.block, frame[s].window, m.bag)]
    /\ got' = [got EXCEPT ![s][m.from] = Noted(@, m, {}, {m.block})]
    /\ frame' = [frame EXCEPT ![s] = None]
    /\ UNCHANGED <<word, delta, ready, packet, view, seal, net, written, back, left>>
=============================================================================
