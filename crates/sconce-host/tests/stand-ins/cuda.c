/* A stand-in for libcuda.so.1 that plays the machine of a file. See README.md. For tests only. */
#include "machine.h"

#include <unistd.h>

#define API __attribute__((visibility("default"))) int

enum { NOT_INITIALIZED = 3 };

static struct machine machine;
static int started = NOT_INITIALIZED;

/* `cuinit N` is the CUresult; `cuinit hang` never returns, `cuinit crash` takes the process down. */
API cuInit(unsigned flags)
{
    const char *result;
    (void)flags;
    read_machine(&machine);
    result = find(machine.lines, machine.count, "cuinit");
    if (result && !strcmp(result, "hang"))
        for (;;) pause();
    if (result && !strcmp(result, "crash")) abort();
    started = result ? atoi(result) : 0;
    return started;
}

/* Does not need cuInit. */
API cuDriverGetVersion(int *version)
{
    const char *value;
    read_machine(&machine);
    value = find(machine.lines, machine.count, "cuda");
    *version = value ? atoi(value) : 0;
    return 0;
}

API cuDeviceGetCount(int *count)
{
    *count = machine.cards_count;
    return started;
}
