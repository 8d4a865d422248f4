/* Uses the library `shelf.c`, which calls back and ends the program. */
#include <inttypes.h>
#include <stdio.h>

void shelf_put(uint64_t value);
uint64_t shelf_ask(unsigned what);
void shelf_finish(void (*print)(uint64_t));

static void print(uint64_t taken) { printf("%" PRIu64 "\n", taken); }

int main(void) {
    for (uint64_t k = 0; k < 3000; k++) shelf_put(k * 7919 % 10007);
    uint64_t all = 0;
    for (unsigned k = 0; k < 30; k++) all = all * 1000003 + shelf_ask(k);
    printf("%" PRIu64 "\n", all);
    shelf_finish(print);
}
