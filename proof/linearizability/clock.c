/* Sets the wall clock of the process that loads this library off by $CLOCK_OFFSET_SECONDS, in every other second. */

#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now)
{
    int status = syscall(SYS_clock_gettime, id, now);
    const char *offset = getenv("CLOCK_OFFSET_SECONDS");
    if (status == 0 && id == CLOCK_REALTIME && offset != NULL && now->tv_sec % 2 == 0)
        now->tv_sec += atol(offset);
    return status;
}
