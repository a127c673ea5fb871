---------------------------- MODULE BatchesLive ----------------------------
(* Liveness of Batches.tla: packets, losses and deaths are finite in number, and what goes on being
   possible is done some time. No bound cuts runs short, and there is no symmetry: both would hide
   endless runs. *)
EXTENDS Batches

(* A CPU ends its packet; the generator looks after what arrivals leave. *)
Looks == "not_looked_after" \notin Bugs

Of(m, s, c, type) == m.type = type /\ m.switch = s /\ m.cpu = c

Fair(s, c) ==
    /\ WF_vars(Record(s, c) \/ CopyAgain(s, c) \/ RecordAgain(s, c) \/ Park(s, c))
    /\ WF_vars(Looks /\ Depart(s, c))
    /\ WF_vars(Looks /\ Carry(s, c))
    /\ WF_vars(Resend(s, c))
    /\ WF_vars(\E m \in net : Of(m, s, c, "BATCH") /\ TakeBatch(m))
    /\ WF_vars(\E m \in net : Of(m, s, c, "ACK") /\ (TakeAck(m) \/ DropAck(m)))

LiveSpec == Spec /\ WF_vars(TakeEffect) /\ \A s \in Switches, c \in Cpus : Fair(s, c)

-----------------------------------------------------------------------------
(* What must come to pass *)

(* A batch in flight is acknowledged. *)
Acknowledged == \A s \in Switches, c \in Cpus :
    (stream[s][c].departed > stream[s][c].acked) ~> (stream[s][c].departed = stream[s][c].acked)

(* No packet waits for ever, and no record. *)
Emptied == <>[](\A s \in Switches, c \in Cpus :
    stream[s][c].open = <<>> /\ stream[s][c].waiting = <<>> /\ stream[s][c].ready = <<>>)
=============================================================================
