------------------------------ MODULE Recovery ------------------------------
(* Members are removed: seal, report, decision (systems/swish/README.md, "Membership").

   A removed switch goes on in its view, so a dead switch and a living one that was taken for dead
   are one case. *)
EXTENDS Windows

VARIABLES
    decisions,  \* by number; they last. Number 0: the view in which all begin
    attempt,    \* of the controller: the number, who is to stay, reports so far
    handed      \* rotations that a removed switch has handed in; this lasts, too

controller == <<decisions, attempt, handed>>

NoBags == [b \in Blocks |-> Empty]
NoWindows == [b \in Blocks |-> 0]

(* kind "go": to `window`, with a value that has `newest` and `bags`. kind "redo": `window` runs
   again, and `bags` is what the dead count. `counted`: the newest rotation of a removed member that
   counts. *)
First == [number |-> 0, members |-> Members, kind |-> "go", window |-> 1, newest |-> NoWindows,
          bags |-> NoBags, counted |-> [m \in Members |-> 0]]

RecoveryInit ==
    /\ decisions = {First}
    /\ attempt = [number |-> 0, members |-> {}, reports |-> << >>]
    /\ handed = {}

Numbered(n) == CHOOSE d \in decisions : d.number = n
Newest == CHOOSE d \in decisions : \A e \in decisions : e.number <= d.number
Highest(set) == CHOOSE n \in set : \A k \in set : k <= n

(* Who is to stay; the number is new for ever. *)
\* Code: systems/swish/controller/src/group.rs begin_attempt
Seal(members) ==
    /\ left.seals > 0 /\ members # {} /\ members \subseteq Newest.members
    /\ members # Members /\ members \cap Silent = {}
    /\ left' = [left EXCEPT !.seals = @ - 1]
    /\ attempt' = [number |-> attempt.number + 1, members |-> members, reports |-> << >>]
    /\ UNCHANGED <<switch, net, written, back, decisions, handed>>

Undisturbed(s) == frame[s] = None \/ "reported_early" \in Bugs
Snapshot(s) ==
    LET w == word[s].window IN
    [word |-> word[s], view |-> view[s], got |-> got[s], value |-> value[s],
     source |-> [b \in Blocks |-> IF delta[s][w % 2][b].rotation = w THEN delta[s][w % 2][b].bag
                                   ELSE Empty]]

(* It reports at once if it can: what it reports does not change under the seal. *)
\* Code: systems/swish/switch/src/membership.rs seal
TakeSeal(s) ==
    /\ s \in attempt.members /\ seal[s].number < attempt.number
    /\ seal' = [seal EXCEPT ![s] = [number |-> attempt.number, on |-> TRUE]]
    /\ attempt' = IF Undisturbed(s) THEN [attempt EXCEPT !.reports = @ @@ (s :> Snapshot(s))]
                  ELSE attempt
    /\ UNCHANGED <<word, delta, value, got, ready, packet, frame, view, net, written, back, left,
                   decisions, handed>>

(* The old view goes on. *)
\* Code: systems/swish/switch/src/membership.rs tick
EndSeal(s) ==
    /\ left.ends > 0 /\ seal[s].on
    /\ left' = [left EXCEPT !.ends = @ - 1]
    /\ seal' = [seal EXCEPT ![s].on = FALSE]
    /\ UNCHANGED <<word, delta, value, got, ready, packet, frame, view, net, written, back,
                   controller>>

(* No CPU works on a frame. *)
\* Code: systems/swish/switch/src/membership.rs report
Report(s) ==
    /\ seal[s].on /\ seal[s].number = attempt.number /\ s \notin DOMAIN attempt.reports
    /\ Undisturbed(s)
    /\ attempt' = [attempt EXCEPT !.reports = @ @@ (s :> Snapshot(s))]
    /\ UNCHANGED <<switch, net, written, back, left, decisions, handed>>

-----------------------------------------------------------------------------
(* The decision *)

