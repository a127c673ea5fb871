------------------------------ MODULE ChainLive ------------------------------
(* Liveness of Chain.tla: when the newest view's servers live and the controller leaves them in peace, every entry that the head has
   is answered. What goes on by itself: servers learn the newest view, send, take, copy. Every such step brings something new (nothing
   is forgotten but with a newer view, and views are finite), so it is enough that some of it goes on as long as there is any. *)
EXTENDS ChainCheck

Learns == \E s \in Servers : \E v \in 1..Len(views) : Learn(s, v)
GoesOn ==
    \/ \E s \in Servers : (Send(s) /\ "never_sent" \notin Bugs) \/ Copied(s)
    \/ \E s \in Servers, t \in Servers : Whole(s, t)
    \/ Learns
    \/ \E m \in net : Take(m)

LiveSpec == Init /\ [][Next]_vars /\ WF_vars(GoesOn)

Sound == \A s \in In(Newest.members) \cup Newest.joining : server[s].alive
Leader == Newest.members[1]

(* An entry of a sound chain is answered. *)
Served == <>[]Sound => \A e \in 1..Entries : (e \in In(server[Leader].log)) ~> (e \in answered \/ e \notin In(server[Leader].log))
=============================================================================
