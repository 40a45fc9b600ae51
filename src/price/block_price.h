/** @file price/block_price.h
 *  Prices of the blocks of a model on one rank, kept: a search asks for the same few thousand of
 *  them again and again.
 *
 *  A block is a dense layer, a layer of experts, the embedding or the head.  Its price depends on tp,
 *  sp, cp, ep, etp, the micro-batch, what is recomputed and where tp's, cp's and ep's ranks are, not
 *  on pipelines, replicas or sharding.  Sums over ech_kernels (kernel_price.h), and the messages of
 *  tp, cp and ep.
 *  Nothing allocates after create; local. */
#ifndef ECH_PRICE_BLOCK_PRICE_H
#define ECH_PRICE_BLOCK_PRICE_H

#include "layout/layout.h"      /* ech_axis */
#include "price/collective.h"   /* ech_group */
#include "price/kernel_price.h" /* ech_kernels */

/** Blocks. */
typedef enum ech_block {
    ECH_BLOCK_DENSE,
    ECH_BLOCK_SPARSE,
    ECH_BLOCK_EMBEDDING,
    ECH_BLOCK_HEAD,
    ECH_N_BLOCKS
} ech_block;

/** Messages of a block on one axis: forward, backward, and forward that runs again. */
typedef struct ech_block_messages {
    double exposed_s[3], hidden_s[3];
    double sent_bytes[3]; /**< wire, of a rank */
} ech_block_messages;

/** Price of a block and micro-batch on one rank.  Seconds of work hold what messages slow it down
 *  by, not the messages. */
typedef struct ech_block_price {
    double work_s[ECH_N_PASSES]; /**< kernels, as the host can launch them */
    double again_s;              /**< kernels that run again, the point's set */
    double flops[ECH_N_PASSES];
    double again_flops;   /**< by these kernels */
    double again_counted; /**< in the convention of MFU */
    ech_block_messages tp, cp, ep;
} ech_block_price;

/** All blocks under a layout. */
typedef struct ech_blocks {
    ech_shape shape;
    ech_block_price block[ECH_N_BLOCKS];
} ech_blocks;

/** Where the ranks of an axis are. */
ech_group ech_group_of(const ech_point *point, ech_axis axis);

/** Price blocks, not kept.
 *  @param r      borrowed
 *  @param job    borrowed
 *  @param point  legal, borrowed
 *  @param out    set */
void ech_blocks_price(const ech_rates *r, const ech_job *job, const ech_point *point,
                      ech_blocks *out);

/** Kept prices.  Opaque. */
typedef struct ech_block_cache ech_block_cache;

/** Room for `n` layouts (a power of two).  @return ECH_OK | ECH_E_NOMEM */
ECH_MUST_USE ech_status ech_block_cache_create(size_t n, ech_block_cache **out);

/** NULL-safe. */
void ech_block_cache_destroy(ech_block_cache **cache);

/** Forget what was priced, keep the room: for another job or other constants. */
void ech_block_cache_forget(ech_block_cache *cache);

/** Price, or what was priced before; valid until the next call. */
const ech_blocks *ech_block_cache_get(ech_block_cache *cache, const ech_rates *r,
                                      const ech_job *job, const ech_point *point);

#endif
