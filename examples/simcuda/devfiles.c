/*
 * devfiles: runs a command with simulated device files of the NVIDIA driver.
 *
 *	devfiles COMMAND [ARGUMENT…]
 *
 * The command sees /dev/nvidiactl, /dev/nvidia0 and /dev/nvidia-uvm, which are files of a tmpfs. So
 * mappings of simcuda have the names of the real driver's mappings in /proc/PID/maps. The files are
 * in a mount namespace of the command and its children. They disappear with the last of these
 * processes, and no other process sees them. It needs root, and executes the command in its own
 * process.
 */
#include "device_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	fprintf(stderr, "devfiles: %s: %m\n", what);
	exit(125);
}

static void bind_folder(int old, const char *name, mode_t mode)
{
	char from[512];
	snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", old, name);
	if (mkdir(name, mode & 07777) || mount(from, name, NULL, MS_BIND | MS_REC, NULL))
		fail(name);
}

static void copy_link(int old, const char *name)
{
	char to[512];
	ssize_t n = readlinkat(old, name, to, sizeof(to) - 1);
	if (n < 0)
		fail(name);
	to[n] = 0;
	if (symlink(to, name))
		fail(name);
}

static void copy_node(int old, const char *name)
{
	struct stat st;
	if (fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW))
		return; /* removed in the meantime */
	if (S_ISDIR(st.st_mode))
		bind_folder(old, name, st.st_mode);
	else if (S_ISLNK(st.st_mode))
		copy_link(old, name);
	else if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))
		if (mknod(name, st.st_mode, st.st_rdev) || chown(name, st.st_uid, st.st_gid))
			fail(name);
}

/* Copies the nodes of the old /dev into the current folder, except those of a real GPU. */
static void copy_nodes(int old)
{
	DIR *folder = fdopendir(dup(old));
	if (!folder)
		fail("/dev");
	for (struct dirent *entry; (entry = readdir(folder));) {
		const char *name = entry->d_name;
		if (strcmp(name, ".") && strcmp(name, "..") && strncmp(name, "nvidia", strlen("nvidia")))
			copy_node(old, name);
	}
	closedir(folder);
}

static uint64_t read_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Reads both clocks. The shortest of several readings has the smallest error. */
static void compare_clocks(struct device_file *header)
{
	enum { READINGS = 100 };
	uint64_t shortest = UINT64_MAX;
	for (int i = 0; i < READINGS; i++) {
		uint64_t before = read_ns(CLOCK_MONOTONIC), real = read_ns(CLOCK_REALTIME);
		uint64_t took = read_ns(CLOCK_MONOTONIC) - before;
		if (took >= shortest)
			continue;
		shortest = took;
		header->origin_ns = before;
		header->real_minus_monotonic_ns = (int64_t)(real - before - took / 2);
	}
}

/* Creates a device file. All processes that map it read the same header. */
static void create_device(const char *name, const struct device_file *header)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || fchmod(fd, 0666) || ftruncate(fd, DEVICE_FILE_HEADER) ||
	    pwrite(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header))
		fail(name);
	close(fd);
}

/* Mounts a tmpfs on /dev, which has the old nodes and the simulated ones. */
static void mount_devices(void)
{
	struct device_file header = {.magic = DEVICE_FILE_MAGIC, .used = DEVICE_FILE_HEADER};
	if (getrandom(&header.seed, sizeof(header.seed), 0) != (ssize_t)sizeof(header.seed))
		fail("getrandom");
	compare_clocks(&header);
	if (unshare(CLONE_NEWNS))
		fail("unshare");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fail("private mounts");
	int old = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (old < 0 || folder < 0)
		fail("/dev");
	if (mount("simcuda", "/dev", "tmpfs", MS_NOSUID, "mode=755") || chdir("/dev"))
		fail("tmpfs");
	copy_nodes(old);
	create_device("nvidiactl", &header);
	create_device("nvidia0", &header);
	create_device("nvidia-uvm", &header);
	if (fchdir(folder))
		fail("working directory");
	close(old);
	close(folder);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: devfiles COMMAND [ARGUMENT…]\n");
		return 2;
	}
	mode_t mask = umask(0); /* nodes get the modes of the originals */
	mount_devices();
	umask(mask);
	execvp(argv[1], argv + 1);
	fail(argv[1]);
}
