/* echelon doctor: what this machine has and lacks, in words. */
#include "base/clock.h"
#include "base/io.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "measure/machine.h"
#include "report/jout.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH_BYTES = 4096, WORDS_BYTES = 512, N_MODULES = 2 };

/* A module that is opened at run time. */
typedef struct module_row {
    const char *name, *file, *symbol;
    const char *gives, *without;
} module_row;

static const module_row module_rows[N_MODULES] = {
    {"mpi", "libechelon_mpi.so", "ech_transport_module", "ranks as processes, over MPI",
     "only --transport self and inproc work; build with an MPI found by CMake"},
    {"cpu", "libechelon_cpu.so", NULL, "fast kernels for fp32",
     "training runs on the slow reference kernels; fast ones are built on x86-64 only"},
};

/* What doctor found; strings of modules are empty where all is well. */
typedef struct findings {
    ech_machine machine;
    char folder[MAX_PATH_BYTES];
    char problem[N_MODULES][WORDS_BYTES];
    char mpirun[MAX_PATH_BYTES]; /* "" where there is none */
    char mpirun_version[256];
    int ranks;      /* started as a trial; 0: no trial */
    int trial_code; /* its exit status */
    double trial_s; /* and duration */
} findings;

/* Opens it as a run would, with all its libraries. */
static void try_module(const module_row *row, const char *folder, char *problem, size_t n)
{
    char path[MAX_PATH_BYTES];
    if (ech_path_join(folder, row->file, path, sizeof path) < 0 || !ech_path_exists(path)) {
        (void)snprintf(problem, n, "%s is not beside the executable", row->file);
        return;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        (void)snprintf(problem, n, "%.400s", dlerror());
        return;
    }
    if (row->symbol && !dlsym(module, row->symbol))
        (void)snprintf(problem, n, "%s lacks the symbol %s: it is of another version", row->file,
                       row->symbol);
    (void)dlclose(module);
}

static void examine(findings *f)
{
    *f = (findings){0};
    ech_machine_get(&f->machine);
    (void)ech_launch_own_folder(f->folder, sizeof f->folder);
    for (int i = 0; i < N_MODULES; i++)
        try_module(&module_rows[i], f->folder, f->problem[i], sizeof f->problem[i]);
    if (!ech_launch_find_program("mpirun", f->mpirun, sizeof f->mpirun))
        f->mpirun[0] = '\0';
    else if (!ech_launch_program_version(f->mpirun, f->mpirun_version, sizeof f->mpirun_version))
        f->mpirun_version[0] = '\0';
}

/* --- for people --- */

static const char *bytes_words(int64_t bytes, const char *absent, char *buf, size_t n)
{
    return bytes < 0 ? absent : ech_format_bytes((double)bytes, buf, n);
}

static void print_modules(const findings *f)
{
    for (int i = 0; i < N_MODULES; i++) {
        const module_row *row = &module_rows[i];
        if (!f->problem[i][0])
            (void)printf("module %-5s yes: %s\n", row->name, row->gives);
        else
            (void)printf("module %-5s no:  %s; %s\n", row->name, f->problem[i], row->without);
    }
    if (f->mpirun[0])
        (void)printf("launcher     %s: %s\n", f->mpirun,
                     f->mpirun_version[0] ? f->mpirun_version : "it does not tell its version");
    else
        (void)printf("launcher     none: --ranks needs mpirun in PATH (Debian: openmpi-bin); "
                     "--transport inproc works without\n");
}

static void print_cpu(const ech_machine *m)
{
    const bool has_fast = m->has_avx2 && m->has_fma;
    (void)printf("processor    %s\n", m->cpu[0] ? m->cpu : "name not told");
    (void)printf("cores        %d online, %d usable by this process", m->cores_online,
                 m->cores_usable);
    if (m->cores_quota > 0)
        (void)printf(", %.2f by the quota of its control group", m->cores_quota);
    (void)printf("\nvectors      %s%s%s%s%s%s\n", m->has_avx2 ? "AVX2 " : "",
                 m->has_fma ? "FMA " : "", m->has_avx512f ? "AVX-512 " : "",
                 m->has_avx512_bf16 ? "AVX512-BF16 " : "", m->has_amx_bf16 ? "AMX-BF16 " : "",
                 has_fast ? "" : "(no AVX2 with FMA: kernels run well below their speed)");
}

