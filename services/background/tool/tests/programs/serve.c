/* Serves requests that arrive at random, and says how long they took: serve chase|store MIB STEPS RATE SECONDS COUNTER [WARM [PAUSE]].
   A request follows STEPS pointers through a ring, or gets STEPS keys from a tree, each of which is known when the one before was got. RATE is
   requests a second, 0 for one after another without a pause. Sleeps while there is none. Nothing counts before WARM seconds are over, and
   nothing is done for PAUSE seconds before that: the kernel lets programs in real time run for 950 ms of each second. Prints requests, nanoseconds
   at the 50th, 95th and 99th of a hundred, seconds, and by how much the number in the file COUNTER has grown meanwhile. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed = 88172645463325252u;
static uint64_t chance(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}
static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct item {
    struct item *next;
    uint64_t fill[7];
};
static struct item *at;

static void make_ring(size_t octets) {
    size_t count = octets / sizeof(struct item);
    struct item *items = aligned_alloc(1 << 21, (octets + (1 << 21) - 1) & ~(size_t)((1 << 21) - 1));
    madvise(items, octets, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++) items[i].next = &items[i];
    for (size_t i = count - 1; i > 0; i--) { /* one cycle through all: Sattolo */
        size_t j = chance() % i;
        struct item *other = items[i].next;
        items[i].next = items[j].next, items[j].next = other;
    }
    at = items;
}
__attribute__((noinline)) static uint64_t chase(int steps) {
    struct item *here = at;
    for (int i = 0; i < steps; i++) here = here->next;
    at = here;
    return (uintptr_t)here;
}

/* A tree of nodes of a cache line, and what is stored under each key: the upper levels are in the cache, the lower ones and the values are not.
   The search is one piece of code for each level, so that each load has its own miss rate. */
enum { LEVELS = 8 };
static struct node {
    uint64_t keys[7], fill;
} *nodes;
static struct value {
    uint64_t of, fill;
} *values;
static int levels;

static void *pages(size_t octets) {
    size_t room = (octets + (1 << 21)) & ~(size_t)((1 << 21) - 1);
    void *memory = aligned_alloc(1 << 21, room);
    madvise(memory, room, MADV_HUGEPAGE);
    return memory;
}
static void make_store(size_t octets) {
    uint64_t keys = 8, all = 1;
    for (levels = 1; levels < LEVELS && (all * 8 + 1) * sizeof *nodes + keys * 8 * sizeof *values <= octets; levels++) all = all * 8 + 1, keys *= 8;
    nodes = pages(all * sizeof *nodes), values = pages(keys * sizeof *values);
    uint64_t n = 0;
    for (uint64_t width = keys / 8; width > 0; width /= 8)
        for (uint64_t from = 0; from < keys; from += width * 8, n++)
            for (uint64_t k = 0; k < 7; k++) nodes[n].keys[k] = from + (k + 1) * width;
    for (uint64_t k = 0; k < keys; k++) values[k].of = k * 2654435761u;
}
__attribute__((noinline)) static uint64_t get(int count) {
    uint64_t sum = 0, got = 0, mask = ((uint64_t)1 << (3 * levels)) - 1;
    for (int i = 0; i < count; i++) {
        uint64_t key = (chance() ^ got) & mask, n = 0, leaf = 0;
#pragma GCC unroll 8
        for (int level = 0; level < LEVELS; level++) {
            if (level == levels) break;
            const uint64_t *keys = nodes[n].keys;
            unsigned k = key >= keys[3] ? 4 : 0; /* this one misses, if any does */
            k += key >= keys[k + 1] ? 2 : 0;
            k += key >= keys[k] ? 1 : 0;
            n = n * 8 + 1 + k, leaf = leaf * 8 + k;
        }
        got = values[leaf].of, sum += got;
    }
    return sum;
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 7) return 2;
    int stores = strcmp(argv[1], "store") == 0, steps = atoi(argv[3]);
    size_t octets = strtoul(argv[2], 0, 10) << 20;
    double rate = atof(argv[4]), seconds = atof(argv[5]), warm = argc > 7 ? atof(argv[7]) : 0;
    int file = open(argv[6], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 8) != 0) return 1;
    volatile uint64_t *counter = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (counter == MAP_FAILED) return 1;
    if (stores) make_store(octets);
    else make_ring(octets);
    enum { MOST = 1 << 20 };
    uint32_t *took = malloc(MOST * sizeof *took);
    memset(took, 0, MOST * sizeof *took);
    prctl(PR_SET_TIMERSLACK, 1);
    if (argc > 8) usleep((useconds_t)(atof(argv[8]) * 1e6));
    uint64_t sum = 0, count = 0, t = now(), begin = t + (uint64_t)(warm * 1e9), end = begin + (uint64_t)(seconds * 1e9), before = *counter;
    double next = (double)t;
    int warms = warm > 0;
    while (t < end && count < MOST) {
        if (rate > 0) {
            next += -log(1.0 - (double)(chance() >> 11) / 9007199254740992.0) * 1e9 / rate;
            if ((uint64_t)next > t) {
                struct timespec until = {(time_t)((uint64_t)next / 1000000000u), (long)((uint64_t)next % 1000000000u)};
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
            }
        } else next = (double)t;
        sum += stores ? get(steps) : chase(steps);
        t = now();
        uint64_t ns = t - (uint64_t)next;
        if (warms && t >= begin) warms = 0, begin = t, before = *counter;
        else if (!warms) took[count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
    }
    double lasted = (double)(t - begin) / 1e9;
    uint64_t grown = *counter - before;
    qsort(took, count, sizeof *took, by_value);
    printf("%llu %u %u %u %.6f %llu %d\n", (unsigned long long)count, took[count / 2], took[count * 95 / 100], took[count * 99 / 100], lasted,
           (unsigned long long)grown, (int)(sum & 1));
    return 0;
}
