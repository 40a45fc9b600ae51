/** @file base/node_scalar.h
 *  Types of plain YAML scalars: YAML 1.2.2, section 10.3.2 (core schema).  Inside base only.
 *  Local, pure. */
#ifndef ECH_BASE_NODE_SCALAR_H
#define ECH_BASE_NODE_SCALAR_H

#include "base/node.h" /* ech_node */

/** Give a plain scalar its kind and value.
 *  @param node  in/out: a STRING with its text
 *  @return ECH_OK | ECH_E_PARSE  infinite, NaN, or a number too large */
ECH_MUST_USE ech_status ech_node_type_scalar(ech_node *node);

#endif
