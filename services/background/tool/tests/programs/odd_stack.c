/* Assembly that reads a table by pointing the stack pointer at it, beside code of the compiler. */
#include <stdint.h>
#include <stdio.h>

int64_t gather(const int64_t *const *table, int64_t count);
__asm__(".text\n.globl gather\n.type gather, @function\ngather:\n"
        "mov %rsp, %rcx\nmov %rdi, %rsp\nxor %eax, %eax\n"
        "1: pop %rdx\nadd (%rdx), %rax\nmov 8(%rdx), %r8\nadd %r8, %rax\ndec %rsi\njnz 1b\n"
        "mov %rcx, %rsp\nret\n.size gather, . - gather\n");

int main(void) {
    static int64_t values[512];
    static const int64_t *table[256];
    for (int i = 0; i < 512; i++) values[i] = i * i;
    for (int i = 0; i < 256; i++) table[i] = values + i * 37 % 511;
    int64_t sum = 0;
    for (int round = 0; round < 100; round++) {
        sum = sum * 3 + gather(table, 256);
        for (int i = 0; i < 256; i++) sum ^= *table[(i + round) % 256];
    }
    printf("%lld\n", (long long)sum);
}