Side(v, b, w) == ReadSide(v, b, w)
Base(r, b) == r.value[Side(r.value, b, r.word.window)][b].bag
Half(r, b) ==
    LET v == r.value[1 - Side(r.value, b, r.word.window)][b] IN
    IF v.window = r.word.window THEN Less(v.bag, Base(r, b)) ELSE Empty

Complete(r) == r.word.phase = Sending /\ \A m \in r.view.members : Whole(r.got[m])

RECURSIVE SumBags(_, _)
SumBags(f, set) == IF set = {} THEN Empty
                   ELSE LET x == CHOOSE x \in set : TRUE IN Plus(f[x], SumBags(f, set \ {x}))

Stays == attempt.members
Reports == attempt.reports
Decided(kind, window, newest, bags, counted) ==
    [number |-> attempt.number, members |-> Stays, kind |-> kind, window |-> window,
     newest |-> newest, bags |-> bags, counted |-> counted]

(* All go to the window that this member reads in, with its value. *)
Go(r, w) ==
    LET v == r.value
        old == Numbered(r.view.number)
    IN Decided("go", w, [b \in Blocks |-> v[Side(v, b, w)][b].window],
               [b \in Blocks |-> v[Side(v, b, w)][b].bag],
               [m \in Members |-> IF m \in old.members THEN w - 1 ELSE old.counted[m]])

(* The window runs again. The dead count together: what they brought is a member's value less base
   less what it had merged of others. What counted by a decision that a living member has taken goes
   on counting. *)
Redo(w) ==
    LET last == Highest({Reports[s].view.number : s \in Stays})
        old == Numbered(last)
        dead == old.members \ Stays
        kept == IF old.kind = "redo" /\ old.window = w THEN old.bags ELSE NoBags
        whole == {s \in Stays : Reports[s].view.number = last
                    /\ \A m \in dead : Whole(Reports[s].got[m]) \/ "dead_in_part" \in Bugs}
        Brought(s, b) == Less(Less(Half(Reports[s], b), kept[b]),
            SumBags([m \in Stays |-> IF b \in Reports[s].got[m].merged THEN Reports[m].source[b]
                                     ELSE Empty], Stays))
        counts == dead # {} /\ whole # {}
        donor == CHOOSE s \in whole : TRUE
    IN Decided("redo", w, NoWindows,
               [b \in Blocks |-> IF counts THEN Plus(kept[b], Brought(donor, b)) ELSE kept[b]],
               [m \in Members |-> IF m \in dead THEN IF counts THEN w ELSE w - 1
                                  ELSE old.counted[m]])

Halves(w) ==
    LET one == CHOOSE s \in Stays : TRUE IN
    Decided("go", w + 1, [b \in Blocks |-> w],
            [b \in Blocks |-> Plus(Base(Reports[one], b),
                 SumBags([s \in Stays |-> Half(Reports[s], b)], Stays))],
            [m \in Members |-> w])

\* Code: systems/swish/controller/src/decide.rs plan
Decide ==
    LET w == Highest({Reports[s].word.window : s \in Stays})
        ahead == {s \in Stays : Reports[s].word.window = w}
        complete == {s \in Stays : Complete(Reports[s])}
    IN /\ attempt.number > Newest.number /\ Stays \subseteq DOMAIN Reports
       /\ decisions' = decisions \cup {
            IF ahead # Stays THEN Go(Reports[CHOOSE s \in ahead : TRUE], w)
            ELSE IF "sum_of_halves" \in Bugs THEN Halves(w)
            ELSE IF complete # {} THEN Go(Reports[CHOOSE s \in complete : TRUE], w + 1)
            ELSE Redo(w)}
       /\ UNCHANGED <<switch, net, written, back, left, attempt, handed>>

(* What was merged of this window is taken back. *)
TakenBack(v, w) == [i \in Sides |-> [b \in Blocks |->
    IF v[i][b].window = w /\ "not_taken_back" \notin Bugs THEN [v[i][b] EXCEPT !.window = 0]
    ELSE v[i][b]]]

