/* Text files to token files and tokenizers. */
#include "data/build.h"

#include "base/checked.h"
#include "data/text_source.h"
#include "data/token_writer.h"

#include <stdlib.h>

/* What each piece of text goes to. */
typedef ech_status (*take_piece)(void *user, const ech_text_piece *piece);
typedef int64_t (*count_tokens)(const void *user);

typedef struct pass {
    const ech_build_input *input;
    take_piece take;
    count_tokens tokens;
    void *user;
    int64_t all_bytes;
    int64_t done_bytes; /* of files before the current one */
} pass;

/* Sizes of all files; a missing one is found before anything is done. */
static ech_status add_sizes(const ech_build_input *input, int64_t *total)
{
    *total = 0;
    for (int i = 0; i < input->n_files; i++) {
        ech_text_source *s = NULL;
        ECH_TRY(ech_text_source_open(input->files[i], &input->text, &s));
        *total += ech_text_source_bytes(s);
        ech_text_source_close(&s);
    }
    return ECH_OK;
}

static ech_status run_source(pass *p, ech_text_source *s)
{
    for (;;) {
        ech_text_piece piece;
        const ech_status st = ech_text_source_next(s, &piece);
        if (st == ECH_DONE)
            return ECH_OK;
        ECH_TRY(st);
        ECH_TRY(p->take(p->user, &piece));
        if (p->input->progress)
            p->input->progress(p->done_bytes + ech_text_source_read_bytes(s), p->all_bytes,
                               p->tokens(p->user), p->input->user);
    }
}

static ech_status run_all(pass *p)
{
    ECH_CHECK(p->input->n_files > 0, ECH_E_USAGE, "no text file is given");
    ECH_TRY(add_sizes(p->input, &p->all_bytes));
    for (int i = 0; i < p->input->n_files; i++) {
        ech_text_source *s = NULL;
        ECH_TRY(ech_text_source_open(p->input->files[i], &p->input->text, &s));
        const ech_status st = run_source(p, s);
        p->done_bytes += ech_text_source_bytes(s);
        ech_text_source_close(&s);
        ECH_TRY(st);
    }
    return ECH_OK;
}

/* --- to a token file --- */

typedef struct builder {
    const ech_build_config *config;
    ech_token_writer *writer;
    ech_ids ids;
    int64_t text_bytes;
} builder;

static ech_status write_piece(void *user, const ech_text_piece *piece)
{
    builder *b = user;
    unsigned flags = b->config->document_flags;

    flags &= piece->begins ? ~0u : ~(unsigned)ECH_ENCODE_BOS;
    flags &= piece->ends ? ~0u : ~(unsigned)ECH_ENCODE_EOS;
    flags |= piece->begins ? 0u : (unsigned)ECH_ENCODE_CONTINUES;
    b->ids.n = 0;
    ECH_TRY(ech_tokenizer_encode(b->config->tokenizer, piece->text, piece->bytes, flags, &b->ids));
    ECH_TRY(ech_token_writer_add(b->writer, b->ids.data, b->ids.n));
    b->text_bytes += (int64_t)piece->bytes;
    return piece->ends ? ech_token_writer_end_document(b->writer) : ECH_OK;
}

static int64_t written_tokens(const void *user)
{
    return ech_token_writer_tokens(((const builder *)user)->writer);
}

static ech_status build_with(builder *b, ech_build_result *result)
{
    pass p = {.input = &b->config->input, .take = write_piece, .tokens = written_tokens, .user = b};

    ECH_TRY(run_all(&p));
    ECH_TRY(ech_token_writer_finish(b->writer));
    *result = (ech_build_result){.text_bytes = b->text_bytes,
                                 .n_tokens = ech_token_writer_tokens(b->writer),
                                 .n_documents = ech_token_writer_documents(b->writer)};
    return ECH_OK;
}

ech_status ech_data_build(const ech_build_config *config, ech_build_result *result)
{
    builder b = {.config = config};

    ECH_TRY(ech_token_writer_create(config->out, ech_tokenizer_vocab(config->tokenizer),
                                    config->dtype, config->tokenizer_name, &b.writer));
    const ech_status st = build_with(&b, result);
    ech_token_writer_destroy(&b.writer);
    ech_ids_fini(&b.ids);
    return st;
}

/* --- to a tokenizer --- */

static ech_status count_piece(void *user, const ech_text_piece *piece)
{
    return ech_bpe_trainer_add(user, piece->text, piece->bytes);
}

static int64_t no_tokens(const void *user)
{
    (void)user;
    return 0;
}

ech_status ech_data_train_tokenizer(const ech_build_input *input, const ech_bpe_config *config,
                                    ech_text *json, ech_bpe_result *result)
{
    ech_bpe_trainer *trainer = NULL;

    ECH_TRY(ech_bpe_trainer_create(config, &trainer));
    pass p = {.input = input, .take = count_piece, .tokens = no_tokens, .user = trainer};
    ech_status st = run_all(&p);
    if (st == ECH_OK)
        st = ech_bpe_trainer_finish(trainer, json, result);
    ech_bpe_trainer_destroy(&trainer);
    return st;
}
