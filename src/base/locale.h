/** @file base/locale.h
 *  Numbers as text in the "C" locale, whatever locale a host program has set: files and metrics
 *  never hold a decimal comma.  Inside base only.  Local. */
#ifndef ECH_BASE_LOCALE_H
#define ECH_BASE_LOCALE_H

#include <stddef.h>

/** As strtod, in the "C" locale. */
double ech_c_strtod(const char *s, char **end);

/** x with `digits` significant digits (printf's %.*g) into buf.  @return characters written */
int ech_c_format_double(char *buf, size_t n, int digits, double x);

#endif
