/* Floating point: products of matrices, a fast transform, sums in single and double precision. */
#include <complex.h>
#include <math.h>
#include <stdio.h>

enum { N = 48 };
static double a[N][N], b[N][N], c[N][N];

static void transform(double complex *x, int n, int step) {
    if (n == 1) return;
    transform(x, n / 2, step * 2);
    transform(x + step, n / 2, step * 2);
    for (int k = 0; k < n / 2; k++) {
        double complex even = x[2 * k * step], odd = x[(2 * k + 1) * step] * cexp(-2 * M_PI * I * k / n);
        x[2 * k * step] = even + odd;
        x[(2 * k + 1) * step] = even - odd;
    }
}

int main(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = sin(i * 0.1 + j), b[i][j] = 1.0 / (1 + i + j);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int k = 0; k < N; k++) sum += a[i][k] * b[k][j];
                c[i][j] = sum + a[i][j] * 0.5;
            }
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) a[i][j] = c[j][i] / (1 + fabs(c[i][j]));
    }
    double complex x[256];
    for (int i = 0; i < 256; i++) x[i] = a[i % N][i / N] + I * b[i % N][1];
    transform(x, 256, 1);
    float single = 0;
    for (int i = 0; i < 256; i++) single += (float)cabs(x[i]) * 0.01f;
    printf("%.17g %.17g %.9g %a\n", c[3][7], creal(x[17]), single, a[N - 1][0]);
}
