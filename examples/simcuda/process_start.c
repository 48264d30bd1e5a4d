#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t process_start_ticks(pid_t pid)
{
	char path[32], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	/* The command name is field 2. It may contain spaces and parentheses. */
	char *field = strrchr(text, ')');
	if (!field || field[1] == 0 || field[2] == 'Z')
		return 0;
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field ? strtoull(field + 1, NULL, 10) : 0;
}

bool state_slot_alive(const struct state_slot *slot)
{
	int32_t pid = atomic_load(&slot->pid);
	return pid > 0 && process_start_ticks(pid) == atomic_load(&slot->start_ticks);
}
