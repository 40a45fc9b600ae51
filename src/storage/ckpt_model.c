/* Of which model a checkpoint is. */
#include "storage/ckpt_reader.h"

#include "base/node.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_status compare_tensor(const ech_ckpt *c, const ech_ckpt_tensor *saved,
                                 const ech_ckpt_tensor *mine)
{
    ECH_CHECK(!strcmp(saved->name, mine->name), ECH_E_CONFIG,
              "%s is of another model: it has '%s' where this one has '%s'", ech_ckpt_path_of(c),
              saved->name, mine->name);
    bool is_same = saved->rank == mine->rank;
    ech_text shapes[2] = {{0}, {0}};
    for (int d = 0; d < mine->rank && is_same; d++)
        is_same = saved->dim[d] == mine->dim[d];
    if (is_same)
        return ECH_OK;
    for (int k = 0; k < 2; k++) {
        const ech_ckpt_tensor *t = k ? mine : saved;
        for (int d = 0; d < t->rank; d++)
            ech_text_add(&shapes[k], "%s%" PRId64, d ? ", " : "", t->dim[d]);
    }
    const ech_status st = ECH_RAISE(
        ECH_E_CONFIG, "%s is of another model: its '%s' is [%s], this one's [%s]",
        ech_ckpt_path_of(c), saved->name, ech_text_get(&shapes[0]), ech_text_get(&shapes[1]));
    ech_text_fini(&shapes[0]);
    ech_text_fini(&shapes[1]);
    return st;
}

static ech_status compare_tensors(const ech_ckpt *c, const ech_ckpt_tensor *mine, int64_t n)
{
    const ech_ckpt_manifest *m = ech_ckpt_manifest_of(c);
    for (int64_t i = 0; i < n && i < m->n_tensors; i++)
        ECH_TRY(compare_tensor(c, &m->tensor[i], &mine[i]));
    ECH_CHECK(m->n_tensors <= n, ECH_E_CONFIG,
              "%s is of another model: it has '%s', which this one has not", ech_ckpt_path_of(c),
              m->tensor[n < m->n_tensors ? n : 0].name);
    ECH_CHECK(m->n_tensors >= n, ECH_E_CONFIG,
              "%s is of another model: it lacks '%s', which this one has", ech_ckpt_path_of(c),
              mine[m->n_tensors < n ? m->n_tensors : 0].name);
    return ECH_OK;
}

static ech_status check_tensors(const ech_ckpt *c, const ech_model *model, const ech_canon *canon)
{
    const bool is_interleaved = model->rope.kind != ECH_ROPE_NONE && model->rope.interleaved;
    ech_ckpt_tensor *mine = NULL;
    ECH_TRY(ech_ckpt_tensors_create(model, canon, &mine));
    ech_status st = compare_tensors(c, mine, canon->n_params);
    free(mine);
    ECH_TRY(st);
    ECH_CHECK(ech_ckpt_manifest_of(c)->run.is_interleaved == is_interleaved, ECH_E_CONFIG,
              "%s is of another model: its rotary pairs are %s, this one's %s (model.rope.layout)",
              ech_ckpt_path_of(c),
              ech_ckpt_manifest_of(c)->run.is_interleaved ? "interleaved" : "half-split",
              is_interleaved ? "interleaved" : "half-split");
    return ECH_OK;
}

/* The model as its text says. */
static ech_status parse_model(const ech_ckpt *c, ech_model *model)
{
    ech_node *tree = NULL;
    ECH_TRY(ech_node_parse_json(ech_ckpt_manifest_of(c)->model,
                                strlen(ech_ckpt_manifest_of(c)->model), ech_ckpt_path_of(c),
                                &tree));
    const ech_status st = ech_model_from_hf(tree, ech_ckpt_path_of(c), model);
    ech_node_destroy(&tree);
    return st;
}

ech_status ech_ckpt_model(const ech_ckpt *c, ech_model *model, ech_canon *canon)
{
    ech_status st = parse_model(c, model);
    if (st < 0)
        return ech_error_prefix(st == ECH_E_NOMEM ? st : ECH_E_CORRUPT, "the manifest's model: ");
    (void)snprintf(model->name, sizeof model->name, "%s", ech_ckpt_path_of(c));
    if (model->rope.kind != ECH_ROPE_NONE)
        model->rope.interleaved = ech_ckpt_manifest_of(c)->run.is_interleaved;
    ECH_TRY(ech_canon_create(model, canon));
    st = check_tensors(c, model, canon);
    if (st < 0)
        ech_canon_fini(canon);
    if (st == ECH_E_CONFIG)
        return ech_error_prefix(ECH_E_CORRUPT, "the manifest's model is not that of its tensors: ");
    return st;
}

