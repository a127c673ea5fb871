/* NetChain's client for C: keys that switches serve, and locks and elections on them.
 *
 * Link with -lnetchain (shared), or libnetchain.a and -lpthread -ldl -lm.
 *
 * All objects are for one thread at a time. A name is a string that ends with a zero byte; a key's
 * name has at most 16 bytes before it, and longer names are refused. After a fork the child must
 * open a client of its own; calls with the parent's client return NC_FORKED.
 */
#ifndef NETCHAIN_H
#define NETCHAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NC_VALUE_MAX 128
#define NC_KEY_BYTES 16

/* What became of a request. */
enum nc_outcome {
    NC_DONE = 0,          /* carried out */
    NC_REFUSED = 1,       /* its condition did not hold: version and value say why */
    NC_UNKNOWN = 2,       /* it may have happened, or may still happen */
    NC_FULL = 3,          /* no slot for another key */
    NC_NO_CHAIN = 4,      /* not carried out: no switch answered */
    NC_LOST = 5,          /* all switches of the key's group were lost */
    NC_TOO_LONG = 6,      /* the value is longer than 128 bytes */
    NC_DENIED = 7,        /* the client's key may not do that */
    NC_TOO_MANY = 8,      /* the switch has no room for another client */
    NC_WRONG_RING = 9,    /* client and switches have different founding files */
    NC_WRONG_FORMAT = 10, /* client and switches are of different versions */
    NC_BUSY = 11,         /* not begun: too many requests are under way */
    NC_FORKED = 12,       /* the client is the parent process's */
    NC_BAD_ARGUMENT = 13, /* an invalid pointer, name, operation or number */
    NC_SYSTEM = 14,       /* the socket fails, or a file cannot be read */
    NC_NOT_OURS = 15,     /* the key has a value of another kind */
    NC_OTHERS = 16        /* others held the lock for all of patience_ms */
};

enum nc_operation {
    NC_GET = 1,
    NC_PUT = 2,
    NC_INSERT = 3,          /* if the key has no value */
    NC_COMPARE_VERSION = 4, /* if its version is the operand; 0: it was never written */
    NC_COMPARE_OWNER = 5,   /* if its first eight bytes are the operand, big-endian */
    NC_ADD = 6,             /* the operand, to the first eight bytes, big-endian */
    NC_DELETE = 7           /* if its version is the operand, or the operand is 0 */
};

/* Flags of an answer. */
#define NC_HAS_VALUE 1u /* the key has a value */
#define NC_HAS_OWN 2u   /* `own` is known */
#define NC_MOVED 4u     /* version and value are later ones than the outcome's */

typedef struct nc_request {
    uint32_t operation;
    uint32_t length;         /* of the value, in bytes */
    uint64_t operand;
    uint64_t deadline_ms;    /* 0: as the configuration says */
    uint8_t key[NC_KEY_BYTES];
    const uint8_t *value;
} nc_request;

typedef struct nc_answer {
    uint64_t ticket;         /* of nc_submit */
    uint64_t own;            /* the version that the request made: a fencing token */
    uint64_t version;        /* what the key has */
    uint32_t outcome;
    uint32_t flags;
    uint32_t length;         /* of the value, in bytes */
    uint8_t value[NC_VALUE_MAX];
} nc_answer;

typedef struct nc_client nc_client; /* a client */
typedef struct nc_listing nc_listing; /* keys with a prefix */
typedef struct nc_seat nc_seat;     /* a lock that is held, or a share of one */
typedef struct nc_leader nc_leader; /* an election that is won */

/* Opens a client with its configuration file. NULL: `error` says why, with a zero at its end. */
nc_client *nc_open(const char *file, char *error, size_t error_bytes);
/* Closes a client. Requests without an answer may have been carried out. NULL is allowed. */
void nc_close(nc_client *client);
/* An outcome in words. */
const char *nc_text(uint32_t outcome);
/* Writes a name into a key. NC_BAD_ARGUMENT: it has more than 16 bytes. */
uint32_t nc_key(const char *name, uint8_t key[NC_KEY_BYTES]);

/* One request. Returns its outcome, which is also in the answer. */
uint32_t nc_ask(nc_client *client, const nc_request *request, nc_answer *answer);
uint32_t nc_get(nc_client *client, const char *name, nc_answer *answer);
uint32_t nc_put(nc_client *client, const char *name, const void *value, size_t bytes,
                nc_answer *answer);
uint32_t nc_insert(nc_client *client, const char *name, const void *value, size_t bytes,
                   nc_answer *answer);
