---------------------------- MODULE SnapshotsLive ----------------------------
(* Liveness of Snapshots.tla: a snapshot that is being taken is acknowledged whole some time, whatever was lost or late before, unless
   another switch is granted the structure. Parts and answers stay in the network, so each step of the exchange brings something new:
   it is enough that some of it goes on as long as there is any. (Without the bound on what is under way: it would cut runs short.) *)
EXTENDS Snapshots

GoesOn ==
    \/ \E slot \in Slots : Send(slot)
    \/ \E m \in net : (Take(m) \/ Acknowledged(m)) /\ vars' # vars

LiveSpec == Init /\ [][Next]_vars /\ WF_vars(GoesOn)

Ends == taking ~> ~taking
=============================================================================
