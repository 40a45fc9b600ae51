/* echelon generate: a trained model writes on. */
#include "base/checked.h"
#include "base/clock.h"
#include "cli/command.h"
#include "cli/run_setup.h"
#include "data/tokenizer.h"
#include "report/jout.h"
#include "train/generate.h"
#include "train/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 32 /* prompt tokens at once: enough for full tiles of a matrix product */ };

typedef struct generate_options {
    const char *from, *prompt, *tokenizer, *kernels;
    int64_t tokens, seed;
    ech_sampling sampling;
    bool json;
} generate_options;

/* Everything a text is made with. */
typedef struct writer {
    const generate_options *o;
    ech_run_setup setup;
    ech_weights weights;
    ech_tokenizer *tokenizer;
    ech_generator *generator;
    ech_ids prompt; /* as fed */
    ech_ids drawn;
    ech_text text;            /* of drawn; kept with --json only */
    double started, prompted; /* seconds of the clock: before the prompt, at the first new token */
} writer;

/* --- options --- */

static ech_status check_options(const generate_options *o, const ech_opt_list *words)
{
    ECH_CHECK(words->n == 1, ECH_E_USAGE,
              "generate wants one model or checkpoint folder (or llama2.c's file), got %zu",
              words->n);
    ECH_CHECK(o->tokens >= 1, ECH_E_USAGE, "--tokens %lld: wanted 1 or more", (long long)o->tokens);
    ECH_CHECK(o->seed >= 0, ECH_E_USAGE, "--seed %lld: wanted 0 or more", (long long)o->seed);
    return ech_sampling_validate(&o->sampling);
}

static ech_status parse(int argc, char **argv, generate_options *o)
{
    ech_opt_list words = {0};
    const ech_opt opts[] = {
        {"prompt", ECH_OPT_STRING, &o->prompt},
        {"tokens", ECH_OPT_INT, &o->tokens},
        {"temperature", ECH_OPT_REAL, &o->sampling.temperature},
        {"top-k", ECH_OPT_INT, &o->sampling.top_k},
        {"top-p", ECH_OPT_REAL, &o->sampling.top_p},
        {"seed", ECH_OPT_INT, &o->seed},
        {"tokenizer", ECH_OPT_STRING, &o->tokenizer},
        {"kernels", ECH_OPT_STRING, &o->kernels},
        {"json", ECH_OPT_FLAG, &o->json},
    };
    *o = (generate_options){.prompt = "", .kernels = "auto", .tokens = 256};
    o->sampling = ech_sampling_default();
    o->seed = (int64_t)o->sampling.seed;
    ech_status st = ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], &words);
    if (st >= 0)
        st = check_options(o, &words);
    if (st >= 0)
        o->from = words.item[0];
    o->sampling.seed = (uint64_t)o->seed;
    ech_opt_list_fini(&words);
    return st;
}

/* --- what is needed --- */

static ech_status open_tokenizer(writer *w)
{
    const ech_weights *from = &w->weights;
    const int64_t vocab = from->folder.model.vocab;
    ECH_CHECK(w->o->tokenizer || !from->is_llama2c, ECH_E_USAGE,
              "%s: llama2.c's file holds no tokenizer; give one with --tokenizer FILE", from->path);
    const ech_status st =
        ech_tokenizer_open(w->o->tokenizer ? w->o->tokenizer : from->path, &w->tokenizer);
    if (st < 0)
        return w->o->tokenizer ? st : ech_error_prefix(st, "no --tokenizer FILE was given, and ");
    ECH_CHECK(ech_tokenizer_vocab(w->tokenizer) <= vocab, ECH_E_DATA,
              "%s does not belong to this model: %d tokens, the model knows %lld",
              w->o->tokenizer ? w->o->tokenizer : from->path, ech_tokenizer_vocab(w->tokenizer),
              (long long)vocab);
    return ECH_OK;
}

