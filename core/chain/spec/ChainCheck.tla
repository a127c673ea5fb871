----------------------------- MODULE ChainCheck -----------------------------
(* Chain.tla with servers by name, so that TLC's configuration can say who founds the chain. *)
EXTENDS Chain
CONSTANTS a, b, c, d
One == <<a>>
Two == <<a, b>>
Three == <<a, b, c>>
=============================================================================
