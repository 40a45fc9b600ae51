/** @file catalog/quantity.h
 *  Quantities with their units, as people write them in a cluster's file: "80 GB", "450 GB/s",
 *  "400 Gb/s", "3.4 us", "989 TFLOP/s", "700 W".  Decimal and binary units are told apart, and bits
 *  from bytes.  Inside catalog only.  Local. */
#ifndef ECH_CATALOG_QUANTITY_H
#define ECH_CATALOG_QUANTITY_H

#include "catalog/key_reader.h" /* ech_key_reader, ech_key_got */

/** What is measured. */
typedef enum ech_dimension {
    ECH_DIMENSION_BYTES,
    ECH_DIMENSION_BYTES_PER_S, /**< also bits: "400 Gb/s", "400 Gbit/s", "400 Gbps" */
    ECH_DIMENSION_SECONDS,
    ECH_DIMENSION_FLOPS, /**< a second: "989 TFLOP/s", "989 TFLOPS" */
    ECH_DIMENSION_WATTS,
    ECH_N_DIMENSIONS
} ech_dimension;

/** A value in its base unit, and how it was written. */
typedef struct ech_quantity {
    double value;   /**< bytes, bytes/s, s, FLOP/s, W */
    double number;  /**< 80 of "80 GB" */
    bool is_binary; /**< KiB, GiB, ... */
    bool is_bits;
} ech_quantity;

/** Read a text such as "450 GB/s".
 *  @return does it state a number of 0 or more and a unit of that dimension */
ECH_MUST_USE bool ech_quantity_read(const char *text, ech_dimension dimension, ech_quantity *out);

/** Read a key that holds a quantity: KEY: "450 GB/s", or a plain number in the base unit under KEY
 *  with the unit behind it (bandwidth_bytes_per_s: 450e9).
 *  @param r          the map and where complaints go
 *  @param key        without a unit
 *  @param dimension  what it must be
 *  @param out        set where it is good
 *  @return as ech_key_real: above 0 and finite, else a finding */
ech_key_got ech_key_quantity(const ech_key_reader *r, const char *key, ech_dimension dimension,
                             ech_quantity *out);

/** What a dimension's keys end in: "_bytes_per_s"; static storage. */
const char *ech_dimension_suffix(ech_dimension dimension);

#endif
