/* A small machine: a switch through a table, labels as values, functions through pointers, a function that is compared by address. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t add(uint64_t x) { return x + 13; }
static uint64_t mix(uint64_t x) { return x * 2862933555777941757u ^ x >> 29; }
static uint64_t (*const functions[])(uint64_t) = {add, mix};
static uint64_t memory[64];

__attribute__((noinline)) static uint64_t by_switch(const uint8_t *code, int n, uint64_t x) {
    for (int i = 0; i < n; i++) {
        switch (code[i]) {
        case 0: x += memory[i & 63]; break;
        case 1: x ^= memory[x & 63]; break;
        case 2: memory[x & 63] = x; break;
        case 3: x = x << 7 | x >> 57; break;
        case 4: x -= memory[(x >> 8) & 63]; break;
        case 5: x *= 3; break;
        case 6: x = functions[x & 1](x); break;
        case 7: if (x & 4) i++; break;
        case 8: x = ~x; break;
        case 9: x += i; break;
        }
    }
    return x;
}

__attribute__((noinline)) static uint64_t by_labels(const uint8_t *code, int n, uint64_t x) {
    static const void *const labels[] = {&&load, &&store, &&turn, &&end};
    int i = 0;
#define NEXT goto *labels[i < n ? code[i++] % 3 : 3]
    NEXT;
load:
    x += memory[x & 63];
    NEXT;
store:
    memory[x >> 3 & 63] ^= x;
    NEXT;
turn:
    x = x << 11 | x >> 53;
    NEXT;
end:
    return x;
}

int main(void) {
    uint8_t code[997];
    for (int i = 0; i < 997; i++) code[i] = i * i % 11 % 10;
    uint64_t x = 88172645463325252u;
    for (int round = 0; round < 200; round++) x = by_labels(code, 997, by_switch(code, 997, x));
    printf("%llu %d %d\n", (unsigned long long)x, functions[0] == add, functions[1] == mix);
    exit(0);
}