static void print_memory(const ech_machine *m)
{
    char a[32];
    char b[32];
    (void)printf("memory       %s, %s available\n",
                 bytes_words(m->memory_bytes, "size not told", a, sizeof a),
                 bytes_words(m->available_bytes, "not told how much", b, sizeof b));
    if (m->limit_bytes >= 0)
        (void)printf("             limited to %s by the control group: a run beyond it is killed\n",
                     ech_format_bytes((double)m->limit_bytes, a, sizeof a));
    (void)printf("huge pages   transparent: %s; reserved: %lld of %s\n",
                 m->thp[0] ? m->thp : "not told",
                 (long long)(m->huge_pages < 0 ? 0 : m->huge_pages),
                 bytes_words(m->huge_page_bytes, "unknown size", a, sizeof a));
    if (strcmp(m->thp, "never") == 0)
        (void)printf("             with never, arenas live in small pages: some speed is lost\n");
    (void)printf("limits       locked memory %s, open files %lld, /dev/shm %s free\n",
                 bytes_words(m->locked_bytes, "unlimited", a, sizeof a), (long long)m->open_files,
                 bytes_words(m->shm_free_bytes, "absent: 0 B", b, sizeof b));
    if (m->shm_free_bytes >= 0 && m->shm_free_bytes < (64 << 20))
        (void)printf("             less than 64 MiB of /dev/shm is little for ranks on one host\n");
}

static void print_trial(const findings *f)
{
    if (f->ranks > 0 && f->trial_code == 0)
        (void)printf("trial        %d ranks came up and ended in %.2f s\n", f->ranks, f->trial_s);
    else if (f->ranks > 0)
        (void)printf("trial        starting %d ranks failed with exit status %d\n", f->ranks,
                     f->trial_code);
}

static void print_words(const findings *f)
{
    (void)printf("echelon      %s in %s\n", ECH_VERSION, f->folder);
    (void)printf("host         %s, %s\n", f->machine.host, f->machine.system);
    print_modules(f);
    print_cpu(&f->machine);
    print_memory(&f->machine);
    print_trial(f);
}

/* --- for programs --- */

static void add_int_or_null(ech_jout *j, const char *key, int64_t x)
{
    if (x < 0)
        ech_jout_null(j, key);
    else
        ech_jout_int(j, key, x);
}

static void add_modules(const findings *f, ech_jout *j)
{
    ech_jout_open(j, "modules", '{');
    for (int i = 0; i < N_MODULES; i++) {
        ech_jout_open(j, module_rows[i].name, '{');
        ech_jout_bool(j, "found", !f->problem[i][0]);
        ech_jout_string(j, "problem", f->problem[i][0] ? f->problem[i] : NULL);
        ech_jout_close(j);
    }
    ech_jout_close(j);
    ech_jout_open(j, "mpirun", '{');
    ech_jout_string(j, "path", f->mpirun[0] ? f->mpirun : NULL);
    ech_jout_string(j, "version", f->mpirun_version[0] ? f->mpirun_version : NULL);
    ech_jout_close(j);
}