/* An empty prompt is the token that begins a text, alone. */
static ech_status encode_prompt(writer *w)
{
    const size_t bytes = strlen(w->o->prompt);
    const int64_t context = w->weights.folder.model.context;
    unsigned flags = ech_tokenizer_document_flags(w->tokenizer) & ECH_ENCODE_BOS;
    if (!bytes)
        flags = ECH_ENCODE_BOS;
    ECH_CHECK(bytes || ech_tokenizer_bos(w->tokenizer) >= 0, ECH_E_USAGE,
              "this tokenizer has no token that begins a text: give a --prompt");
    ECH_TRY(ech_tokenizer_encode(w->tokenizer, w->o->prompt, bytes, flags, &w->prompt));
    ECH_CHECK((int64_t)w->prompt.n <= context, ECH_E_USAGE,
              "the prompt has %zu tokens, the model's context is %lld", w->prompt.n,
              (long long)context);
    return ECH_OK;
}

/* One rank, alone, with every processor. */
static ech_status open_kernels(writer *w)
{
    const ech_launch_place alone = {.launcher = ECH_LAUNCHER_NONE, .size = 1, .local_rank = -1};
    ech_config cfg;
    ECH_TRY(ech_config_init(&cfg));
    cfg.model = w->weights.folder.model;
    if (ech_weights_real(&w->weights) == ECH_F64)
        cfg.precision.compute = ECH_COMPUTE_FP64;
    const ech_run_request request = {
        .place = &alone, .ranks = 1, .transport = "self", .kernels = w->o->kernels, .cfg = &cfg};
    const ech_status st = ech_run_setup_open(&request, &w->setup);
    ech_config_fini(&cfg);
    return st;
}

/* The last token is drawn and not fed: the cache holds one less than the text. */
static ech_status create_generator(writer *w)
{
    const int64_t context = w->weights.folder.model.context;
    const int64_t room = context - (int64_t)w->prompt.n;
    const ech_generator_config config = {
        .model = &w->weights.folder.model,
        .canon = &w->weights.folder.canon,
        .real = ech_weights_real(&w->weights),
        .context = w->o->tokens <= room ? (int64_t)w->prompt.n + w->o->tokens - 1 : context,
        .chunk = CHUNK,
        .kernels = w->setup.kernels,
        .threads = w->setup.threads};
    ECH_TRY(ech_generator_create(&config, &w->generator));
    const ech_held held = ech_generator_held(w->generator);
    return ech_weights_load(&w->weights, &held, 1, NULL);
}

static ech_status prepare(writer *w)
{
    ECH_TRY(ech_cli_check_path(w->o->from));
    ECH_TRY(ech_weights_open(w->o->from, &w->weights));
    ECH_TRY(open_tokenizer(w));
    ECH_TRY(encode_prompt(w));
    ECH_TRY(open_kernels(w));
    return create_generator(w);
}

/* --- writing --- */

static ech_status print(const char *text, size_t bytes)
{
    const bool ok = fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
    ECH_CHECK(ok, ECH_E_IO, "standard output cannot be written");
    return ECH_OK;
}

/* Special tokens are no text; nor are ids that the tokenizer does not use. */
static ech_status take(void *user, int32_t id)
{
    writer *w = user;
    size_t bytes = 0;
    const int32_t previous =
        w->drawn.n ? w->drawn.data[w->drawn.n - 1] : w->prompt.data[w->prompt.n - 1];
    const char *piece = ech_tokenizer_piece(w->tokenizer, previous, id, &bytes);
    if (!w->drawn.n)
        w->prompted = ech_clock_s();
    ECH_TRY(ech_grow(&w->drawn.data, w->drawn.n, &w->drawn.capacity, sizeof id));
    w->drawn.data[w->drawn.n++] = id;
    if (!piece || ech_tokenizer_is_special(w->tokenizer, id))
        return ECH_OK;
    if (!w->o->json)
        return print(piece, bytes);
    ech_text_add_bytes(&w->text, piece, bytes);
    return ECH_OK;
}

static ech_status write_text(writer *w, ech_generate_end *end)
{
    const ech_generate_request request = {
        .prompt = w->prompt.data,
        .n_prompt = (int64_t)w->prompt.n,
        .tokens = w->o->tokens,
        .vocab = ech_tokenizer_vocab(w->tokenizer),
        .end = {ech_tokenizer_eos(w->tokenizer), ech_tokenizer_bos(w->tokenizer)},
        .sampling = w->o->sampling,
        .take = take,
        .user = w};
    if (!w->o->json)
        ECH_TRY(print(w->o->prompt, strlen(w->o->prompt)));
    w->started = w->prompted = ech_clock_s();
    const ech_status st = ech_generate(w->generator, &request, end);
    if (!w->o->json && st >= 0)
        return print("\n", 1);
    return st;
}

