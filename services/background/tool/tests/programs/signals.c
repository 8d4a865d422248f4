/* A timer's signal interrupts computing, and its handler computes, too, at times on a stack of its own. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks;
static uint64_t table[4096], handler_sum;

static uint64_t walk(uint64_t x, int steps) {
    for (int i = 0; i < steps; i++) x = table[x & 4095] + (x >> 12);
    return x;
}

static void tick(int number) {
    handler_sum = walk(handler_sum + number, 50);
    ticks++;
}

int main(void) {
    for (int i = 0; i < 4096; i++) table[i] = (uint64_t)i * 2862933555777941757u + 3037000493u;
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    uint64_t x = 1;
    for (int round = 0; round < 2000; round++) {
        if (round == 1000) action.sa_flags |= SA_ONSTACK, sigaction(SIGALRM, &action, 0);
        x = walk(x, 1000);
    }
    while (ticks < 20) x += 0 * walk(x, 10);
    setitimer(ITIMER_REAL, &never, 0);
    printf("%llu %d\n", (unsigned long long)x, ticks >= 20);
}
