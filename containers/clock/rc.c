/*
 * SCLATE's part of libfaketime: where the offset comes from, and the lock around it.
 * build.py puts this text in the place of the library's own reader of control files.
 *
 * The control file holds "+SECONDS.NANOS" or "-SECONDS.NANOS", simulated minus real time. Its directory is
 * bind-mounted and the file is replaced by rename, so a reader sees the old offset or the new one, never less.
 * No file in a home directory and no environment variable names another one: all processes agree.
 */
#define SCLATE_CLOCK_RC "/run/sclate/clock/rc"

/*
 * One lock for all threads. Without the fork handlers a child forked while another thread reads the clock
 * would inherit the lock held, and hang at its own first read.
 */
static pthread_mutex_t time_mutex = PTHREAD_MUTEX_INITIALIZER;

static void sclate_lock(void)   { pthread_mutex_lock(&time_mutex); }
static void sclate_unlock(void) { pthread_mutex_unlock(&time_mutex); }

__attribute__((constructor)) static void sclate_fork_handlers(void)
{
  pthread_atfork(sclate_lock, sclate_unlock, sclate_unlock);
}

/*
 * Returns 1 when an offset is in force, 0 when none was ever read (the caller then takes real time).
 * A process that cannot open the file any more (no descriptor left, a seccomp filter) keeps the last offset.
 */
int read_config_file()
{
  static bool known = false;
  char text[64];
  ssize_t length = -1;
  int saved_errno = errno; /* reading a clock never sets errno */
  int fd = open(SCLATE_CLOCK_RC, O_RDONLY | O_CLOEXEC);

  if (fd != -1)
  {
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
  }
  errno = saved_errno;
  if (length <= 0 || (text[0] != '+' && text[0] != '-')) return known;
  text[length] = '\0';
  prepare_config_contents(text); /* strips the line end */
  parse_ft_string(text);
  known = true;
  return 1;
}
