/* Walks a random graph again and again: graph dfs|coco ROUNDS [COUNTER]. Depth first, or by components with labels that spread. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NODES = 1 << 15, EDGES = 1 << 16 };
static uint32_t first[NODES + 1], to[2 * EDGES], label[NODES], stack[2 * EDGES + NODES];

__attribute__((noinline)) static uint64_t dfs(uint32_t mark) {
    uint64_t sum = 0;
    uint32_t depth = 0;
    for (uint32_t root = 0; root < NODES; root++) {
        if (label[root] == mark) continue;
        stack[depth++] = root;
        while (depth > 0) {
            uint32_t n = stack[--depth];
            if (label[n] == mark) continue;
            label[n] = mark;
            sum = sum * 3 + n;
            for (uint32_t e = first[n]; e < first[n + 1]; e++)
                if (label[to[e]] != mark) stack[depth++] = to[e];
        }
    }
    return sum;
}
__attribute__((noinline)) static uint64_t coco(void) {
    for (uint32_t n = 0; n < NODES; n++) label[n] = n;
    for (int changed = 1; changed;) {
        changed = 0;
        for (uint32_t n = 0; n < NODES; n++)
            for (uint32_t e = first[n]; e < first[n + 1]; e++)
                if (label[to[e]] < label[n]) label[n] = label[to[e]], changed = 1;
    }
    uint64_t sum = 0;
    for (uint32_t n = 0; n < NODES; n++) sum += label[n];
    return sum;
}

int main(int argc, char **argv) {
    int components = argc > 1 && strcmp(argv[1], "coco") == 0;
    uint64_t rounds = argc > 2 ? strtoull(argv[2], 0, 10) : 3, own = 0, *counter = &own, random = 88172645463325252u, sum = 0;
    if (argc > 3) {
        int file = open(argv[3], O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof *counter) != 0) return 1;
        counter = mmap(0, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (counter == MAP_FAILED) return 1;
    }
    static uint32_t from[EDGES], end[EDGES], at[NODES];
    for (int e = 0; e < EDGES; e++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        from[e] = random % NODES, end[e] = (random >> 32) % NODES;
        first[from[e] + 1]++, first[end[e] + 1]++;
    }
    for (int n = 0; n < NODES; n++) first[n + 1] += first[n], at[n] = first[n];
    for (int e = 0; e < EDGES; e++) to[at[from[e]]++] = end[e], to[at[end[e]]++] = from[e];
    memset(label, 0xff, sizeof label);
    for (uint64_t round = 0; round < rounds; round++) {
        sum = sum * 7 + (components ? coco() : dfs((uint32_t)round));
        ++*(volatile uint64_t *)counter;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