static void add_machine(const ech_machine *m, ech_jout *j)
{
    ech_jout_string(j, "host", m->host);
    ech_jout_string(j, "system", m->system);
    ech_jout_string(j, "cpu", m->cpu[0] ? m->cpu : NULL);
    ech_jout_int(j, "cores_online", m->cores_online);
    ech_jout_int(j, "cores_usable", m->cores_usable);
    if (m->cores_quota > 0)
        ech_jout_real(j, "cores_quota", m->cores_quota);
    else
        ech_jout_null(j, "cores_quota");
    add_int_or_null(j, "memory_bytes", m->memory_bytes);
    add_int_or_null(j, "available_bytes", m->available_bytes);
    add_int_or_null(j, "limit_bytes", m->limit_bytes);
    add_int_or_null(j, "locked_bytes", m->locked_bytes);
    add_int_or_null(j, "open_files", m->open_files);
    add_int_or_null(j, "shm_free_bytes", m->shm_free_bytes);
    add_int_or_null(j, "huge_pages", m->huge_pages);
    add_int_or_null(j, "huge_page_bytes", m->huge_page_bytes);
    ech_jout_string(j, "transparent_huge_pages", m->thp[0] ? m->thp : NULL);
    ech_jout_bool(j, "avx2", m->has_avx2);
    ech_jout_bool(j, "fma", m->has_fma);
    ech_jout_bool(j, "avx512f", m->has_avx512f);
    ech_jout_bool(j, "avx512_bf16", m->has_avx512_bf16);
    ech_jout_bool(j, "amx_bf16", m->has_amx_bf16);
}

static void add_trial(const findings *f, ech_jout *j)
{
    if (f->ranks == 0) {
        ech_jout_null(j, "trial");
        return;
    }
    ech_jout_open(j, "trial", '{');
    ech_jout_int(j, "ranks", f->ranks);
    ech_jout_int(j, "exit_code", f->trial_code);
    ech_jout_real(j, "seconds", f->trial_s);
    ech_jout_close(j);
}

static ech_status print_json(const findings *f)
{
    ech_jout j = {0};
    ech_jout_open(&j, NULL, '{');
    ech_jout_string(&j, "version", ECH_VERSION);
    ech_jout_string(&j, "folder", f->folder);
    add_modules(f, &j);
    add_machine(&f->machine, &j);
    add_trial(f, &j);
    ech_jout_close(&j);
    const bool failed = j.text.failed;
    if (!failed)
        (void)printf("%s\n", ech_jout_get(&j));
    ech_jout_fini(&j);
    return failed ? ECH_RAISE(ECH_E_NOMEM, "the document of doctor") : ECH_OK;
}

/* Start ranks that do nothing but come up: does the launcher work on this machine. */
static ech_status try_ranks(int argc, char **argv, int ranks, findings *f)
{
    const ech_launch_request request = {ranks, NULL, argc, argv};
    const double before = ech_clock_s();
    f->ranks = ranks;
    ECH_TRY(ech_launch_run(&request, &f->trial_code));
    f->trial_s = ech_clock_s() - before;
    return ECH_OK;
}

static ech_status run_doctor(int argc, char **argv, int *code)
{
    bool as_json = false;
    int64_t ranks = 0;
    findings f;
    const ech_opt opts[] = {{"json", ECH_OPT_FLAG, &as_json}, {"ranks", ECH_OPT_INT, &ranks}};
    const ech_launch_place place = ech_launch_detect();
    ECH_TRY(ech_opt_parse(argc, argv, opts, sizeof opts / sizeof opts[0], NULL));
    ECH_TRY(ech_launch_check(&place, ranks));
    if (ranks > 0 && place.launcher != ECH_LAUNCHER_NONE)
        return ECH_OK; /* one of the ranks of a trial: it came up, and that is all */
    examine(&f);
    if (ranks > 0)
        ECH_TRY(try_ranks(argc, argv, (int)ranks, &f));
    *code = f.trial_code;
    if (as_json)
        return print_json(&f);
    print_words(&f);
    return ECH_OK;
}

static int cmd_doctor(int argc, char **argv)
{
    int code = 0;
    const ech_status st = run_doctor(argc, argv, &code);
    return st < 0 ? ech_cli_fail(st) : code;
}

const ech_command ech_command_doctor = {
    "doctor",
    "what this machine has and lacks, in words",
    "Usage: echelon doctor [--ranks N] [--json]\n"
    "\n"
    "Says in words which modules, MPI launcher, cores, memory and vector units this machine has\n"
    "and what their absence means.\n"
    "\n"
    "  --ranks N   also starts N ranks through mpirun, as train --ranks does, and says how it "
    "went\n"
    "  --json      one JSON document\n",
    cmd_doctor,
};
