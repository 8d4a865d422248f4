/* setjmp in loops, longjmp out of deep calls, alloca, functions with many arguments. */
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static jmp_buf back;
static int data[1000];

__attribute__((noinline)) static int sum(int count, ...) {
    va_list list;
    va_start(list, count);
    int s = 0;
    for (int i = 0; i < count; i++) s += (int)(i % 2 ? va_arg(list, double) : va_arg(list, int));
    va_end(list);
    return s;
}

__attribute__((noinline)) static void dive(int depth, int *from) {
    char *room = alloca(16 + depth % 50);
    memset(room, depth, 16 + depth % 50);
    if (depth == 0) longjmp(back, 1 + (unsigned)*from % 7);
    data[depth] = (data[depth] + room[depth % 16] + *from) % 10007;
    dive(depth - 1, data + (unsigned)(*from + depth) % 1000);
}

int main(void) {
    for (int i = 0; i < 1000; i++) data[i] = i * 31 % 97;
    volatile int total = 0;
    for (volatile int round = 0; round < 300; round++) {
        int code = setjmp(back);
        if (code == 0) dive(20 + round % 60, data + round);
        total += code * round;
    }
    for (int i = 0; i < 1000; i++) total += data[i] * (i + 1);
    printf("%d %d\n", total, sum(8, 1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0));
}
