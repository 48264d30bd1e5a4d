/*
 * A file system of FUSE with one slow file, in the process that serves it. A read at offset 4096 × N
 * takes N µs. SIGUSR1 ends a read at once.
 */
#include "hostwaits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, ROOT = 1, FILE_NODE = 2, MINOR = 31, VALID_S = 1000000, BUFFER = 1 << 18 };

static int fuse;

static void reply(uint64_t unique, int error, const void *data, size_t size)
{
	struct fuse_out_header header = {.len = (uint32_t)(sizeof(header) + size), .error = -error, .unique = unique};
	struct iovec parts[] = {{&header, sizeof(header)}, {(void *)data, size}};
	if (writev(fuse, parts, size ? 2 : 1) < 0 && errno != ENOENT)
		fail("reply of the file server");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr a = {.ino = node, .nlink = 1, .blksize = PAGE};
	a.mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0444;
	a.size = node == ROOT ? 0 : 1ull << 60;
	return a;
}

static void answer_read(const struct fuse_in_header *in, const struct fuse_read_in *read)
{
	static const char zeros[BUFFER];
	sleep_ns(read->offset / PAGE * 1000);
	reply(in->unique, 0, zeros, read->size < BUFFER ? read->size : BUFFER);
}

static void answer(const struct fuse_in_header *in, const void *argument)
{
	switch (in->opcode) {
	case FUSE_INIT: {
		struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_write = 1 << 16};
		reply(in->unique, 0, &out, sizeof(out));
		break;
	}
	case FUSE_LOOKUP: {
		struct fuse_entry_out out = {.nodeid = FILE_NODE, .entry_valid = VALID_S, .attr_valid = VALID_S};
		out.attr = attributes(FILE_NODE);
		reply(in->unique, 0, &out, sizeof(out));
		break;
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out out = {.attr_valid = VALID_S, .attr = attributes(in->nodeid)};
		reply(in->unique, 0, &out, sizeof(out));
		break;
	}
	case FUSE_OPEN: {
		struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
		reply(in->unique, 0, &out, sizeof(out));
		break;
	}
	case FUSE_READ: answer_read(in, argument); break;
	case FUSE_RELEASE:
	case FUSE_FLUSH: reply(in->unique, 0, NULL, 0); break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT: break; /* they have no reply */
	default: reply(in->unique, ENOSYS, NULL, 0);
	}
}

/* The mount is visible in the namespace of the program, which must not be that of the machine. */
void serve_slow_file(const char *folder)
{
	static _Alignas(8) char buffer[BUFFER];
	char options[64];
	fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (fuse < 0 || mount("hostwaits", folder, "fuse", MS_NOSUID | MS_NODEV, options))
		fail("mount of the slow file");
	printf("serves %s\n", folder);
	fflush(stdout);
	for (;;) {
		ssize_t size = read(fuse, buffer, sizeof(buffer));
		if (size >= (ssize_t)sizeof(struct fuse_in_header))
			answer((void *)buffer, buffer + sizeof(struct fuse_in_header));
		else if (size < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
			exit(errno != ENODEV);
	}
}
