-------------------------------- MODULE Chain --------------------------------
(* SRO: a group's switches as a chain, whose members are removed, and join with nothing
   (systems/swish/README.md, "SRO").

   One table, and packets that read a key and write it. The network keeps all that was sent: a
   message comes late, in any order, several times, or never. A removed member goes on in its view,
   so a dead one and one that was cut off are one case; it reads until its lease is over. The copy
   that a member gets which joins is a step of its own: that its parts and the batches written
   meanwhile make one state is left to the simulator. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Members,    \* 1, 2, ...
    Original,   \* of them, how many are the first chain, from head to tail
    Packets,    \* each writes once
    Keys,       \* the key of packet p is 1 + p % Keys
    Removals,   \* at the most
    Joins,      \* at the most
    Bugs

KeyOf(p) == 1 + (p % Keys)

VARIABLES
    chains,     \* by view: the members from head to tail
    waits,      \* by view: the tail waits for leases of members that are none any more
    view,       \* of a member: the view that it has taken
    begun,      \* members that know from which batch on they are members
    whole,      \* members that have all that is older, too
    had,        \* of a member: how much was written when it took its view
    leased,     \* members that may read
    log,        \* of a member: what is written, in order
    early,      \* of a member: batches that came too early, with view and number
    known,      \* of a member: so many it knows to be at the tail
    asks,       \* requests in the network
    net,        \* batches in the network
    answers     \* what tails have said

members == <<chains, waits, begun, whole, had>>
vars == <<members, view, leased, log, early, known, asks, net, answers>>

Newest == Len(chains)
Chain(v) == chains[v]
In(m, v) == v > 0 /\ \E i \in 1..Len(chains[v]) : chains[v][i] = m
Place(m, v) == CHOOSE i \in 1..Len(chains[v]) : chains[v][i] = m
First(v) == chains[v][1]
Last(v) == chains[v][Len(chains[v])]
Next_(m, v) == IF Place(m, v) < Len(chains[v]) THEN {chains[v][Place(m, v) + 1]} ELSE {}
Larger(a, b) == IF a > b THEN a ELSE b
Smaller(a, b) == IF a < b THEN a ELSE b
Prefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s

Init ==
    /\ chains = << [i \in 1..Original |-> i] >>
    /\ waits = << FALSE >>
    /\ view = [m \in Members |-> IF m <= Original THEN 1 ELSE 0]
    /\ begun = 1..Original /\ whole = 1..Original
    /\ leased = 1..Original
    /\ had = [m \in Members |-> 0]
    /\ log = [m \in Members |-> << >>]
    /\ early = [m \in Members |-> {}]
    /\ known = [m \in Members |-> 0]
    /\ asks = {} /\ net = {} /\ answers = {}

(* A packet reads its key here, and asks to write it. *)
\* Code: bpf/swish/stateplane_strong_commit.h sp_strong_finish
Ask(m, p) ==
    /\ m \in leased /\ \A ask \in asks : ask.packet # p
    /\ asks' = asks \cup {[packet |-> p, origin |-> m, since |-> Len(log[m]), view |-> view[m]]}
    /\ UNCHANGED <<members, view, leased, log, early, known, net, answers>>

(* The same request in a newer view. *)
\* Code: bpf/swish/stateplane_strong_commit.h sp_strong_look_after
AskAgain(m) ==
    \E ask \in asks :
        /\ ask.origin = m /\ ask.view < view[m] /\ m \in whole
        /\ asks' = asks \cup {[ask EXCEPT !.view = view[m]]}
        /\ UNCHANGED <<members, view, leased, log, early, known, net, answers>>

Holds(m, ask) ==
    "no_condition" \in Bugs \/
    \A i \in 1..Len(log[m]) :
        i > ask.since => log[m][i].refused \/ KeyOf(log[m][i].packet) # KeyOf(ask.packet)

To(m, v, number, batch) ==
    {[to |-> n, view |-> v, number |-> number, batch |-> batch] : n \in Next_(m, v)}

Answer(number, batch) == [number |-> number, batch |-> batch]

(* The tail has written all up to here, and no removed member may read any more. *)
MayCommit(m) ==
    /\ m = Last(view[m])
    /\ \/ "no_lease" \in Bugs \/ ~waits[view[m]]
       \/ \A o \in Members : In(o, view[m]) \/ o \notin leased

Answers(m, all, number, batch) ==
    IF MayCommit(m) \/ "head_answers" \in Bugs THEN {Answer(number, batch)} ELSE {}

(* The head decides. A request that comes again has the same decision. *)
\* Code: bpf/swish/stateplane_strong_chain.h sp_strong_decide
Decide(m, ask) ==
    LET before == {i \in 1..Len(log[m]) : log[m][i].packet = ask.packet}
        batch == [packet |-> ask.packet, since |-> ask.since, refused |-> ~Holds(m, ask)] IN
    /\ In(m, view[m]) /\ m = First(view[m]) /\ ask.view = view[m]
    /\ IF before # {} /\ "decided_twice" \notin Bugs
       THEN LET i == CHOOSE i \in before : TRUE IN
            /\ net' = net \cup To(m, view[m], i, log[m][i])
            /\ answers' = answers \cup Answers(m, log[m], i, log[m][i])
            /\ known' = IF MayCommit(m) THEN [known EXCEPT ![m] = Len(log[m])] ELSE known
            /\ UNCHANGED log
       ELSE /\ Len(log[m]) < Cardinality(Packets) + 1
            /\ log' = [log EXCEPT ![m] = Append(@, batch)]
            /\ net' = net \cup To(m, view[m], Len(log[m]) + 1, batch)
            /\ answers' = answers \cup Answers(m, log'[m], Len(log'[m]), batch)
            /\ known' = IF MayCommit(m) THEN [known EXCEPT ![m] = Len(log'[m])] ELSE known
    /\ UNCHANGED <<members, view, leased, early, asks>>

