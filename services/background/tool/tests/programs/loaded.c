/* Functions that are found while the program runs: dlopen, dlsym, an indirect function, constructors, and what runs at the end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int table[256], order[8], count;
__attribute__((constructor(101))) static void early(void) { for (int i = 0; i < 256; i++) table[i] = i * i % 251; order[count++] = 1; }
__attribute__((constructor(102))) static void late(void) { for (int i = 1; i < 256; i++) table[i] += table[i - 1]; order[count++] = 2; }
__attribute__((destructor)) static void last(void) { int s = 0; for (int i = 0; i < 256; i++) s += table[i]; printf("end %d\n", s); fflush(stdout); }
static void at_exit(void) { int s = 0; for (int i = 0; i < 256; i += 2) s ^= table[i]; printf("exit %d\n", s); }

static int one(int x) { return table[x & 255]; }
static int two(int x) { return table[x & 255] * 2; }
static int (*choose(void))(int) { return __builtin_cpu_supports("sse2") ? two : one; }
int chosen(int) __attribute__((ifunc("choose")));
__attribute__((target_clones("avx2", "default"), noinline)) int sum(const int *v, int n) { int s = 0; for (int i = 0; i < n; i++) s += v[i] * (i & 7); return s; }

int main(void) {
    atexit(at_exit);
    void *math = dlopen("libm.so.6", RTLD_NOW);
    double (*cosine)(double) = math ? (double (*)(double))dlsym(math, "cos") : 0;
    double d = 0;
    for (int i = 0; cosine && i < 2000; i++) d += cosine(table[i & 255]);
    int s = 0;
    for (int i = 0; i < 2000; i++) s += chosen(i) + (i % 100 ? 0 : sum(table, 256));
    if (math) dlclose(math);
    printf("%d %d %.9f %d\n", order[0] * 10 + order[1], s, d, dlopen("/nothing/there.so", RTLD_NOW) == 0);
    return 3;
}
