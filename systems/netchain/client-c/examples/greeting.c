/* The whole use of the client: ./greeting kv.toml */
#include <netchain.h>
#include <stdio.h>

int main(int count, char **arguments) {
    char error[256];
    nc_answer answer;
    nc_client *client = nc_open(count > 1 ? arguments[1] : NULL, error, sizeof error);
    if (client == NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    if (nc_put(client, "greeting", "hello", 5, &answer) != NC_DONE
        || nc_get(client, "greeting", &answer) != NC_DONE) {
        fprintf(stderr, "%s\n", nc_text(answer.outcome));
        return 1;
    }
    printf("%.*s\n", (int)answer.length, (const char *)answer.value);

    /* Many requests at a time. */
    nc_request add = {.operation = NC_ADD, .operand = 1};
    uint32_t outcome = nc_key("visits", add.key);
    for (int at = 0; at < 100 && outcome == NC_DONE; at++) {
        nc_submit(client, &add, &outcome);
    }
    int done = 0;
    while (nc_next(client, -1, &answer) == 1) {
        done += answer.outcome == NC_DONE;
    }
    printf("%d additions\n", done);

    /* The keys that begin with "greet". */
    nc_listing *keys = nc_list(client, "greet", 5);
    uint8_t key[NC_KEY_BYTES];
    while (nc_list_next(client, keys, key, &outcome) == 1) {
        printf("%.16s\n", (const char *)key);
    }
    nc_list_end(keys);

    /* A lock. */
    nc_seat *lock = nc_lock_take(client, "lock", 2000, 5000, &outcome);
    if (lock == NULL) {
        fprintf(stderr, "%s\n", nc_text(outcome));
        return 1;
    }
    printf("locked: %d\n", nc_seat_token(lock) > 0 && nc_seat_left_us(lock) > 0);
    nc_seat_release(lock);
    nc_close(client);
    return 0;
}
