/* The wall clock as a test wants it: that many seconds ahead as the file of LEASES_CLOCK says. The clock since boot is
 * left alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t which, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, which, time), ahead;
    const char *name = getenv("LEASES_CLOCK");
    FILE *file = which == CLOCK_REALTIME && name ? fopen(name, "r") : 0;
    if (!file) return result;
    if (fscanf(file, "%ld", &ahead) == 1) time->tv_sec += ahead;
    fclose(file);
    return result;
}
