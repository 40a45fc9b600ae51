#include "hf.h"

#include "check.h"

#include "train/weights.h"

#include <stdlib.h>

void hf_make(const char *path, const char *dir)
{
    ech_weights w = {0};
    void **param = NULL;
    const ech_hf_folder_spec spec = {.file_dtype = ECH_F32};
    assert_ok(ech_weights_open(path, &w));
    float *flat = calloc((size_t)w.folder.canon.elems, sizeof *flat);
    assert_ok(ech_weights_read(&w, ECH_F32, flat));
    assert_ok(ech_hf_flat_params(&w.folder.canon, ECH_F32, flat, &param));
    const ech_hf_values values = {ECH_F32, param};
    assert_ok(ech_hf_folder_write(dir, &w.folder.model, &w.folder.canon, &values, &spec));
    free(param);
    free(flat);
    ech_weights_close(&w);
}
