#include "data/token_type.h"

#include <string.h>

int64_t ech_token_type_bytes(ech_token_type t)
{
    switch (t) {
#define CASE(name, bytes, text, code)                                                              \
    case name:                                                                                     \
        return bytes;
        ECH_TOKEN_TYPE_LIST(CASE)
#undef CASE
    case ECH_TOKEN_AUTO:
        break;
    }
    return 0;
}

const char *ech_token_type_name(ech_token_type t)
{
    switch (t) {
#define CASE(name, bytes, text, code)                                                              \
    case name:                                                                                     \
        return text;
        ECH_TOKEN_TYPE_LIST(CASE)
#undef CASE
    case ECH_TOKEN_AUTO:
        break;
    }
    return "auto";
}

ech_status ech_token_type_parse(const char *name, ech_token_type *out)
{
    static const ech_token_type all[] = {ECH_TOKEN_AUTO,
#define ITEM(id, bytes, text, code) id,
                                         ECH_TOKEN_TYPE_LIST(ITEM)
#undef ITEM
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(ech_token_type_name(all[i]), name) == 0) {
            *out = all[i];
            return ECH_OK;
        }
    }
    return ECH_RAISE(ECH_E_CONFIG,
                     "token type '%s' is not known; it is one of auto, uint8, int8, int16, int32, "
                     "int64, uint16, uint32",
                     name);
}
