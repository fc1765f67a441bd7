/* Counts the file operations below a folder, in all processes that load this, and fails or dies at one of them; or
   records them, in their order, with what they write.

   LD_PRELOAD brings it into Python, Java and DuckDB alike; the file that FAULTS_CONTROL names is mapped by all of them,
   and by the test that arms it (control.py has the same layout). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, COUNT, KILL, FREEZE, FULL, FAIL, RECORD };

struct control {
    uint32_t mode, at, count, struck;
    int32_t group; /* the processes that die together */
    char prefix[1024], what[32], where[1024];
    uint32_t lock; /* of the record: an operation and its entry are one */
};

/* One entry of the record; a path, another one and data follow it. power_cut.py has the same layout. */
struct entry {
    uint32_t kind, path, other, data;
    int64_t at;
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULTS_CONTROL");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *map = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        control = map;
}

static int armed(void) { return control && control->mode != OFF; }

static int below(const char *path) {
    size_t length = strlen(control->prefix);
    return !strncmp(path, control->prefix, length) && (path[length] == '/' || !path[length]);
}

static int of_fd(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, 1023);
    path[length < 0 ? 0 : length] = 0;
    return length > 0 && below(path);
}

static int of_path(int folder, const char *name, char *path) {
    if (name[0] == '/')
        snprintf(path, 1024, "%s", name);
    else if (folder == AT_FDCWD && getcwd(path, 1000))
        snprintf(path + strlen(path), 1024 - strlen(path), "/%s", name);
    else if (of_fd(folder, path))
        snprintf(path + strlen(path), 1024 - strlen(path), "/%s", name);
    return below(path);
}

/* The whole path of a name. */
static const char *whole(int folder, const char *name) {
    static __thread char path[1024];
    of_path(folder, name, path);
    return path;
}

static int recording(void) { return control->mode == RECORD; }

static void enter(void) {
    while (__sync_lock_test_and_set(&control->lock, 1))
        sched_yield();
}

static void leave(void) { __sync_lock_release(&control->lock); }

