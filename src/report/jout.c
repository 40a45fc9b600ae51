#include "report/jout.h"

#include <string.h>

void ech_jout_reset(ech_jout *j)
{
    j->depth = 0;
    j->text.bytes = 0;
    j->text.failed = false;
    if (j->text.data)
        j->text.data[0] = '\0';
}

/* Comma and key in front of a value. */
static void begin_value(ech_jout *j, const char *key)
{
    if (j->depth == 0) {
        ECH_ASSERT(!key && j->text.bytes == 0);
        return;
    }
    const int level = j->depth - 1;
    ECH_ASSERT((key != NULL) == (j->open[level] == '{'));
    ech_text_add(&j->text, "%s", j->has_member[level] ? ", " : "");
    j->has_member[level] = true;
    if (key) {
        ech_text_add_json_string(&j->text, key, strlen(key));
        ech_text_add(&j->text, ": ");
    }
}

void ech_jout_open(ech_jout *j, const char *key, char bracket)
{
    ECH_ASSERT(bracket == '{' || bracket == '[');
    ECH_ASSERT(j->depth < ECH_JOUT_MAX_DEPTH);
    begin_value(j, key);
    ech_text_add(&j->text, "%c", bracket);
    j->open[j->depth] = bracket;
    j->has_member[j->depth] = false;
    j->depth++;
}

void ech_jout_close(ech_jout *j)
{
    ECH_ASSERT(j->depth > 0);
    j->depth--;
    ech_text_add(&j->text, "%c", j->open[j->depth] == '{' ? '}' : ']');
}

void ech_jout_int(ech_jout *j, const char *key, int64_t x)
{
    begin_value(j, key);
    ech_text_add(&j->text, "%lld", (long long)x);
}

void ech_jout_real(ech_jout *j, const char *key, double x)
{
    begin_value(j, key);
    ech_text_add_double(&j->text, x);
}

void ech_jout_bool(ech_jout *j, const char *key, bool x)
{
    begin_value(j, key);
    ech_text_add(&j->text, x ? "true" : "false");
}

void ech_jout_string(ech_jout *j, const char *key, const char *s)
{
    begin_value(j, key);
    if (s)
        ech_text_add_json_string(&j->text, s, strlen(s));
    else
        ech_text_add(&j->text, "null");
}

void ech_jout_null(ech_jout *j, const char *key)
{
    begin_value(j, key);
    ech_text_add(&j->text, "null");
}

void ech_jout_raw(ech_jout *j, const char *key, const char *json)
{
    begin_value(j, key);
    ech_text_add(&j->text, "%s", json);
}

const char *ech_jout_get(const ech_jout *j)
{
    ECH_ASSERT(j->depth == 0);
    return ech_text_get(&j->text);
}

void ech_jout_fini(ech_jout *j)
{
    ech_text_fini(&j->text);
    *j = (ech_jout){0};
}