static void add_ids(ech_jout *j, const char *key, const ech_ids *ids)
{
    ech_jout_open(j, key, '[');
    for (size_t i = 0; i < ids->n; i++)
        ech_jout_int(j, NULL, ids->data[i]);
    ech_jout_close(j);
}

static void add_settings(ech_jout *j, const writer *w)
{
    ech_jout_string(j, "path", w->weights.path);
    ech_jout_string(j, "kernels", w->setup.kernels_name);
    ech_jout_string(j, "compute", ech_dtype_name(ech_weights_real(&w->weights)));
    ech_jout_real(j, "temperature", w->o->sampling.temperature);
    ech_jout_int(j, "top_k", w->o->sampling.top_k);
    ech_jout_real(j, "top_p", w->o->sampling.top_p);
    ech_jout_int(j, "seed", w->o->seed);
}

/* tokens_per_s is of the new ones after the first, which waits for the prompt. */
static ech_status print_json(const writer *w, ech_generate_end end)
{
    static const char *const ends[] = {"end_token", "tokens", "context"};
    ech_jout j = {0};
    const double new_s = ech_clock_s() - w->prompted;
    ech_jout_open(&j, NULL, '{');
    add_settings(&j, w);
    ech_jout_string(&j, "prompt", w->o->prompt);
    add_ids(&j, "prompt_tokens", &w->prompt);
    ech_jout_string(&j, "text", ech_text_get(&w->text));
    add_ids(&j, "tokens", &w->drawn);
    ech_jout_string(&j, "end", ends[end]);
    ech_jout_real(&j, "prompt_s", w->prompted - w->started);
    ech_jout_real(&j, "tokens_per_s", w->drawn.n > 1 ? (double)(w->drawn.n - 1) / new_s : NAN);
    ech_jout_close(&j);
    const bool failed = j.text.failed || w->text.failed;
    if (!failed)
        (void)puts(ech_jout_get(&j));
    ech_jout_fini(&j);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory for the text");
    return ECH_OK;
}

static ech_status run(const generate_options *o)
{
    writer w = {.o = o};
    ech_generate_end end = ECH_GENERATE_TOKENS;
    ech_status st = prepare(&w);
    if (st >= 0)
        st = write_text(&w, &end);
    if (st >= 0 && o->json)
        st = print_json(&w, end);
    ech_generator_destroy(&w.generator);
    ech_run_setup_close(&w.setup);
    ech_tokenizer_destroy(&w.tokenizer);
    ech_weights_close(&w.weights);
    ech_ids_fini(&w.prompt);
    ech_ids_fini(&w.drawn);
    ech_text_fini(&w.text);
    return st;
}

static int ech_cli_generate(int argc, char **argv)
{
    generate_options o;
    ech_status st = parse(argc, argv, &o);
    if (st >= 0)
        st = run(&o);
    return st < 0 ? ech_cli_fail(st) : 0;
}

const ech_command ech_command_generate = {
    "generate", "samples text",
    "Usage: echelon generate CKPT [--prompt TEXT] [OPTIONS]\n"
    "\n"
    "CKPT is a checkpoint, a folder with checkpoints (the newest whole one is taken), a Hugging\n"
    "Face folder, or llama2.c's .bin.\n"
    "The text begins with TEXT and goes on until a token that ends it is drawn, --tokens are\n"
    "written or the model's context is full.  The same seed gives the same text.\n"
    "\n"
    "  --prompt TEXT      what to continue; default: nothing, a new text\n"
    "  --tokens N         new tokens at most; default 256\n"
    "  --temperature T    0 takes the most likely token, 1 (the default) the model's odds\n"
    "  --top-k K          choose from the K most likely; default 0: all\n"
    "  --top-p P          choose from the fewest that have P of the probability; default 1: all\n"
    "  --seed S           of the draws; default 1\n"
    "  --tokenizer FILE   tokenizer.json, encoder.json, vocab.json, llama2.c's .bin, or a folder\n"
    "                     with one; default: that of CKPT\n"
    "  --kernels SET      auto (the default), cpu or ref\n"
    "  --json             one JSON document with text, tokens and how it ended\n",
    ech_cli_generate};
