/* Children by fork and by system: each computes and ends with a status. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int table[1024];

static int walk(int from, int steps) {
    int at = from;
    for (int i = 0; i < steps; i++) at = table[at & 1023];
    return at;
}

int main(void) {
    for (int i = 0; i < 1024; i++) table[i] = (i * 389 + 17) & 1023;
    int sum = 0;
    for (int i = 0; i < 8; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) _exit(walk(i, 100000) & 63);
        sum += walk(i * 3, 100000);
        int status;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status) << i;
    }
    printf("%d\n", sum);
    fflush(stdout);
    return system("echo child") == 0 ? 3 : 4;
}
