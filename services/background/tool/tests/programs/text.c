/* Text: regular expressions, tokens, numbers, streams in memory, strings that are moved and compared, bit fields. */
#define _GNU_SOURCE
#include <ctype.h>
#include <regex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct packed { unsigned a : 3, b : 7, c : 11, d : 11; };
static char text[8192];
static struct { char word[16]; int count; } words[64];

int main(void) {
    size_t at = 0;
    for (int i = 0; i < 700; i++) at += (size_t)snprintf(text + at, sizeof text - at, "%s%d%c", (const char *[]){"ab", "cde", "f", "gh1"}[i * 7 % 4], i * 31 % 97, i % 9 ? ' ' : '\n');
    regex_t r;
    if (regcomp(&r, "([a-z]+)([0-9]+)[ \n]", REG_EXTENDED)) return 1;
    long sum = 1;
    regmatch_t m[3];
    for (const char *p = text; regexec(&r, p, 3, m, 0) == 0; p += m[0].rm_eo) {
        sum = (sum * 31 + strtol(p + m[2].rm_so, 0, 10)) % 1000003;
        if (sum % 211 == 7) break;
    }
    regfree(&r);
    char copy[sizeof text];
    memcpy(copy, text, sizeof text);
    char *save, *t = strtok_r(copy, " \n", &save);
    for (; t; t = strtok_r(0, " \n", &save)) {
        unsigned k = 0;
        for (; k < 64 && words[k].word[0] && strcmp(words[k].word, t); k++) {}
        if (k < 64) { if (!words[k].word[0]) strncpy(words[k].word, t, 15); words[k].count++; }
    }
    FILE *f = fmemopen(text, at, "r");
    char *line = 0;
    size_t room = 0;
    int lines = 0, upper = 0;
    while (f && getline(&line, &room, f) > 0) { lines++; for (char *c = line; *c; c++) upper += toupper((unsigned char)*c) * lines % 7; }
    if (f) fclose(f);
    free(line);
    struct packed fields[128];
    memset(fields, 0, sizeof fields);
    for (int i = 0; i < 5000; i++) { struct packed *p = &fields[i * 13 & 127]; p->a += 1, p->b ^= (unsigned)i, p->c += p->a * 3u, p->d -= p->b; }
    unsigned bits = 0;
    for (int i = 0; i < 128; i++) bits = bits * 17 + fields[i].a + fields[i].b + fields[i].c + fields[i].d;
    int most = 0;
    for (int i = 0; i < 64; i++) if (words[i].count > words[most].count) most = i;
    memmove(text + 3, text, 4000), memset(text + 100, 'x', 50);
    printf("%ld %d %d %u %s %d %d %.6f\n", sum, lines, upper, bits, words[most].word, words[most].count, memcmp(text, copy, 100) > 0, atof("2.718281828") * lines);
}
