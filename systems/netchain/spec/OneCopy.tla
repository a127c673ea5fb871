------------------------------ MODULE OneCopy ------------------------------
(* What clients ask for, and what a single copy of the key could tell them. NetChain.tla uses it. *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANT
    Scenario    \* the clients' requests, see Requests

VARIABLES
    request,    \* by request: what its client knows of it
    possible    \* the states that one copy of the key may be in, with results of requests whose
                \* clients wait

-----------------------------------------------------------------------------
(* What clients ask for. Each makes its requests one after the other. *)

None == -1 \* the key has no value
Nobody == -1 \* wrote the state of a key that has no slot
R(client, op, operand, value) == [client |-> client, op |-> op, operand |-> operand, value |-> value]
Acquire(client) == R(client, "OWNER", 0, client)
Release(client) == R(client, "OWNER", client, 0)
Read(client) == R(client, "READ", 0, 0)
Put(client, value) == R(client, "PUT", 0, value)
Delete(client) == R(client, "DELETE", 0, 0)
Add(client) == R(client, "ADD", 1, 0)

Requests ==
    CASE Scenario = "locks" -> <<Acquire(1), Acquire(2)>>
      [] Scenario = "refused" -> <<Acquire(1), Acquire(2), Read(2)>>
      [] Scenario = "handover" -> <<Release(1), Acquire(2), Read(1)>>
      [] Scenario = "counter" -> <<Add(1), Add(2), Read(2)>>
      [] Scenario = "again" -> <<Add(1), Add(1), Add(2)>>
      [] Scenario = "count" -> <<Add(1), Read(1)>>
      [] Scenario = "put" -> <<Put(1, 11), Read(2)>>
      [] Scenario = "founding" -> <<Put(1, 11), Read(2), Put(2, 12)>>
      [] Scenario = "reads" -> <<Put(1, 11), Read(2), Read(2)>>
      [] Scenario = "delete" -> <<Put(1, 11), Delete(2), Read(2)>>
      [] Scenario = "insert" -> <<Delete(1), R(1, "INSERT", 0, 11), R(2, "VERSION", 0, 12)>>
      [] Scenario = "versions" -> <<R(1, "VERSION", 0, 11), Read(2), Put(2, 12)>>
      [] Scenario = "absent" -> <<Put(1, 11), Read(2)>>
      [] Scenario = "gone" -> <<Delete(1), Read(1)>>
      [] Scenario = "unanswered" -> <<Delete(1), R(2, "OWNER", 9, 9), Read(2)>>
      [] Scenario = "collect" -> <<Delete(1), Put(2, 12), Read(1)>>
      [] Scenario \in {"recount", "refloor"} -> <<Add(1), Delete(2), Read(2)>>
      [] Scenario = "recreate" -> <<R(1, "VERSION", 0, 11), Delete(2), Read(2)>>
      [] Scenario = "recompare" -> <<Delete(1), R(1, "VERSION", 0, 11), Read(2)>>
      [] Scenario = "look" -> <<Delete(1), Read(2), R(2, "VERSION", 0, 12)>>

(* The first request was carried out, and the answer is lost. *)
Begun == Scenario \in {"recount", "refloor", "recreate"}
(* Its client, like all others, knew a floor. *)
FirstFloor == IF Scenario = "refloor" THEN 1 ELSE 0

(* The value at the start, before that. (None: the key was never written.) *)
First == CASE Scenario = "handover" -> 1
           [] Scenario \in {"absent", "recount", "refloor", "recreate"} -> None
           [] OTHER -> 0

Ids == 1..Len(Requests)
Clients == {Requests[i].client : i \in Ids}
Earlier(i) == {j \in Ids : j < i /\ Requests[j].client = Requests[i].client}

(* What request i does to a value; `same`: whether the version is that which its client compares with. *)
Effect(i, value, same) ==
    LET r == Requests[i]
        done(new) == [ok |-> TRUE, writes |-> TRUE, value |-> new]
        unless(holds, new) == IF holds THEN done(new) ELSE [ok |-> FALSE, writes |-> FALSE, value |-> value]
    IN CASE r.op = "READ" -> [ok |-> TRUE, writes |-> FALSE, value |-> value]
         [] r.op = "PUT" -> done(r.value)
         [] r.op = "INSERT" -> unless(value = None, r.value)
         [] r.op = "OWNER" -> unless(value = r.operand, r.value)
         [] r.op = "VERSION" -> unless(same, r.value)
         [] r.op = "ADD" -> done((IF value = None THEN 0 ELSE value) + r.operand)
         [] r.op = "DELETE" -> unless(value # None, None)

-----------------------------------------------------------------------------
(* One copy of the key: its value, who wrote it, and results of requests that took effect while
   their clients still wait. Once tombstones are collected, a key without a value has two names:
   that of its tombstone's writer, and Nobody. A comparison with either may hold or not. *)

TakesEffect(one, i) ==
    LET compared == request[i].by
        same == IF compared \notin one.by THEN {FALSE} ELSE {TRUE, one.by = {compared}}
        names == IF Effect(i, one.value, TRUE).value = None /\ request[i].early THEN {i, Nobody} ELSE {i}
        after(e) == [value |-> e.value, by |-> IF e.writes THEN names ELSE one.by,
                     result |-> [one.result EXCEPT ![i] = <<e.ok, e.value>>]]
    IN {after(Effect(i, one.value, holds)) : holds \in same}

RECURSIVE Closed(_, _)
Closed(ones, waiting) ==
    LET fresh(one) == {j \in waiting : one.result[j] = <<>>}
        steps == UNION {UNION {TakesEffect(one, i) : i \in fresh(one)} : one \in ones}
    IN IF steps \subseteq ones THEN ones ELSE Closed(ones \cup steps, waiting)

(* Requests that may take effect now: those whose clients wait, and those of which a client was told that nobody knows. *)
Waiting == {i \in Ids : request[i].at = "open" \/ (request[i].at = "unknown" /\ Requests[i].op # "READ")}

Told(i, status, moved, value) ==
    LET before == Closed(possible, Waiting \ {i})
        after == {one \in possible : one.result[i] # <<>>}
                 \cup UNION {TakesEffect(one, i) : one \in {o \in before : o.result[i] = <<>>}}
        fits(one) == one.result[i][1] = (status = "DONE") /\ (moved \/ one.result[i][2] = value)
        kept == IF status = "FULL" THEN {one \in possible : one.result[i] = <<>>} ELSE {one \in after : fits(one)}
    IN {[one EXCEPT !.result[i] = <<>>] : one \in kept}

(* Tombstones that are there now may be collected from now on; and those of deletes that wait (`early`):
   the head may have made them, though readers do not see them yet. *)
Early(i) == Requests[i].op = "DELETE" /\ i \in Waiting
Collectable ==
    {one \in possible : one.value # None} \cup
    {[one EXCEPT !.by = @ \cup {Nobody}] : one \in {o \in Closed(possible, Waiting) : o.value = None}}

------------------------------------------------------------------------
=============================================================================
