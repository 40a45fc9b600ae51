#include "cli/help_config.h"

#include "train/schema.h"

#include <string.h>

/* What a section is, in a line. */
static const char *const sections[][2] = {
    {"model", "What is trained: a preset, a Hugging Face folder, or a shape by its keys."},
    {"data", "Token files.  Paths are relative to the file that names them."},
    {"batch", "In sequences."},
    {"layout", "How the ranks share the work: tp x cp x pp x dp ranks."},
    {"precision", "Number types.  With compute fp64, grads and wire follow."},
    {"optim", "Optimizer and learning rate."},
    {"train", "Length of the run, evaluation, seed."},
    {"checkpoint", "Weights on disk."},
    {"faults", "What happens when something goes wrong."},
    {"memory", "Caps, as 8GiB."},
    {"comm", "Collectives."},
    {"run", "This run on this machine."},
};

enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

/* Does a path start a section: it differs from the row before in its first part. */
static bool starts_section(const char *path, const char *before)
{
    const size_t n = strcspn(path, ".");
    return !before || strncmp(path, before, n) != 0 || before[n] != '.';
}

static const char *section_words(const char *path)
{
    const size_t n = strcspn(path, ".");
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (strlen(sections[i][0]) == n && strncmp(path, sections[i][0], n) == 0)
            return sections[i][1];
    ECH_ASSERT(false && "a section without words");
    return "";
}

/* "a|b" as "a, b". */
static void add_built(const char *built, ech_text *out)
{
    for (const char *at = built; *at; at++)
        ech_text_add(out, *at == '|' ? ", " : "%c", *at);
}

void ech_help_config_text(ech_text *out)
{
    size_t n = 0;
    const ech_option *row = ech_options(&n);
    ech_text_add(out, "A configuration is YAML (or JSON, which is YAML).  Every key, with its "
                      "default:\n");
    for (size_t i = 0; i < n; i++) {
        if (starts_section(row[i].path, i ? row[i - 1].path : NULL))
            ech_text_add(out, "\n%.*s: %s\n", (int)strcspn(row[i].path, "."), row[i].path,
                         section_words(row[i].path));
        ech_text_add(out, "  %s: %s%s%s\n      %s\n", row[i].path, row[i].fallback,
                     row[i].unit[0] ? "   # " : "", row[i].unit, row[i].doc);
        if (row[i].type == ECH_OPTION_MODEL)
            continue;
        ech_text_add(out, "      ");
        ech_option_describe(&row[i], out);
        if (row[i].built) {
            ech_text_add(out, "; built: ");
            add_built(row[i].built, out);
        }
        ech_text_add(out, "\n");
    }
}

/* A table cell: the bars of a list of choices would end it. */
static void add_cell(const char *s, ech_text *out)
{
    for (; *s; s++)
        ech_text_add(out, *s == '|' ? "\\|" : "%c", *s);
}

static void add_markdown_row(const ech_option *row, ech_text *out)
{
    ech_text legal = {0};
    if (row->type != ECH_OPTION_MODEL)
        ech_option_describe(row, &legal);
    ech_text_add(out, "| `%s` | ", row->path);
    add_cell(row->fallback, out);
    ech_text_add(out, " | %s | ", row->unit);
    add_cell(ech_text_get(&legal), out);
    ech_text_add(out, " | ");
    if (row->built)
        add_built(row->built, out);
    else
        ech_text_add(out, "all");
    ech_text_add(out, " | ");
    add_cell(row->doc, out);
    ech_text_add(out, " |\n");
    ech_text_fini(&legal);
}

void ech_help_config_markdown(ech_text *out)
{
    size_t n = 0;
    const ech_option *row = ech_options(&n);
    ech_text_add(out,
                 "# Configuration\n\n"
                 "Made by `echelon help config --markdown`; a test holds it equal to the table in "
                 "`src/train/schema.c`.\n\n"
                 "A configuration is YAML (or JSON, which is YAML).  The whole schema is accepted; "
                 "a value whose feature is\nnot built yet is refused by name with exit 2.  "
                 "`--set a.b=value` overrides a key.  Paths are relative to the\nfile that names "
                 "them, those of `--set` to the current directory.\n");
    for (size_t i = 0; i < n; i++) {
        if (starts_section(row[i].path, i ? row[i - 1].path : NULL))
            ech_text_add(out,
                         "\n## %.*s\n\n%s\n\n| key | default | unit | legal | built | meaning |\n"
                         "|---|---|---|---|---|---|\n",
                         (int)strcspn(row[i].path, "."), row[i].path, section_words(row[i].path));
        add_markdown_row(&row[i], out);
    }
}
