/* Adds up 4 MiB again and again: scan ROUNDS [COUNTER]. Prints the sum; counts rounds in a file that others may map. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = (4 << 20) / 8 };

int main(int argc, char **argv) {
    uint64_t rounds = argc > 1 ? strtoull(argv[1], 0, 10) : 1, sum = 0, own = 0, *counter = &own;
    uint64_t *words = malloc(WORDS * sizeof *words);
    if (argc > 2) {
        int file = open(argv[2], O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof *counter) != 0) return 1;
        counter = mmap(0, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (counter == MAP_FAILED) return 1;
    }
    for (size_t i = 0; i < WORDS; i++) words[i] = i * 2654435761u;
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < WORDS; i++) sum += words[i];
        ++*(volatile uint64_t *)counter;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
