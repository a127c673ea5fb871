------------------------------ MODULE Protocol ------------------------------
(* One key of NetChain: clients, the chain of switches that hold the key, and the controller that changes the chain. Rules are
   those of systems/netchain/docs/design.md and tombstones.md.

   The network delays, loses, repeats and reorders as it likes: a message that was sent stays in `net` for ever, so it may be
   taken late, several times, or never.

   A switch that dies and a living one that is taken for dead are the same here: the controller may take any member out at any time,
   and the member goes on in the view that it has taken. One that is dead does less. Members of the next view refuse its writes; its
   reads end with its leases.

   A reader has a lease of each other member as long as it may: a member that has taken a newer view gives none, and the last one
   ends at some time after that (`ended`): here when the controller has waited for it, as a reader that stops sooner does less.

   Whether results are right is judged by value: `possible` has every state that a single copy of the key may be in, after what
   clients were told so far. *)
EXTENDS OneCopy, TLC

CONSTANTS
    Members,    \* switches of the first chain: 1..Members, head first
    Spares,     \* more switches, empty, that may join; a restarted switch is another one
    Views,      \* decisions of the controller, in all; the first chain is one
    Places,     \* where a switch joins: "middle" (before the tail) or "tail" (of a chain of one)
    Recent,     \* requests that a slot remembers
    OnWire,     \* whether stamped messages carry the slot's records; else members keep their own, and note gaps
    Copies,     \* views in which a client sends one request; in one view all copies are the same
    Losses,     \* whether all members may be taken out
    GiveUps,    \* requests that clients give up
    Fills,      \* whether a head may have no room (FULL)
    Collects,   \* collecting views that the controller may decide
    Bugs        \* mistakes made on purpose

VARIABLES
    views,      \* decisions: chain, session of its head, who joins (0: nobody), who is out, whether it was founded after a loss, and
                \* whether its members answer: in a decision of its own, which counts for each of them from then on;
                \* the floor, and whether tombstones below it are collected in this view
    gone,       \* switches that have certainly lost their slots
    ended,      \* readers that have no lease any more of a member with a newer view
    switch,     \* by switch: the view it has taken, its slot, its window, the view for which it has the copy
    net,        \* all messages that were ever sent
    known       \* by client: the newest view that it has heard of

vars == <<views, gone, ended, switch, net, request, known, possible>>

-----------------------------------------------------------------------------
(* Views *)

Switches == 1..(Members + Spares)
Final(sequence) == sequence[Len(sequence)]
In(sequence) == {sequence[i] : i \in 1..Len(sequence)}
Place(s, chain) == CHOOSE i \in 1..Len(chain) : chain[i] = s
Without(chain, out) == SelectSeq(chain, LAMBDA s : s \notin out)
Max(a, b) == IF a > b THEN a ELSE b

Newest == Final(views)
Served == CHOOSE v \in 1..Len(views) : views[v].serves /\ \A w \in 1..Len(views) : views[w].serves => v >= w
Floor == views[Served].floor
Founded == \E v \in 1..Len(views) : views[v].founded
Chain(v) == views[v].chain
JoinsAsTail(v) == Len(Chain(v)) > 1 /\ views[v].joining = Final(Chain(v))
(* Whom clients ask for reads. Who joins behind the tail is not asked; nobody answers then. *)
Asked(v) == IF JoinsAsTail(v) THEN Chain(v)[Len(Chain(v)) - 1] ELSE Final(Chain(v))

(* A version: 16 sequence numbers for each session. *)
Session(number) == 16 * number
NextVersion(v, before) == LET first == Session(views[v].session) IN IF before >= first THEN before + 1 ELSE first + 1

Empty == [version |-> 0, value |-> None, by |-> Nobody, recent |-> <<>>, gap |-> FALSE]
Initial ==
    LET first == Session(1) + 1 IN
    IF Begun THEN [Empty EXCEPT !.version = first, !.value = Effect(1, First, TRUE).value, !.by = 1,
                                !.recent = <<[id |-> 1, version |-> first]>>]
    ELSE IF First = None THEN Empty
    ELSE [Empty EXCEPT !.version = first, !.value = First, !.by = 0]

(* Collection, rule 5: the state of a key as a head decides on it. Without a slot it has records of
   nobody. *)
