/* A library of which `shelves.c` is the program: lists and a table of functions, with state of its own. */
#include <stdint.h>
#include <stdlib.h>

struct item { struct item *next; uint64_t value; };
static struct item *shelves[64];
static uint64_t taken;

void shelf_put(uint64_t value) {
    struct item *item = malloc(sizeof *item), **at = &shelves[value * 2654435761u >> 3 & 63];
    *item = (struct item){*at, value};
    *at = item;
}

static uint64_t sum(const struct item *i) { uint64_t s = 0; for (; i; i = i->next) s += i->value; return s; }
static uint64_t largest(const struct item *i) { uint64_t s = 0; for (; i; i = i->next) if (i->value > s) s = i->value; return s; }
static uint64_t count(const struct item *i) { uint64_t s = 0; for (; i; i = i->next) s++; return s; }

uint64_t shelf_ask(unsigned what) {
    static uint64_t (*const ask[])(const struct item *) = {sum, largest, count};
    uint64_t all = taken;
    for (unsigned k = 0; k < 64; k++) all = all * 31 + ask[what % 3](shelves[k]);
    taken++;
    return all;
}

void shelf_finish(void (*print)(uint64_t)) {
    print(taken);
    exit(3);
}
