#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096, TRAIL_BYTES = 1024 };

static _Thread_local char error_message[MESSAGE_BYTES];
static _Thread_local char error_trail[TRAIL_BYTES];

typedef struct status_row {
    ech_status code;
    int exit_code;
    const char *name;
    const char *text;
} status_row;

static const status_row status_rows[] = {
#define ECH_STATUS_ROW(name, value, exit_code, text) {name, exit_code, #name, text},
    ECH_STATUS_LIST(ECH_STATUS_ROW)
#undef ECH_STATUS_ROW
};

static const status_row *find_row(ech_status st)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++)
        if (status_rows[i].code == st)
            return &status_rows[i];
    return NULL;
}

const char *ech_status_name(ech_status st)
{
    const status_row *row = find_row(st);
    return row ? row->name : "unknown status";
}

const char *ech_status_text(ech_status st)
{
    const status_row *row = find_row(st);
    return row ? row->text : "unknown status";
}

int ech_status_exit_code(ech_status st)
{
    const status_row *row = find_row(st);
    return row ? row->exit_code : 1;
}

static const char *short_file(const char *file)
{
    const char *found = file; /* the last one: a checkout may itself lie below a folder src */
    for (const char *at = file; (at = strstr(at, "src/")) != NULL; at++)
        found = at;
    return found;
}

static void trail_add(const char *file, int line)
{
    const size_t used = strlen(error_trail);
    if (used + 1 < sizeof error_trail)
        (void)snprintf(error_trail + used, sizeof error_trail - used, "%s%s:%d", used ? " < " : "",
                       short_file(file), line);
}

/* Names in messages come from files and peers: no control character reaches a terminal. */
static void clean_message(char *message)
{
    for (char *p = message; *p; p++)
        if (((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            *p = '?';
}

ech_status ech_error_raise(ech_status st, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    char message[MESSAGE_BYTES]; /* the arguments may quote the message before this one */
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    clean_message(message);
    memcpy(error_message, message, sizeof error_message);
    error_trail[0] = '\0';
    trail_add(file, line);
    return st;
}

ech_status ech_error_trace(ech_status st, const char *file, int line)
{
    trail_add(file, line);
    return st;
}

ech_status ech_error_prefix(ech_status st, const char *fmt, ...)
{
    char prefix[1024];
    char message[MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    memcpy(message, error_message, sizeof message);
    const size_t n = strlen(prefix);
    memcpy(error_message, prefix, n);
    (void)snprintf(error_message + n, sizeof error_message - n, "%s", message);
    clean_message(error_message);
    return st;
}

const char *ech_error_message(void)
{
    return error_message;
}

const char *ech_error_trail(void)
{
    return error_trail;
}

void ech_error_clear(void)
{
    error_message[0] = '\0';
    error_trail[0] = '\0';
}

_Noreturn void ech_assert_fail(const char *what, const char *file, int line)
{
    (void)fprintf(stderr, "echelon: impossible state: %s at %s:%d\n", what, file, line);
    abort();
}
