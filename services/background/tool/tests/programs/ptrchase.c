/* Follows a random ring through memory: ptrchase MIB STEPS [COUNTER]. Prints where it ends; counts 1,024 steps in a file that others may map. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct node {
    struct node *next;
    uint64_t fill[7];
};

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoul(argv[1], 0, 10) : 16, count = (mib << 20) / sizeof(struct node);
    uint64_t steps = argc > 2 ? strtoull(argv[2], 0, 10) : 1000000, random = 88172645463325252u, own = 0, *counter = &own;
    if (argc > 3) {
        int file = open(argv[3], O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof *counter) != 0) return 1;
        counter = mmap(0, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (counter == MAP_FAILED) return 1;
    }
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
    for (uint64_t done = 0; done < steps; ++*(volatile uint64_t *)counter) {
        uint64_t end = steps - done < 1024 ? steps : done + 1024;
        for (; done < end; done++) at = at->next;
    }
    printf("%zu\n", (size_t)(at - nodes));
}
