-------------------------------- MODULE SDW --------------------------------
(* SDW of SwiSh: what must hold. Windows.tla has the data plane, Recovery.tla the removal of
   members. *)
EXTENDS Recovery

vars == <<switch, net, written, back, left, controller>>

Init == WindowsInit /\ RecoveryInit

Next ==
    \/ /\ UNCHANGED controller
       /\ \/ \E s \in Members :
               \/ \E b \in Blocks : Update(s, b)
               \/ \E b \in Blocks \cup {0} : Pin(s, b)
               \/ Commit(s)
          \/ \E s \in Members \ Silent :
               \/ SayReady(s) \/ Rotate(s) \/ Send(s) \/ Refill(s) \/ Advance(s)
               \/ Claim(s) \/ Finish(s)
               \/ \E m \in net : Receive(s, m) \/ Begin(s, m)
    \/ \E s \in Members :
        \/ TakeSeal(s) \/ EndSeal(s) \/ Report(s)
        \/ \E d \in decisions : Take(s, d)
        \/ \E m \in Members, r \in Rotations : HandIn(m, s, r)
    \/ \E members \in SUBSET Members : Seal(members)
    \/ Decide

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold (systems/swish/README.md, "Invariants") *)

(* Members as the controller has it last. *)
In == Newest.members
Now(s, b) == Read(s, b, word[s].window)

(* 1 *)
SameValues == \A s, t \in In : word[s].window = word[t].window =>
    \A b \in Blocks : Now(s, b) = Now(t, b)

(* 2, for members: a packet sees all rotations below its window, and no other. *)
Counted == \A s \in In, m \in In, r \in Rotations, b \in Blocks :
    Now(s, b)[m][r] = IF r < word[s].window THEN written[m][r][b]
                      ELSE IF <<m, r>> \in handed THEN Now(s, b)[m][r] ELSE 0

(* 2, for removed ones: a rotation counts, or it does not. *)
AllOrNone == \A s \in In, m \in Members \ In, r \in Rotations :
    \/ \A b \in Blocks : Now(s, b)[m][r] = 0
    \/ \A b \in Blocks : Now(s, b)[m][r] = written[m][r][b]

(* The controller knows which ones do. *)
Accounted == (\A s \in In : view[s].number = Newest.number) =>
    \A s \in In, m \in Members \ In, r \in Rotations, b \in Blocks : <<m, r>> \in handed
        \/ Now(s, b)[m][r] = IF r <= Newest.counted[m] /\ r < word[s].window THEN written[m][r][b]
                             ELSE 0

(* What is handed in has not counted, and counts once: in what members read, or in a delta that
   they have not merged. *)
Handed == \A s \in In, b \in Blocks, m \in Members \ In, r \in Rotations :
    Now(s, b)[m][r] + Sum([t \in In |-> Sum([i \in Sides |->
        IF delta[t][i][b].rotation >= word[s].window THEN delta[t][i][b].bag[m][r] ELSE 0],
    Sides)], In) <= written[m][r][b]

(* 3, 8. No update counts twice in a value that is read, or is merged for the second time. *)
Once == \A s \in In, b \in Blocks, m \in Members, r \in Rotations :
    /\ Now(s, b)[m][r] <= written[m][r][b]
    /\ \A i \in Sides : value[s][i][b].window = word[s].window
         => value[s][i][b].bag[m][r] <= written[m][r][b]

(* 4 *)
OneWindow == \A s \in Members : packet[s] # None =>
    \A b \in Blocks : Read(s, b, packet[s].word.window) = packet[s].saw[b]

(* 4. A rotation has left with all of its updates. *)
Unchanged == \A x, y \in net :
    x.kind = "CELLS" /\ y.kind = "CELLS" /\ x.from = y.from /\ x.of = y.of =>
        x.total = y.total /\ (x.block = y.block => x.bag = y.bag)

(* What a member may lack of a source is still there: nobody rotates before all are ready. *)
Kept == \A s, t \in In : word[s].phase >= Rotated => word[t].window >= word[s].window

(* 4 *)
MergesInTime == \A s \in Members : frame[s].step = "merge" => frame[s].window = word[s].window

(* 7 *)
Share == \A s \in Members, r \in Rotations : InRotation(s, r) <= B

(* A query misses at most r = 2NB of the updates that had ended before it (§6.3). *)
Missed(s) ==
    Sum([m \in Members |-> Sum([r \in Rotations |-> Sum([b \in Blocks |->
        IF Now(s, b)[m][r] < written[m][r][b] THEN written[m][r][b] - Now(s, b)[m][r] ELSE 0],
    Blocks)], Rotations)], Members)
Relaxed == In = Members => \A s \in Members : Missed(s) <= 2 * Cardinality(Members) * B

Symmetry == {p \in Permutations(Members) :
    {p[m] : m \in Silent} = Silent /\ {p[m] : m \in Writers} = Writers}
=============================================================================
