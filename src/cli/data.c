/* echelon data: token files and tokenizers out of text, and what a token file holds. */
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/command.h"
#include "data/build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Everything that can be asked for; each verb takes some of it. */
typedef struct request {
    bool is_json;
    const char *tokenizer, *out, *split, *key, *dtype;
    bool specials_as_text, no_bos, no_eos;
    int64_t vocab, min_count;
    ech_opt_list special;
    ech_opt_list words; /* the verb, then files */
} request;

static const char *const *files_of(const request *rq)
{
    return rq->words.item + 1;
}

static int n_files_of(const request *rq)
{
    return (int)rq->words.n - 1;
}

/* --- progress --- */

typedef struct progress {
    double began_s, shown_s;
    bool is_terminal;
} progress;

/* Nothing in the first two seconds; then a line that is written over, or one every ten seconds. */
static void show_progress(int64_t read_bytes, int64_t all_bytes, int64_t n_tokens, void *user)
{
    progress *p = user;
    const double now = ech_clock_s();
    const double gap = p->is_terminal ? 0.2 : 10.0;
    const double part = all_bytes > 0 ? (double)read_bytes / (double)all_bytes : 1.0;

    if (now - p->began_s < 2.0 || now - p->shown_s < gap || part <= 0.0)
        return;
    p->shown_s = now;
    (void)fprintf(stderr, "%s%5.1f %% read, %" PRId64 " tokens, %.0f s left%s",
                  p->is_terminal ? "\r" : "", 100.0 * part, n_tokens,
                  (now - p->began_s) * (1.0 - part) / part, p->is_terminal ? "\033[K" : "\n");
}

static void end_progress(const progress *p)
{
    if (p->is_terminal && p->shown_s > p->began_s)
        (void)fputs("\r\033[K", stderr);
}

/* --- inputs --- */

static ech_status parse_split(const char *name, ech_text_split *out)
{
    static const struct {
        const char *name;
        ech_text_split split;
    } known[] = {{"auto", ECH_SPLIT_AUTO},
                 {"file", ECH_SPLIT_FILE},
                 {"blank-lines", ECH_SPLIT_BLANK_LINE},
                 {"jsonl", ECH_SPLIT_JSONL}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].split;
            return ECH_OK;
        }
    }
    return ECH_RAISE(ECH_E_USAGE, "--split-on %s: wanted auto, file, blank-lines or jsonl", name);
}

static ech_status get_input(const request *rq, progress *p, ech_build_input *out)
{
    *out = (ech_build_input){.files = files_of(rq),
                             .n_files = n_files_of(rq),
                             .text = ech_text_options_default(),
                             .progress = show_progress,
                             .user = p};
    if (rq->key)
        out->text.key = rq->key;
    ECH_CHECK(out->n_files > 0, ECH_E_USAGE, "data %s: no text file is given", rq->words.item[0]);
    return rq->split ? parse_split(rq->split, &out->text.split) : ECH_OK;
}

/* --- build --- */

static void report_build(const request *rq, const ech_build_config *config,
                         const ech_build_result *result, double seconds, ech_text *out)
{
    const int32_t vocab = ech_tokenizer_vocab(config->tokenizer);

    if (!rq->is_json) {
        ech_text_add(out,
                     "%s: %" PRId64 " tokens in %" PRId64 " documents from %" PRId64
                     " bytes of text, vocabulary %d, %.1f s\n",
                     rq->out, result->n_tokens, result->n_documents, result->text_bytes, vocab,
                     seconds);
        return;
    }
    ech_text_add(out, "{\"out\":");
    ech_text_add_json_string(out, rq->out, strlen(rq->out));
    ech_text_add(out,
                 ",\"tokens\":%" PRId64 ",\"documents\":%" PRId64 ",\"text_bytes\":%" PRId64
                 ",\"vocab\":%d,\"tokenizer_hash\":\"%s\",\"seconds\":",
                 result->n_tokens, result->n_documents, result->text_bytes, vocab,
                 config->tokenizer_name);
    ech_text_add_double(out, seconds);
    ech_text_add(out, "}\n");
}