/* --- what the same tensors compute --- */

typedef enum field_kind { SIZE, REAL, CHOICE } field_kind;

/* What may differ between models of the same tensors.  The model is written as an HF config.json
 * and read from it: both sides have gone that way. */
static const struct field {
    const char *key;
    size_t at;
    field_kind kind;
    bool is_same_model; /* said, not refused */
} fields[] = {
    {"model.heads", offsetof(ech_model, heads), SIZE, false},
    {"model.kv_heads", offsetof(ech_model, kv_heads), SIZE, false},
    {"model.head_dim", offsetof(ech_model, head_dim), SIZE, false},
    {"model.norm", offsetof(ech_model, norm), CHOICE, false},
    {"model.norm_eps", offsetof(ech_model, norm_eps), REAL, false},
    {"model.act", offsetof(ech_model, act), CHOICE, false},
    {"model.rope.theta", offsetof(ech_model, rope.theta), REAL, false},
    {"model.rope.kind", offsetof(ech_model, rope.kind), CHOICE, false},
    {"model.rope.factor", offsetof(ech_model, rope.factor), REAL, false},
    {"model.rope.low_freq_factor", offsetof(ech_model, rope.low_freq_factor), REAL, false},
    {"model.rope.high_freq_factor", offsetof(ech_model, rope.high_freq_factor), REAL, false},
    {"model.rope.original_context", offsetof(ech_model, rope.original_context), SIZE, false},
    {"model.rope.partial", offsetof(ech_model, rope.partial), REAL, false},
    {"model.context", offsetof(ech_model, context), SIZE, true},
    {"model.dropout", offsetof(ech_model, dropout), REAL, true}};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static double value_of(const ech_model *m, const struct field *f)
{
    const char *at = (const char *)m + f->at;
    int64_t size;
    double real;
    int choice;
    switch (f->kind) {
    case SIZE:
        memcpy(&size, at, sizeof size);
        return (double)size;
    case REAL:
        memcpy(&real, at, sizeof real);
        return real;
    default:
        memcpy(&choice, at, sizeof choice);
        return choice;
    }
}

/* A model on the way that a saved one has gone. */
static ech_status as_saved(const ech_model *model, ech_model *out)
{
    ech_text text = {0};
    ech_node *tree = NULL;
    ech_status st = ech_model_to_hf(model, NULL, &text);
    if (st == ECH_OK)
        st = ech_node_parse_json(ech_text_get(&text), text.bytes, "model", &tree);
    if (st == ECH_OK)
        st = ech_model_from_hf(tree, "model", out);
    ech_node_destroy(&tree);
    ech_text_fini(&text);
    return st;
}

static ech_status read_both(const ech_ckpt *c, const ech_model *model, ech_model *then,
                            ech_model *now)
{
    const ech_status st = parse_model(c, then);
    if (st < 0 && st != ECH_E_NOMEM)
        return ech_error_prefix(ECH_E_CORRUPT, "the manifest's model: ");
    ECH_TRY(st);
    return as_saved(model, now);
}

static ech_status refuse(const ech_ckpt *c, const struct field *f, double then, double now)
{
    ECH_CHECK(f->kind != CHOICE, ECH_E_CONFIG, "%s is of another model: its %s is another one",
              ech_ckpt_path_of(c), f->key);
    return ECH_RAISE(ECH_E_CONFIG, "%s is of another model: its %s is %.10g, this one's %.10g",
                     ech_ckpt_path_of(c), f->key, then, now);
}

ech_status ech_ckpt_check_model(const ech_ckpt *c, const ech_model *model, const ech_canon *canon)
{
    ech_model then;
    ech_model now;
    ECH_TRY(check_tensors(c, model, canon));
    ECH_TRY(read_both(c, model, &then, &now));
    for (const struct field *f = fields; f < fields + N_FIELDS; f++)
        if (!f->is_same_model && memcmp(&(double){value_of(&then, f)}, &(double){value_of(&now, f)},
                                        sizeof(double)) != 0)
            return refuse(c, f, value_of(&then, f), value_of(&now, f));
    return ECH_OK;
}

void ech_ckpt_model_changes(const ech_ckpt *c, const ech_model *model, ech_text *out)
{
    ech_model then;
    ech_model now;
    if (read_both(c, model, &then, &now) < 0) {
        ech_error_clear();
        return;
    }
    for (const struct field *f = fields; f < fields + N_FIELDS; f++)
        if (f->is_same_model && memcmp(&(double){value_of(&then, f)}, &(double){value_of(&now, f)},
                                       sizeof(double)) != 0)
            ech_text_add(out, "%s%s", out->bytes ? ", " : "", f->key);
}
