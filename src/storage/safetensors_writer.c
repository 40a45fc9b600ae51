#include "storage/safetensors.h"

#include "base/checked.h"
#include "base/io.h"
#include "base/text.h"
#include "storage/safetensors_private.h"

#include <stdlib.h>
#include <string.h>

struct ech_st_writer {
    ech_file *file;
    int64_t data_bytes; /* that the header promises */
    int64_t written;
};

static ech_status spec_bytes(const ech_st_spec *s, int64_t *out)
{
    int64_t bytes = (int64_t)ech_dtype_bytes(s->dtype);

    for (int i = 0; i < s->rank; i++)
        ECH_TRY(ech_mul_i64(bytes, s->dim[i], &bytes));
    *out = bytes;
    return ECH_OK;
}

static void add_string(ech_text *t, const char *s)
{
    ech_text_add_json_string(t, s, strlen(s));
}

static void add_metadata(ech_text *t, const ech_st_meta *meta, size_t n_meta)
{
    if (n_meta == 0)
        return;
    ech_text_add(t, "\"__metadata__\":{");
    for (size_t i = 0; i < n_meta; i++) {
        if (i)
            ech_text_add(t, ",");
        add_string(t, meta[i].key);
        ech_text_add(t, ":");
        add_string(t, meta[i].value);
    }
    ech_text_add(t, "}");
}

static ech_status add_tensor(ech_text *t, const ech_st_spec *s, int64_t *at)
{
    int64_t bytes = 0;
    int64_t end = 0;

    ECH_TRY(spec_bytes(s, &bytes));
    ECH_TRY(ech_add_i64(*at, bytes, &end));
    add_string(t, s->name);
    ech_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", ech_dtype_safetensors_name(s->dtype));
    for (int i = 0; i < s->rank; i++)
        ech_text_add(t, "%s%lld", i ? "," : "", (long long)s->dim[i]);
    ech_text_add(t, "],\"data_offsets\":[%lld,%lld]}", (long long)*at, (long long)end);
    *at = end;
    return ECH_OK;
}

/* What the reader would refuse is never written: the header is read back by the same rules. */
static ech_status check_header(const ech_text *text, int64_t data_bytes)
{
    ech_st st = {0};

    ECH_CHECK(text->bytes <= ECH_ST_HEADER_CAP, ECH_E_ILLEGAL,
              "a safetensors header of %zu bytes is beyond the %d that are read", text->bytes,
              (int)ECH_ST_HEADER_CAP);
    ECH_TRY(ech_calloc(text->bytes + 1, 1, &st.header));
    memcpy(st.header, text->data, text->bytes);
    const ech_status ok = ech_st_parse(&st, (int64_t)text->bytes, data_bytes);
    ech_st_fini(&st);
    return ok == ECH_E_CORRUPT ? ECH_E_ILLEGAL : ok;
}

static ech_status make_header(const ech_st_spec *spec, size_t n, const ech_st_meta *meta,
                              size_t n_meta, ech_text *text, int64_t *data_bytes)
{
    int64_t at = 0;

    ech_text_add(text, "{");
    add_metadata(text, meta, n_meta);
    for (size_t i = 0; i < n; i++) {
        if (i || n_meta)
            ech_text_add(text, ",");
        ECH_TRY(add_tensor(text, &spec[i], &at));
    }
    ech_text_add(text, "}");
    while (text->bytes % 8 && !text->failed) /* the first 8 bytes keep the data aligned */
        ech_text_add(text, " ");
    ECH_CHECK(!text->failed, ECH_E_NOMEM, "no memory for a safetensors header");
    ECH_TRY(check_header(text, at));
    *data_bytes = at;
    return ECH_OK;
}

static ech_status write_header(ech_file *f, const ech_text *text)
{
    unsigned char first[8];

    for (int i = 0; i < 8; i++)
        first[i] = (unsigned char)((uint64_t)text->bytes >> (8 * i));
    ECH_TRY(ech_file_write(f, first, sizeof first));
    return ech_file_write(f, text->data, text->bytes);
}

ech_status ech_st_writer_create(const char *path, const ech_st_spec *spec, size_t n,
                                const ech_st_meta *meta, size_t n_meta, ech_st_writer **out)
{
    ech_text text = {0};
    ech_st_writer *w = NULL;
    ech_status ok;

    ECH_TRY_GOTO(ok, ech_calloc(1, sizeof *w, &w), fail);
    ECH_TRY_GOTO(ok, make_header(spec, n, meta, n_meta, &text, &w->data_bytes), fail);
    ECH_TRY_GOTO(ok, ech_file_create(path, &w->file), fail);
    ECH_TRY_GOTO(ok, write_header(w->file, &text), fail);
    ech_text_fini(&text);
    *out = w;
    return ECH_OK;
fail:
    ech_text_fini(&text);
    ech_st_writer_destroy(&w);
    return ok;
}

ech_status ech_st_writer_add(ech_st_writer *w, const void *data, size_t bytes)
{
    ECH_CHECK((int64_t)bytes <= w->data_bytes - w->written, ECH_E_FAILED,
              "%s: %zu bytes more than the header promises", ech_file_path(w->file),
              bytes - (size_t)(w->data_bytes - w->written));
    ECH_TRY(ech_file_write(w->file, data, bytes));
    w->written += (int64_t)bytes;
    return ECH_OK;
}

static ech_status publish(const ech_st_writer *w)
{
    ECH_CHECK(w->written == w->data_bytes, ECH_E_FAILED,
              "%s: %lld bytes of data were written, the header promises %lld",
              ech_file_path(w->file), (long long)w->written, (long long)w->data_bytes);
    return ech_file_publish(w->file);
}

ech_status ech_st_writer_finish(ech_st_writer **w)
{
    const ech_status ok = publish(*w);

    ech_st_writer_destroy(w);
    return ok;
}

void ech_st_writer_destroy(ech_st_writer **w)
{
    if (!*w)
        return;
    ech_file_close(&(*w)->file);
    free(*w);
    *w = NULL;
}
