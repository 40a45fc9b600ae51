#include "fuzz.h"

#include "base/io.h"

#include <stdlib.h>
#include <string.h>

/* One input, at its exact size so that a sanitizer sees every overrun. */
static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    char *data = NULL;
    size_t bytes = 0;
    if (ech_path_join(folder, name, path, sizeof path) < 0 ||
        ech_read_whole(path, 1 << 26, &data, &bytes) < 0) {
        (void)fprintf(stderr, "%s\n", ech_error_message());
        return 1;
    }
    uint8_t *exact = malloc(bytes ? bytes : 1);
    ECH_ASSERT(exact);
    memcpy(exact, data, bytes);
    const int failed = LLVMFuzzerTestOneInput(exact, bytes);
    if (failed)
        (void)fprintf(stderr, "%s: the target returned %d\n", path, failed);
    free(exact);
    free(data);
    return failed;
}

/* Runs every seed of a folder through the target: what the fuzzer once found stays found. */
int main(int argc, char **argv)
{
    char **names = NULL;
    size_t n = 0;
    int failed = 0;
    if (argc != 2 || ech_list_folder(argv[1], &names, &n) < 0 || n == 0) {
        (void)fprintf(stderr, "usage: replay FOLDER (with seeds in it)\n");
        return 1;
    }
    for (size_t i = 0; i < n; i++)
        failed |= replay_file(argv[1], names[i]);
    ech_names_destroy(&names, n);
    return failed;
}