uint32_t nc_compare_and_set(nc_client *client, const char *name, uint64_t version,
                            const void *value, size_t bytes, nc_answer *answer);
uint32_t nc_add(nc_client *client, const char *name, uint64_t delta, nc_answer *answer);
uint32_t nc_delete(nc_client *client, const char *name, uint64_t version, nc_answer *answer);

/* Many requests at a time. Begins one and returns its ticket; 0: not begun, `outcome` says why. */
uint64_t nc_submit(nc_client *client, const nc_request *request, uint32_t *outcome);
/* Sends the requests that wait, then waits for the next answer, for about `wait_us` (-1: until no
 * request is under way). 1: there is an answer; 0: there is none; -1: the client fails, and
 * answer->outcome says how. */
int nc_next(nc_client *client, int64_t wait_us, nc_answer *answer);
/* Gives a request up. It may have been carried out, or may still be. */
void nc_cancel(nc_client *client, uint64_t ticket);
/* For event loops: nc_turn sends and receives without waiting; then nc_answer gives answers. Call
 * nc_turn when the descriptor can be read, and after nc_wait_us (-1: nothing is under way). */
int nc_fd(const nc_client *client);
uint32_t nc_turn(nc_client *client);
int nc_take_answer(nc_client *client, nc_answer *answer);
int64_t nc_wait_us(nc_client *client);

/* The keys that begin with a prefix (at most 16 bytes; none: all keys), in any order. A listing is
 * no snapshot: a key that has a value from the listing's begin to its end is listed once. A key
 * that is made or deleted meanwhile may be listed or not. NULL: the prefix is too long, or `client`
 * is NULL. */
nc_listing *nc_list(const nc_client *client, const void *prefix, size_t prefix_bytes);
/* The next key. 1: there is one; 0: there are no more; -1: keys are missing, and `outcome` says
 * why. After NC_LOST and NC_NO_CHAIN (of one group) keys of other groups follow. */
int nc_list_next(nc_client *client, nc_listing *listing, uint8_t key[NC_KEY_BYTES],
                 uint32_t *outcome);
/* For event loops, one request at a time: nc_list_submit begins it; nc_list_take takes its answer
 * (an outcome as of nc_list_next); then nc_list_key has its keys (1: there is one; 0: there are no
 * more). A ticket of 0 with NC_DONE: the listing is over. */
uint64_t nc_list_submit(nc_client *client, nc_listing *listing, uint32_t *outcome);
uint32_t nc_list_take(nc_listing *listing, const nc_answer *answer);
int nc_list_key(nc_listing *listing, uint8_t key[NC_KEY_BYTES]);
/* Frees a listing. NULL is allowed. */
void nc_list_end(nc_listing *listing);

/* Locks, with leases: see the page of the crate netchain-recipes. They use a client of their own,
 * with the configuration of this one. patience_ms -1: for ever. NULL: `outcome` says why. */
nc_seat *nc_lock_take(const nc_client *client, const char *name, uint64_t lease_ms,
                      int64_t patience_ms, uint32_t *outcome);
nc_seat *nc_rwlock_take(const nc_client *client, const char *name, int writes, uint64_t lease_ms,
                        int64_t patience_ms, uint32_t *outcome);
nc_seat *nc_semaphore_take(const nc_client *client, const char *name, uint8_t permits,
                           uint64_t lease_ms, int64_t patience_ms, uint32_t *outcome);
/* The fencing token. */
uint64_t nc_seat_token(const nc_seat *seat);
/* The time in microseconds for which the lock is held without a refresh; 0: not any more. */
uint64_t nc_seat_left_us(const nc_seat *seat);
/* Renews the lease: 1; 0: it is lost. Call it when a third of the lease is over. */
int nc_seat_refresh(nc_seat *seat);
/* Releases the lock and frees the object. NULL is allowed. */
void nc_seat_release(nc_seat *seat);

/* Leader election. `told`: at most 112 bytes, for all to see. */
nc_leader *nc_campaign(const nc_client *client, const char *name, const void *told, size_t bytes,
                       uint64_t lease_ms, int64_t patience_ms, uint32_t *outcome);
uint64_t nc_leader_token(const nc_leader *leader);
uint64_t nc_leader_left_us(const nc_leader *leader);
int nc_leader_refresh(nc_leader *leader);
/* Resigns and frees the object. NULL is allowed. */
void nc_leader_resign(nc_leader *leader);

#ifdef __cplusplus
}
#endif

#endif
