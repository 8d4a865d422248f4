/* qsort with a comparison of ours, a heap, a search tree with recursion, 128-bit numbers, bit fields. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct item {
    unsigned key : 20, mark : 3;
    int64_t weight;
    struct item *left, *right;
};

static int compare(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->weight < y->weight ? -1 : x->weight > y->weight;
}

static struct item *insert(struct item *tree, struct item *item) {
    if (!tree) return item;
    if (compare(item, tree) < 0) tree->left = insert(tree->left, item);
    else tree->right = insert(tree->right, item);
    return tree;
}

static unsigned __int128 fold(const struct item *tree, unsigned depth) {
    if (!tree) return depth;
    return fold(tree->left, depth + 1) * 31 + fold(tree->right, depth + 1) + tree->weight * tree->mark;
}

static void sift(int *heap, int n, int i) {
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[i] >= heap[child]) break;
        int t = heap[i];
        heap[i] = heap[child], heap[child] = t;
    }
}

int main(void) {
    enum { N = 3000 };
    struct item *items = calloc(N, sizeof *items), *tree = 0;
    uint64_t r = 12345;
    for (int i = 0; i < N; i++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        items[i].key = r >> 44, items[i].mark = r >> 40, items[i].weight = (int64_t)r >> 33;
    }
    for (int i = 0; i < N; i++) tree = insert(tree, &items[i]);
    unsigned __int128 folded = fold(tree, 0);
    int heap[N];
    for (int i = 0; i < N; i++) heap[i] = items[i].weight;
    for (int i = N / 2; i-- > 0;) sift(heap, N, i);
    for (int n = N; n > 1; n--) {
        int t = heap[0];
        heap[0] = heap[n - 1], heap[n - 1] = t;
        sift(heap, n - 1, 0);
    }
    qsort(items, N, sizeof *items, compare);
    uint64_t order = 0;
    for (int i = 0; i < N; i++) order = order * 31 + items[i].key + heap[i];
    printf("%llx %llx %llx\n", (unsigned long long)(folded >> 64), (unsigned long long)folded, (unsigned long long)order);
}