RECURSIVE CatchUp(_, _, _)
CatchUp(written, waiting, v) ==
    LET next == {e \in waiting : e.number = Len(written) + 1
                                 /\ (e.view = v \/ "old_view" \in Bugs)} IN
    IF next = {} THEN written
    ELSE CatchUp(Append(written, (CHOOSE e \in next : TRUE).batch), waiting, v)

(* A member writes batches in the order of their numbers; what comes early goes on. *)
\* Code: bpf/swish/stateplane_strong_chain.h sp_strong_member
Write(m, message) ==
    LET number == message.number
        in_turn == number = Len(log[m]) + 1 \/ "any_order" \in Bugs
        written == IF number <= Len(log[m]) THEN log[m]
                   ELSE IF in_turn
                   THEN CatchUp(Append(log[m], message.batch), early[m], view[m]) ELSE log[m]
        has == number <= Len(written) IN
    /\ message.to = m /\ message.view = view[m] /\ In(m, view[m]) /\ m \in begun
    /\ log' = [log EXCEPT ![m] = written]
    /\ early' = IF number <= Len(log[m]) \/ in_turn THEN early
                ELSE [early EXCEPT ![m] = @ \cup {[view |-> message.view, number |-> number,
                                                   batch |-> message.batch]}]
    /\ net' = net \cup To(m, view[m], number, message.batch)
    /\ known' = IF MayCommit(m) THEN [known EXCEPT ![m] = Len(written)] ELSE known
    /\ answers' = answers \cup IF MayCommit(m) /\ has THEN {Answer(number, message.batch)} ELSE {}
    /\ UNCHANGED <<members, view, leased, asks>>

(* A member hears from others of its view what the tail has. *)
\* Code: bpf/swish/stateplane_strong_chain.h sp_strong_raise
Learn(m) ==
    LET most == IF "known_early" \in Bugs THEN Len(log[m])
                ELSE CHOOSE k \in 0..Len(log[m]) :
                        /\ \E o \in Members :
                              view[o] = view[m] /\ k = Smaller(known[o], Len(log[m]))
                        /\ \A o \in Members : view[o] = view[m] =>
                              Smaller(known[o], Len(log[m])) <= k IN
    /\ most > known[m]
    /\ known' = [known EXCEPT ![m] = most]
    /\ UNCHANGED <<members, view, leased, log, early, asks, net, answers>>

(* It sends what the tail may lack again; a new tail answers what it has. *)
\* Code: bpf/swish/stateplane_strong_commit.h sp_strong_push
Push(m) ==
    /\ In(m, view[m]) /\ m \in begun
    /\ IF MayCommit(m)
       THEN /\ known[m] < Len(log[m])
            /\ known' = [known EXCEPT ![m] = Len(log[m])]
            /\ UNCHANGED net
       ELSE /\ known[m] < Len(log[m])
            /\ net' = net \cup To(m, view[m], known[m] + 1, log[m][known[m] + 1])
            /\ UNCHANGED known
    /\ UNCHANGED <<members, view, leased, log, early, asks, answers>>

(* One that has all stays. *)
\* Code: systems/swish/controller/src/group/chain.rs remove_from_chain
Remove(m) ==
    /\ Cardinality({v \in 1..Newest : waits[v]}) < Removals /\ In(m, Newest)
    /\ \E o \in whole : o # m /\ In(o, Newest)
    /\ chains' = Append(chains, SelectSeq(Chain(Newest), LAMBDA o : o # m))
    /\ waits' = Append(waits, TRUE)
    /\ UNCHANGED <<begun, whole, had, view, leased, log, early, known, asks, net, answers>>

(* A switch joins with nothing, as the last one, once nobody reads in a view before the newest. *)
\* Code: systems/swish/controller/src/group/chain.rs joins_chain
Join(m) ==
    /\ Cardinality({v \in 2..Newest : ~waits[v]}) < Joins /\ ~In(m, Newest)
    /\ \A i \in 1..Len(Chain(Newest)) :
          view[Chain(Newest)[i]] = Newest /\ Chain(Newest)[i] \in whole
    /\ "joins_early" \in Bugs \/ \A o \in leased : In(o, Newest)
    /\ m \notin leased
    /\ chains' = Append(chains, Append(Chain(Newest), m))
    /\ waits' = Append(waits, FALSE)
    /\ begun' = begun \ {m} /\ whole' = whole \ {m}
    /\ log' = [log EXCEPT ![m] = << >>]
    /\ early' = [early EXCEPT ![m] = {}]
    /\ known' = [known EXCEPT ![m] = 0]
    /\ view' = [view EXCEPT ![m] = 0]
    /\ UNCHANGED <<had, leased, asks, net, answers>>

