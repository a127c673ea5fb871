-------------------------------- MODULE Chain --------------------------------
(* One shard's chain of servers: views that the controller decides and servers learn of at different times, members that die or are
   cut off, servers that join behind the tail, and messages that come late. Rules are those of core/chain/docs/protocol.md
   and core/controller/docs/protocol.md. What an entry says is of no matter here, so entries are numbers that are never used twice.

   The answer to "why may Flow.tla take the store as one atomic thing": Answered and Agree below. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Servers,    \* all of them; a restarted server is another one (another incarnation)
    Founders,   \* the first chain, head first
    Length,     \* members that a chain should have
    Entries,    \* entries that heads order, in all
    Deaths,     \* servers that die
    Views,      \* decisions of the controller, in all
    Bugs        \* mistakes made on purpose

VARIABLES
    views,      \* all decisions: each with its members, head first, and who joins behind the tail ({} or one)
    server,     \* by server: alive, the view it knows, its log, and, while it joins, whether it is whole
    net,        \* entries under way: they stay, so they may be late and taken twice
    answered,   \* entries whose answer left
    ordered     \* entries that heads ordered so far

vars == <<views, server, net, answered, ordered>>

Final(sequence) == sequence[Len(sequence)]
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Place(s, members) == CHOOSE i \in 1..Len(members) : members[i] = s
Newest == Final(views)
Prefix(a, b) == Len(a) <= Len(b) /\ \A i \in 1..Len(a) : a[i] = b[i]

View(s) == views[server[s].view]
Member(s) == server[s].alive /\ server[s].view > 0 /\ s \in In(View(s).members)
Leads(s) == Member(s) /\ View(s).members[1] = s
Ends(s) == Member(s) /\ Final(View(s).members) = s

(* Who comes behind s in the view that it knows: the next member, or who joins once the tail has sent it the whole of its state. *)
Behind(s) ==
    IF ~Ends(s) THEN {View(s).members[Place(s, View(s).members) + 1]}
    ELSE {j \in View(s).joining : server[s].copied = server[s].view}

Init ==
    /\ views = <<[members |-> Founders, joining |-> {}]>>
    /\ server = [s \in Servers |-> [alive |-> TRUE, view |-> IF s \in In(Founders) THEN 1 ELSE 0, log |-> <<>>, copied |-> 0, whole |-> 0]]
    /\ net = {}
    /\ answered = {}
    /\ ordered = 0

-----------------------------------------------------------------------------
(* Servers (core/chain/src/{node,replica,view,receive,link,copy}.rs) *)

(* Rule 2: only the tail answers, rule 5: and not once the joining server has its whole state. *)
Answers(s, log) == IF Ends(s) /\ (Behind(s) = {} \/ "tail_answers_on" \in Bugs) THEN In(log) ELSE {}

\* Code: core/chain/src/replica.rs order
Order(s) ==
    LET log == Append(server[s].log, ordered + 1) IN
    /\ Leads(s) /\ ordered < Entries
    /\ ordered' = ordered + 1
    /\ server' = [server EXCEPT ![s].log = log]
    /\ answered' = answered \cup Answers(s, log)
       \cup (IF "head_answers" \in Bugs THEN {ordered + 1} ELSE {})
    /\ UNCHANGED <<views, net>>

(* Rule 1: entries go on to whoever is behind, with the view and the place in the log. *)
\* Code: core/chain/src/replica.rs flush
\* Code: core/chain/src/link.rs send
Send(s) ==
    /\ Member(s)
    /\ \E to \in Behind(s), i \in 1..Len(server[s].log) :
         /\ net' = net \cup {[view |-> server[s].view, from |-> s, to |-> to, index |-> i, entry |-> server[s].log[i]]}
         /\ net' # net
    /\ UNCHANGED <<views, server, answered, ordered>>

(* Taken only in the same view, from the neighbour that it names, and in order. Who joins answers like a tail once it is whole. *)
\* Code: core/chain/src/receive.rs take_message data take_entries take_entry
\* Code: core/chain/src/view.rs answers
Take(m) ==
    LET s == m.to
        log == Append(server[s].log, m.entry)
        joins == s \in View(s).joining
        neighbour == m.from \in Servers /\ server[m.from].alive /\
            (m.view = server[s].view \/ "any_view" \in Bugs)
    IN /\ server[s].alive /\ server[s].view > 0 /\ neighbour
       /\ Member(s) \/ (joins /\ server[s].whole = server[s].view)
       /\ \/ m.index = Len(server[s].log) + 1
          \/ m.index > Len(server[s].log) /\ "gaps_taken" \in Bugs
          \/ m.index <= Len(server[s].log) /\ "taken_again" \in Bugs
       /\ server' = [server EXCEPT ![s].log = log]
       /\ answered' = answered \cup (IF joins THEN In(log) ELSE Answers(s, log))
       /\ UNCHANGED <<views, net, ordered>>

(* Rule 5: the stream that describes the tail's state ends; from then on the tail answers nothing by itself. *)
\* Code: core/chain/src/copy.rs is_complete hand_over
Copied(s) ==
    /\ Ends(s) /\ View(s).joining # {} /\ server[s].copied # server[s].view
    /\ server' = [server EXCEPT ![s].copied = server[s].view]
    /\ UNCHANGED <<views, net, answered, ordered>>

(* Rule 6: it has taken the whole stream, and, one with it here, what has come behind it until now; that it answers like a tail. *)
\* Code: core/chain/src/copy.rs copy_message take_copied take_handover
\* Code: core/chain/src/replica.rs notice_ready
Whole(s, tail) ==
    /\ server[s].alive /\ server[s].view > 0 /\ s \in View(s).joining /\ server[s].whole # server[s].view
    /\ tail = Final(View(s).members)
    /\ server[tail].alive /\ server[tail].view = server[s].view
    /\ server[tail].copied = server[s].view \/ "whole_early" \in Bugs
    /\ server' = [server EXCEPT ![s].whole = server[s].view,
                                ![s].log = IF "whole_early" \in Bugs THEN <<>> ELSE server[tail].log]
    /\ answered' = answered \cup (IF "whole_early" \in Bugs THEN {} ELSE In(server[tail].log))
    /\ UNCHANGED <<views, net, ordered>>

(* A newer view; a new tail answers what the old one may not have (rule 3). Who has no place in it drops what it has (rule 7). *)
\* Code: core/chain/src/node.rs adopt adopt_shard
\* Code: core/chain/src/view.rs adopt adopt_as_member adopt_as_joining answer_what_nobody_follows
Learn(s, v) ==
    LET view == views[v]
        stays == s \in In(view.members)
        told == [server[s] EXCEPT !.view = v, !.log = IF stays THEN @ ELSE <<>>]
        tail == stays /\ Final(view.members) = s
    IN /\ server[s].alive /\ v > server[s].view
       /\ stays \/ s \in view.joining \/ server[s].view > 0
       /\ server' = [server EXCEPT ![s] = told]
       /\ answered' = answered \cup (IF tail THEN In(told.log) ELSE {})
       /\ UNCHANGED <<views, net, ordered>>

\* Code: none: a server dies
Die(s) ==
    /\ server[s].alive
    /\ Cardinality({x \in Servers : ~server[x].alive}) < Deaths
    /\ server' = [server EXCEPT ![s].alive = FALSE, ![s].log = <<>>]
    /\ UNCHANGED <<views, net, answered, ordered>>

-----------------------------------------------------------------------------
(* The controller (core/controller/src/core). It may be wrong about who is dead (a cut), never about who is whole. *)

Decide(members, joining) ==
    /\ Len(views) < Views
    /\ views' = Append(views, [members |-> members, joining |-> joining])
    /\ UNCHANGED <<server, net, answered, ordered>>

Without(members, out) == SelectSeq(members, LAMBDA s : s \notin out)

(* Rule 3: as long as one of them lives. Rule 8: no more than that many failures at a time. *)
\* Code: core/controller/src/core/decide.rs survivors decide_shard
TakeOut ==
    \E out \in SUBSET In(Newest.members) :
        /\ out # {}
        /\ \E s \in In(Newest.members) \ out : server[s].alive
        /\ Decide(Without(Newest.members, out), {})

\* Code: core/controller/src/core/decide.rs decide_joining
Join ==
    \E s \in Servers :
        /\ server[s].alive /\ s \notin In(Newest.members) /\ Newest.joining = {}
        /\ Len(Newest.members) < Length
        /\ \A x \in In(Newest.members) : server[x].view = Len(views)
        /\ Decide(Newest.members, {s})

\* Code: core/controller/src/core/decide.rs decide_joining
Admit ==
    \E s \in Newest.joining :
        /\ server[s].whole = Len(views) /\ server[s].view = Len(views)
        /\ Decide(Append(Newest.members, s), {})

\* Code: core/controller/src/core/decide.rs decide_joining
GiveUp == Newest.joining # {} /\ Decide(Newest.members, {})

Next ==
    \/ \E s \in Servers : Order(s) \/ Send(s) \/ Copied(s) \/ Die(s)
    \/ \E s \in Servers, t \in Servers : Whole(s, t)
    \/ \E s \in Servers : \E v \in 1..Len(views) : Learn(s, v)
    \/ \E m \in net : Take(m)
    \/ TakeOut \/ Join \/ Admit \/ GiveUp

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold *)

(* An answer means that every living member of the newest view has the entry. *)
Answered == \A e \in answered : \A s \in In(Newest.members) : server[s].alive => e \in In(server[s].log)

(* Whoever comes later in the newest view has nothing that an earlier one lacks, and in the same order. *)
Agree ==
    \A i, j \in 1..Len(Newest.members) :
        LET a == Newest.members[i]
            b == Newest.members[j]
        IN (i < j /\ server[a].alive /\ server[b].alive) => Prefix(server[b].log, server[a].log)
=============================================================================
