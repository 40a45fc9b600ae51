/** @file support/pipelines.h
 *  Pipelines for tests: every schedule with every number of ranks, micro-batches and chunks. */
#ifndef ECH_TESTS_PIPELINES_H
#define ECH_TESTS_PIPELINES_H

#include "tiny.h" /* tiny_spec */

/** A pipeline. */
typedef struct pipeline {
    ech_schedule_kind schedule;
    int pp, micros;
    int chunks; /**< asked for */
    int group;  /**< 0: pp */
} pipeline;

/** May it be?  Only interleaved ones are choosy: groups of micro-batches go through a chunk
 *  together, and the last, if smaller, has at least as many as there are ranks. */
bool pipeline_is_legal(const pipeline *p);

/** Virtual stages of it. */
int pipeline_stages(const pipeline *p);

/** A run of it: fp64, SGD, poison, six layers, or as many as there are stages. */
tiny_spec pipeline_spec(const pipeline *p, tiny_kind kind);

/** What is done with a pipeline. */
typedef void (*pipeline_visit)(const pipeline *p, void *user);

/** All schedules x pp 2, 3, 4 x 1 to 3 pp micro-batches; interleaved with 2 and 3 chunks a rank, and
 *  groups of pp and of pp + 1; also those that are not legal. */
void pipelines_each(pipeline_visit visit, void *user);

#endif
