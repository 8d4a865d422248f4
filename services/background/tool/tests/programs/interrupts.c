/* Has handlers for what a person or another process sends, as interpreters and archivers do; with an argument, one for a fault of its own, or it raises one. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static volatile sig_atomic_t stop;
static uint32_t words[4096];

static void interrupted(int number) {
    if (stop) signal(number, SIG_DFL), raise(number);
    stop = number;
}

int main(int argc, char **argv) {
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    if (sigaction(SIGINT, &action, &before)) return 2;
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR) return 3;
    if (argc > 1 && argv[1][0] == 'r') interrupted(SIGINT), interrupted(SIGINT);
    if (argc > 1) sigaction(SIGSEGV, &action, 0);
    uint32_t sum = 1;
    for (int i = 0; i < 4096; i++) words[i] = i * 2654435761u;
    for (int i = 0; i < 20000 && !stop; i++) sum = sum * 31 + words[sum >> 20];
    signal(SIGINT, SIG_DFL);
    printf("%u %d\n", sum, (int)stop);
}
