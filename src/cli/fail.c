/* How answers and errors are shown. */
#include "cli/command.h"
#include "cli/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool ech_cli_has_colour(int fd)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(fd) && !(no_colour && no_colour[0]) && term && strcmp(term, "dumb") != 0;
}

ech_status ech_cli_print(ech_text *answer)
{
    const bool failed = answer->failed;
    if (!failed)
        (void)fputs(ech_text_get(answer), stdout);
    ech_text_fini(answer);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory for the answer");
    return ECH_OK;
}

ech_status ech_cli_print_json(ech_jout *answer)
{
    const bool failed = answer->text.failed;
    if (!failed)
        (void)puts(ech_jout_get(answer));
    ech_jout_fini(answer);
    ECH_CHECK(!failed, ECH_E_NOMEM, "no memory for the answer");
    return ECH_OK;
}

static void print_lines(const char *at)
{
    while (*at) {
        const size_t bytes = strcspn(at, "\n");
        (void)fprintf(stderr, "  %.*s\n", (int)bytes, at);
        at += at[bytes] ? bytes + 1 : bytes;
    }
}

/* Several lines: what the first says of the others is the headline where it ends with a colon, else
 * the kind of error is. */
static void print_message(ech_status st, const char *message)
{
    const size_t first = strcspn(message, "\n");
    if (!message[0])
        (void)fprintf(stderr, "%s\n", ech_status_text(st));
    else if (!message[first])
        (void)fprintf(stderr, "%s\n", message);
    else if (first > 0 && message[first - 1] == ':') {
        (void)fprintf(stderr, "%.*s\n", (int)first, message);
        print_lines(message + first + 1);
    } else {
        (void)fprintf(stderr, "%s\n", ech_status_text(st));
        print_lines(message);
    }
}

/* mpirun ends the others once a rank has ended with an error: rank 0 gets the time to speak. */
static void leave_it_to_rank_0(void)
{
    const struct timespec second = {1, 0};
    (void)fflush(stdout);
    (void)nanosleep(&second, NULL);
}

int ech_cli_fail(ech_status st)
{
    const int code = ech_status_exit_code(st);
    const char *level = getenv("ECHELON_LOG");
    const bool is_red = ech_cli_has_colour(2);
    const ech_launch_place place = ech_launch_detect();
    const char *message = ech_error_message();
    char who[32] = "";
    /* what is wrong with the request is the same on every rank: one of them says it */
    const bool is_request = code == 2 || code == 3;
    if (st >= 0)
        return code;
    if (place.rank > 0 && is_request) {
        leave_it_to_rank_0();
        return code;
    }
    if (place.size > 1 && !is_request)
        (void)snprintf(who, sizeof who, "rank %d: ", place.rank);
    (void)fflush(stdout);
    (void)fprintf(stderr, "echelon: %s%serror:%s ", who, is_red ? "\033[1;31m" : "",
                  is_red ? "\033[0m" : "");
    print_message(st, message);
    if (level && strcmp(level, "debug") == 0)
        (void)fprintf(stderr, "  %s at %s\n", ech_status_name(st), ech_error_trail());
    return code;
}
