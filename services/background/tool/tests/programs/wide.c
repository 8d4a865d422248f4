/* Vectors of 256 bits across loads, where the processor has them; long double beside. */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>

static int32_t values[4096];
static double reals[512];

__attribute__((target("avx2"), noinline)) static void wide(int64_t out[4]) {
    __m256i sum = _mm256_setzero_si256(), mixed = _mm256_set1_epi32(7);
    for (int i = 0; i < 4096; i += 8) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(values + i));
        sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(v, mixed));
        mixed = _mm256_xor_si256(_mm256_slli_epi32(mixed, 1), _mm256_set1_epi32(values[(i * 7) & 4095]));
        if (values[i] % 5 == 0) sum = _mm256_sub_epi32(sum, _mm256_permutevar8x32_epi32(v, mixed));
    }
    _mm256_storeu_si256((__m256i *)out, sum);
}

int main(void) {
    for (int i = 0; i < 4096; i++) values[i] = i * 7919 % 10007;
    for (int i = 0; i < 512; i++) reals[i] = i / 3.0;
    long double slow = 0;
    for (int i = 0; i < 512; i++) slow = slow * 0.75L + reals[i];
    int64_t out[4] = {0};
    if (__builtin_cpu_supports("avx2"))
        for (int round = 0; round < 20; round++) wide(out);
    printf("%llx %llx %llx %llx %.18Lg\n", (long long)out[0], (long long)out[1], (long long)out[2], (long long)out[3], slow);
}