static ech_status build_with(const request *rq, ech_tokenizer *tokenizer, ech_text *out)
{
    char hash[33];
    progress p = {.began_s = ech_clock_s(), .is_terminal = ech_cli_has_colour(2)};
    ech_build_config config = {.tokenizer = tokenizer, .tokenizer_name = hash, .out = rq->out};
    ech_build_result result;

    ech_tokenizer_hash(tokenizer, hash);
    ECH_TRY(get_input(rq, &p, &config.input));
    if (rq->dtype)
        ECH_TRY(ech_token_type_parse(rq->dtype, &config.dtype));
    config.document_flags = ech_tokenizer_document_flags(tokenizer);
    config.document_flags &= ~(rq->no_bos ? (unsigned)ECH_ENCODE_BOS : 0u);
    config.document_flags &= ~(rq->no_eos ? (unsigned)ECH_ENCODE_EOS : 0u);
    config.document_flags |= rq->specials_as_text ? (unsigned)ECH_ENCODE_SPECIAL_AS_TEXT : 0u;
    p.shown_s = p.began_s;
    const ech_status st = ech_data_build(&config, &result);
    end_progress(&p);
    ECH_TRY(st);
    report_build(rq, &config, &result, ech_clock_s() - p.began_s, out);
    return ECH_OK;
}

static ech_status build(const request *rq, ech_text *out)
{
    ech_tokenizer *tokenizer = NULL;

    ECH_CHECK(rq->tokenizer && rq->out, ECH_E_USAGE, "data build wants --tokenizer and --out");
    ECH_CHECK(n_files_of(rq) > 0, ECH_E_USAGE, "data build: no text file is given");
    ECH_TRY(ech_tokenizer_open(rq->tokenizer, &tokenizer));
    const ech_status st = build_with(rq, tokenizer, out);
    ech_tokenizer_destroy(&tokenizer);
    return st;
}

/* --- tokenizer --- */

static void report_tokenizer(const request *rq, const ech_bpe_result *r, double seconds,
                             ech_text *out)
{
    if (!rq->is_json) {
        ech_text_add(out,
                     "%s: vocabulary %" PRId64 " from %" PRId64 " bytes of text (%" PRId64
                     " distinct words), %.1f s\n",
                     rq->out, r->vocab, r->text_bytes, r->n_words, seconds);
        if (r->vocab < rq->vocab)
            ech_text_add(out, "The text has no more pairs to merge: %" PRId64 " were asked for.\n",
                         rq->vocab);
        return;
    }
    ech_text_add(out, "{\"out\":");
    ech_text_add_json_string(out, rq->out, strlen(rq->out));
    ech_text_add(
        out, ",\"vocab\":%" PRId64 ",\"text_bytes\":%" PRId64 ",\"words\":%" PRId64 ",\"seconds\":",
        r->vocab, r->text_bytes, r->n_words);
    ech_text_add_double(out, seconds);
    ech_text_add(out, "}\n");
}

static ech_status train_tokenizer(const request *rq, ech_text *out)
{
    progress p = {.began_s = ech_clock_s(), .is_terminal = ech_cli_has_colour(2)};
    ech_bpe_config config = ech_bpe_config_default();
    ech_build_input input;
    ech_bpe_result result;
    ech_text json = {0};

    ECH_CHECK(rq->vocab > 0 && rq->out, ECH_E_USAGE, "data tokenizer wants --vocab and --out");
    ECH_TRY(get_input(rq, &p, &input));
    config.vocab = rq->vocab;
    config.min_count = rq->min_count;
    if (rq->special.n > 0) {
        config.special = rq->special.item;
        config.n_special = (int)rq->special.n;
    }
    p.shown_s = p.began_s;
    ech_status st = ech_data_train_tokenizer(&input, &config, &json, &result);
    end_progress(&p);
    if (st == ECH_OK)
        st = ech_write_whole(rq->out, ech_text_get(&json), json.bytes);
    ech_text_fini(&json);
    ECH_TRY(st);
    report_tokenizer(rq, &result, ech_clock_s() - p.began_s, out);
    return ECH_OK;
}

/* --- info, verify --- */

static ech_status open_tokens(const request *rq, bool trusts, ech_token_file **f)
{
    ech_token_options opt = ech_token_options_default();

    ECH_CHECK(n_files_of(rq) == 1, ECH_E_USAGE, "data %s wants one token file, got %d",
              rq->words.item[0], n_files_of(rq));
    ECH_CHECK(rq->vocab >= 0, ECH_E_USAGE, "--vocab %" PRId64 ": wanted a size", rq->vocab);
    if (rq->dtype)
        ECH_TRY(ech_token_type_parse(rq->dtype, &opt.dtype));
    opt.vocab = rq->vocab;
    opt.trusts_side_file = trusts;
    return ech_token_file_open(files_of(rq)[0], &opt, f);
}