(* It is told when all others know. *)
\* Code: bpf/swish/stateplane_strong_chain.h sp_strong_take_view
TakeView(m) ==
    /\ view[m] < Newest /\ In(m, Newest)
    /\ \/ m \in begun
       \/ \A i \in 1..Len(Chain(Newest)) :
            Chain(Newest)[i] \in begun => view[Chain(Newest)[i]] = Newest
    /\ view' = [view EXCEPT ![m] = Newest]
    /\ had' = [had EXCEPT ![m] = Len(log[m])]
    /\ UNCHANGED <<chains, waits, begun, whole, leased, log, early, known, asks, net, answers>>

(* The one before it says from which batch on it is a member: what is older is in the copy. *)
\* Code: bpf/swish/stateplane_strong_copy.h sp_strong_take_part
Begin(m) ==
    /\ In(m, view[m]) /\ m # First(view[m]) /\ m \notin begun
    /\ LET from == chains[view[m]][Place(m, view[m]) - 1] IN
       /\ view[from] = view[m] /\ from \in whole
       /\ \E all \in had[from]..Len(log[from]) :
            /\ log' = [log EXCEPT ![m] = SubSeq(log[from], 1, all)]
            /\ known' = [known EXCEPT ![m] = all]
    /\ begun' = begun \cup {m}
    /\ UNCHANGED <<chains, waits, whole, had, view, leased, early, asks, net, answers>>

(* It has the last part, and the batches that were written when that was made. *)
\* Code: bpf/swish/stateplane_strong_copy.h sp_strong_take_part
Finish(m) ==
    /\ m \in begun \ whole /\ In(m, view[m]) /\ m # First(view[m])
    /\ chains[view[m]][Place(m, view[m]) - 1] \in whole
    /\ whole' = whole \cup {m}
    /\ UNCHANGED <<chains, waits, begun, had, view, leased, log, early, known, asks, net, answers>>

(* A round: all members are in this view. *)
\* Code: bpf/swish/stateplane_strong_round.h sp_strong_round_comes
Lend(m) ==
    /\ m \notin leased /\ In(m, view[m])
    /\ m \in whole \/ "reads_at_once" \in Bugs
    /\ \A i \in 1..Len(chains[view[m]]) : view[chains[view[m]][i]] = view[m]
    /\ leased' = leased \cup {m}
    /\ UNCHANGED <<members, view, log, early, known, asks, net, answers>>

\* Code: bpf/swish/stateplane_strong.h sp_strong_begin
Expire(m) ==
    /\ m \in leased /\ ~In(m, Newest)
    /\ leased' = leased \ {m}
    /\ UNCHANGED <<members, view, log, early, known, asks, net, answers>>

Next ==
    \/ \E m \in Members, p \in Packets : Ask(m, p)
    \/ \E m \in Members : AskAgain(m) \/ Learn(m) \/ Push(m)
    \/ \E m \in Members : Remove(m) \/ Join(m) \/ TakeView(m)
    \/ \E m \in Members : Begin(m) \/ Finish(m) \/ Lend(m) \/ Expire(m)
    \/ \E m \in Members, ask \in asks : Decide(m, ask)
    \/ \E message \in net : Write(message.to, message)

Spec == Init /\ [][Next]_vars

(* What a tail has answered, all members have, and keep. *)
Durable ==
    \A answer \in answers, m \in Members :
        In(m, Newest) /\ m \in whole =>
            /\ answer.number <= Len(log[m])
            /\ log[m][answer.number] = answer.batch

(* Who may read has all that was answered. *)
Fresh == \A answer \in answers, m \in leased : answer.number <= Len(log[m])

(* What a packet may read without waiting is never lost. *)
Safe ==
    \A m \in leased, o \in Members :
        In(o, Newest) /\ o \in whole => Prefix(SubSeq(log[m], 1, known[m]), log[o])

(* A member has all that the next one has, and in the same order. *)
Ordered ==
    \A i, j \in 1..Len(Chain(Newest)) :
        i < j => Prefix(log[Chain(Newest)[j]], log[Chain(Newest)[i]])

(* A packet writes once. *)
Once ==
    \A m \in Members : \A i, j \in 1..Len(log[m]) :
        i # j => log[m][i].packet # log[m][j].packet

(* Nobody has written a key between a packet's read and its write. *)
Serial ==
    \A m \in Members : \A i, j \in 1..Len(log[m]) :
        ( /\ ~log[m][i].refused /\ ~log[m][j].refused /\ i < j
          /\ KeyOf(log[m][i].packet) = KeyOf(log[m][j].packet) ) => i <= log[m][j].since
==============================================================================