Before(s) ==
    LET slot == switch[s].slot
        floor == views[switch[s].view].floor
    IN IF slot.version > 0 \/ floor = 0 \/ "records_forgotten" \in Bugs THEN slot
       ELSE [slot EXCEPT !.recent = [k \in 1..Recent |-> [id |-> 0, version |-> Session(floor)]]]

Init ==
    /\ views = <<[chain |-> [i \in 1..Members |-> i], session |-> 1, joining |-> 0, out |-> {}, founded |-> FALSE,
                  serves |-> TRUE, floor |-> FirstFloor, collects |-> FALSE]>>
    /\ gone = {}
    /\ ended = {}
    /\ switch = [s \in Switches |->
                    [view |-> IF s <= Members THEN 1 ELSE 0, slot |-> IF s <= Members THEN Initial ELSE Empty,
                     window |-> [i \in Ids |-> IF Begun /\ s = 1 /\ i = 1 THEN "done" ELSE "fresh"], copied |-> 0]]
    /\ net = {}
    /\ request = [i \in Ids |->
                    LET begun == IF Begun /\ i = 1 THEN [at |-> "open", view |-> 1] ELSE [at |-> "new", view |-> 0] IN
                    [at |-> begun.at, first |-> begun.view, last |-> begun.view, heard |-> Session(FirstFloor), floor |-> 0, compare |-> 0,
                     by |-> Nobody, version |-> 0, value |-> 0, early |-> FALSE]]
    /\ known = [c \in Clients |-> 1]
    /\ possible = {[value |-> First, by |-> {IF First = None THEN Nobody ELSE 0}, result |-> [i \in Ids |-> <<>>]]}

-----------------------------------------------------------------------------
(* Clients (systems/netchain/client/src/core.rs) *)

Copy(i, view, again) ==
    [kind |-> "request", id |-> i, view |-> view, again |-> again,
     to |-> IF Requests[i].op = "READ" THEN Asked(view) ELSE Chain(view)[1]]

Sent(i) == Cardinality({m \in net : m.kind = "request" /\ m.id = i})

(* The highest version that any client was shown. *)
Shown == LET versions == {request[i].version : i \in Ids} IN CHOOSE v \in versions : \A w \in versions : v >= w

(* The highest one that this request's client was shown, or the floor that it knows: what the request
   makes is newer (collection, rule 6). *)
Heard(i) ==
    LET floor == IF "floor_not_told" \in Bugs THEN 0 ELSE views[known[Requests[i].client]].floor
        versions == {request[j].version : j \in Earlier(i)} \cup {Session(floor)}
    IN CHOOSE v \in versions : \A w \in versions : v >= w

(* The first copies. VERSION compares with what its client was shown last, or with the first version. *)
\* Code: systems/netchain/client/src/core.rs begin send
Begin(i) ==
    LET view == known[Requests[i].client]
        earlier == Earlier(i)
        previous == IF Requests[i].op # "VERSION" THEN request[i]
                    ELSE IF earlier = {} THEN [request[i] EXCEPT !.version = Initial.version, !.by = Initial.by]
                    ELSE request[CHOOSE j \in earlier : \A k \in earlier : j >= k]
    IN /\ request[i].at = "new"
       /\ \A j \in earlier : request[j].at \notin {"new", "open"}
       /\ Chain(view) # <<>>
       /\ request' = [request EXCEPT ![i].at = "open", ![i].first = view, ![i].last = view, ![i].floor = Shown, ![i].heard = Heard(i),
                                     ![i].compare = previous.version, ![i].by = previous.by]
       /\ net' = net \cup {Copy(i, view, FALSE)}
       /\ UNCHANGED <<views, gone, ended, switch, known, possible>>

(* The view since which the head is the one that it is in this view. *)
HeadSince(view) ==
    LET same(v) == Chain(v) # <<>> /\ Chain(v)[1] = Chain(view)[1]
    IN CHOOSE u \in 1..view : (\A v \in u..view : same(v)) /\ (u = 1 \/ ~same(u - 1))

(* A copy in a later view. If the head is another one, that of an earlier view may have carried a copy
   out (AGAIN). *)