static const char *form_name(ech_token_form form, bool is_short)
{
    switch (form) {
    case ECH_TOKENS_MEGATRON:
        return is_short ? "megatron" : "Megatron .bin and .idx";
    case ECH_TOKENS_LLMC:
        return is_short ? "llm.c" : "llm.c";
    case ECH_TOKENS_BARE:
        break;
    }
    return is_short ? "nanogpt" : "bare tokens (nanoGPT)";
}

typedef struct unigram {
    double entropy_nats;
    int64_t n_distinct;
} unigram;

static void info_json(const ech_token_file *f, const unigram *u, ech_text *out)
{
    const ech_token_info *info = ech_token_file_info(f);
    const char *path = ech_token_file_path(f);

    ech_text_add(out, "{\"path\":");
    ech_text_add_json_string(out, path, strlen(path));
    ech_text_add(out,
                 ",\"form\":\"%s\",\"dtype\":\"%s\",\"tokens\":%" PRId64 ",\"documents\":%" PRId64
                 ",\"max_id\":%" PRId64 ",\"vocab\":",
                 form_name(info->form, true), ech_token_type_name(info->dtype), info->n_tokens,
                 info->n_documents, info->max_id);
    if (info->vocab > 0)
        ech_text_add(out, "%" PRId64, info->vocab);
    else
        ech_text_add(out, "null");
    ech_text_add(out, ",\"distinct\":%" PRId64 ",\"unigram_entropy\":", u->n_distinct);
    ech_text_add_double(out, u->entropy_nats);
    ech_text_add(out, "}\n");
}

static void info_words(const ech_token_file *f, const unigram *u, ech_text *out)
{
    const ech_token_info *info = ech_token_file_info(f);

    ech_text_add(out, "%s: %s, %s\n", ech_token_file_path(f), form_name(info->form, false),
                 ech_token_type_name(info->dtype));
    ech_text_add(out, "tokens           %" PRId64 " in %" PRId64 " documents\n", info->n_tokens,
                 info->n_documents);
    ech_text_add(out, "ids              %" PRId64 " distinct, largest %" PRId64, u->n_distinct,
                 info->max_id);
    if (info->vocab > 0)
        ech_text_add(out, ", vocabulary %" PRId64, info->vocab);
    ech_text_add(out, "\nunigram entropy  %.4f nats per token\n", u->entropy_nats);
    if (!info->has_side_file)
        ech_text_add(out, "There is no side file with hashes beside it.\n");
}

static ech_status info(const request *rq, ech_text *out)
{
    ech_token_file *f = NULL;
    unigram u = {0};

    ECH_TRY(open_tokens(rq, true, &f));
    const ech_status st = ech_token_file_unigram(f, &u.entropy_nats, &u.n_distinct);
    if (st == ECH_OK && rq->is_json)
        info_json(f, &u, out);
    else if (st == ECH_OK)
        info_words(f, &u, out);
    ech_token_file_close(&f);
    return st;
}

static ech_status verify(const request *rq, ech_text *out)
{
    ech_token_file *f = NULL;

    ECH_TRY(open_tokens(rq, true, &f));
    const ech_token_info *info = ech_token_file_info(f);
    const ech_status st = ech_token_file_verify(f);
    if (st == ECH_OK && rq->is_json) {
        ech_text_add(out, "{\"path\":");
        ech_text_add_json_string(out, files_of(rq)[0], strlen(files_of(rq)[0]));
        ech_text_add(out, ",\"ok\":true,\"tokens\":%" PRId64 ",\"documents\":%" PRId64 "}\n",
                     info->n_tokens, info->n_documents);
    } else if (st == ECH_OK) {
        ech_text_add(
            out, "%s: %" PRId64 " tokens in %" PRId64 " documents, every hash and id is right\n",
            files_of(rq)[0], info->n_tokens, info->n_documents);
    }
    ech_token_file_close(&f);
    return st;
}

/* --- the command --- */

typedef ech_status (*verb_run)(const request *rq, ech_text *out);

