/* Threads with locks and conditions: a queue between producers and consumers, and threads that come and go. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static uint64_t queue[16], sum;
static unsigned head, tail, done;
static __thread uint64_t own;

static void *produce(void *first) {
    for (uint64_t i = 0; i < 2000; i++) {
        pthread_mutex_lock(&lock);
        while (head - tail == 16) pthread_cond_wait(&emptied, &lock);
        queue[head++ % 16] = (uintptr_t)first * 10000 + i;
        pthread_cond_signal(&filled);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void *consume(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (head == tail && !done) pthread_cond_wait(&filled, &lock);
        if (head == tail) break;
        uint64_t value = queue[tail++ % 16];
        pthread_cond_signal(&emptied);
        pthread_mutex_unlock(&lock);
        for (int i = 0; i < 10; i++) own += value ^ queue[i];
        own = own * 0 + (own & 0) + value + (uintptr_t)unused;
        pthread_mutex_lock(&lock);
        sum += own, own = 0;
        pthread_mutex_unlock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static void *brief(void *n) {
    uint64_t x = (uintptr_t)n;
    static uint64_t values[512]; /* all threads write the same */
    for (int i = 0; i < 512; i++) values[i] = i * 2654435761u;
    for (int i = 0; i < 3000; i++) x += values[(x + i) % 512];
    return (void *)(uintptr_t)x;
}

int main(void) {
    pthread_t p[3], c[2];
    for (uintptr_t i = 0; i < 2; i++) pthread_create(&c[i], 0, consume, 0);
    for (uintptr_t i = 0; i < 3; i++) pthread_create(&p[i], 0, produce, (void *)(i + 1));
    for (int i = 0; i < 3; i++) pthread_join(p[i], 0);
    pthread_mutex_lock(&lock);
    done = 1;
    pthread_cond_broadcast(&filled);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++) pthread_join(c[i], 0);
    uint64_t brief_sum = 0;
    for (uintptr_t i = 0; i < 40; i++) {
        pthread_t t;
        void *x;
        pthread_create(&t, 0, brief, (void *)i);
        pthread_join(t, &x);
        brief_sum ^= (uintptr_t)x;
    }
    printf("%llu %llu\n", (unsigned long long)sum, (unsigned long long)brief_sum);
}
