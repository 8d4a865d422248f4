/* Faults that are handled: siglongjmp out of handlers of SIGSEGV and SIGFPE, nested signals, blocked ones, sigsetjmp in loops. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static sigjmp_buf back;
static int data[2048];
static volatile int depth, seen[3];

static void fault(int number, siginfo_t *info, void *context) {
    (void)context;
    for (int i = 0; i < 64; i++) seen[number == SIGFPE] += data[(i * 31 + seen[0]) & 2047];
    siglongjmp(back, number == SIGFPE ? 2 : 1 + 0 * (info->si_addr != 0));
}
static void nested(int number) {
    (void)number;
    if (++depth % 3) raise(SIGUSR2);
    for (int i = 0; i < 32; i++) seen[2] += data[(i * depth) & 2047];
}

__attribute__((noinline)) static int risky(volatile int *p, int a, int b) { return *p + a / b; }

int main(void) {
    for (int i = 0; i < 2048; i++) data[i] = i * 37 % 211;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, 0), sigaction(SIGFPE, &action, 0);
    action.sa_flags = SA_NODEFER, action.sa_handler = nested;
    sigaction(SIGUSR1, &action, 0), sigaction(SIGUSR2, &action, 0);
    volatile int *nowhere = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile long total = 0;
    for (volatile int i = 0; i < 300; i++) {
        int code = sigsetjmp(back, 1);
        if (code == 0) total += risky(i % 3 == 1 ? nowhere : (volatile int *)&data[i], i * 100, i % 3 == 2 ? 0 : 1 + i % 7);
        else total += code * 1000 + data[i];
        if (i % 5 == 0) raise(SIGUSR1);
    }
    sigset_t set, old;
    sigemptyset(&set), sigaddset(&set, SIGUSR2), sigprocmask(SIG_BLOCK, &set, &old);
    depth = 0, raise(SIGUSR1);
    int before = depth;
    sigprocmask(SIG_SETMASK, &old, 0);
    printf("%ld %d %d %d %d %d\n", total, seen[0], seen[1], seen[2], before, depth);
}
