------------------------------ MODULE FlowLive ------------------------------
(* Liveness of Flow.tla: once faults stop ("calm"), nothing waits for ever, and whoever keeps asking for the flow gets it. Before that
   everything may happen that Flow.tla allows. Calm means: nothing starts anew, the network repeats nothing, and what is due is done
   before time goes on: messages are taken before they are late, what is to be sent (again) is sent, each once a tick. Heartbeats may
   be sent once a tick or not at all: an owner that goes on sending them never loses its lease, so that only a recall gets the flow
   from it, and nothing else may hang on them. So it is enough that what is due, or else time, goes on. No bound cuts runs short: that would hide endless ones. *)
EXTENDS Flow

CONSTANTS
    Asker,      \* the switch whose packets keep coming
    Room,       \* bound: messages at the same time under way once it is calm (more wait for it; with Window > 0 what fills it may do nothing until it is late, so it must be more than can be under way)
    Faults      \* whether there are any before it is calm; else it is from the start

VARIABLES
    calm,       \* faults have stopped
    done        \* once it is calm: what was sent (again) in this tick, as <<type, switch>>

all == <<store, sessions, numbers, switch, net, begun, left, floor, budget, calm, done>>

LiveInit == Init /\ calm = ~Faults /\ done = {}

(* Once it is calm each kind is sent once a tick, so no bound is needed but for speed; before that, what finds no room is lost. *)
Fits == Cardinality(net') <= IF calm THEN Room ELSE InFlight

(* A time-out is not shorter than a tick. *)
Once(type, s) == calm => <<type, s>> \notin done /\ done' = done \cup {<<type, s>>}
Hot == ~calm => done' = done

(* A packet of the flow comes to Asker again and again; here it only asks, so that counts stay finite. *)
\* Code: bpf/redplane/stateplane_flow_access.h sp_flow_request
Wants == ~Owns(Asker) /\ ~Under(Asker, "REQUEST") /\ <<"REQUEST", Asker>> \notin done
Ask ==
    /\ calm /\ Wants /\ Once("REQUEST", Asker)
    /\ net' = net \cup {Message(Asker, "REQUEST") @@ [packet |-> 0]}
    /\ UNCHANGED <<store, sessions, numbers, switch, begun, left, floor, budget>>

(* A request may wait at the head for the owner, as long as its packet lives; the owner is recalled, once a tick. *)
Waits(m) == m.type = "REQUEST" /\ Heard(m) /\ Alive /\ ~Owner(m)
Recallable(m) == <<"RECALL", store.owner>> \notin done /\ sessions[store.owner].newest <= Window
Late(m) == m.age > Window
Urgent(m) == Late(m) \/ IF Waits(m) THEN Recallable(m) ELSE m.age = Window

Takes(m) ==
    /\ ~Late(m)
    /\ IF m.type \notin Requests THEN (\E s \in Switches : SwitchTakes(s, m)) /\ UNCHANGED done
       ELSE IF calm /\ Waits(m) THEN Recallable(m) /\ StoreTakes(m) /\ done' = done \cup {<<"RECALL", store.owner>>}
       ELSE StoreTakes(m) /\ UNCHANGED done

(* The generator's turn comes, and so does the sweep's. *)
Again(s) == IF Entry(s).released THEN Resend(s) /\ Once("RELEASE", s) ELSE Resend(s) /\ Once("UPDATE", s)
Owes(s) ==
    \/ ~Entry(s).released /\ Entry(s).seq > Entry(s).acked /\ ~Under(s, "UPDATE") /\ <<"UPDATE", s>> \notin done
       /\ "never_sent_again" \notin Bugs
    \/ Entry(s).released /\ Entry(s).gone = 0 /\ ~Under(s, "RELEASE") /\ <<"RELEASE", s>> \notin done
       /\ "released_once" \notin Bugs

Due ==
    \/ \E m \in net : (Lose(m) /\ UNCHANGED done) \/ (Urgent(m) /\ Takes(m))
    \/ \E s \in Switches : (Again(s) /\ Hot) \/ (Forget(s) /\ UNCHANGED done)
    \/ Ask

TimeWaits ==
    \/ \E m \in net : Urgent(m)
    \/ Wants
    \/ \E s \in Switches : Owes(s)
    \/ \E s \in Switches : Entry(s).released /\ Entry(s).gone > Window + 1
Passes == Tick /\ (calm => ~TimeWaits) /\ done' = {}

Step ==
    \/ Due \/ Passes
    \/ ~calm /\ Takeover /\ UNCHANGED done
    \/ \E s \in Switches :
        \/ (Arrive(s) \/ Read(s)) /\ UNCHANGED done
        \/ Heartbeat(s) /\ Once("HEARTBEAT", s) /\ Hot
        \/ ~(calm /\ s = Asker) /\ GiveBack(s) /\ UNCHANGED done
        \/ ~calm /\ Crash(s) /\ UNCHANGED done
    \/ \E m \in net : Takes(m)

LiveNext ==
    \/ Step /\ Fits /\ (calm => budget' = budget) /\ UNCHANGED calm
    \/ ~calm /\ calm' = TRUE /\ UNCHANGED <<vars, done>>

GoesOn == calm /\ (Due \/ Passes) /\ Fits /\ budget' = budget /\ UNCHANGED calm

LiveSpec == LiveInit /\ [][LiveNext]_all /\ WF_all(GoesOn)

-----------------------------------------------------------------------------
(* What must come to pass *)

(* An update is acknowledged, or its owner learns that it is none. *)
Settled == \A s \in Switches : (calm /\ Entry(s).seq > Entry(s).acked) ~> (Entry(s).seq = Entry(s).acked)

(* A flow that was given back is free, and forgotten. *)
Returned == \A s \in Switches : (calm /\ Entry(s).released) ~> ~Entry(s).released

(* Who keeps asking gets the flow, from a living owner (recall) as well as from a dead one (its lease ends). *)
Granting == calm ~> Owns(Asker)
=============================================================================
