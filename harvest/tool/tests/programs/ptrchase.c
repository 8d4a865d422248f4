/* Follows a random ring through memory: ptrchase MIB STEPS. Prints where it ends. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
    struct node *next;
    uint64_t fill[7];
};

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoul(argv[1], 0, 10) : 16, count = (mib << 20) / sizeof(struct node);
    uint64_t steps = argc > 2 ? strtoull(argv[2], 0, 10) : 1000000, random = 88172645463325252u;
    struct node *nodes = aligned_alloc(64, count * sizeof *nodes);
    uint32_t *order = malloc(count * sizeof *order);
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t j = random % (i + 1);
        uint32_t other = order[i];
        order[i] = order[j], order[j] = other;
    }
    for (size_t i = 0; i < count; i++) nodes[order[i]].next = &nodes[order[(i + 1) % count]];
    free(order);
    struct node *at = nodes;
    for (uint64_t i = 0; i < steps; i++) at = at->next;
    printf("%zu\n", (size_t)(at - nodes));
}
