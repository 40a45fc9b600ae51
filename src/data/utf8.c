/* Just enough UTF-8. */
#include "data/utf8.h"

#include <string.h>

int ech_utf8_char(const char *s, size_t n, uint32_t *code)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char first = (unsigned char)s[0];

    if (first < 0x80) {
        *code = first;
        return 1;
    }
    const int len = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || n < (size_t)len)
        return 0;
    uint32_t c = first & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        const unsigned char next = (unsigned char)s[i];
        if ((next & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (next & 0x3Fu);
    }
    if (c < smallest[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return 0;
    *code = c;
    return len;
}

size_t ech_utf8_valid(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n) {
        uint64_t eight;
        uint32_t code;
        while (n - i >= sizeof eight) {
            memcpy(&eight, s + i, sizeof eight);
            if (eight & 0x8080808080808080u)
                break;
            i += sizeof eight;
        }
        if (i == n)
            break;
        const int len = ech_utf8_char(s + i, n - i, &code);
        if (len == 0)
            break;
        i += (size_t)len;
    }
    return i;
}

int ech_utf8_put(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const int len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)((0xF00 >> len & 0xFF) | code);
    return len;
}

bool ech_utf8_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}
