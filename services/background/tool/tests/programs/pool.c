/* One thread computes what the main thread hands to it, as compressors do; both wait for each other. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int job, done;
static uint32_t words[4096], result;

static void *work(void *unused) {
    for (int mine = 1; mine <= 20; mine++) {
        pthread_mutex_lock(&mutex);
        while (job < mine) pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
        uint32_t sum = mine;
        for (int i = 0; i < 10000; i++) sum = sum * 31 + words[sum >> 20];
        pthread_mutex_lock(&mutex);
        result = result * 31 + sum, done = mine;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

int main(void) {
    for (int i = 0; i < 4096; i++) words[i] = i * 2654435761u;
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    for (int mine = 1; mine <= 20; mine++) {
        pthread_mutex_lock(&mutex);
        job = mine;
        pthread_cond_broadcast(&changed);
        while (done < mine) pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
    }
    pthread_join(thread, 0);
    printf("%u\n", result);
}