static const struct verb {
    const char *name;
    verb_run run;
} verbs[] = {{"build", build}, {"info", info}, {"verify", verify}, {"tokenizer", train_tokenizer}};

static ech_status run_verb(const request *rq, ech_text *out)
{
    enum { N_VERBS = sizeof verbs / sizeof verbs[0] };
    const char *names[N_VERBS];

    ECH_CHECK(rq->words.n > 0, ECH_E_USAGE,
              "data: wanted build, info, verify or tokenizer; see 'echelon help data'");
    const char *name = rq->words.item[0];
    for (size_t i = 0; i < N_VERBS; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, name) == 0)
            return verbs[i].run(rq, out);
    }
    const char *near = ech_nearest_name(name, names, N_VERBS);
    return ECH_RAISE(ECH_E_USAGE, "data: '%.40s' is not build, info, verify or tokenizer%s%s%s",
                     name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ech_status run(int argc, char **argv, request *rq, ech_text *out)
{
    const ech_opt opts[] = {
        {"json", ECH_OPT_FLAG, &rq->is_json},
        {"tokenizer", ECH_OPT_STRING, &rq->tokenizer},
        {"out", ECH_OPT_STRING, &rq->out},
        {"split-on", ECH_OPT_STRING, &rq->split},
        {"key", ECH_OPT_STRING, &rq->key},
        {"dtype", ECH_OPT_STRING, &rq->dtype},
        {"special-as-text", ECH_OPT_FLAG, &rq->specials_as_text},
        {"no-bos", ECH_OPT_FLAG, &rq->no_bos},
        {"no-eos", ECH_OPT_FLAG, &rq->no_eos},
        {"vocab", ECH_OPT_INT, &rq->vocab},
        {"min-count", ECH_OPT_INT, &rq->min_count},
        {"special", ECH_OPT_LIST, &rq->special},
    };
    ECH_TRY(ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &rq->words));
    return run_verb(rq, out);
}

static int cmd_data(int argc, char **argv)
{
    request rq = {.min_count = 2};
    ech_text out = {0};
    ech_status st = run(argc, argv, &rq, &out);

    if (st == ECH_OK)
        st = ech_cli_print(&out);
    ech_text_fini(&out);
    ech_opt_list_fini(&rq.special);
    ech_opt_list_fini(&rq.words);
    return ech_cli_fail(st);
}

const ech_command ech_command_data = {
    "data",
    "text to token files, a tokenizer out of text, what a token file holds",
    "Usage: echelon data build --tokenizer PATH --out NAME.bin FILE... [--split-on HOW] [--key "
    "K]\n"
    "                    [--dtype TYPE] [--special-as-text] [--no-bos] [--no-eos] [--json]\n"
    "       echelon data tokenizer --vocab N --out tokenizer.json FILE... [--special TEXT]...\n"
    "                    [--min-count N] [--split-on HOW] [--key K] [--json]\n"
    "       echelon data info NAME.bin [--dtype TYPE] [--vocab N] [--json]\n"
    "       echelon data verify NAME.bin [--json]\n"
    "\n"
    "build writes a Megatron .bin and .idx and a side file with hashes; tokenizer trains a "
    "byte-level\n"
    "BPE and writes HF's tokenizer.json; info prints counts and the unigram entropy in nats per "
    "token;\n"
    "verify checks every hash.  Text files may be plain, .gz or .zst.\n"
    "\n"
    "  --tokenizer PATH   tokenizer.json, encoder.json, a llama2.c .bin, or a folder with one\n"
    "  --split-on HOW     what separates documents: file, blank-lines, jsonl (a JSON object a "
    "line);\n"
    "                     auto, the default, is jsonl for .jsonl and file for the rest\n"
    "  --key K            JSONL: where the text is; default text\n"
    "  --dtype TYPE       of the tokens: auto, uint8, uint16, int32 ...; auto goes by the "
    "vocabulary,\n"
    "                     and for info by the file\n"
    "  --special-as-text  special tokens in the text are ordinary text\n"
    "  --no-bos, --no-eos documents without the tokens that begin or end them\n"
    "  --vocab N          tokenizer: size with special tokens; info: refuse ids beyond it\n"
    "  --special TEXT     a special token, repeatable; default <|endoftext|>\n"
    "  --min-count N      pairs seen less often are not merged; default 2\n"
    "  --json             one JSON document\n",
    cmd_data,
};
