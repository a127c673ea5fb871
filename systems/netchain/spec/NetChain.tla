------------------------------ MODULE NetChain ------------------------------
(* What must hold of NetChain's protocol (Protocol.tla), and which of its states are one to TLC. *)
EXTENDS Protocol

-----------------------------------------------------------------------------
(* States that differ only in what can do nothing any more are one state to TLC (VIEW). *)

Over(i) == request[i].at \notin {"new", "open"}
(* It has no part any more, and gets none. Or it is out, was never a tail, and who came behind it has a
   view without it. *)
Inert(s) ==
    LET chains == {Chain(v) : v \in {w \in 1..Len(views) : s \in In(Chain(w))}}
        behind(chain) == {member \in In(chain) : Place(member, chain) > Place(s, chain)}
        left(member) == switch[member].view > 0 /\ s \notin In(Chain(switch[member].view))
    IN \/ s \in gone
       \/ /\ ~Fills
          /\ Bugs \cap {"views_ignored", "restamped", "head_refuses", "kept_roles", "tail_reads_on"} = {}
          /\ s \notin In(Newest.chain)
          /\ \A chain \in chains : s # Final(chain) /\ \A member \in behind(chain) : left(member)
          /\ \A v \in 1..Len(views) : s \in In(Chain(v)) => s # Asked(v)

(* A stamped message with this slot changes nothing at the tail, however long it is on its way. *)
Old(s, slot) ==
    /\ slot.version <= switch[s].slot.version \/ (switch[s].slot.version = 0 /\ Tombstone(s, slot))
    /\ Tombstone(s, slot) \/ slot.version = 0 \/ slot.version >= Session(views[switch[s].view].floor)
    /\ Bugs \cap {"no_tombstone", "kept_roles", "stored", "same_session", "frees_any"} = {}

(* The slot never is this tombstone again, in this view, and what follows was sent. *)
Collected(s, tombstone, next) ==
    /\ next
    /\ switch[s].slot.version = 0 \/ switch[s].slot.version > tombstone.version
    /\ Bugs \cap {"stored", "same_session", "frees_any"} = {}

Stale(m) ==
    LET chain == Chain(m.view)
        place == Place(m.to, chain)
        last == place = Len(chain)
        returns(at) == \E n \in net : n.kind = "collected" /\ n.view = m.view /\ n.to = chain[at] /\ n.slot = m.slot
    IN CASE m.kind = "reply" -> Over(m.id)
         [] "restamped" \in Bugs -> FALSE
         [] Inert(m.to) \/ (m.view < switch[m.to].view /\ "views_ignored" \notin Bugs) -> TRUE
         [] m.view # switch[m.to].view -> FALSE
         [] m.kind = "request" -> Requests[m.id].op = "READ" /\ Over(m.id)
         [] m.kind = "stamped" -> Over(m.id) /\ last /\ Old(m.to, m.slot)
         [] m.kind = "collect" ->
                Collected(m.to, m.slot, IF last THEN returns(place - 1) ELSE [m EXCEPT !.to = chain[place + 1]] \in net)
         [] m.kind = "collected" -> Collected(m.to, m.slot, place = 1 \/ returns(place - 1))
         [] OTHER -> FALSE

(* A stamped message of a request that is over only carries a slot; of a request that has its verdict, AGAIN says nothing. *)
Plain(m) ==
    IF m.kind = "stamped" /\ Over(m.id) THEN [m EXCEPT !.id = 0, !.status = "DONE", !.moved = FALSE]
    ELSE IF m.kind = "request" /\ switch[m.to].window[m.id] # "fresh" /\ switch[m.to].view = m.view
            /\ Bugs \cap {"no_window", "forgotten", "kept_roles", "restamped"} = {}
      THEN [m EXCEPT !.again = FALSE]
    ELSE m

(* What matters of the first copy's view: its head, and the floor that the client knew. *)
Seen(i) == LET view == request[i].first IN IF view = 0 THEN <<0, 0>> ELSE <<HeadSince(view), views[view].floor>>
Count(i) == IF Copies < Views THEN Sent(i) ELSE 0

Different ==
    <<views, gone, {r \in ended : ~Inert(r)}, possible,
      {Plain(m) : m \in {m \in net : ~Stale(m)}},
      [s \in Switches |-> IF Inert(s) THEN switch[s].view ELSE switch[s]],
      [i \in Ids |->
        IF Over(i) THEN [request[i] EXCEPT !.first = 0, !.last = 0, !.early = @ /\ request[i].at = "unknown"]
        ELSE <<[request[i] EXCEPT !.first = Seen(i)], Count(i)>>],
      [c \in Clients |-> IF \A i \in Ids : Requests[i].client = c => Over(i) THEN 0 ELSE known[c]]>>

-----------------------------------------------------------------------------
(* What must hold *)

Answered == {i \in Ids : request[i].at \in {"DONE", "REFUSED"}}

(* What clients were told is what one copy of the key could have told them. *)
Linearizable == Founded \/ possible # {}

(* Who was told that it has the lock, and has not asked for anything since, is the only one. *)
Holds(i) ==
    /\ request[i].at = "DONE" /\ Requests[i].op = "OWNER" /\ Requests[i].value = Requests[i].client
    /\ \A j \in Ids : i \in Earlier(j) => request[j].at = "new"
OneHolder == Founded \/ \A i, j \in Ids : Holds(i) /\ Holds(j) => i = j

(* Versions that clients are shown do not go back, and a version names one write. (0 is no version:
   see Follows.) *)
Versions ==
    /\ \A i \in Answered : Follows(request[i], request[i].floor)
    /\ \A i, j \in Answered : request[i].version = request[j].version => request[i].by = request[j].by

(* Nobody is shown a count that is more than what was added. *)
Added == Cardinality({i \in Ids : Requests[i].op = "ADD" /\ request[i].at # "new"})
Once == (\E i \in Ids : Requests[i].op = "ADD") => \A i \in Answered : request[i].value <= Added

(* What a client was shown is on every member of the newest chain that is whole. Who has no slot may
   miss what was shown below the floor, if nobody has a value below the floor any more. *)
Committed == Founded \/
    LET whole == In(Newest.chain) \ {Newest.joining}
        over(s) == switch[s].slot.value = None \/ switch[s].slot.version > Session(Floor)
    IN \A s \in whole : \A i \in Answered :
        \/ switch[s].slot.version >= request[i].version
        \/ switch[s].slot.version = 0 /\ request[i].version < Session(Floor) /\ \A member \in whole : over(member)

(* A client that knew the floor when it sent the first copy is not told that nobody knows, of a key
   without a slot. *)
Certain == \A m \in net : m.kind = "reply" /\ m.status = "UNDECIDED" /\ m.version = 0 =>
    views[request[m.id].first].floor < views[m.view].floor

(* Invariant 1 of the paper: who comes earlier has what a later one has, or newer. It does not hold for who joins and is not whole. *)
Ordered == \A i, j \in 1..Len(Newest.chain) :
    LET a == Newest.chain[i]
        b == Newest.chain[j]
        taken(s) == switch[s].view = Len(views)
    IN i < j /\ a # Newest.joining /\ taken(a) /\ taken(b) => switch[a].slot.version >= switch[b].slot.version
=============================================================================
