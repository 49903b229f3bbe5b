/*
 * SCLATE's part of libfaketime: its initialisation is entered once, also by a thread that comes back to it.
 *
 * The initialisation looks the real functions up; that may allocate; a program with an allocator of its own
 * may then ask for the time. It is answered by the kernel: in pthread_once it would wait for itself for ever.
 */
#include <sys/syscall.h>

static __thread bool initialising __attribute__((tls_model("initial-exec"))) = false;
static void ftpl_really_init(void);

static void first_init(void)
{
  initialising = true;
  ftpl_really_init();
  initialising = false;
}
