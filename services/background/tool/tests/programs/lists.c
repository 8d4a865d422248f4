/* Linked lists, a hash table, strings: loads through pointers in branches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    char key[24];
    long value;
};
static struct entry *table[512];

static unsigned hash(const char *s) {
    unsigned h = 2166136261u;
    while (*s) h = (h ^ (unsigned char)*s++) * 16777619u;
    return h % 512;
}

static struct entry *find(const char *key) {
    for (struct entry *e = table[hash(key)]; e; e = e->next)
        if (strcmp(e->key, key) == 0) return e;
    return 0;
}

int main(void) {
    for (int i = 0; i < 20000; i++) {
        char key[24];
        snprintf(key, sizeof key, "k%d", i * 7919 % 3001);
        struct entry *e = find(key);
        if (!e) {
            e = calloc(1, sizeof *e);
            strcpy(e->key, key);
            e->next = table[hash(key)];
            table[hash(key)] = e;
        }
        e->value += i;
    }
    long sum = 0, longest = 0;
    for (int i = 0; i < 512; i++) {
        long n = 0;
        for (struct entry *e = table[i]; e; e = e->next) n++, sum += e->value * (i + 1);
        if (n > longest) longest = n;
    }
    printf("%ld %ld\n", sum, longest);
}