\* Code: systems/netchain/client/src/core.rs time send
Again(i) ==
    LET view == known[Requests[i].client] IN
    /\ request[i].at = "open"
    /\ view > request[i].last
    /\ Chain(view) # <<>>
    /\ Sent(i) < Copies
    /\ net' = net \cup {Copy(i, view, request[i].first < HeadSince(view) /\ "same_head" \notin Bugs)}
    /\ request' = [request EXCEPT ![i].last = view, ![i].heard = IF "heard_later" \in Bugs THEN Heard(i) ELSE @]
    /\ UNCHANGED <<views, gone, ended, switch, known, possible>>

(* A switch that has taken a view tells the chain, also while its members do not answer: to a request for this key or for another
   one of the group, or for a dead switch. *)
\* Code: systems/netchain/client/src/core.rs receive learn
Learn(c, v) ==
    /\ v > known[c]
    /\ \E i \in Ids : Requests[i].client = c /\ request[i].at \in {"new", "open"}
    /\ \E s \in In(Chain(v)) : switch[s].view = v
    /\ known' = [known EXCEPT ![c] = v]
    /\ UNCHANGED <<views, gone, ended, switch, net, request, possible>>

\* Code: systems/netchain/client/src/core.rs time
GiveUp(i) ==
    /\ request[i].at = "open"
    /\ Cardinality({j \in Ids : request[j].at = "unknown"}) < GiveUps
    /\ request' = [request EXCEPT ![i].at = "unknown"]
    /\ UNCHANGED <<views, gone, ended, switch, net, known, possible>>

(* What is shown may follow this version. A key has version 0 if it was never written, or if its
   tombstone was below the floor, and collected. *)
Follows(shown, version) ==
    \/ shown.version > 0 /\ shown.version >= version
    \/ shown.version = 0 /\ shown.value = None /\ (Founded \/ version = 0 \/ version < Session(Floor))

(* DONE is final. That a request was not carried out is final only in the view of the last copy: another head may carry out
   a later copy. *)
\* Code: systems/netchain/client/src/core.rs receive
TakeReply(m) ==
    LET i == m.id
        final == m.status = "DONE" \/ m.view = request[i].last \/ "final_in_any_view" \in Bugs
        \* (The floor stays only where it is broken: less to tell states apart by.)
        over == [request[i] EXCEPT !.at = m.status, !.version = m.version, !.value = m.value, !.by = m.by,
                                   !.floor = IF Follows(m, @) THEN 0 ELSE @]
    IN /\ request[i].at = "open"
       /\ IF m.status = "UNDECIDED"
            THEN request' = [request EXCEPT ![i].at = "unknown"] /\ UNCHANGED possible
            ELSE /\ final
                 /\ request' = [request EXCEPT ![i] = IF m.status = "FULL" THEN [@ EXCEPT !.at = "FULL"] ELSE over]
                 /\ possible' = IF Founded THEN possible ELSE Told(i, m.status, m.moved, m.value)
       /\ UNCHANGED <<views, gone, ended, switch, net, known>>

-----------------------------------------------------------------------------
(* Switches (systems/netchain/p4/netchain.p4) *)

