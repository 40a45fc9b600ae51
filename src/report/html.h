/** @file report/html.h
 *  Pieces of HTML documents: text that cannot become markup, numbers for people.  Inside report only.
 *  Local, pure. */
#ifndef ECH_REPORT_HTML_H
#define ECH_REPORT_HTML_H

#include "base/text.h" /* ech_text */

/** Append words as text or as the value of an attribute in double quotes: & < > " ' are escaped;
 *  bytes that are no UTF-8, control characters and those that turn the direction of writing become
 *  U+FFFD. */
void ech_html_text(ech_text *out, const char *words);

/** The same for so many bytes. */
void ech_html_bytes(ech_text *out, const char *words, size_t bytes);

/** Append a number with so many significant digits, thousands parted by thin spaces that do not
 *  break; no locale's comma.  NaN and infinities: a dash. */
void ech_html_number(ech_text *out, double x, int digits);

/** Append a position or length of a drawing: two decimals at most. */
void ech_html_place(ech_text *out, double x);

/** Append seconds in the unit in which they have few digits: "25.5 s", "3.2 ms". */
void ech_html_seconds(ech_text *out, double s);

/** Append a longer time: from two minutes on in "min", "h", "days". */
void ech_html_span(ech_text *out, double s);

/** Append bytes as GiB. */
void ech_html_gib(ech_text *out, double bytes);

/** Append a share as percent with one decimal. */
void ech_html_percent(ech_text *out, double share);

/** Append a large number of things: "1.4 trillion". */
void ech_html_count(ech_text *out, double n);

#endif