(* The value of another member goes over the one that is not read. *)
Copied(v, w, d) == [i \in Sides |-> [b \in Blocks |->
    IF i # Side(v, b, w) /\ d.newest[b] >= w THEN [window |-> d.newest[b], bag |-> d.bags[b]]
    ELSE v[i][b]]]

RECURSIVE Extra(_, _, _)
Extra(v, d, set) ==
    IF set = {} THEN v
    ELSE LET b == CHOOSE b \in set : TRUE
         IN Extra(IF d.bags[b] = Empty THEN v ELSE Merged(v, b, d.window, d.bags[b]), d, set \ {b})

(* Under the seal of that decision, or not at all: after it the old view has gone on. *)
\* Code: systems/swish/switch/src/membership.rs turn
Take(s, d) ==
    LET w == word[s].window
        goes == d.kind = "go" /\ w < d.window
        at == IF goes THEN [window |-> d.window, phase |-> Advanced]
              ELSE IF "rotates_again" \in Bugs /\ word[s].phase > Ready
                THEN [word[s] EXCEPT !.phase = Ready]
              ELSE word[s]
        fresh == TakenBack(value[s], w)
    IN /\ s \in d.members /\ view[s].number < d.number /\ seal[s].number = d.number
       /\ seal[s].on \/ "taken_late" \in Bugs
       /\ word' = [word EXCEPT ![s] = at]
       /\ value' = [value EXCEPT ![s] =
            IF goes THEN Copied(fresh, w, d)
            ELSE IF d.kind = "redo" /\ w = d.window THEN Extra(fresh, d, Blocks)
            ELSE @]
       /\ got' = [got EXCEPT ![s] = [m \in Members |-> Nothing]]
       /\ ready' = [ready EXCEPT ![s] = [m \in Members |->
            IF m = s /\ at.phase >= Ready THEN at.window ELSE 0]]
       /\ view' = [view EXCEPT ![s] = [number |-> d.number, members |-> d.members]]
       /\ seal' = [seal EXCEPT ![s].on = FALSE]
       /\ net' = net \cup (IF at.phase >= Ready THEN {ReadyMessage(s, d.number, at.window)} ELSE {})
                     \cup (IF at.phase = Sending THEN Source(s, d.number, at.window) ELSE {})
       /\ UNCHANGED <<delta, packet, frame, written, back, left, controller>>

-----------------------------------------------------------------------------
(* A removed switch comes back *)

(* The decision that stands: the controller has it on disk. *)
Known == IF "decision_forgotten" \in Bugs THEN First ELSE Newest

(* Its old life ends. A rotation that no view counted goes into a member's open delta, once. Members
   have taken the decision: one that a member did not take may be made anew, and count more. *)
\* Code: systems/swish/switch/src/membership.rs begin
HandIn(m, s, r) ==
    LET open == Rotation(word[s])
        d == delta[m][r % 2]
    IN /\ m \notin Newest.members /\ s \in Newest.members /\ packet[m] = None
       /\ \A x \in Newest.members : view[x].number = Newest.number \/ "handed_in_early" \in Bugs
       /\ view[s].number = Newest.number
       /\ r > Known.counted[m] /\ (<<m, r>> \notin handed \/ "handed_in_twice" \in Bugs)
       /\ {b \in Blocks : d[b].rotation = r} # {} /\ open \in Rotations
       /\ left.hands > 0
       /\ left' = [left EXCEPT !.hands = @ - 1]
       /\ back' = back \cup {m}
       /\ handed' = handed \cup {<<m, r>>}
       /\ delta' = [delta EXCEPT ![s][open % 2] = [b \in Blocks |->
            IF d[b].rotation # r THEN @[b]
            ELSE [rotation |-> open, bag |->
                    IF @[b].rotation = open THEN Plus(@[b].bag, d[b].bag) ELSE d[b].bag]]]
       /\ UNCHANGED <<word, value, got, ready, packet, frame, view, seal, net, written, decisions,
                      attempt>>
=============================================================================
