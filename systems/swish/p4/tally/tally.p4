// tally.p4: SRO, SDW and EWO in one program. Packets read and write tables with SRO as in pairs.p4,
// and each is counted once with SDW and with EWO.
#define COUNTED
#include "../pairs/pairs.p4"
