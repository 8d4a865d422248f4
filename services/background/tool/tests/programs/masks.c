/* SSE2, AVX2 with gathers, AVX-512 with masks, whichever the processor has; 128-bit integers, complex numbers, structures by value. */
#include <complex.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>

static int32_t values[4096], indices[4096];
static float reals[1024];

__attribute__((noinline)) static int64_t sse(void) {
    __m128i s = _mm_setzero_si128();
    for (int i = 0; i < 4096; i += 4) s = _mm_add_epi32(s, _mm_xor_si128(_mm_loadu_si128((__m128i *)(values + i)), _mm_set1_epi32(values[indices[i]])));
    int32_t out[4];
    _mm_storeu_si128((__m128i *)out, s);
    return out[0] + 3LL * out[1] + 5LL * out[2] + 7LL * out[3];
}

__attribute__((target("avx2,fma"), noinline)) static int64_t avx2(void) {
    __m256i s = _mm256_setzero_si256();
    __m256 f = _mm256_setzero_ps();
    for (int i = 0; i < 4096; i += 8) {
        __m256i at = _mm256_loadu_si256((__m256i *)(indices + i));
        s = _mm256_add_epi32(s, _mm256_i32gather_epi32(values, at, 4));
        f = _mm256_fmadd_ps(_mm256_loadu_ps(reals + (i & 1023)), _mm256_set1_ps(reals[indices[i] & 1023]), f);
    }
    int32_t out[8];
    _mm256_storeu_si256((__m256i *)out, _mm256_add_epi32(s, _mm256_cvtps_epi32(f)));
    int64_t sum = 0;
    for (int i = 0; i < 8; i++) sum = sum * 3 + out[i];
    return sum;
}

__attribute__((target("avx512f,avx512bw"), noinline)) static int64_t avx512(void) {
    __m512i s = _mm512_setzero_si512(), limit = _mm512_set1_epi32(5000);
    uint64_t bits = 0;
    for (int i = 0; i < 4096; i += 16) {
        __m512i v = _mm512_loadu_si512(values + i);
        __mmask16 m = _mm512_cmplt_epi32_mask(v, limit), odd = (__mmask16)(0x5555u << (values[indices[i]] & 1));
        s = _mm512_mask_add_epi32(s, m & odd, s, _mm512_i32gather_epi32(_mm512_loadu_si512(indices + i), values, 4));
        s = _mm512_mask_sub_epi32(s, _knot_mask16(m), s, v);
        bits = bits * 31 + m;
    }
    int32_t out[16];
    _mm512_storeu_si512(out, s);
    int64_t sum = (int64_t)bits;
    for (int i = 0; i < 16; i++) sum = sum * 3 + out[i];
    return sum;
}

struct wide { double a, b; int64_t c[3]; };
__attribute__((noinline)) static struct wide step(struct wide w, int k) { w.a += values[k & 4095], w.b *= 1.0000001, w.c[k % 3] += indices[k & 4095]; return w; }

int main(void) {
    for (int i = 0; i < 4096; i++) values[i] = i * 7919 % 10007, indices[i] = i * 2053 & 4095;
    for (int i = 0; i < 1024; i++) reals[i] = (float)(i % 17) / 4;
    unsigned __int128 big = 1;
    double complex z = 0.3 + 0.4 * I;
    struct wide w = {1, 2, {3, 4, 5}};
    for (int i = 0; i < 2000; i++) big = big * 6364136223846793005u + (unsigned)values[i], z = z * (0.6 + 0.7 * I) + values[i & 15] / 10007.0, w = step(w, i);
    printf("%lld %016llx%016llx %.9f %.9f %.6f %.6f %lld\n", (long long)sse(), (unsigned long long)(big >> 64), (unsigned long long)big, creal(z), cimag(z), w.a, w.b, (long long)(w.c[0] + w.c[1] * 2 + w.c[2] * 3));
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) printf("%lld\n", (long long)avx2());
    if (__builtin_cpu_supports("avx512bw")) printf("%lld\n", (long long)avx512());
}
