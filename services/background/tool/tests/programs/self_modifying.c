/* Writes over one of its own functions: self_modifying mprotect|syscall. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, aligned(4096))) int constant(const int *p) { return *p + 1; }

int main(int argc, char **argv) {
    int one = 1, before = constant(&one);
    void *page = (void *)((uintptr_t)constant & ~(uintptr_t)4095);
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    int failed = argc > 1 && strcmp(argv[1], "syscall") == 0 ? (int)syscall(SYS_mprotect, page, 4096, all) : mprotect(page, 4096, all);
    if (failed) return 1;
    memcpy((void *)constant, "\xb8\x2a\0\0\0\xc3", 6); /* mov $42, %eax; ret */
    printf("%d %d\n", before, constant(&one));
    return 0;
}
