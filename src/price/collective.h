/** @file price/collective.h
 *  Seconds of messages and collectives over groups that lie somewhere in a cluster's levels.
 *
 *  A group has `ranks` members, one in every `stride` devices.  In each level's domain some of them are
 *  neighbours; what leaves a domain goes through the links of all its members, so a ring over whole
 *  nodes has all their network cards, and one of single ranks has a card each.  Bandwidths are those
 *  when all devices send, as all groups of a kind do at once.
 *  Time = start + hops + bytes / bandwidth + what middle payloads cost beside (half-way at 8 MiB).
 *  Sources: ring volumes, Thakur et al. 2005, doi:10.1177/1094342005051521; the payload curve is that
 *  of NCCL on H200.
 *  Pure; local. */
#ifndef ECH_PRICE_COLLECTIVE_H
#define ECH_PRICE_COLLECTIVE_H

#include "price/rates.h" /* ech_rates */

typedef enum ech_collective {
    ECH_COLLECTIVE_ALL_REDUCE,
    ECH_COLLECTIVE_GATHER,  /**< all-gather or reduce-scatter */
    ECH_COLLECTIVE_ONE_WAY, /**< a gather or scatter whose ring has one way into a domain: libraries
                                that gather tensor by tensor into lists */
    ECH_COLLECTIVE_TURNS, /**< a gather or scatter made of broadcasts from, or reductions to, one rank
                                after another: each passes all ranks */
    ECH_COLLECTIVE_ALL_TO_ALL,
    ECH_COLLECTIVE_ROUTE /**< tokens to their experts: an all-to-all in which those for one domain may
                              cross to it once */
} ech_collective;

/** A group's place. */
typedef struct ech_group {
    double ranks, stride;
} ech_group;

/** Seconds of a collective.
 *  @param bytes  of the whole tensor: what is reduced, what all have after a gather, what a rank
 *                sends in an all-to-all, its own part counted */
double ech_collective_seconds(const ech_rates *r, ech_collective kind, ech_group g, double bytes);

/** Seconds of many of them that each move a part of `bytes` in buckets. */
double ech_collective_buckets(const ech_rates *r, ech_collective kind, ech_group g, double bytes,
                              double bucket_bytes);

/** Seconds of a message to the device `stride` further, while `together` neighbours send too: they
 *  share the cards of their domain. */
double ech_message_seconds(const ech_rates *r, double stride, double together, double bytes);

#endif
