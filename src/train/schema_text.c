/* Words about the option table: nearest names and what is legal. */
#include "train/schema.h"

#include <string.h>

enum { PATH_BYTES = 256, MAX_NAMES = 160 };

/* Length of the section part of a path, its last dot included. */
static size_t section_bytes(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? (size_t)(dot - path) + 1 : 0;
}

/* Names one level below `section`, which has n bytes with its dot: leaves and sections. */
static size_t sibling_names(const char *section, size_t n, char names[][PATH_BYTES], size_t max)
{
    size_t n_rows = 0;
    size_t n_names = 0;
    const ech_option *row = ech_options(&n_rows);
    for (size_t i = 0; i < n_rows; i++) {
        if (strncmp(row[i].path, section, n) != 0)
            continue;
        const size_t bytes = n + strcspn(row[i].path + n, ".");
        if (n_names > 0 && strlen(names[n_names - 1]) == bytes &&
            memcmp(names[n_names - 1], row[i].path, bytes) == 0)
            continue;
        if (n_names == max || bytes >= PATH_BYTES)
            break;
        memcpy(names[n_names], row[i].path, bytes);
        names[n_names++][bytes] = '\0';
    }
    return n_names;
}

/* Row whose last name is `name`, in whatever section. */
static const char *find_elsewhere(const char *name)
{
    size_t n_rows = 0;
    const ech_option *row = ech_options(&n_rows);
    for (size_t i = 0; i < n_rows; i++)
        if (strcmp(row[i].path + section_bytes(row[i].path), name) == 0)
            return row[i].path;
    return NULL;
}

/* The only name that begins with what was written, or NULL: "warmup" for warmup_steps. */
static const char *find_completion(const char *written, const char *const *names, size_t n)
{
    const char *found = NULL;
    for (size_t i = 0; i < n && strlen(written) > 2; i++) {
        if (strncmp(names[i], written, strlen(written)) != 0)
            continue;
        if (found)
            return NULL;
        found = names[i];
    }
    return found;
}

const char *ech_option_nearest(const char *path)
{
    static _Thread_local char names[MAX_NAMES][PATH_BYTES]; /* what is returned lives here */
    const char *last[MAX_NAMES];
    const size_t n = section_bytes(path);
    const size_t n_names = sibling_names(path, n, names, MAX_NAMES);
    for (size_t i = 0; i < n_names; i++)
        last[i] = names[i] + n;
    const char *near = ech_nearest_name(path + n, last, n_names);
    if (!near)
        near = find_completion(path + n, last, n_names);
    if (near)
        return near - n;
    return find_elsewhere(path + n);
}

/* "a|b|c" as "a, b or c". */
static void describe_choices(const char *allowed, ech_text *out)
{
    const char *at = allowed;
    while (at) {
        const size_t n = strcspn(at, "|");
        const char *next = at[n] ? at + n + 1 : NULL;
        const bool is_last = next && !strchr(next, '|');
        ech_text_add(out, "%.*s%s", (int)n, at, !next ? "" : is_last ? " or " : ", ");
        at = next;
    }
}

static void describe_number(const char *noun, const ech_option *row, ech_text *out)
{
    ech_text_add(out, "%s", noun);
    if (row->allowed)
        ech_text_add(out, " %s%s", strstr(row->allowed, "..") ? "in " : "", row->allowed);
}

void ech_option_describe(const ech_option *row, ech_text *out)
{
    switch (row->type) {
    case ECH_OPTION_BOOL:
        ech_text_add(out, "true or false");
        break;
    case ECH_OPTION_INT:
    case ECH_OPTION_INT_AUTO:
    case ECH_OPTION_INT_NONE:
        describe_number("an integer", row, out);
        break;
    case ECH_OPTION_REAL:
        describe_number("a number", row, out);
        break;
    case ECH_OPTION_PAIR:
        describe_number("a list of two numbers", row, out);
        break;
    case ECH_OPTION_BYTES:
    case ECH_OPTION_BYTES_AUTO:
        ech_text_add(out, "a size such as 8GiB");
        break;
    case ECH_OPTION_INTS_AUTO:
        describe_number("a list of integers", row, out);
        break;
    case ECH_OPTION_CHOICE:
    case ECH_OPTION_WORD:
        if (row->allowed)
            describe_choices(row->allowed, out);
        else
            ech_text_add(out, "a string");
        break;
    case ECH_OPTION_PATH:
    case ECH_OPTION_PATH_AUTO:
        ech_text_add(out, "a path");
        break;
    case ECH_OPTION_PATHS:
        ech_text_add(out, "a path or a list of paths");
        break;
    case ECH_OPTION_MODEL:
        ech_text_add(out, "a model key");
        break;
    }
    if (row->type == ECH_OPTION_INT_AUTO || row->type == ECH_OPTION_BYTES_AUTO ||
        row->type == ECH_OPTION_INTS_AUTO || row->type == ECH_OPTION_PATH_AUTO)
        ech_text_add(out, " or auto");
    if (row->type == ECH_OPTION_INT_NONE || row->type == ECH_OPTION_PATHS ||
        row->type == ECH_OPTION_PATH)
        ech_text_add(out, " or none");
}