/* Adds an entry. Its data are those that the file has from ``at`` on. */
static void note(char kind, const char *path, const char *other, int64_t at, int64_t size) {
    static int record = -1;
    if (record < 0)
        record = syscall(SYS_openat, AT_FDCWD, getenv("FAULTS_RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char *bytes = malloc(size + 1);
    int fd = size ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    ssize_t read = fd < 0 ? 0 : pread(fd, bytes, size, at);
    if (fd >= 0)
        syscall(SYS_close, fd);
    struct entry entry = {kind, strlen(path), strlen(other), read < 0 ? 0 : read, at};
    struct iovec parts[] = {
        {&entry, sizeof entry}, {(char *)path, entry.path}, {(char *)other, entry.other}, {bytes, entry.data}};
    syscall(SYS_writev, record, parts, 4);
    free(bytes);
    control->count++;
}

/* After an operation on an open file: what it has written, or all that is on the disk by now. */
static void note_fd(const char *what, int fd, const char *path, int64_t done, int64_t at) {
    struct stat status;
    if (done < 0 || fstat(fd, &status) || !status.st_nlink)
        return;
    if (what[0] == 'f') /* fsync, fdatasync and ftruncate */
        note(what[1] == 't' ? 'L' : 'S', path, "", what[1] == 't' ? status.st_size : 0,
             what[1] == 't' || S_ISDIR(status.st_mode) ? 0 : status.st_size);
    else
        note('W', path, "", at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at, done);
}

/* After an operation on a name. ``there``: something was there before. */
static void note_path(const char *what, const char *path, const char *other, int there, int flags) {
    char kind = !strncmp(what, "open", 4)     ? (there ? 'L' : 'C')
                : !strncmp(what, "mkdir", 5)  ? 'M'
                : !strncmp(what, "rename", 6) ? 'N'
                : !strcmp(what, "link")       ? 'K'
                : !strcmp(what, "symlink")    ? 'Y'
                                              : 'U';
    if (kind != 'L' || flags & O_TRUNC)
        note(kind, path, other, 0, 0);
}

/* Returns the errno that the operation fails with; 0: it goes on. */
static int struck(const char *what, const char *path, int grows) {
    if (recording())
        return 0;
    uint32_t number = __sync_add_and_fetch(&control->count, 1), mode = control->mode;
    if (mode == COUNT || number < control->at || (mode == FAIL && number > control->at) || (mode == FULL && !grows))
        return 0;
    if (__sync_bool_compare_and_swap(&control->struck, 0, number)) {
        snprintf(control->what, sizeof control->what, "%s", what);
        snprintf(control->where, sizeof control->where, "%s", path);
    }
    if (mode == KILL) {
        kill(-control->group, SIGKILL);
        kill(getpid(), SIGKILL); /* Spark's Python processes are a group of their own */
    }
    return mode == FULL ? ENOSPC : EIO;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAILS(what, found, grows)                                                                                      \
    char path[1024];                                                                                                   \
    int failed = armed() && (found) ? struck(what, path, grows) : 0;                                                   \
    if (failed) {                                                                                                      \
        errno = failed;                                                                                                \
        return -1;                                                                                                     \
    }
#define OF_FD(result, name, grows, at, parameters, ...)                                                                \
    result name parameters {                                                                                           \
        FAILS(#name, of_fd(fd, path), grows)                                                                           \
        if (!armed() || !recording() || !of_fd(fd, path))                                                              \
            return REAL(name)(__VA_ARGS__);                                                                            \
        enter();                                                                                                       \
        result done = REAL(name)(__VA_ARGS__);                                                                         \
        int error = errno;                                                                                             \
        note_fd(#name, fd, path, done, at);                                                                            \
        leave();                                                                                                       \
        errno = error;                                                                                                 \
        return done;                                                                                                   \
    }
#define RECORDED(name, flags, other, ...)                                                                              \
    if (!armed() || !recording() || !below(path))                                                                      \
        return REAL(name)(__VA_ARGS__);                                                                                \
    enter();                                                                                                           \
    struct stat status;                                                                                                \
    int there = !lstat(path, &status);                                                                                 \
    int done = REAL(name)(__VA_ARGS__);                                                                                \
    int error = errno;                                                                                                 \
    if (done >= 0)                                                                                                     \
        note_path(#name, path, other, there, flags);                                                                   \
    leave();                                                                                                           \
    errno = error;                                                                                                     \
    return done;
#define OF_PATH(name, folder, grows, other, parameters, ...)                                                           \
    int name parameters {                                                                                              \
        FAILS(#name, of_path(folder, file, path), grows)                                                               \
        RECORDED(name, 0, other, __VA_ARGS__)                                                                          \
    }
#define OPENS(name, folder, parameters, ...)                                                                           \
    int name parameters {                                                                                              \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        FAILS("open", (flags & (O_CREAT | O_TRUNC)) && of_path(folder, file, path), flags &O_CREAT)                    \
        if (!(flags & (O_CREAT | O_TRUNC)))                                                                            \
            path[0] = 0; /* it changes nothing */                                                                      \
        RECORDED(name, flags, "", __VA_ARGS__, mode)                                                                   \
    }

OPENS(open, AT_FDCWD, (const char *file, int flags, ...), file, flags)
OPENS(open64, AT_FDCWD, (const char *file, int flags, ...), file, flags)
OPENS(openat, folder, (int folder, const char *file, int flags, ...), folder, file, flags)
OPENS(openat64, folder, (int folder, const char *file, int flags, ...), folder, file, flags)
OF_FD(ssize_t, write, 1, -1, (int fd, const void *data, size_t size), fd, data, size)
OF_FD(ssize_t, pwrite, 1, at, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
OF_FD(ssize_t, pwrite64, 1, at, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
OF_FD(ssize_t, writev, 1, -1, (int fd, const struct iovec *data, int count), fd, data, count)
OF_FD(ssize_t, sendfile, 1, -1, (int fd, int from, off_t *at, size_t size), fd, from, at, size)
OF_FD(ssize_t, sendfile64, 1, -1, (int fd, int from, off64_t *at, size_t size), fd, from, at, size)
OF_FD(ssize_t, copy_file_range, 1, at ? *at - done : -1,
      (int from, off64_t *from_at, int fd, off64_t *at, size_t size, unsigned flags), from, from_at, fd, at, size, flags)
OF_FD(int, ftruncate, 0, 0, (int fd, off_t size), fd, size)
OF_FD(int, ftruncate64, 0, 0, (int fd, off64_t size), fd, size)
OF_FD(int, fsync, 0, 0, (int fd), fd)
OF_FD(int, fdatasync, 0, 0, (int fd), fd)
OF_PATH(mkdir, AT_FDCWD, 1, "", (const char *file, mode_t mode), file, mode)
OF_PATH(mkdirat, folder, 1, "", (int folder, const char *file, mode_t mode), folder, file, mode)
OF_PATH(unlink, AT_FDCWD, 0, "", (const char *file), file)
OF_PATH(unlinkat, folder, 0, "", (int folder, const char *file, int flags), folder, file, flags)
OF_PATH(rmdir, AT_FDCWD, 0, "", (const char *file), file)
OF_PATH(remove, AT_FDCWD, 0, "", (const char *file), file)
OF_PATH(rename, AT_FDCWD, 0, whole(AT_FDCWD, from), (const char *from, const char *file), from, file)
OF_PATH(renameat, folder, 0, whole(old, from), (int old, const char *from, int folder, const char *file), old, from, folder,
        file)
OF_PATH(link, AT_FDCWD, 1, whole(AT_FDCWD, from), (const char *from, const char *file), from, file)
OF_PATH(symlink, AT_FDCWD, 1, whole(AT_FDCWD, from), (const char *from, const char *file), from, file)
