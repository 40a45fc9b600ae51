#include "engine/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef ech_status (*transport_entry)(ech_transport **out);
typedef const ech_kernel_set *(*kernel_entry)(void);

ech_status ech_module_path(const char *name, char *buf, size_t n)
{
    Dl_info info;
    union {
        ech_status (*function)(const char *, char *, size_t);
        void *address;
    } self = {.function = ech_module_path}; /* C has no cast from a function to an object pointer */
    ECH_CHECK(dladdr(self.address, &info) && info.dli_fname, ECH_E_ENV,
              "cannot find the folder of libechelon");
    const char *slash = strrchr(info.dli_fname, '/');
    const int folder = slash ? (int)(slash - info.dli_fname) : 1;
    const int len =
        snprintf(buf, n, "%.*s/libechelon_%s.so", folder, slash ? info.dli_fname : ".", name);
    ECH_CHECK(len > 0 && (size_t)len < n, ECH_E_ENV, "the path of module '%s' is too long", name);
    return ECH_OK;
}

static ech_status open_symbol(const char *name, const char *symbol, void **out)
{
    char path[4096];
    ECH_TRY(ech_module_path(name, path, sizeof path));
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    ECH_CHECK(handle, ECH_E_ENV, "module '%s' cannot be opened: %s (see `echelon doctor`)", name,
              dlerror());
    *out = dlsym(handle, symbol);
    ECH_CHECK(*out, ECH_E_ENV, "module '%s' does not export %s", path, symbol);
    return ECH_OK;
}

ech_status ech_module_transport(const char *name, ech_transport **out)
{
    union {
        void *address;
        transport_entry function;
    } entry;
    ECH_TRY(open_symbol(name, ECH_TRANSPORT_MODULE_SYMBOL, &entry.address));
    return entry.function(out);
}

ech_status ech_module_kernels(const char *name, const ech_kernel_set **out)
{
    union {
        void *address;
        kernel_entry function;
    } entry;
    char why[256] = "";
    ECH_TRY(open_symbol(name, ECH_KERNEL_MODULE_SYMBOL, &entry.address));
    const ech_kernel_set *set = entry.function();
    ECH_CHECK(!set->is_usable || set->is_usable(why, sizeof why), ECH_E_ENV,
              "kernels '%s' cannot run here: %s", set->name, why);
    *out = set;
    return ECH_OK;
}
