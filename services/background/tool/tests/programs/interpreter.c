/* An interpreter with a large switch, one with computed jumps, and a state machine whose cases fall through. */
#include <stdint.h>
#include <stdio.h>

enum { PUSH, ADD, SUB, MUL, XOR, DUP, SWAP, DROP, OVER, ROT, LOAD, STORE, JNZ, DEC, INC, SHL, SHR, AND, OR, NOT, HALT };
static int64_t memory[64];

__attribute__((noinline)) static int64_t by_switch(const int16_t *code) {
    int64_t stack[64] = {0}, *top = stack + 8, t;
    for (const int16_t *at = code;;) {
        switch (*at++) {
        case PUSH: *++top = *at++; break;
        case ADD: top--, top[0] += top[1]; break;
        case SUB: top--, top[0] -= top[1]; break;
        case MUL: top--, top[0] = (int64_t)((uint64_t)top[0] * (uint64_t)top[1]); break;
        case XOR: top--, top[0] ^= top[1]; break;
        case DUP: top[1] = top[0], top++; break;
        case SWAP: t = top[0], top[0] = top[-1], top[-1] = t; break;
        case DROP: top--; break;
        case OVER: top[1] = top[-1], top++; break;
        case ROT: t = top[-2], top[-2] = top[-1], top[-1] = top[0], top[0] = t; break;
        case LOAD: top[0] = memory[top[0] & 63]; break;
        case STORE: memory[top[0] & 63] = top[-1], top -= 2; break;
        case JNZ: t = *at++; if (*top--) at = code + t; break;
        case DEC: top[0]--; break;
        case INC: top[0]++; break;
        case SHL: top[0] = (int64_t)((uint64_t)top[0] << 3); break;
        case SHR: top[0] >>= 2; break;
        case AND: top--, top[0] &= top[1]; break;
        case OR: top--, top[0] |= top[1]; break;
        case NOT: top[0] = ~top[0]; break;
        case HALT: return top[0];
        }
    }
}

__attribute__((noinline)) static int64_t by_labels(const int16_t *code) {
    static const void *const labels[] = {&&push, &&add, &&sub, &&mul, &&dup, &&jnz, &&dec, &&halt};
    int64_t stack[64] = {0}, *top = stack + 8;
    const int16_t *at = code;
    goto *labels[*at++];
push: *++top = *at++; goto *labels[*at++];
add: top--, top[0] += top[1]; goto *labels[*at++];
sub: top--, top[0] -= top[1]; goto *labels[*at++];
mul: top--, top[0] = (int64_t)((uint64_t)top[0] * (uint64_t)top[1]); goto *labels[*at++];
dup: top[1] = top[0], top++; goto *labels[*at++];
jnz: { int64_t to = *at++; if (*top--) at = code + to; goto *labels[*at++]; }
dec: top[0]--; goto *labels[*at++];
halt: return top[0] + top[-1];
}

__attribute__((noinline)) static unsigned machine(const unsigned char *text, unsigned state) {
    for (; *text; text++) switch ((state ^ *text) % 23) {
        case 0: state += 1; /* falls through */
        case 1: state += 2; /* falls through */
        case 2: state ^= 5; break;
        case 3: case 4: state *= 3; break;
        case 5: state = (state << 7) | (state >> 25); break;
        case 6: state -= *text; /* falls through */
        case 7: state ^= 0x5bd1e995; break;
        case 9: case 11: case 13: state += 77; break;
        case 10: state ^= state >> 11; break;
        case 12: state += *text * 31u; break;
        case 14: state *= 17; break;
        case 15: state ^= *text << 9; break;
        case 17: state += 1000; break;
        case 19: state = ~state; break;
        case 21: state -= 9; break;
        default: state = state * 1664525u + 1013904223u;
    }
    return state;
}

int main(void) {
    const int16_t a[] = {PUSH, 1, PUSH, 2000, DUP, ROT, ADD, DUP, PUSH, 7, MUL, XOR, PUSH, 5, OVER, SWAP, STORE, PUSH, 5, LOAD, OR, NOT, SHR, INC,
                         SWAP, DEC, DUP, JNZ, 4, DROP, PUSH, 255, SUB, SHL, PUSH, 12345, AND, HALT};
    /* labels: 0 push, 1 add, 2 sub, 3 mul, 4 dup, 5 jnz, 6 dec, 7 halt */
    const int16_t b[] = {0, 3, 0, 3000, 6, 4, 5, 4, 4, 3, 0, 9, 2, 7};
    int64_t x = 0;
    for (int i = 0; i < 4; i++) x = x * 31 + by_switch(a) + by_labels(b);
    unsigned state = 1;
    for (int i = 0; i < 200; i++) state = machine((const unsigned char *)"the quick brown fox jumps over the lazy dog", state);
    printf("%lld %u\n", (long long)x, state);
}