(* Rule 5: a switch takes what is of the view that it has taken; rule 3: its part is its own view's, once that one serves. *)
Works(s) ==
    /\ s \notin gone
    /\ switch[s].view > 0
    /\ s \in In(Chain(switch[s].view))
    /\ views[switch[s].view].serves
Takes(s, m) ==
    /\ Works(s)
    /\ m.view = switch[s].view \/ ("views_ignored" \in Bugs /\ m.kind = "stamped")

Reply(s, m) ==
    [kind |-> "reply", id |-> m.id, view |-> switch[s].view, status |-> m.status, moved |-> m.moved,
     version |-> m.slot.version, value |-> m.slot.value, by |-> m.slot.by]

(* To the next of the chain, or back to the client. *)
GoesOn(s, m) ==
    LET chain == Chain(switch[s].view) IN
    IF s = Final(chain) THEN Reply(s, m)
    ELSE [m EXCEPT !.to = chain[Place(s, chain) + 1], !.view = switch[s].view]

(* Without records on the wire a message names the write that made its slot only if it is the request's own. *)
Carried(i, status, moved, slot) ==
    IF OnWire THEN IF "records_stay" \in Bugs THEN [slot EXCEPT !.recent = <<>>] ELSE slot
    ELSE [slot EXCEPT !.gap = FALSE, !.recent = IF status = "DONE" /\ ~moved /\ Requests[i].op # "READ"
                                                THEN <<[id |-> i, version |-> slot.version]>> ELSE <<>>]

Stamped(s, i, status, moved, slot, replaced) ==
    [kind |-> "stamped", id |-> i, view |-> switch[s].view, to |-> 0, status |-> status, moved |-> moved,
     slot |-> Carried(i, status, moved, slot), replaced |-> IF OnWire THEN 0 ELSE replaced]

(* Rule 6: reads, with leases. Nobody answers them while a switch joins behind the tail: that one may miss what the tail has. *)
\* Code: systems/netchain/p4/netchain.p4 answer
TakeRead(m) ==
    LET s == m.to
        answer == Stamped(s, m.id, "DONE", FALSE, switch[s].slot, 0)
    IN /\ Requests[m.id].op = "READ" /\ Takes(s, m)
       /\ s = Asked(switch[s].view) /\ s \notin ended
       /\ ~JoinsAsTail(switch[s].view) \/ "tail_reads_on" \in Bugs
       /\ net' = net \cup {Reply(s, answer)}
       /\ UNCHANGED <<views, gone, ended, switch, request, known, possible>>

Cut(recent) == SubSeq(recent, 1, IF Len(recent) < Recent THEN Len(recent) ELSE Recent)
Remembers(slot, i) == \E k \in 1..Len(slot.recent) : slot.recent[k].id = i
Record(slot, i) == slot.recent[CHOOSE k \in 1..Len(slot.recent) : slot.recent[k].id = i]

(* The slot after request i was carried out; rule 10: with the record of it. *)
Written(s, i, value) ==
    LET old == Before(s)
        version == NextVersion(switch[s].view, old.version)
        recent == IF "no_records" \in Bugs THEN <<>> ELSE Cut(<<[id |-> i, version |-> version]>> \o old.recent)
    IN [version |-> version, value |-> value, by |-> i, recent |-> recent, gap |-> old.gap]

(* What is collected in the view that the switch has taken. *)
Tombstone(s, slot) ==
    LET view == views[switch[s].view] IN
    /\ view.collects
    /\ slot.value = None /\ slot.version > 0
    /\ slot.version < Session(view.floor + IF "same_session" \in Bugs THEN 1 ELSE 0)

(* Rules 7, 9 and 10: the head decides. What it claims in the window gets one verdict; what it refuses goes down the chain. *)
\* Code: systems/netchain/p4/netchain.p4 answer
TakeWrite(m) ==
    LET s == m.to
        i == m.id
        old == Before(s)
        verdict == IF "no_window" \in Bugs THEN "fresh" ELSE switch[s].window[i]
        e == Effect(i, old.value, old.version = request[i].compare)
        slot == IF e.writes THEN Written(s, i, e.value) ELSE switch[s].slot
        kept == IF "no_tombstone" \in Bugs /\ slot.value = None THEN Empty ELSE slot
        sends(message) == net' = net \cup {message}
        status == IF e.ok THEN "DONE" ELSE "REFUSED"
        claimed == IF e.ok THEN "done" ELSE IF "refused_is_no_verdict" \in Bugs THEN "fresh" ELSE "refused"
        answer == Stamped(s, i, status, FALSE, slot, IF e.writes THEN old.version ELSE 0)
        \* The key still has the version that the request would have replaced: it was not carried out. (0 may come again.)
        names == old.version = request[i].compare /\ (old.version > 0 \/ "zero_names" \in Bugs)
        undone == Requests[i].op = "VERSION" /\ (names \/ "any_version_is_undone" \in Bugs)
        \* All writes since the oldest record are in the slot. What the request made is newer than what its client had heard.
        forgets == old.gap \/ (Len(old.recent) = Recent /\ IF "any_floor" \in Bugs THEN request[i].heard = 0
                                                           ELSE Final(old.recent).version > request[i].heard)
    IN /\ Requests[i].op # "READ" /\ Takes(s, m)
       /\ s = Chain(switch[s].view)[1]
       /\ IF Remembers(old, i)
            THEN /\ switch' = [switch EXCEPT ![s].window[i] = "done"]
                 /\ sends(GoesOn(s, Stamped(s, i, "DONE", Record(old, i).version # old.version, old, 0)))
          ELSE IF verdict = "done"
            THEN sends(GoesOn(s, Stamped(s, i, "DONE", TRUE, old, 0))) /\ UNCHANGED switch
          ELSE IF verdict = "refused"
            THEN sends(GoesOn(s, Stamped(s, i, "REFUSED", "refused_unmarked" \notin Bugs, old, 0))) /\ UNCHANGED switch
          ELSE IF verdict = "full"
            THEN sends(Reply(s, Stamped(s, i, "FULL", FALSE, old, 0))) /\ UNCHANGED switch
          ELSE IF m.again /\ ~undone /\ forgets /\ "never_undecided" \notin Bugs
            THEN sends(GoesOn(s, Stamped(s, i, "UNDECIDED", FALSE, old, 0))) /\ UNCHANGED switch
          ELSE \/ /\ switch' = [switch EXCEPT ![s].slot = kept, ![s].window[i] = claimed]
                  /\ sends(IF ~e.ok /\ "head_refuses" \in Bugs THEN Reply(s, answer) ELSE GoesOn(s, answer))
               \/ /\ Fills /\ e.ok
                  /\ switch' = [switch EXCEPT ![s].window[i] = IF "full_is_no_verdict" \in Bugs THEN "fresh" ELSE "full"]
                  /\ sends(Reply(s, Stamped(s, i, "FULL", FALSE, old, 0)))
       /\ UNCHANGED <<views, gone, ended, request, known, possible>>

(* Rules 8 and 9: the others apply what is newer, and pass everything on. *)
\* Code: systems/netchain/p4/netchain.p4 answer
TakeStamped(m) ==
    LET s == m.to
        own == switch[s].slot
        follows == m.replaced = own.version /\ m.slot.recent # <<>>
        slot == IF OnWire THEN m.slot
                ELSE IF follows \/ "no_gap" \in Bugs THEN [m.slot EXCEPT !.recent = Cut(@ \o own.recent), !.gap = own.gap]
                ELSE [m.slot EXCEPT !.gap = TRUE]
        kept == IF "no_tombstone" \in Bugs /\ slot.value = None THEN Empty ELSE slot
        collected == own.version = 0 /\ Tombstone(s, m.slot) /\ "stored" \notin Bugs
    IN /\ Takes(s, m)
       /\ s # Chain(switch[s].view)[1] \/ "views_ignored" \in Bugs
       /\ switch' = IF m.slot.version > own.version /\ ~collected THEN [switch EXCEPT ![s].slot = kept] ELSE switch
       /\ net' = net \cup {GoesOn(s, m)}
       /\ UNCHANGED <<views, gone, ended, request, known, possible>>

(* A switch frees the slot if it has exactly this tombstone. *)
Freed(slot, tombstone) ==
    IF (slot.value = None /\ slot.version = tombstone.version) \/ "frees_any" \in Bugs THEN Empty ELSE slot

(* Collection, rule 2. A head that is the tail, too, frees its slot at once. *)
\* Code: systems/netchain/p4/include/collect.p4 begin_collecting free_collected
SendCollect(s) ==
    LET chain == Chain(switch[s].view)
        slot == switch[s].slot
        message(next) == [kind |-> "collect", view |-> switch[s].view, to |-> next, slot |-> slot]
        alone == Len(chain) = 1
    IN /\ Works(s) /\ s = chain[1] /\ Tombstone(s, slot)
       /\ switch' = IF alone \/ "head_first" \in Bugs THEN [switch EXCEPT ![s].slot = Empty] ELSE switch
       /\ net' = IF alone THEN net ELSE net \cup {message(chain[2])}
       /\ UNCHANGED <<views, gone, ended, request, known, possible>>

(* Rules 2 and 3: a member with an older version applies it. The tail frees its slot. *)
\* Code: systems/netchain/p4/include/collect.p4 collected_by_all
TakeCollect(m) ==
    LET s == m.to
        chain == Chain(switch[s].view)
        last == s = Final(chain)
        own == switch[s].slot
        applies == own.version > 0 /\ m.slot.version > own.version /\ "not_applied" \notin Bugs
        slot == IF applies THEN m.slot ELSE own
        next == [m EXCEPT !.to = chain[Place(s, chain) + 1]]
        back == [kind |-> "collected", view |-> m.view, to |-> chain[Place(s, chain) - 1], slot |-> m.slot]
    IN /\ Takes(s, m)
       /\ switch' = [switch EXCEPT ![s].slot = IF last THEN Freed(slot, m.slot) ELSE slot]
       /\ net' = net \cup {IF last THEN back ELSE next}
       /\ UNCHANGED <<views, gone, ended, request, known, possible>>

(* Rule 3: the acknowledgement comes back, to the head last. *)
\* Code: systems/netchain/p4/include/collect.p4 collected_here
TakeCollected(m) ==
    LET s == m.to
        chain == Chain(switch[s].view)
    IN /\ Takes(s, m)
       /\ switch' = [switch EXCEPT ![s].slot = Freed(@, m.slot)]
       /\ net' = IF s = chain[1] THEN net ELSE net \cup {[m EXCEPT !.to = chain[Place(s, chain) - 1]]}
       /\ UNCHANGED <<views, gone, ended, request, known, possible>>

(* A view is taken as one, and only a newer one. From then on the switch refuses older views, and gives who has one of those no
   lease. Its own leases go on, but for those of a member with a newer view. (Who is no member takes it, too; one that never does
   may do more.) *)
\* Code: systems/netchain/switch/src/roles.rs apply
TakeView(s, v) ==
    /\ v > switch[s].view
    /\ s \notin gone
    /\ s \in In(Chain(v))
    /\ switch' = [switch EXCEPT ![s].view = v]
    /\ ended' = IF \E m \in In(Chain(v)) \ {s} : switch[m].view > v THEN ended ELSE ended \ {s}
    /\ UNCHANGED <<views, gone, net, request, known, possible>>

(* The switch whose slots are copied: who comes behind, or, if nobody does, who comes before. *)
Reference(v) ==
    LET x == Place(views[v].joining, Chain(v)) IN IF JoinsAsTail(v) THEN Chain(v)[x - 1] ELSE Chain(v)[x + 1]
Taken(v) == \A s \in In(Chain(v)) : switch[s].view = v

(* Once the view serves: then all members refuse the old one. Writes go on. *)
\* Code: systems/netchain/switch/src/copies.rs due
SendCopy ==
    LET v == Len(views) IN
    /\ Newest.joining # 0
    /\ Newest.serves \/ ("copy_early" \in Bugs /\ switch[Newest.joining].view = v)
    /\ net' = net \cup {[kind |-> "copy", view |-> v, to |-> Newest.joining, slot |-> switch[Reference(v)].slot]}
    /\ UNCHANGED <<views, gone, ended, switch, request, known, possible>>

\* Code: systems/netchain/p4/netchain.p4 answer
TakeCopy(m) ==
    LET s == m.to IN
    /\ switch[s].view = m.view
    /\ switch' = [switch EXCEPT ![s].copied = m.view,
                                ![s].slot = IF m.slot.version > @.version \/ "copy_blind" \in Bugs THEN m.slot ELSE @]
    /\ UNCHANGED <<views, gone, ended, net, request, known, possible>>

-----------------------------------------------------------------------------
(* The controller. Each step is one write to its database or one confirmed message, and it may stop after any of them. *)

(* The floor stays in all later views. *)
Decide(view) ==
    LET floor == IF "floor_falls" \in Bugs THEN 0 ELSE Newest.floor IN
    /\ Len(views) < Views
    /\ views' = Append(views, [view EXCEPT !.floor = IF view.collects THEN @ ELSE floor])

(* Members are taken for dead. Who joins and is not whole leaves with them, and can only join again empty. *)
\* Code: systems/netchain/controller/src/decide.rs deaths remove
TakeOut ==
    \E dead \in SUBSET In(Newest.chain) \ {{}} :
        LET out == dead \cup (IF "joiner_counts" \in Bugs THEN {} ELSE {Newest.joining} \ {0})
            chain == Without(Newest.chain, out)
            anew == chain # <<>> /\ chain[1] # Newest.chain[1] /\ "no_session" \notin Bugs
        IN /\ chain # <<>> \/ Losses
           /\ Decide([chain |-> chain, session |-> IF anew THEN Len(views) + 1 ELSE Newest.session, joining |-> 0,
                      out |-> Newest.out \cup out, founded |-> FALSE, serves |-> FALSE, floor |-> 0, collects |-> FALSE])
           \* (A group keeps its last member until that one has certainly lost its slots.)
           /\ gone' = IF chain = <<>> THEN gone \cup Newest.out \cup out ELSE gone
           /\ UNCHANGED <<ended, switch, net, request, known, possible>>

(* The members of the newest view may answer: all have taken it, and the reader of the view that served last has taken it too, or
   a member that it needs a lease of has a newer view, and the last one that it gave is over by now. *)
\* Code: systems/netchain/controller/src/decide.rs confirmed
Serve ==
    LET v == Len(views)
        served == {u \in 1..Len(views) : views[u].serves}
        old == Asked(CHOOSE u \in served : \A w \in served : u >= w)
        over == \E m \in In(Chain(switch[old].view)) \ {old} : switch[m].view > switch[old].view
    IN /\ ~Newest.serves /\ Newest.chain # <<>>
       /\ Taken(v) \/ ("serves_unconfirmed" \in Bugs /\ \E s \in In(Newest.chain) : switch[s].view = v)
       /\ old \in gone \/ switch[old].view = v \/ over \/ "serves_before_leases_end" \in Bugs
       /\ ended' = IF over /\ "serves_before_leases_end" \notin Bugs THEN ended \cup {old} ELSE ended
       /\ views' = [views EXCEPT ![v].serves = TRUE]
       /\ possible' = IF Newest.collects THEN Collectable ELSE possible
       /\ request' = [i \in Ids |-> [request[i] EXCEPT !.early = @ \/ (Newest.collects /\ Early(i))]]
       /\ UNCHANGED <<gone, switch, net, known>>

\* Code: systems/netchain/controller/src/decide.rs joins
Join(x) ==
    LET chain == Newest.chain
        last == Len(chain)
    IN /\ \A v \in 1..Len(views) : x \notin In(Chain(v))
       /\ Newest.joining = 0 /\ Newest.serves
       /\ \/ "middle" \in Places /\ last > 1
             /\ Decide([Newest EXCEPT !.chain = SubSeq(chain, 1, last - 1) \o <<x, chain[last]>>, !.joining = x, !.serves = FALSE,
                              !.collects = "collects_on" \in Bugs /\ @])
          \/ "tail" \in Places /\ last = 1
             /\ Decide([Newest EXCEPT !.chain = chain \o <<x>>, !.joining = x, !.serves = FALSE, !.collects = FALSE])
       /\ UNCHANGED <<gone, ended, switch, net, request, known, possible>>

(* The new member is whole. In the middle no part changes by that; a new tail answers reads, in a view of its own. *)
\* Code: systems/netchain/controller/src/decide.rs copied
Activate ==
    LET v == Len(views) IN
    /\ Newest.joining # 0 /\ Newest.serves
    /\ switch[Newest.joining].copied = v \/ "activated_early" \in Bugs
    /\ IF JoinsAsTail(v) THEN Decide([Newest EXCEPT !.joining = 0, !.serves = FALSE, !.collects = FALSE])
       ELSE views' = [views EXCEPT ![v].joining = 0]
    /\ UNCHANGED <<gone, ended, switch, net, request, known, possible>>

(* Collection, rule 1: a view of its own, with a new session, which is the floor. *)
\* Code: systems/netchain/controller/src/collect.rs collects wants
Collect ==
    LET session == IF "same_session" \in Bugs THEN Newest.session ELSE Len(views) + 1 IN
    /\ Cardinality({v \in 1..Len(views) : views[v].collects}) < Collects
    /\ Newest.serves /\ (Newest.joining = 0 \/ "with_joiner" \in Bugs)
    /\ Len(Newest.chain) >= Members \/ "not_full" \in Bugs
    /\ Decide([Newest EXCEPT !.session = session, !.floor = session, !.collects = TRUE, !.serves = FALSE])
    /\ UNCHANGED <<gone, ended, switch, net, request, known, possible>>

(* All members are dead: the group is lost, until a person founds it again. Nobody claims that its keys have their old values. *)
\* Code: systems/netchain/controller/src/controller.rs refound
Found(x) ==
    /\ Newest.chain = <<>>
    /\ \A v \in 1..Len(views) : x \notin In(Chain(v))
    /\ Decide([chain |-> <<x>>, session |-> IF "founded_in_old_session" \in Bugs THEN Newest.session ELSE Len(views) + 1,
               joining |-> 0, out |-> Newest.out, founded |-> "not_lost" \notin Bugs, serves |-> FALSE,
               floor |-> 0, collects |-> FALSE])
    /\ possible' = IF "not_lost" \in Bugs THEN possible ELSE {}
    /\ UNCHANGED <<gone, ended, switch, net, request, known>>

-----------------------------------------------------------------------------
(* Mistakes that are steps of their own *)

(* A neighbour sends what is for a dead switch to the next of the message's chain, with its rule's view stamped on. *)
Redirected(m) ==
    LET v == Len(views)
        chain == Chain(m.view)
        place == Place(m.to, chain)
        next == IF m.kind = "request" /\ Requests[m.id].op = "READ" THEN Final(Newest.chain)
                ELSE IF place < Len(chain) /\ chain[place + 1] \in In(Newest.chain) THEN chain[place + 1]
                ELSE Final(Newest.chain)
    IN IF m.kind = "request" THEN [m EXCEPT !.view = v, !.to = next, !.again = TRUE] ELSE [m EXCEPT !.view = v, !.to = next]

\* Code: none: neighbours answer OLD_VIEW instead
Redirect(m) ==
    /\ "restamped" \in Bugs
    /\ m.to \in Newest.out /\ Newest.chain # <<>> /\ Newest.serves
    /\ net' = net \cup {Redirected(m)}
    /\ UNCHANGED <<views, gone, ended, switch, request, known, possible>>

\* Code: none: a switch starts anew with empty slots and takes its old part
Restart(s) ==
    /\ "kept_roles" \in Bugs
    /\ switch' = [switch EXCEPT ![s].slot = Empty, ![s].window = [i \in Ids |-> "fresh"]]
    /\ UNCHANGED <<views, gone, ended, net, request, known, possible>>

\* Code: none: a switch starts anew, and gives a lease before it has a version again
LeaseAgain(r) ==
    /\ "lease_without_version" \in Bugs
    /\ r \in ended
    /\ ended' = ended \ {r}
    /\ UNCHANGED <<views, gone, switch, net, request, known, possible>>

\* Code: none: a client is forgotten while copies of its requests are on their way
Forget(s, i) ==
    /\ "forgotten" \in Bugs
    /\ switch' = [switch EXCEPT ![s].window[i] = "fresh"]
    /\ UNCHANGED <<views, gone, ended, net, request, known, possible>>

(* Each member collects by itself. *)
\* Code: none: the head sends COLLECT instead
FreeAlone(s) ==
    /\ "free_alone" \in Bugs
    /\ Works(s) /\ Tombstone(s, switch[s].slot)
    /\ switch' = [switch EXCEPT ![s].slot = Empty]
    /\ UNCHANGED <<views, gone, ended, net, request, known, possible>>

Next ==
    \/ \E i \in DOMAIN request : Begin(i) \/ Again(i) \/ GiveUp(i)
    \/ \E c \in DOMAIN known : \E v \in DOMAIN views : Learn(c, v)
    \/ \E m \in net :
        \/ m.kind = "reply" /\ TakeReply(m)
        \/ m.kind = "request" /\ (TakeRead(m) \/ TakeWrite(m))
        \/ m.kind = "stamped" /\ TakeStamped(m)
        \/ m.kind = "copy" /\ TakeCopy(m)
        \/ m.kind = "collect" /\ TakeCollect(m)
        \/ m.kind = "collected" /\ TakeCollected(m)
        \/ m.kind \in {"request", "stamped"} /\ Redirect(m)
    \/ \E s \in DOMAIN switch : \E v \in DOMAIN views : TakeView(s, v)
    \/ \E s \in DOMAIN switch : Join(s) \/ Found(s) \/ Restart(s) \/ LeaseAgain(s) \/ SendCollect(s) \/ FreeAlone(s)
    \/ \E s \in DOMAIN switch : \E i \in DOMAIN request : Forget(s, i)
    \/ TakeOut \/ Serve \/ SendCopy \/ Activate \/ Collect

Spec == Init /\ [][Next]_vars
=============================================================================
