/** @file cli/sim_cluster.h
 *  sim of a catalogue cluster: a step priced by closed forms, its pipeline run through the schedule's
 *  table, what the network would have to do, and how much of the time remains when things fail.
 *  Local. */
#ifndef ECH_CLI_SIM_CLUSTER_H
#define ECH_CLI_SIM_CLUSTER_H

#include <stdbool.h>

/** Does a command line ask for this form of sim: it names a model, or a layout in another system's
 *  words. */
bool ech_sim_is_cluster(int argc, char **argv);

/** Run it.  @return the exit status of the program */
int ech_sim_cluster(int argc, char **argv);

#endif
