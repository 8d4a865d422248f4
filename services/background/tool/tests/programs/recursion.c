/* Recursion, mutual recursion, tail calls through pointers, callbacks of the C library. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <search.h>

static int queens(int n, unsigned columns, unsigned left, unsigned right) {
    if (columns == (1u << n) - 1) return 1;
    int count = 0;
    for (unsigned free = ((1u << n) - 1) & ~(columns | left | right); free; free &= free - 1) {
        unsigned bit = free & -free;
        count += queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return count;
}

static unsigned ackermann(unsigned m, unsigned n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

struct job { uint64_t state; int left; uint64_t (*const *steps)(struct job *); };
typedef uint64_t (*step)(struct job *);
static uint64_t first(struct job *), second(struct job *), third(struct job *);
static const step steps[] = {first, second, third};
static uint64_t next(struct job *j, int k) { return j->left-- ? steps[(j->state >> 7) % 3 * (k > 0)](j) : j->state; }
static uint64_t first(struct job *j) { j->state = j->state * 6364136223846793005u + 1; return next(j, 1); }
static uint64_t second(struct job *j) { j->state ^= j->state >> 29; return next(j, 2); }
static uint64_t third(struct job *j) { j->state += j->left; return next(j, 0); }

static int by_value(const void *a, const void *b) { int x = *(const int *)a, y = *(const int *)b; return (x > y) - (x < y); }
static int by_digits(const void *a, const void *b) {
    int x = *(const int *)a % 100, y = *(const int *)b % 100;
    return x != y ? x - y : by_value(a, b);
}
static long visited;
static void visit(const void *node, VISIT which, int depth) {
    if (which == postorder || which == leaf) visited = visited * 7 % 1000003 + **(int *const *)node + depth;
}

struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *n, int key) {
    if (!n) { n = calloc(1, sizeof *n); n->key = key; }
    else if (key < n->key) n->left = insert(n->left, key);
    else if (key > n->key) n->right = insert(n->right, key);
    return n;
}
static long walk(const struct node *n, int depth) { return n ? walk(n->left, depth + 1) + n->key * (depth + 1L) + walk(n->right, depth + 1) : 0; }

int main(void) {
    static int values[3000];
    for (int i = 0; i < 3000; i++) values[i] = (int)(i * 7919u % 10007u);
    struct job job = {42, 20000, 0};
    uint64_t x = first(&job);
    struct node *root = 0;
    void *tree = 0;
    for (int i = 0; i < 3000; i++) root = insert(root, values[i]), tsearch(&values[i], &tree, by_value);
    twalk(tree, visit);
    long w = walk(root, 0);
    qsort(values, 3000, sizeof *values, by_digits);
    int sorted = values[10] + values[2000] * 3;
    qsort(values, 3000, sizeof *values, by_value);
    int found = 0;
    for (int key = 0; key < 10007; key += 13) found += bsearch(&key, values, 3000, sizeof *values, by_value) != 0;
    printf("%d %u %llu %ld %ld %d %d\n", queens(8, 0, 0, 0), ackermann(2, 300), (unsigned long long)x, w, visited, sorted, found);
}
